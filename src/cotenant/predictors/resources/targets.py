"""What is predicted, on which scale, and what the roofline says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.model.quantities import MIB
from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.roofline import StepTimes
from cotenant.predictors.resources.work import StepWork

__all__ = ["TARGETS", "Target", "memory_mib"]

Array = NDArray[np.float64]

_CONTEXT_MIB = 430.0
"""Where the memory model was not asked: what a process holds besides tensors."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity.

    Parameters
    ----------
    name : str
    unit : str
    percent : bool
        On the scale log(1 + per cent) and at most 100; else on the logarithm.
    base : callable
        ``(times, works) -> array``: the roofline's answer in the quantity's unit.
    truth : callable
        ``observation -> float or None``.
    """

    name: str
    unit: str
    percent: bool
    base: Callable[[StepTimes, Sequence[StepWork]], Array]
    truth: Callable[[Observation], float | None]

    def link(self, values: Array) -> Array:
        """From the quantity to the scale on which it is learnt and judged."""
        return np.log1p(values) if self.percent else np.log(np.maximum(values, 1e-9))

    def back(self, linked: Array) -> Array:
        """From that scale to the quantity."""
        if self.percent:
            return np.clip(np.expm1(linked), 0.0, 100.0)
        found: Array = np.exp(linked)
        return found


def memory_mib(work: StepWork) -> float:
    """What the memory model says, or tensors and a context where it was not asked."""
    if work.memory_bytes:
        return work.memory_bytes / MIB
    return work.peak_bytes / MIB + _CONTEXT_MIB


def _memory(times: StepTimes, works: Sequence[StepWork]) -> Array:
    return np.array([memory_mib(work) for work in works], float)


def _busy(row: Observation) -> float | None:
    return _share(row, row.gpu_util) if row.busy_s is None else row.busy_s


def _share(row: Observation, percent: float | None) -> float | None:
    if row.iteration_s is None or not percent:
        return None
    return row.iteration_s * percent / 100.0


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            name="gpu_util",
            unit="%",
            percent=True,
            base=lambda times, works: times.gpu_util,
            truth=lambda row: row.gpu_util,
        ),
        Target(
            name="mem_util",
            unit="%",
            percent=True,
            base=lambda times, works: times.mem_util,
            truth=lambda row: row.mem_util,
        ),
        Target(
            name="iteration_s",
            unit="s",
            percent=False,
            base=lambda times, works: times.iteration_s,
            truth=lambda row: row.iteration_s,
        ),
        Target(name="mem_mib", unit="MiB", percent=False, base=_memory, truth=lambda row: row.mem_mib),
        Target(
            name="busy_s",
            unit="s",
            percent=False,
            base=lambda times, works: times.busy_s,
            truth=_busy,
        ),
        Target(
            name="moving_s",
            unit="s",
            percent=False,
            base=lambda times, works: np.maximum(times.moving_s, 1e-9),
            truth=lambda row: _share(row, row.mem_util),
        ),
    )
}
"""By name. ``busy_s`` and ``moving_s`` are for jobs whose iteration time is known: of it, they are
utilisation and memory utilisation."""


def truths(target: Target, rows: Sequence[Observation]) -> Array:
    """Values of a target, NaN where they were not measured, shape (n,)."""
    found = (target.truth(row) for row in rows)
    return np.array([math.nan if value is None else value for value in found], float)
