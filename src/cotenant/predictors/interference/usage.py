"""What a job does with a device when it is alone, and what two jobs then contend for.

Shares of time in which the device computes, its memory moves, and the host launches, and how
long kernels are: measured where the solo run has it, else from the roofline of the network's
graph (``resources.roofline``), with the measured time of an iteration if there is one. Pairs
get *terms* that any device that is shared by time slices obeys, whatever the jobs are called:

- whose kernels are longer, by their mean and by how long a newcomer finds one running, in so
  far as both keep the device busy: slices go to whoever has the longer kernels;
- how much of the memory's time the neighbour takes from a victim that needs the device, and how
  much both want of it;
- how busy the neighbour keeps the device, and how much of the time the host launches for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.graphs import step_of
from cotenant.predictors.resources.roofline import Steps, rates_of
from cotenant.profiles.catalogue import canonical_type
from cotenant.profiles.runs import JobConfig, SoloRun

__all__ = ["COLUMNS", "Usage", "iteration_s", "terms", "usage_of"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

COLUMNS = ("busy", "memory", "host", "log2_kernel_s", "log2_long_kernel_s")
"""Shares of an iteration in (0, 1], and binary logarithms of the mean kernel's length and of the
mean weighted by length."""

_LEAST, _BUSY, _MEMORY = 0.01, 0.7, 0.6
_FURTHEST = 6.0
_SOFT = 0.15
_SCALES = np.array([0.5, 0.5, 2.0, 2.0, 2.0, 1.5])
"""Bring the terms to a spread of about one over the pairs of a campaign."""


def iteration_s(run: SoloRun) -> float | None:
    """Seconds for one iteration, as far as the unit tells."""
    if not run.throughput:
        return None
    if "step" in run.unit or "iter" in run.unit or not run.job.batch:
        return 1.0 / run.throughput
    return run.job.batch / run.throughput


@lru_cache(maxsize=4096)
def _roofline(job: JobConfig, device_type: str) -> tuple[float, ...] | None:
    """Busy, moving, host and iteration seconds, and lengths of kernels; None if not known."""
    step = step_of(job)
    if step is None or canonical_type(device_type) is None:
        return None
    steps = Steps([step], [rates_of(device_type)])
    times = steps.times()
    mean, long = steps.kernel_s()
    found = (times.busy_s, times.moving_s, times.host_s, times.iteration_s, mean, long)
    return tuple(max(float(value[0]), 1e-9) for value in found)


def usage_of(job: JobConfig, device_type: str, run: SoloRun | None) -> list[float]:
    """One value for each of ``COLUMNS``; NaN where nothing is known."""
    found = dict.fromkeys(COLUMNS, math.nan)
    model = _roofline(job, device_type)
    if model is not None:
        busy, moving, host, whole, mean, long = model
        whole = (iteration_s(run) if run else None) or whole
        for name, seconds in (("busy", busy), ("memory", moving), ("host", host)):
            found[name] = float(np.clip(seconds / whole, 1 / 64, 1.0))
        found["log2_kernel_s"], found["log2_long_kernel_s"] = math.log2(mean), math.log2(long)
    if run is not None and run.gpu_util is not None:
        found["busy"] = max(run.gpu_util / 100.0, _LEAST)
    if run is not None and run.mem_util is not None:
        found["memory"] = max(run.mem_util / 100.0, _LEAST)
    return list(found.values())


class Usage:
    """Usage of nodes, with means in place of what is not known."""

    def __init__(self) -> None:
        self._raw = np.zeros((0, len(COLUMNS)))
        self._mean = np.zeros(len(COLUMNS))

    def add(self, rows: Sequence[Sequence[float]]) -> None:
        """Further nodes."""
        self._raw = np.vstack([self._raw, rows])

    def settle(self) -> None:
        """Take means of the nodes that there are; those of later nodes change nothing."""
        known = np.isfinite(self._raw)
        count = known.sum(axis=0)
        total = np.where(known, self._raw, 0.0).sum(axis=0)
        self._mean = np.where(count > 0, total / np.maximum(count, 1), 0.0)

    def filled(self) -> Array:
        """Shape (nodes, len(COLUMNS)), nothing missing."""
        found = np.where(np.isfinite(self._raw), self._raw, self._mean)
        busy, memory = self._raw[:, 0], self._raw[:, 1]
        found[:, 0] = np.where(np.isfinite(busy), busy, _BUSY)
        found[:, 1] = np.where(np.isfinite(memory), memory, _MEMORY * found[:, 0])
        return np.asarray(found, np.float64)


def terms(usage: Array, victim: Index, other: Index) -> Array:
    """What two jobs contend for.

    Parameters
    ----------
    usage : ndarray, shape (nodes, len(COLUMNS))
    victim, other : ndarray of intp, shape (n,)

    Returns
    -------
    ndarray, shape (n, 6)
        Higher is faster for the victim; the spread over a campaign is about one.
    """
    busy, memory, host, kernel, long = usage.T
    both = np.sqrt(busy[victim] * busy[other])

    def longer(length: Array) -> Array:
        return np.asarray(np.clip(length[victim] - length[other], -_FURTHEST, _FURTHEST) * both)

    def less(share: Array) -> Array:
        return np.asarray(-np.log(_SOFT + share))

    found = np.stack(
        [
            longer(kernel),
            longer(long),
            less(np.sqrt(busy[victim]) * memory[other]),
            less(memory[victim] * memory[other]),
            less(busy[other]),
            less(host[other]),
        ],
        axis=1,
    )
    return np.asarray(found * _SCALES)
