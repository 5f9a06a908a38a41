"""Devices themselves: who else uses them, whether they are still there, and readings that cannot be.

Of GPUs the driver lists every process that holds memory; those that are none of ours are foreign. A process of
another PID namespace may be hidden: memory in use that no listed process holds, beyond what an idle driver
takes, is foreign, too, with no process to name. Core sets are everybody's: processes outside are foreign there
only while they are busy with at least ``BUSY_CORES`` of them, and they hold no memory of ours.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from cotenant.errors import ConfigError
from cotenant.executors.local.devices import Device
from cotenant.executors.local.layout import stat_fields
from cotenant.model.liveports import DeviceGone, Foreign
from cotenant.model.quantities import MIB
from cotenant.profiles.samplers.readings import DeviceReading, Snapshot
from cotenant.profiles.samplers.readings import Sampler as Source
from cotenant.profiles.samplers.series import SUSPECT_AFTER

__all__ = ["BUSY_CORES", "DRIVER_BYTES", "WATCH_S", "DeviceWatch", "Source"]

WATCH_S = 5.0
DRIVER_BYTES = 1 << 30
"""Memory that a device without any process may show as used: driver, firmware, page retirement."""

BUSY_CORES = 0.5
_SLACK = 1.02
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class DeviceWatch:
    """Looks at all devices every few seconds.

    Parameters
    ----------
    devices : mapping of int to Device
    ours : callable
        Whether a process is one of ours.
    sampler : callable
        Makes the source of readings of GPUs; raises ``ConfigError`` where there is none.

    Attributes
    ----------
    rejected : dict of int to int
        Readings that could not be, by device.
    """

    def __init__(
        self,
        devices: Mapping[int, Device],
        ours: Callable[[int], bool],
        sampler: Callable[[], Source] | None = None,
        every_s: float = WATCH_S,
    ) -> None:
        self._devices, self._ours, self._every_s = devices, ours, every_s
        self._make = sampler or _nvml
        self._source: Source | None = None
        self._next = 0.0
        self._told: dict[int, Foreign] = {}
        self._down: dict[int, str] = {}
        self._cpu: dict[int, tuple[int, float]] = {}
        self._cpu_at = 0.0
        self.rejected: dict[int, int] = {}

    def wait_s(self, now: float) -> float:
        """Until the next look."""
        return max(self._next - now, 0.0)

    def suspect(self, device: int) -> bool:
        """Whether so many readings could not be that the rest is in doubt."""
        return self.rejected.get(device, 0) >= SUSPECT_AFTER

    def look(self, now: float) -> list[Foreign | DeviceGone]:
        """What changed since the last look; nothing if it is not time."""
        if now < self._next:
            return []
        self._next = now + self._every_s
        found: list[Foreign | DeviceGone] = []
        if any(device.kind != "cpu" for device in self._devices.values()):
            found += self._gpus()
        if any(device.kind == "cpu" for device in self._devices.values()):
            found += self._core_sets(now)
        return found

    # -- GPUs ----------------------------------------------------------------------------

    def _gpus(self) -> list[Foreign | DeviceGone]:
        try:
            if self._source is None:
                self._source = self._make()
            snapshot = self._source.read()
        except ConfigError as error:
            self._source = None
            gpus = [n for n, device in self._devices.items() if device.kind != "cpu"]
            return [gone for number in gpus if (gone := self._state(number, str(error))) is not None]
        found: list[Foreign | DeviceGone] = []
        readings = {reading.device: reading for reading in snapshot.devices}
        causes = {failure.device: failure.reason for failure in snapshot.failures}
        for number, device in self._devices.items():
            if device.kind == "cpu":
                continue
            reading = readings.get(device.uuid)
            cause = "" if reading else causes.get(device.uuid, "the driver does not list it")
            if (gone := self._state(number, cause)) is not None:
                found.append(gone)
            if reading is not None and (foreign := self._foreign(number, reading, snapshot)) is not None:
                found.append(foreign)
        return found

    def _state(self, number: int, cause: str) -> DeviceGone | None:
        if bool(cause) == (number in self._down):
            return None
        if cause:
            self._down[number] = cause
        else:
            del self._down[number]
        return DeviceGone(device=number, up=not cause, cause=cause)

    def _foreign(self, number: int, reading: DeviceReading, snapshot: Snapshot) -> Foreign | None:
        total, used = reading.memory_total_mib, reading.memory_used_mib
        if used is None:
            return None
        if used < 0.0 or (total is not None and used > total * _SLACK):
            self.rejected[number] = self.rejected.get(number, 0) + 1
            return None
        on_it = [process for process in snapshot.processes if process.device == reading.device]
        known = {p.pid: p.memory_used_mib for p in on_it if p.memory_used_mib is not None}
        if any(not 0.0 <= size <= (total or size) * _SLACK for size in known.values()):
            self.rejected[number] = self.rejected.get(number, 0) + 1
            return None
        others = sorted(p.pid for p in on_it if not self._ours(p.pid))
        size = int(sum(known.get(pid, 0.0) for pid in others) * MIB)
        unlisted = int((used - sum(known.values())) * MIB)
        # Where even one process of ours has no figure, the rest may be its own.
        if unlisted > DRIVER_BYTES and len(known) == len(on_it):
            size += unlisted
        return self._changed(Foreign(device=number, memory_bytes=size, pids=tuple(others)))

    def _changed(self, foreign: Foreign) -> Foreign | None:
        before = self._told.get(foreign.device)
        if before is None and not foreign.memory_bytes and not foreign.pids:
            return None
        same = before is not None and before.pids == foreign.pids
        # The scheduler need not hear of every MiB.
        if before and same and abs(before.memory_bytes - foreign.memory_bytes) <= before.memory_bytes // 50:
            return None
        self._told[foreign.device] = foreign
        return foreign

    # -- core sets -----------------------------------------------------------------------

    def _core_sets(self, now: float) -> list[Foreign | DeviceGone]:
        passed, self._cpu_at = now - self._cpu_at, now
        seen, busy = _processes(), []
        for pid, (ticks, used_s, core) in seen.items():
            before = self._cpu.get(pid)
            if before is not None and before[0] == ticks and used_s - before[1] >= BUSY_CORES * passed:
                busy.append((pid, core))
        self._cpu = {pid: (ticks, used_s) for pid, (ticks, used_s, _) in seen.items()}
        outside = [(pid, core) for pid, core in busy if pid != os.getpid() and not self._ours(pid)]
        found: list[Foreign | DeviceGone] = []
        for number, device in self._devices.items():
            if device.kind == "cpu":
                pids = tuple(sorted(pid for pid, core in outside if core in device.cores))
                if (told := self._changed(Foreign(device=number, memory_bytes=0, pids=pids))) is not None:
                    found.append(told)
        return found

    def close(self) -> None:
        """Let go of the driver."""
        if self._source is not None:
            self._source.close()
            self._source = None


def _processes() -> dict[int, tuple[int, float, int]]:
    """Start, CPU seconds and last core of every process."""
    found: dict[int, tuple[int, float, int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(IndexError):
            fields = stat_fields(name)
            found[int(name)] = (
                int(fields[19]),
                (int(fields[11]) + int(fields[12])) * _TICK_S,
                int(fields[36]),
            )
    return found


def _nvml() -> Source:
    from cotenant.profiles.samplers.nvml import NvmlSampler

    return NvmlSampler()
