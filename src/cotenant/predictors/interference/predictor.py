"""Adaptive prediction of interference: the estimator.

Named after AIP, which keeps several prediction techniques and for each device and job set takes
the one with the least error. Here that choice is made by grouped cross-validation in closed
form, shrunk, and averaged over those near the best (``selection``); memory decides first
whether jobs fit at all (``memory``); and intervals are conformal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.predictors.interference.cases import ELSEWHERE, KNOWN, NEVER
from cotenant.predictors.interference.group import WorldGroup
from cotenant.predictors.interference.jobs import SoloIndex, World
from cotenant.predictors.interference.links import MAX_SPEED, MIN_SPEED
from cotenant.predictors.interference.rows import IMPLAUSIBLE, plausible
from cotenant.predictors.interference.selection import Choice
from cotenant.predictors.interference.worlds import linked_worlds
from cotenant.predictors.interference.zoo import member_names
from cotenant.profiles.runs import CoRun, JobConfig, SoloRun

__all__ = ["AdaptiveInterferencePredictor", "SidePrediction"]

Array = NDArray[np.float64]

_DRIFT = 1.5
_WINDOW = 20


class SidePrediction(msgspec.Struct, frozen=True, gc=False):
    """Prediction for one job of a set.

    Parameters
    ----------
    mean, low, high : float
        Speed beside the others over speed alone, and its 90% interval; in [0.02, 1], but up to 1.2
        where it was asked for in the scale of labels as published.
    fits : bool or None
        Whether the set is predicted to fit the device's memory; None if that cannot be told.
    novelty : int
        0: measured here; 1: measured elsewhere only; 2: nothing but its solo run; 3: nothing.
    memory_known : bool
        Whether anything tells how much memory this job needs here.
    """

    mean: float
    low: float
    high: float
    fits: bool | None
    novelty: int
    memory_known: bool = True


class AdaptiveInterferencePredictor:
    """How much jobs on one device slow each other down.

    Parameters
    ----------
    zoo : str or sequence of str
        Members to choose from: a name in ``zoo.ZOOS``, or members, as a sequence or with commas
        between.

    Raises
    ------
    UnknownNameError
        For a zoo or member that there is not.

    Examples
    --------
    >>> from cotenant.profiles.runs import CoSide
    >>> jobs = [JobConfig(model=name) for name in "ABCD"]
    >>> runs = [
    ...     CoRun(row_id=f"{a.model}{b.model}", source="own", device_type="T4",
    ...           sides=(CoSide(job=a, speed=0.6), CoSide(job=b, speed=0.8)))
    ...     for a in jobs for b in jobs if a < b
    ... ]
    >>> predictor = AdaptiveInterferencePredictor(zoo="small").fit(runs)
    >>> found = predictor.predict_set(("own", "T4"), [jobs[0], jobs[3]])
    >>> [round(side.mean, 1) for side in found]
    [0.6, 0.8]
    """

    def __init__(self, *, zoo: str | Sequence[str] = "quick") -> None:
        member_names(zoo)
        self.zoo = zoo

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters, as scikit-learn asks for them."""
        return {"zoo": self.zoo}

    def set_params(self, **params: Any) -> AdaptiveInterferencePredictor:
        """Change parameters; takes effect with the next ``fit``."""
        for name, value in params.items():
            if name not in self.get_params():
                raise UnknownNameError("parameter", name, self.get_params())
            setattr(self, name, value)
        return self

    def fit(
        self,
        runs: Iterable[CoRun],
        solos: Iterable[SoloRun] = (),
        *,
        choices: Mapping[str, Mapping[str, Choice]] | None = None,
    ) -> AdaptiveInterferencePredictor:
        """Learn from co-runs and solo runs.

        Parameters
        ----------
        runs : iterable of CoRun
            Sets of two or more; those that were never tried are passed over. Speeds above
            ``rows.IMPLAUSIBLE`` are not learnt from; ``implausible`` counts them.
        solos : iterable of SoloRun
        choices : mapping, optional
            As ``choices``: of an earlier fit, then nothing is judged again.

        Raises
        ------
        ConfigError
            If there is no usable label.
        """
        self.runs, self.implausible = plausible(run for run in runs if run.status != "unmeasured")
        self.solos = list(solos)
        self._index = SoloIndex(self.solos)
        names = self.names = member_names(self.zoo)
        linked = linked_worlds(self.runs)
        if not linked:
            why = (
                f" ({self.implausible} above {IMPLAUSIBLE:g}, which is implausible)"
                if self.implausible
                else ""
            )
            raise ConfigError(f"no usable speed among the co-runs{why}; nothing can be learnt from them")
        self._groups: list[WorldGroup] = []
        self._of: dict[World, WorldGroup] = {}
        for worlds in linked:
            group = WorldGroup(worlds, names, self._index)
            known = None if choices is None else _decoded(choices, worlds, self._runs_of(worlds))
            group.fit(self._runs_of(worlds), known)
            self._groups.append(group)
            self._of.update(dict.fromkeys(worlds, group))
        self._errors: dict[World, list[float]] = {}
        self._stale: set[World] = set()
        self.reselections = 0
        return self

    def _runs_of(self, worlds: Sequence[World]) -> list[CoRun]:
        wanted = set(worlds)
        return [run for run in self.runs if (run.source, run.device_type) in wanted]

    @property
    def worlds(self) -> list[World]:
        """Campaign and device type of everything that was learnt from."""
        return sorted(self._of)

    @property
    def choices(self) -> dict[str, dict[str, Choice]]:
        """What is used where: world as ``campaign|device type``, then novelty."""
        self._refit()
        found: dict[str, dict[str, Choice]] = {}
        for group in self._groups:
            for (world, novelty), choice in group.choices.items():
                label = "|".join(group.table.worlds[world])
                found.setdefault(label, {})[str(novelty)] = choice
        return found

    def group_of(self, world: World) -> tuple[WorldGroup, bool]:
        """The models for a world, and whether anything was measured in it.

        For one that is new: those of the same campaign or device type, else of the most rows.
        """
        self._refit()
        found = self._of.get(world)
        if found is not None:
            return found, True

        def near(group: WorldGroup) -> tuple[bool, bool, int]:
            return (
                any(w[1] == world[1] for w in group.worlds),
                any(w[0] == world[0] for w in group.worlds),
                len(group.rows),
            )

        return max(self._groups, key=near), False

    def predict_set(self, world: World, jobs: Sequence[JobConfig]) -> list[SidePrediction]:
        """Prediction for each job of a set, re-based."""
        return self.predict_sets(world, [tuple(jobs)])[0]

    def predict_sets(
        self, world: World, sets: Sequence[Sequence[JobConfig]], *, as_published: bool = False
    ) -> list[list[SidePrediction]]:
        """Predictions for sets of jobs in one world.

        Parameters
        ----------
        world : tuple of str
            Campaign and device type.
        sets : sequence of sequences of JobConfig
            Two or more jobs each.
        as_published : bool
            In the scale of the world's own labels, whose baselines may be too low and whose noise
            reaches above 1, rather than re-based: then nobody is faster beside others than alone.
        """
        group, measured = self.group_of(world)
        table = group.table
        table.add([(job, world) for jobs in sets for job in jobs])
        ids = [[table.ids[(job, world)] for job in jobs] for jobs in sets]
        need, told = group.memory.needs()[0], group.memory_told()
        victim = np.array([v for nodes in ids for v, _ in _ordered(nodes)], np.intp)
        other = np.array([o for nodes in ids for _, o in _ordered(nodes)], np.intp)
        pairs = group.predict_pairs(victim, other)
        known = np.array([table.known(node) for node in range(len(table.names))], np.bool_)
        far = np.full(len(victim), not measured) | (~known[victim] & (pairs.novelty > KNOWN))
        top = MAX_SPEED if as_published else 1.0
        mean, low, high = (np.minimum(v, top) for v in _widened(pairs.mean, pairs.low, pairs.high, far))
        found, at = [], 0
        for nodes, jobs in zip(ids, sets, strict=True):
            fits = group.memory.verdict(nodes, need, told)
            sides = []
            for node, job in zip(nodes, jobs, strict=True):
                part = slice(at, at + len(nodes) - 1)
                at += len(nodes) - 1
                values = _composed(mean[part], low[part], high[part], group)
                scale = group.scale((job, world)) if as_published else 1.0
                novelty = max(int(pairs.novelty[part].max(initial=KNOWN)), KNOWN)
                if not known[node] and novelty > KNOWN:
                    novelty = NEVER + 1
                side = _side([value * scale for value in values], top, fits, novelty, measured)
                sides.append(side if told[node] else msgspec.structs.replace(side, memory_known=False))
            found.append(sides)
        return found

    def predict(self, runs: Sequence[CoRun], *, as_published: bool = True) -> list[list[SidePrediction]]:
        """Predictions for the sides of co-runs; their labels are not read."""
        found: list[list[SidePrediction]] = [[] for _ in runs]
        worlds: dict[World, list[int]] = {}
        for i, run in enumerate(runs):
            worlds.setdefault((run.source, run.device_type), []).append(i)
        for world, rows in worlds.items():
            sets = [[side.job for side in runs[i].sides] for i in rows]
            for i, sides in zip(rows, self.predict_sets(world, sets, as_published=as_published), strict=True):
                found[i] = sides
        return found

    def observe(self, runs: Sequence[CoRun]) -> None:
        """Learn from further co-runs: of an unseen job, one or two sharpen all about it.

        The choice among members stays until the mean error of the last 20 observed speeds of a
        world exceeds 1.5 times the error that was expected when it was made.
        """
        runs, wrong = plausible(runs)
        self.implausible += wrong
        fresh = [run for run in runs if run.status == "ok"]
        for run, sides in zip(fresh, self.predict(fresh), strict=True):
            world = (run.source, run.device_type)
            for measured, said in zip(run.sides, sides, strict=True):
                if measured.usable and measured.speed is not None:
                    self._errors.setdefault(world, []).append(abs(measured.speed - said.mean))
        self.runs.extend(run for run in runs if run.status != "unmeasured")
        self._stale.update((run.source, run.device_type) for run in runs)

    def drifted(self, world: World) -> bool:
        """Whether live errors of a world are far above those that were expected."""
        errors = self._errors.get(world, [])[-_WINDOW:]
        group = self._of.get(world)
        if group is None or len(errors) < _WINDOW:
            return False
        expected = group.choice(group.table.worlds.index(world), KNOWN).error
        return float(np.mean(errors)) > _DRIFT * max(expected, 0.01)

    def _refit(self) -> None:
        stale, self._stale = self._stale, set()
        if not stale:
            return
        if any(world not in self._of for world in stale):
            errors, count = self._errors, self.reselections
            self.fit(self.runs, self.solos)
            self._errors, self.reselections = errors, count + 1
            return
        for group in self._groups:
            here = stale.intersection(group.worlds)
            if here:
                drift = [world for world in here if self.drifted(world)]
                group.fit(self._runs_of(group.worlds), None if drift else group.choices)
                self.reselections += bool(drift)
                for world in drift:
                    self._errors[world] = []

    def suggest(
        self,
        job: JobConfig,
        world: World,
        *,
        partners: Sequence[JobConfig] | None = None,
        count: int = 2,
        planned: Sequence[tuple[JobConfig, JobConfig]] = (),
    ) -> list[JobConfig]:
        """Which partners to measure a job beside, so that all about it becomes least uncertain.

        Greedy choice of the co-run that removes most of the remaining variance of the job's
        speeds beside every partner and of every partner's beside it (A-optimal design).

        Parameters
        ----------
        job : JobConfig
        world : World
        partners : sequence of JobConfig, optional
            Who can be measured beside it; by default every job measured in the world.
        count : int
        planned : sequence of pairs of JobConfig
            Co-runs that will be measured anyway, for example those suggested for like jobs.
        """
        group, _ = self.group_of(world)
        known = sorted({n[0] for n in group.table.names if n[1] == world and n[0] != job})
        pool = list(partners) if partners is not None else known
        fitting = [p for p in pool if self._fit_together(group, world, job, p)]
        return group.most_telling(job, world, fitting or pool, count, planned)

    @staticmethod
    def _fit_together(group: WorldGroup, world: World, job: JobConfig, partner: JobConfig) -> bool:
        group.table.add([(job, world), (partner, world)])
        nodes = [group.table.ids[(job, world)], group.table.ids[(partner, world)]]
        return group.memory.verdict(nodes, group.memory.needs()[0], group.memory_told()) is not False


def _ordered(nodes: Sequence[int]) -> list[tuple[int, int]]:
    return [(v, o) for i, v in enumerate(nodes) for j, o in enumerate(nodes) if i != j]


def _composed(mean: Array, low: Array, high: Array, group: WorldGroup) -> tuple[float, float, float]:
    """Speed of a set from those of its pairs: slowdowns minus one add up, times the set's gain.

    Errors of the pairs add up as if independent, relative to their speeds: so a set is, in
    proportion, never surer than its least sure pair.
    """
    if len(mean) == 1:
        return float(mean[0]), float(low[0]), float(high[0])
    if not len(mean):
        return 1.0, 1.0, 1.0
    excess = np.sort(np.maximum(1.0 / mean - 1.0, 0.0))
    total = float(excess.sum()) * group.set_gain
    speed = max(1.0 / (1.0 + total), MIN_SPEED)
    below = float(np.sqrt(np.sort((1.0 - low / mean) ** 2).sum()))
    above = float(np.sqrt(np.sort((high / mean - 1.0) ** 2).sum()))
    return speed, speed - max(below * speed, group.set_error), speed + max(above * speed, group.set_error)


def _widened(mean: Array, low: Array, high: Array, far: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Speeds of pairs and their intervals, half as wide again where nothing was measured of job or device type."""
    down, up = mean - low, high - mean
    low = np.where(far, np.maximum(mean - 1.5 * down - 0.05, MIN_SPEED), low)
    high = np.where(far, np.minimum(mean + 1.5 * up + 0.05, MAX_SPEED), high)
    return mean, np.minimum(low, mean), np.maximum(high, mean)


def _side(
    values: Sequence[float], top: float, fits: bool | None, novelty: int, measured: bool
) -> SidePrediction:
    mean, low, high = values
    mean = min(max(mean, MIN_SPEED), top)
    return SidePrediction(
        mean=mean,
        low=min(max(low, MIN_SPEED), mean),
        high=max(min(high, top), mean),
        fits=fits,
        novelty=novelty if measured else max(novelty, ELSEWHERE),
    )


def _decoded(
    choices: Mapping[str, Mapping[str, Choice]], worlds: Sequence[World], runs: Sequence[CoRun]
) -> dict[tuple[int, int], Choice]:
    """Choices by the numbers that a table of these runs will give to its worlds."""
    order = list(dict.fromkeys((run.source, run.device_type) for run in runs))
    return {
        (order.index(world), int(novelty)): choice
        for world in worlds
        if world in order
        for novelty, choice in choices.get("|".join(world), {}).items()
    }
