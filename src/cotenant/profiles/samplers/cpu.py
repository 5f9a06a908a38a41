"""A set of CPU cores as a device: ``cpu:0`` or ``cpu:0-1,4``.

Busy time is the cores' own, from the kernel's counters; a process counts with its descendants.
Memory is the machine's, and a process's memory is its resident set (RSS), in which pages shared
with others count each time. Memory bandwidth, SM active and occupancy stay missing: without
hardware counters nothing here measures them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Any

import psutil

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.readings import DeviceReading, ProcessReading, Snapshot

__all__ = ["CpuSampler", "core_set_name", "cpu_model", "parse_core_set", "tree_use"]

_MIB = 1024 * 1024
_NAME = re.compile(r"cpu:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


def parse_core_set(name: str) -> tuple[int, ...]:
    """The core numbers of ``cpu:0-1,4``, sorted, each once.

    >>> parse_core_set("cpu:0-2,4")
    (0, 1, 2, 4)

    Raises
    ------
    ConfigError
        If it is no core set.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} is no set of CPU cores; write cpu:0, cpu:0-3 or cpu:0,2")
    cores: set[int] = set()
    for part in name.removeprefix("cpu:").split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ConfigError(f"{name!r}: {part} runs backwards")
        cores.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cores))


def core_set_name(cores: Sequence[int]) -> str:
    """The shortest name of a core set.

    >>> core_set_name((0, 1, 2, 4))
    'cpu:0-2,4'
    """
    parts: list[list[int]] = []
    for core in sorted(set(cores)):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return "cpu:" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def cpu_model() -> str:
    """The processor's name as the kernel gives it; empty where it gives none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for line in file:
                key, _, value = line.partition(":")
                if key.strip().lower() in ("model name", "cpu model"):
                    return " ".join(value.split())
    except OSError:
        pass
    return ""


def tree_use(pid: int) -> tuple[float, int] | None:
    """CPU seconds and resident bytes of a process with its descendants; None if it is gone.

    The CPU time of descendants that have ended and been waited for is in it.
    """
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    cpu_s, resident = 0.0, 0
    for member in members:
        try:
            times, memory = member.cpu_times(), member.memory_info()
        except psutil.Error:
            continue
        cpu_s += times.user + times.system
        cpu_s += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        resident += memory.rss
    return cpu_s, resident


class CpuSampler:
    """Reads a set of cores.

    Parameters
    ----------
    cores : sequence of int
    check : bool
        Whether to refuse cores that this process may not use.

    Raises
    ------
    ConfigError
    """

    def __init__(self, cores: Sequence[int], *, check: bool = True) -> None:
        self.cores = tuple(sorted(set(cores)))
        if not self.cores:
            raise ConfigError("a set of CPU cores needs at least one")
        if check and hasattr(os, "sched_getaffinity"):
            missing = sorted(set(self.cores) - os.sched_getaffinity(0))
            if missing:
                usable = core_set_name(sorted(os.sched_getaffinity(0)))
                raise ConfigError(f"core {missing[0]} is not there, or not for us; usable: {usable}")
        self.name = core_set_name(self.cores)
        self._model = cpu_model()
        self._last: tuple[float, float] | None = None
        self._last_by_pid: dict[int, tuple[int, float]] = {}

    def read(self, pids: Sequence[int] = ()) -> Snapshot:
        """Read the cores and the trees of these processes.

        Shares are over the time since the last call; the first call knows none.
        """
        now = time.monotonic_ns()
        memory = psutil.virtual_memory()
        device = DeviceReading(
            device=self.name,
            index=self.cores[0],
            model=self._model,
            busy_pct=self._busy(),
            memory_used_mib=memory.used / _MIB,
            memory_total_mib=memory.total / _MIB,
        )
        processes = [found for pid in pids if (found := self._process(pid, now)) is not None]
        return Snapshot(time_ns=now, devices=(device,), processes=tuple(processes))

    def _busy(self) -> float | None:
        each: list[Any] = psutil.cpu_times(percpu=True)
        chosen = [each[core] for core in self.cores if core < len(each)]
        total = sum(_total(times) for times in chosen)
        idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in chosen)
        last, self._last = self._last, (total, idle)
        if last is None or total <= last[0]:
            return None
        share = 1.0 - (idle - last[1]) / (total - last[0])
        return 100.0 * float(min(max(share, 0.0), 1.0))

    def _process(self, pid: int, now: int) -> ProcessReading | None:
        use = tree_use(pid)
        if use is None:
            self._last_by_pid.pop(pid, None)
            return None
        cpu_s, resident = use
        last = self._last_by_pid.get(pid)
        self._last_by_pid[pid] = (now, cpu_s)
        busy = None
        if last is not None and now > last[0] and cpu_s >= last[1]:
            busy = 100.0 * (cpu_s - last[1]) / ((now - last[0]) / 1e9 * len(self.cores))
        return ProcessReading(device=self.name, pid=pid, busy_pct=busy, memory_used_mib=resident / _MIB)

    def close(self) -> None:
        """Nothing is held."""


def _total(times: Any) -> float:
    # guest time is counted in user time already
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))
