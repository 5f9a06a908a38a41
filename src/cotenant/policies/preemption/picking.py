"""Which of the jobs that may be stopped in one bay are stopped."""

from __future__ import annotations

__all__ = ["Candidate", "fewest"]

Candidate = tuple[int, tuple[int, float, int], int, int]
"""(devices held in all, standing and id, id, devices held in this bay)."""


def fewest(candidates: list[Candidate], need: int) -> list[Candidate] | None:
    """Victims that free ``need`` devices of a bay at the cost of the fewest devices stopped.

    Either the smallest that suffices alone, or the smallest first until enough, less those
    that turn out to be superfluous; ties go to the worse standing. None if all are too few.

    >>> one, two, four = (1, (0, -3.0, 2), 2, 1), (1, (0, -4.0, 3), 3, 1), (4, (0, -5.0, 1), 1, 4)
    >>> fewest([four, one, two], 1)
    [(1, (0, -4.0, 3), 3, 1)]
    >>> [c[2] for c in fewest([four, one, two], 2)]
    [3, 2]
    >>> fewest([one], 2) is None
    True
    """
    if need == 1:
        return [min(candidates)] if candidates else None
    candidates = sorted(candidates)
    alone = next((c for c in candidates if c[3] >= need), None)
    several: list[Candidate] = []
    freed = 0
    for candidate in candidates:
        if freed >= need:
            break
        several.append(candidate)
        freed += candidate[3]
    if freed < need:
        return None
    for candidate in reversed(several[:-1]):
        if freed - candidate[3] >= need:
            several.remove(candidate)
            freed -= candidate[3]
    if alone is not None and alone[0] <= sum(c[0] for c in several):
        return [alone]
    return several
