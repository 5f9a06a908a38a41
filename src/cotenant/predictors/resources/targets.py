"""What is predicted, on which scale, and what the roofline says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.roofline import StepTimes

__all__ = ["TARGETS", "Target", "truths"]

Array = NDArray[np.float64]


_WAITS = 0.7
"""An iteration twice as long as the roofline says (on the logarithm) is as likely to wait as not."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity.

    Parameters
    ----------
    name : str
    unit : str
    percent : bool
        On the scale log(1 + per cent) and at most 100; else on the logarithm.
    base : callable
        ``times -> array``: the roofline's answer in the quantity's unit.
    truth : callable
        ``observation -> float or None``.
    of_iteration : bool
        Whether it is a part of an iteration whose length is known.
    """

    name: str
    unit: str
    percent: bool
    base: Callable[[StepTimes], Array]
    truth: Callable[[Observation], float | None]
    of_iteration: bool = False

    def link(self, values: Array) -> Array:
        """From the quantity to the scale on which it is learnt and judged."""
        return np.log1p(values) if self.percent else np.log(np.maximum(values, 1e-9))

    def linked_base(self, times: StepTimes, iteration_s: Array) -> Array:
        """The roofline's answer on that scale, given what is known of iterations.

        An iteration that is somewhat longer than the roofline says means that everything is, its
        part on the device included; one that is far longer means that the job waits.

        Parameters
        ----------
        times : StepTimes
        iteration_s : ndarray, shape (n,)
            As measured, NaN where unknown; parts of an iteration alone depend on it.
        """
        base = self.link(self.base(times))
        if not self.of_iteration:
            return base
        off = np.log(iteration_s / np.maximum(times.iteration_s, 1e-12))
        shared = off / (1.0 + (np.abs(off) / _WAITS) ** 4)
        found: Array = base + np.where(np.isfinite(shared), shared, 0.0)
        return found

    def back(self, linked: Array) -> Array:
        """From that scale to the quantity."""
        if self.percent:
            return np.clip(np.expm1(linked), 0.0, 100.0)
        found: Array = np.exp(linked)
        return found


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
            base=lambda times: times.gpu_util,
            truth=lambda row: row.gpu_util,
        ),
        Target(
            name="mem_util",
            unit="%",
            percent=True,
            base=lambda times: times.mem_util,
            truth=lambda row: row.mem_util,
        ),
        Target(
            name="iteration_s",
            unit="s",
            percent=False,
            base=lambda times: times.iteration_s,
            truth=lambda row: row.iteration_s,
        ),
        Target(
            name="mem_mib",
            unit="MiB",
            percent=False,
            base=lambda times: times.memory_mib,
            truth=lambda row: row.mem_mib,
        ),
        Target(
            name="busy_s",
            unit="s",
            percent=False,
            base=lambda times: times.busy_s,
            truth=_busy,
            of_iteration=True,
        ),
        Target(
            name="moving_s",
            unit="s",
            percent=False,
            base=lambda times: np.maximum(times.moving_s, 1e-9),
            truth=lambda row: _share(row, row.mem_util),
            of_iteration=True,
        ),
    )
}
"""By name. ``busy_s`` and ``moving_s`` are for jobs whose iteration time is known: of it, they are
utilisation and memory utilisation."""


def truths(target: Target, rows: Sequence[Observation]) -> Array:
    """Values of a target, NaN where they were not measured, shape (n,)."""
    found = (target.truth(row) for row in rows)
    return np.array([math.nan if value is None else value for value in found], float)
