"""Predict what a job uses alone, learning from solo runs what the roofline gets wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.errors import UnknownNameError
from cotenant.model.ports import Interval
from cotenant.predictors.resources.calibration import calibrate
from cotenant.predictors.resources.features import design
from cotenant.predictors.resources.folds import balanced, family_folds, family_quantile, rms
from cotenant.predictors.resources.learners import CANDIDATES, SIMPLICITY, Candidate
from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.roofline import DEFAULT, DeviceRates, Efficiency, step_times
from cotenant.predictors.resources.targets import TARGETS, truths
from cotenant.predictors.resources.work import StepWork

__all__ = ["FEWEST_FAMILIES", "UNFITTED_DOUBT", "ResourceForecast", "ResourcePredictor", "TargetFit"]

Array = NDArray[np.float64]

_TIE, _SAME = 0.02, 0.005
FEWEST_FAMILIES = 4
"""With fewer the roofline's factors are fitted and nothing is learnt over it: a fold would know two."""

_NARROWEST = 0.02
"""Half width at least: a utilisation that is always 100 says nothing of how sure the next one is."""

_USUAL = ("roofline", "roofline+linear", "roofline+forest", "roofline+boosting")
"""What needs no extra, over the roofline: without it, unseen families are predicted far worse."""

UNFITTED_DOUBT: Mapping[str, float] = {
    "gpu_util": 0.4,
    "mem_util": 0.8,
    "iteration_s": 0.8,
    "busy_s": 0.6,
    "moving_s": 0.8,
}
"""Half widths of the roofline's intervals without a fit, on each target's logarithmic scale: set by
hand; how often they hold is measured in docs/prediction/resources.md. Memory has the memory
model's own P95."""


class ResourceForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What one job uses alone on one device type.

    Parameters
    ----------
    name, device_type : str
    gpu_util, mem_util : Interval
        Per cent.
    iteration_s : Interval
    mem_mib : Interval
    iteration_known : bool
        Whether the iteration time was given and not predicted.
    """

    name: str
    device_type: str
    gpu_util: Interval
    mem_util: Interval
    iteration_s: Interval
    mem_mib: Interval
    iteration_known: bool = False


class TargetFit(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for one target, and how it did on families that it had not seen.

    Parameters
    ----------
    target : str
    learner : str
        A name of ``learners.CANDIDATES``.
    errors : dict of str to float
        Root mean square error of each candidate on the target's scale (RMSLE), grouped by
        family.
    doubt : float
        Half width of the interval on that scale.
    rows, families : int
    """

    target: str
    learner: str
    errors: dict[str, float]
    doubt: float
    rows: int
    families: int


class ResourcePredictor:
    """Roofline with factors and errors fitted to solo runs.

    Parameters
    ----------
    learners : sequence of str
        Candidates (``learners.CANDIDATES``); the one with the smallest error on unseen families
        is used for each target, and of those within 2% the simplest. Targets with fewer than
        ``FEWEST_FAMILIES`` families are predicted by the roofline, whatever the candidates.
    coverage : float
        Of the intervals.
    folds : int
        At most, in choosing; families are never split.
    seed : int
    prior : Efficiency
        Factors that hold where the runs say nothing.

    Attributes
    ----------
    efficiency_ : Efficiency
    fits_ : dict of str to TargetFit
        By target; those without rows are missing, and predicted by the roofline alone.
    device_types_ : tuple of str
        Those that it was fitted on.
    rates_ : dict of str to DeviceRates
        Rates of those types, as the catalogue had them.
    """

    def __init__(
        self,
        *,
        learners: Sequence[str] = _USUAL,
        coverage: float = 0.9,
        folds: int = 10,
        seed: int = 0,
        prior: Efficiency = DEFAULT,
    ) -> None:
        for name in learners:
            if name not in CANDIDATES:
                raise UnknownNameError("learner", name, CANDIDATES)
        self.learners, self.coverage, self.folds = tuple(learners), coverage, folds
        self.seed, self.prior = seed, prior
        self.efficiency_ = prior
        self.fits_: dict[str, TargetFit] = {}
        self.device_types_: tuple[str, ...] = ()
        self.rates_: dict[str, DeviceRates] = {}
        self.models_: dict[str, Candidate] = {}
        self.data_: dict[str, TrainingSet] = {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters as given, scikit-learn's convention."""
        return {name: getattr(self, name) for name in ("learners", "coverage", "folds", "seed", "prior")}

    def set_params(self, **params: Any) -> ResourcePredictor:
        """Change parameters; unfits."""
        self.__init__(**(self.get_params() | params))  # type: ignore[misc]
        return self

    def fit(self, rows: Sequence[Observation]) -> ResourcePredictor:
        """Fit to solo runs; with none of them this is the roofline."""
        self.efficiency_ = calibrate(rows, self.prior)
        self.fits_, self.models_, self.data_ = {}, {}, {}
        self.device_types_ = tuple(sorted({row.rates.name for row in rows}))
        self.rates_ = {row.rates.name: row.rates for row in rows}
        if not rows:
            return self
        learners = tuple(dict.fromkeys(("roofline", *self.learners)))
        out = out_of_fold(rows, learners, folds=self.folds, seed=self.seed, prior=self.prior)
        whole = training_sets(rows, self.efficiency_)
        for name, data in whole.items():
            able = self.learners if _enough(data.families) else ("roofline",)
            usable = {learner: out[name][learner] for learner in able}
            self.fits_[name] = _choose(name, usable, data, self.coverage)
            self.models_[name] = Candidate(self.fits_[name].learner, seed=self.seed).fit(
                data.x, data.base, data.y, balanced(data.families)
            )
        self.data_ = whole
        return self

    def predict(
        self,
        works: Sequence[StepWork],
        rates: Sequence[DeviceRates],
        *,
        iteration_s: Sequence[float] | None = None,
    ) -> list[ResourceForecast]:
        """What n jobs use on n devices.

        Parameters
        ----------
        works : sequence of StepWork
        rates : sequence of DeviceRates
            As many.
        iteration_s : sequence of float, optional
            Measured seconds of a step, from a light sample of each job on its device: then
            utilisation is the predicted time in kernels over it, which is far surer.

        Notes
        -----
        On device types that it was not fitted on, intervals are at least as wide as without a fit.
        """
        times = step_times(works, rates, self.efficiency_)
        x = design(works, rates, times)
        known = np.full(len(works), np.nan) if iteration_s is None else np.asarray(iteration_s, float)
        unseen = np.array([one.name not in self.device_types_ for one in rates], bool)
        found = {
            name: self._target(name, x, target.linked_base(times, known), works, unseen)
            for name, target in TARGETS.items()
        }
        if iteration_s is not None:
            found["gpu_util"] = 100.0 * np.minimum(found["busy_s"] / known[:, None], 1.0)
            found["mem_util"] = 100.0 * np.minimum(found["moving_s"] / known[:, None], 1.0)
            found["iteration_s"] = np.repeat(known[:, None], 3, axis=1)
        return [
            ResourceForecast(
                name=work.name,
                device_type=device.name,
                iteration_known=iteration_s is not None,
                **{name: Interval(*map(float, found[name][i])) for name in _SHOWN},
            )
            for i, (work, device) in enumerate(zip(works, rates, strict=True))
        ]

    def _target(
        self, name: str, x: Array, linked: Array, works: Sequence[StepWork], unseen: NDArray[np.bool_]
    ) -> Array:
        """Mean, low and high of a target, shape (n, 3)."""
        target = TARGETS[name]
        model = self.models_.get(name)
        middle = linked if model is None else model.predict(x, linked)
        fit = self.fits_.get(name)
        doubt = _unfitted(name, works)
        if fit is not None:
            # Errors on unseen families of the types that were measured say little of other types.
            doubt = np.where(unseen, np.maximum(doubt, fit.doubt), fit.doubt)
        return np.column_stack([target.back(middle + sign * doubt) for sign in (0.0, -1.0, 1.0)])


def _unfitted(name: str, works: Sequence[StepWork]) -> Array:
    if name != "mem_mib":
        return np.full(len(works), UNFITTED_DOUBT[name])
    known = [(w.memory_high_bytes / w.memory_bytes if w.memory_bytes else 2.0) for w in works]
    return np.log(np.maximum(known, 1.05))


_SHOWN = ("gpu_util", "mem_util", "iteration_s", "mem_mib")


class TrainingSet(msgspec.Struct, frozen=True):
    """Rows of one target as numbers.

    Parameters
    ----------
    where : ndarray of intp, shape (n,)
        Which observations have it.
    x : ndarray, shape (n, features)
    base, y : ndarray, shape (n,)
        Roofline and truth through the link.
    families : list of str
    """

    where: NDArray[np.intp]
    x: Array
    base: Array
    y: Array
    families: list[str]


def training_sets(rows: Sequence[Observation], efficiency: Efficiency) -> dict[str, TrainingSet]:
    """Numbers of every target that occurs."""
    works, rates = [row.work for row in rows], [row.rates for row in rows]
    times = step_times(works, rates, efficiency)
    x = design(works, rates, times)
    known = np.array([np.nan if row.iteration_s is None else row.iteration_s for row in rows], float)
    found = {}
    for name, target in TARGETS.items():
        y = truths(target, rows)
        where = np.flatnonzero(np.isfinite(y))
        if len(where):
            base = target.linked_base(times, known)
            families = [rows[int(i)].family for i in where]
            found[name] = TrainingSet(where, x[where], base[where], target.link(y[where]), families)
    return found


def out_of_fold(
    rows: Sequence[Observation],
    learners: Sequence[str],
    *,
    folds: int = 10,
    seed: int = 0,
    prior: Efficiency = DEFAULT,
) -> dict[str, dict[str, Array]]:
    """Answers of every candidate for families that neither it nor the factors had seen.

    Returns
    -------
    dict
        Target to candidate to answers on the target's scale, one for each row of its
        ``TrainingSet`` on all rows.
    """
    shapes = training_sets(rows, prior)
    out = {name: {c: np.full(len(data.y), np.nan) for c in learners} for name, data in shapes.items()}
    for seen, held in family_folds([row.family for row in rows], folds):
        # With one family only there is nothing else to learn from: the prior alone is judged.
        efficiency = calibrate([rows[int(i)] for i in seen], prior)
        sets = training_sets(rows, efficiency)
        held_rows = set(held.tolist())
        for name, data in sets.items():
            inside = np.array([i not in held_rows for i in data.where], bool)
            families = [f for f, keep in zip(data.families, inside, strict=True) if keep]
            for candidate in learners:
                model = Candidate(candidate, seed=seed)
                if _enough(data.families):
                    model.fit(data.x[inside], data.base[inside], data.y[inside], balanced(families))
                out[name][candidate][~inside] = model.predict(data.x[~inside], data.base[~inside])
    return out


def _enough(families: Sequence[str]) -> bool:
    return len(set(families)) >= FEWEST_FAMILIES


def _doubt(errors: Array, families: Sequence[str], coverage: float) -> float:
    """Half width that covers an unseen family's rows.

    Few families say little about the next one, so the level is raised (split-conformal, with
    families in place of rows). Those that are off by more than a factor of 2.7 wait for something
    that no graph shows: where they are fewer than may be missed, they are missed, or every
    interval would have their width.
    """
    names = np.array(families)
    kinds = sorted(set(families))
    waits = [kind for kind in kinds if np.median(errors[names == kind]) > 1.0]
    keep = np.ones(len(names), bool)
    if len(waits) <= (1.0 - coverage) * len(kinds) + 1e-9:
        keep = ~np.isin(names, waits)
    left = len(kinds) - len(set(names[~keep]))
    level = min(coverage * (1.0 + 1.0 / left), 1.0)
    return family_quantile(errors[keep], names[keep].tolist(), level)


def _choose(name: str, out: Mapping[str, Array], data: TrainingSet, coverage: float) -> TargetFit:
    target = TARGETS[name]
    off = {c: target.link(target.back(answers)) - data.y for c, answers in out.items()}
    # Families alike, and no single one decides: a job that waits for its input is off by a factor
    # of ten whatever one learns.
    weight = balanced(data.families)
    score = {c: float(np.mean(weight * np.minimum(np.abs(errors), 1.0))) for c, errors in off.items()}
    best = min(score.values())
    near = [c for c in off if score[c] <= best * (1 + _TIE) + _SAME]
    chosen = min(near, key=lambda c: SIMPLICITY[c])
    doubt = _doubt(np.abs(off[chosen]), data.families, coverage)
    if not _enough(data.families):
        # What two or three families did says too little of the next one.
        doubt = max(doubt, UNFITTED_DOUBT.get(name, 0.0))
    return TargetFit(
        target=name,
        learner=chosen,
        errors={c: round(rms(errors), 4) for c, errors in off.items()},
        doubt=max(doubt, _NARROWEST),
        rows=len(data.y),
        families=len(set(data.families)),
    )
