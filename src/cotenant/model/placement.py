"""Where a job runs and what it holds there."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["DEVICE_MILLI", "WHOLE", "Mode", "Placement", "Share"]

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


class Placement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Devices, ascending and distinct, and the share held on each of them.

    ``node`` is given only for CPU-only jobs, whose ``devices`` are empty.
    """

    devices: tuple[int, ...]
    share: Share = WHOLE
    node: int = -1
