"""Where a job runs and what it holds there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

__all__ = ["DEVICE_MILLI", "WHOLE", "Mode", "Placement", "Share", "counts_on"]

Mode = Literal["exclusive", "spatial", "time-sliced"]
DEVICE_MILLI = 1000
"""Compute of one device in thousandths."""


class Share(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a job holds on each of its devices.

    Parameters
    ----------
    mode : {"exclusive", "spatial", "time-sliced"}
        ``exclusive``: the whole device. ``spatial``: side by side with others.
        ``time-sliced``: residents take turns; only one is on the device at a time, the
        others' memory waits on the host.
    memory_bytes : int
        Memory on each device, always a hard limit; 0 in exclusive mode means all of it.
    compute_milli : int
        Guaranteed compute in thousandths of a device; the guarantees on one device never
        exceed 1000. 0 guarantees nothing.
    compute_limit_milli : int
        Ceiling for elastic use of idle compute.
    turn : int
        Time-sliced only. Residents of one turn are on the device together, side by side, and
        their memory adds up; -1 is a turn of one's own.
    """

    mode: Mode = "exclusive"
    memory_bytes: int = 0
    compute_milli: int = DEVICE_MILLI
    compute_limit_milli: int = DEVICE_MILLI
    turn: int = -1


WHOLE = Share()
"""The whole device for oneself."""


def counts_on(share: Share, beside: Iterable[Iterable[Share]]) -> int:
    """Compute that a job may count on, in thousandths of each of its devices, whoever else wants it.

    Its guarantee. Who is side by side with others without one has what they are not guaranteed; several such
    jobs have equal parts of it.

    Parameters
    ----------
    share : Share
    beside : iterable
        For each of its devices, the shares of the others there.

    Examples
    --------
    >>> rest, fifth = Share("spatial", 1, 0), Share("spatial", 1, 200)
    >>> counts_on(rest, [[]]), counts_on(rest, [[fifth]]), counts_on(rest, [[fifth, rest]]), counts_on(fifth, [[rest]])
    (1000, 800, 400, 200)
    """
    if share.mode != "spatial" or share.compute_milli:
        return share.compute_milli
    least = DEVICE_MILLI
    for others in beside:
        given = [other.compute_milli for other in others if other.mode == "spatial"]
        least = min(least, (DEVICE_MILLI - sum(given)) // (1 + given.count(0)))
    return min(max(least, 0), share.compute_limit_milli)


class Placement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Devices, ascending and distinct, and the share held on each of them.

    ``node`` is given only for CPU-only jobs, whose ``devices`` are empty.
    """

    devices: tuple[int, ...]
    share: Share = WHOLE
    node: int = -1
