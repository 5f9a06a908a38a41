"""Fit the roofline's few factors to measurements, holding on to what was known before.

Least squares on logarithms with a robust loss (soft L1): a job that waits for its input is off
by a factor of ten, and says nothing about the device. Every family counts alike, however many
of its configurations were measured. Times of few families that wait are left out of a second fit: though each
counts for little, together with the factors' priors it still draws all utilisations its way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.roofline import DEFAULT, Efficiency, Steps, StepTimes

__all__ = ["calibrate"]

Array = NDArray[np.float64]

_SPREAD = {
    "bandwidth": 0.15,
    "step_ms": 1.0,
    "overlap": 0.4,
    "convolution_traffic": 0.3,
    "other_traffic": 0.3,
}
"""How far a factor may be from the prior, as a standard deviation of its logarithm; 0.7 else."""
_USUAL_SPREAD = 0.7
_FREE = (
    "convolution",
    "matrix",
    "bandwidth",
    "kernel_us",
    "forward_us",
    "backward_us",
    "update_us",
    "step_ms",
    "overlap",
    "convolution_traffic",
    "other_traffic",
    "cache",
    "context_mib",
)
_SHARES = frozenset(("convolution", "matrix", "bandwidth"))
_SCALE = 0.2
"""Errors of a logarithm beyond this count less and less."""
_TIME_WEIGHT = 0.5
"""Of times against utilisations: what a host does besides is in times, and is not the device's."""
_WAITS = 1.0
"""A family whose median error of a logarithm is beyond this (a factor of 2.7) waits for what no graph shows."""
_FEW_WAIT = 0.2
"""As long as they are no more than this share of the families, the factors are fitted again without them."""
_UNKNOWN_SPREAD = 3.0
"""For rates of device types that nobody knows: nothing is known before."""


def calibrate(
    rows: Sequence[Observation], prior: Efficiency = DEFAULT, *, prior_weight: float = 1.0
) -> Efficiency:
    """Factors that fit the rows.

    Parameters
    ----------
    rows : sequence of Observation
        Whatever of an observation is missing is left out.
    prior : Efficiency
        Kept where the rows say nothing.
    prior_weight : float
        Of the prior against one family.
    """
    from scipy.optimize import least_squares

    if not rows:
        return prior
    problem = _Problem(rows, prior, prior_weight)
    solved = least_squares(problem.residuals, problem.start, bounds=problem.bounds, max_nfev=60)
    waits = problem.waits(solved.x)
    if waits and len(waits) <= _FEW_WAIT * len(set(problem.families.tolist())):
        problem = _Problem([_untimed(r) if r.family in waits else r for r in rows], prior, prior_weight)
        solved = least_squares(problem.residuals, solved.x, bounds=problem.bounds, max_nfev=60)
    return problem.efficiency(solved.x)


def _untimed(row: Observation) -> Observation:
    """What of a row says nothing of time: its memory."""
    return msgspec.structs.replace(
        row, iteration_s=None, gpu_util=None, mem_util=None, busy_s=None, moved_bytes=None
    )


class _Problem:
    def __init__(self, rows: Sequence[Observation], prior: Efficiency, prior_weight: float) -> None:
        self.prior = prior
        self.start = np.log([getattr(prior, name) for name in _FREE])
        unknown = not all(row.rates.known for row in rows)
        self.spread = np.array([_spread(name, unknown) for name in _FREE]) / np.sqrt(prior_weight)
        # Nobody gets more than the datasheet says, where there is one.
        most = [np.inf if unknown or name not in _SHARES else 0.0 for name in _FREE]
        self.bounds = (-np.inf, np.array(most))
        self.steps = Steps([row.work for row in rows], [row.rates for row in rows])
        sizes = Counter(row.family for row in rows)
        self.families = np.array([row.family for row in rows])
        self.weight = np.sqrt(np.array([1.0 / sizes[row.family] for row in rows]))
        self.terms = [
            _term(rows, "iteration_s", lambda t: np.log(t.iteration_s), np.log, _TIME_WEIGHT),
            _term(rows, "gpu_util", lambda t: np.log1p(t.gpu_util), np.log1p, 1.0),
            _term(rows, "mem_util", lambda t: np.log1p(t.mem_util), np.log1p, 1.0),
            _term(rows, "busy_s", lambda t: np.log(t.busy_s), np.log, 1.0),
            _term(rows, "mem_mib", lambda t: np.log(t.memory_mib), np.log, 1.0),
            _term(rows, "moved_bytes", lambda t: np.log(t.traffic_bytes + 1.0), np.log, 1.0),
        ]

    def efficiency(self, theta: Array) -> Efficiency:
        values = np.exp(np.clip(theta, -25.0, 25.0))
        changes = dict(zip(_FREE, map(float, values), strict=True))
        return msgspec.structs.replace(self.prior, **changes)

    def waits(self, theta: Array) -> set[str]:
        """Families whose iteration or utilisation the roofline is far from."""
        times = self.steps.times(self.efficiency(theta))
        found: set[str] = set()
        for where, truth, predict, _ in self.terms[:2]:
            names, off = self.families[where], np.abs(predict(times)[where] - truth)
            found.update(str(name) for name in np.unique(names) if np.median(off[names == name]) > _WAITS)
        return found

    def residuals(self, theta: Array) -> Array:
        times = self.steps.times(self.efficiency(theta))
        parts = [
            weight * self.weight[where] * _robust(predict(times)[where] - truth)
            for where, truth, predict, weight in self.terms
            if len(where)
        ]
        return np.concatenate([*parts, _SCALE * (theta - self.start) / self.spread])


_Term = tuple[NDArray[np.intp], Array, Callable[[StepTimes], Array], float]


def _term(
    rows: Sequence[Observation],
    field: str,
    predict: Callable[[StepTimes], Array],
    link: Callable[[Array], Array],
    weight: float,
) -> _Term:
    values = np.array([np.nan if (v := getattr(row, field)) is None else v for row in rows], float)
    where = np.flatnonzero(np.isfinite(values))
    return where, link(values[where]), predict, weight


def _robust(error: Array) -> Array:
    """Signed root of the soft L1 loss: quadratic up to ``_SCALE``, then linear."""
    loss = 2.0 * _SCALE**2 * (np.sqrt(1.0 + (error / _SCALE) ** 2) - 1.0)
    found: Array = np.sign(error) * np.sqrt(loss)
    return found


def _spread(name: str, unknown: bool) -> float:
    if unknown and name in {"convolution", "matrix", "bandwidth", "kernel_us"}:
        return _UNKNOWN_SPREAD
    return _SPREAD.get(name, _USUAL_SPREAD)
