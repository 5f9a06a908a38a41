"""How much service ended jobs had: device-seconds, counted in classes a quarter octave wide.

Part of the state because it is a fold of events: a policy that learns from it stays pure.
"""

from __future__ import annotations

import math

__all__ = ["ServiceCounts", "service_class", "service_edge_s"]

_PARTS = 4


def service_class(device_s: float) -> int:
    """The class of a service: 0 below one device-second, then four classes for each doubling.

    >>> [service_class(s) for s in (0.0, 0.99, 1.0, 1.25, 2.0, 3.9)]
    [0, 0, 1, 2, 5, 8]
    """
    if device_s < 1.0:
        return 0
    part, octave = math.frexp(device_s)
    return 1 + _PARTS * (octave - 1) + int((part - 0.5) * 2 * _PARTS)


def service_edge_s(number: int) -> float:
    """Lower edge of a class, in device-seconds.

    >>> [service_edge_s(n) for n in (0, 1, 2, 5, 8)]
    [0.0, 1.0, 1.25, 2.0, 3.5]
    """
    if number == 0:
        return 0.0
    octave, part = divmod(number - 1, _PARTS)
    return math.ldexp(1.0 + part / _PARTS, octave)


class ServiceCounts:
    """Ended jobs by class of service.

    Attributes
    ----------
    counts : list of int
        For each class; as long as the largest service seen.
    total : int
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.total = 0

    def add(self, device_s: float) -> None:
        """Count a job that ended after this much service."""
        number, counts = service_class(device_s), self.counts
        if number >= len(counts):
            counts.extend([0] * (number + 1 - len(counts)))
        counts[number] += 1
        self.total += 1
