"""Logical workers: an elastic job's speed on any number and mix of devices, by EasyScale's waste model.

A job is trained by a fixed number of logical workers; each device runs its workers in turn, one mini-batch
each, and the model is updated once all have had theirs. EasyScale (SC'23, doi.org/10.1145/3581784.3607054),
equations of the intra-job scheduler, with one executor on each device.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from cotenant.model.jobs import Job

__all__ = ["Division", "Held", "divide", "may_mix", "workers_of"]

Held = tuple[tuple[int, float], ...]
"""For each device type that is used: how many devices, and the capability of one (mini-batches in a unit of time)."""

_TIED = frozenset({"D0", "D1"})


class Division(NamedTuple):
    """How workers are spread over devices, and what comes of it.

    Parameters
    ----------
    each : tuple of int
        Workers on every device of each type.
    rounds : float
        The overload: time until all workers had their mini-batch.
    performance : float
        Mini-batches in a unit of time, of all workers together.
    waste : float
        Capability that is not used: devices that wait for the slowest, and places without a worker.
    waste_share : float
        The same over all capability.
    """

    each: tuple[int, ...]
    rounds: float
    performance: float
    waste: float
    waste_share: float


@functools.lru_cache(maxsize=1 << 16)
def divide(held: Held, workers: int) -> Division:
    """Spread workers over devices so that all are done soonest, that is, with least waste.

    With ``A`` workers on each of the ``N`` devices of a type with capability ``C``: overload is the largest
    ``A / C``, waste ``sum of N * (C - A / overload) + (sum of N * A - workers) / overload``, performance
    ``sum of N * C - waste``; that is ``workers / overload``.

    Parameters
    ----------
    held : tuple of (int, float)
        Devices and capability by type; both positive.
    workers : int
        At least one.

    Examples
    --------
    >>> divide(((2, 1.0),), 3)
    Division(each=(2,), rounds=2.0, performance=1.5, waste=0.5, waste_share=0.25)
    """
    capability = sum(count * each for count, each in held)
    least = workers / capability
    given = [math.floor(least * each * (1.0 + 1e-12) + 1e-12) for _, each in held]
    placed = sum(count * had for (count, _), had in zip(held, given, strict=True))
    rounds = max(had / each for (_, each), had in zip(held, given, strict=True))
    while placed < workers:
        # One more on every device of the type where that takes least time.
        time, kind = min(((given[i] + 1) / held[i][1], i) for i in range(len(held)))
        given[kind] += 1
        placed += held[kind][0]
        rounds = max(rounds, time)
    performance = workers / rounds
    waste = max(capability - performance, 0.0)
    return Division(tuple(given), rounds, performance, waste, waste / capability)


def workers_of(job: Job) -> int:
    """The logical workers a job declares: the most devices it can use."""
    return max(job.max_gpus, job.gpus, 1)


def may_mix(job: Job) -> bool:
    """Whether the grade of reproducibility a job asks for permits device types beside each other.

    D0 and D1 are the same only on devices of one type; D2 is the same on any; without a grade nothing is
    promised.
    """
    return job.determinism not in _TIED
