"""Goodput of elastic jobs, and devices divided so that the harmonic mean of speedups is greatest.

After Pollux (OSDI'21, section 3 and 4.2): goodput is throughput times statistical efficiency.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

__all__ = ["Want", "allot", "efficiency", "realloc_factor"]

_GAIN = 1e-12


def efficiency(scale: float, noise_scale: float) -> float:
    """Progress of one example at ``scale`` times the declared batch, relative to the declared batch.

    ``(noise + 1) / (noise + scale)``, with the gradient noise scale in declared batches (section 3.1). Smaller
    batches than the declared one are no better.

    Examples
    --------
    >>> efficiency(0.5, 9.0), efficiency(1.0, 9.0), round(efficiency(3.0, 9.0), 4)
    (1.0, 1.0, 0.8333)
    """
    return (noise_scale + 1.0) / (noise_scale + max(1.0, scale))


def realloc_factor(age_s: float, moves: int, price_s: float) -> float:
    """What is left of a speedup if the job is given other devices once more.

    ``(T - R d) / (T + d)``: age, moves so far, seconds that one takes (section 4.2.1).

    Examples
    --------
    >>> realloc_factor(300.0, 1, 30.0), realloc_factor(0.0, 0, 30.0)
    (0.8181818181818182, 0.0)
    """
    if price_s <= 0.0:
        return 1.0
    return max(0.0, age_s - moves * price_s) / (age_s + price_s)


class Want(NamedTuple):
    """An elastic job.

    Parameters
    ----------
    id, kind : int
        The job, and the device type it runs on.
    least, most : int
        Devices it can hold.
    speedups : tuple of float
        For ``least``, ``least + 1``, ... ``most`` devices: goodput relative to its fair part.
    """

    id: int
    kind: int
    least: int
    most: int
    speedups: tuple[float, ...]


def allot(wants: list[Want], left: list[int]) -> dict[int, int]:
    """Divide devices, greedily: the step that lowers the sum of ``1 / speedup`` most for each device.

    The harmonic mean of speedups (generalised mean with ``p = -1``) is greatest where that sum is least. A
    step is of one device or more, so that flat stretches are jumped over. Optimal where
    speedups are concave.

    Parameters
    ----------
    wants : list of Want
    left : list of int
        For each type, devices beyond the least of all. Not changed.

    Examples
    --------
    Two jobs with equal speedups divide four devices evenly; one that gains nothing from a second has one.

    >>> linear, flat = (1.0, 2.0, 3.0), (1.0, 1.0, 1.0)
    >>> allot([Want(0, 0, 1, 3, linear), Want(1, 0, 1, 3, linear)], [2])
    {0: 2, 1: 2}
    >>> allot([Want(0, 0, 1, 3, linear), Want(1, 0, 1, 3, flat)], [3])
    {0: 3, 1: 1}
    """
    left = list(left)
    given = {want.id: want.least for want in wants}
    heap: list[tuple[float, int, int, int]] = []
    by_id = {want.id: want for want in wants}

    def push(want: Want) -> None:
        best = _step(want, given[want.id], left[want.kind])
        if best is not None:
            heapq.heappush(heap, (-best[0], want.id, given[want.id], best[1]))

    for want in wants:
        push(want)
    while heap:
        _, job_id, had, count = heapq.heappop(heap)
        want = by_id[job_id]
        if count - had > left[want.kind]:
            # Somebody else was faster: look for a smaller step.
            push(want)
            continue
        left[want.kind] -= count - had
        given[job_id] = count
        push(want)
    return given


def _step(want: Want, had: int, left: int) -> tuple[float, int] | None:
    """The best gain for each device, and the devices then held; None if nothing gains."""
    best: tuple[float, int] | None = None
    now = _inverse(want.speedups[had - want.least])
    for count in range(had + 1, min(want.most, had + left) + 1):
        gain = (now - _inverse(want.speedups[count - want.least])) / (count - had)
        if gain > _GAIN and (best is None or gain > best[0] * (1.0 + 1e-9)):
            best = gain, count
    return best


def _inverse(speedup: float) -> float:
    return 1.0 / max(speedup, 1e-6)
