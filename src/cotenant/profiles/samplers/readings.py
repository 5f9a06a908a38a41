"""What a device and a process read at one moment, and what each meter means.

======================  ==========================================================================
field                   meaning
======================  ==========================================================================
``busy_pct``            *busy time*: share of the last period in which at least one kernel ran (on
                        CPUs: share of the cores' time in which a thread ran). It says that
                        something ran, not how much of the device it used.
``sm_active_pct``       *SM active*: share of cycles in which a multiprocessor had a warp, averaged
                        over all multiprocessors.
``sm_occupancy_pct``    *occupancy*: warps resident over the most that could be.
``dram_active_pct``     *memory bandwidth*: share of cycles in which device memory moved data.
``memory_busy_pct``     share of time in which device memory was read or written at all; like busy
                        time it saturates long before the bandwidth does.
``engine_active_pct``   share of time in which the graphics or compute engine was active; what
                        remains of busy time on a MIG instance.
``memory_used_mib``     memory in use, whoever uses it.
``memory_total_mib``    memory that the driver reports.
``power_w``             power of the whole board.
======================  ==========================================================================

Percentages are of the whole device, 0 to 100. Missing is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = [
    "METERS",
    "DeviceReading",
    "Failure",
    "ProcessReading",
    "Sampler",
    "Snapshot",
]

METERS: dict[str, str] = {
    "busy_pct": "busy time",
    "sm_active_pct": "SM active",
    "sm_occupancy_pct": "occupancy",
    "dram_active_pct": "memory bandwidth",
    "memory_busy_pct": "memory busy time",
    "engine_active_pct": "engine active",
    "memory_used_mib": "memory used",
    "memory_total_mib": "memory",
    "power_w": "power",
}
"""Each meter's name as it is printed. No two meters share a name."""


class DeviceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One device at one moment.

    Parameters
    ----------
    device : str
        Stable name: a UUID where there is one, else an index, or ``cpu:0-1``.
    index : int or None
        Number by which the driver lists it.
    model : str
        Name of the model as the source gives it; empty if it does not.
    mig : bool
        Whether the reading is of a MIG instance, or of a device cut into them.
    """

    device: str
    index: int | None = None
    model: str = ""
    mig: bool = False
    busy_pct: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    dram_active_pct: float | None = None
    memory_busy_pct: float | None = None
    engine_active_pct: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_w: float | None = None

    def meter(self, name: str) -> float | None:
        """The value of a meter by its field's name."""
        value: float | None = getattr(self, name)
        return value


class ProcessReading(msgspec.Struct, frozen=True, kw_only=True):
    """One process (on CPUs: one process with its descendants) on one device at one moment.

    Parameters
    ----------
    device : str
    pid : int
    busy_pct : float or None
        Share of the device's time in which this process ran.
    memory_used_mib : float or None
    """

    device: str
    pid: int
    busy_pct: float | None = None
    memory_used_mib: float | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A device, or a whole source, that could not be read: an event, not a value.

    Parameters
    ----------
    device : str
        Empty where the source does not say which one.
    reason : str
    """

    device: str
    reason: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that one call of a sampler found.

    Parameters
    ----------
    time_ns : int
        Monotonic clock.
    devices : tuple of DeviceReading
        Each device once.
    processes : tuple of ProcessReading
    failures : tuple of Failure
    """

    time_ns: int
    devices: tuple[DeviceReading, ...] = ()
    processes: tuple[ProcessReading, ...] = ()
    failures: tuple[Failure, ...] = ()


class Sampler(Protocol):
    """A source of readings."""

    def read(self, pids: Sequence[int] = ()) -> Snapshot:
        """Read all devices, and of processes at least those named."""

    def close(self) -> None:
        """Let go of the source; may be called twice."""
