"""Levels of predicted work left: who goes first, and who gives way, in steps of two.

A level doubles from one to the next, so a job gives way only to one with much less left, and jobs
of a level go by submission. What is left of a job is what its prediction leaves, but no less than
what it has done already: a job that outlives its prediction sinks, as under least attained service.
Above a top level, learned from the jobs that ended, all are alike: the longest go by submission,
so that they do not all end up last.
"""

from __future__ import annotations

import math
from math import floor, frexp

from cotenant.model.records import JobRecord
from cotenant.model.service import ServiceCounts, service_edge_s

__all__ = ["GRID_S", "TOP", "UNIT_S", "level", "level_of", "level_until_s", "top_level", "work_left_s"]

UNIT_S = 60.0
"""Device-seconds below which all jobs are alike."""
GRID_S = 60.0
"""The level of a running job is looked at this often: at multiples of it, so that it depends on the
time alone."""
TOP = 64
"""No level is above this; until something is learned, it is the top."""
_STEPS = 4


def work_left_s(predicted_s: float, done_s: float) -> float:
    """Predicted work left of a job that has done so much.

    >>> work_left_s(100.0, 10.0), work_left_s(100.0, 80.0), work_left_s(100.0, 300.0)
    (90.0, 80.0, 300.0)
    """
    left_s = predicted_s - done_s
    return left_s if left_s > done_s else done_s


def level_of(device_s: float, top: int = TOP) -> int:
    """The level of so many device-seconds left.

    >>> [level_of(s) for s in (0.0, 59.0, 60.0, 119.0, 120.0, 7200.0)], level_of(7200.0, 5)
    ([1, 1, 2, 2, 3, 8], 5)
    """
    power = math.frexp(device_s / UNIT_S)[1]
    return min(top, 1 + power) if power > 0 else 1


def level(record: JobRecord, now: float, top: int) -> int:
    """The level of a job: of a running one as of the last point of the grid."""
    done_s = record.work_s
    if record.status:
        at = floor(now / GRID_S) * GRID_S
        if at > record.rated_s:
            done_s += record.rate * (at - record.rated_s)
    # As level_of(work_left_s(...)), without the calls: running jobs are looked at again and again.
    left_s = record.predicted_s - done_s
    power = frexp((left_s if left_s > done_s else done_s) * (record.job.gpus or 1) / UNIT_S)[1]
    if power <= 0:
        return 1
    return top if power >= top else 1 + power


def level_until_s(record: JobRecord, now: float, top: int, here: int | None = None) -> float:
    """A point of the grid after now up to which a running job's level stays; infinite if it stays for good.

    It may have stayed the same at that point, too: then one asks again. ``here`` is its level now, if known.
    """
    rate, predicted_s = record.rate, record.predicted_s
    if not rate > 0.0:
        return math.inf
    if here is None:
        here = level(record, now, top)
    upper_s = math.ldexp(UNIT_S, here - 1) / (record.job.gpus or 1)
    target_s = upper_s if here < top else math.inf
    # What is left shrinks down to half of what was predicted, then what is done grows.
    down_s = predicted_s - upper_s / 2.0
    if here > 1 and down_s <= predicted_s / 2.0 and record.work_at(now) <= down_s:
        target_s = min(target_s, down_s)
    if target_s == math.inf:
        return math.inf
    ahead_s = max(0.0, target_s - record.work_s) / rate
    point = max(math.floor(now / GRID_S) + 1, math.floor((record.rated_s + ahead_s) / GRID_S))
    for _ in range(_STEPS):
        if level(record, point * GRID_S, top) != here:
            break
        point += 1
    return point * GRID_S


def top_level(service: ServiceCounts, factor: float) -> int:
    """The level of ``factor`` times the mean service of the jobs that ended."""
    if not service.total or factor <= 0.0:
        return TOP
    total = sum(n * service_edge_s(c) for c, n in enumerate(service.counts) if n)
    return max(2, level_of(factor * total / service.total))
