"""CPU time and memory by cgroups of version 1.

Under contention a job's part follows its guarantee, by ``cpu.shares``; ``cpu.cfs_quota_us`` caps it at its
elastic limit. So the kernel itself lends idle time and takes it back, at once, and goes on doing so while no
scheduler runs. docs.kernel.org/admin-guide/cgroup-v1 and docs.kernel.org/scheduler/sched-bwc.html.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from cotenant.shares.backends.base import Applied, Enforcement, Want
from cotenant.shares.backends.groups import own_groups, put, read_counter, remove_folder, usable

__all__ = ["CgroupV1"]

_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000
_NEEDED = {"cpu": "cpu.cfs_quota_us", "memory": "memory.limit_in_bytes", "freezer": "freezer.state"}


class CgroupV1:
    """Groups below our own, one for each attempt.

    Parameters
    ----------
    parents : dict of str to Path
        Folder for each controller (``cpu``, ``cpuacct``, ``memory``, ``freezer``): only those that are usable.
    scope : str
        Name of the folder that holds all groups of one state folder.
    """

    name = "cgroup v1"

    def __init__(self, parents: dict[str, Path], scope: str) -> None:
        self._parents = {name: path / scope for name, path in parents.items()}
        self._ready()
        self.enforcement = Enforcement(
            memory="hard" if "memory" in parents else "none",
            compute="averaged" if "cpu" in parents else "none",
            fault_isolation=True,
            note="compute within each 100 ms; memory beyond the limit ends the job",
        )

    @classmethod
    def detect(cls, scope: str, *, mounts: str | None = None, groups: str | None = None) -> CgroupV1 | None:
        """The controllers that we may really use; None with neither ``cpu`` nor ``memory``."""
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8") if mounts is None else mounts
            groups = Path("/proc/self/cgroup").read_text(encoding="utf-8") if groups is None else groups
        except OSError:
            return None
        found = own_groups(mounts, groups)
        parents = {n: found[n] for n, file in _NEEDED.items() if n in found and usable(found[n], (file,))}
        if not parents.keys() & {"cpu", "memory"}:
            return None
        if "cpuacct" in found and usable(found["cpuacct"], ()):
            parents["cpuacct"] = found["cpuacct"]
        try:
            return cls(parents, scope)
        except OSError:
            return None

    def _ready(self) -> None:
        """Make the folders of all groups; a scheduler that gave up its lead may have tidied them away."""
        for name, path in self._parents.items():
            if path.is_dir():
                continue
            path.mkdir(exist_ok=True)
            if name == "cpu":
                with contextlib.suppress(OSError):
                    # All jobs together weigh as much as a process outside on every core that they use.
                    put(path / "cpu.shares", 1024 * (read_cores() or 1))

    def _folders(self, key: str) -> dict[str, Path]:
        return {name: path / key for name, path in self._parents.items()}

    def apply(self, want: Want) -> Applied:
        """Make the groups and set the limits."""
        folders = self._folders(want.key)
        try:
            self._ready()
            for path in folders.values():
                path.mkdir(exist_ok=True)
            self.adjust(want)
        except OSError:
            self.remove(want.key)
            raise
        distinct = list(dict.fromkeys(folders.values()))
        return Applied(
            procs=tuple(str(path / "cgroup.procs") for path in distinct),
            freezer=str(folders["freezer"] / "freezer.state") if "freezer" in folders else "",
            oom_files=(str(folders["memory"] / "memory.oom_control"),) if "memory" in folders else (),
            remove=tuple(map(str, distinct)),
        )

    def adjust(self, want: Want) -> None:
        """Set quota, weight and memory limit."""
        folders = self._folders(want.key)
        cores = want.compute_cores
        quota = -1 if cores is None else max(round(cores * _PERIOD_US), _LEAST_QUOTA_US)
        if "cpu" in folders:
            put(folders["cpu"] / "cpu.cfs_period_us", _PERIOD_US)
            put(folders["cpu"] / "cpu.cfs_quota_us", quota)
            put(folders["cpu"] / "cpu.shares", max(round(1.024 * want.weight_milli), 2))
        if "memory" in folders:
            _memory(folders["memory"], want.host_bytes)

    def remove(self, key: str) -> None:
        """Remove the groups; those that still hold processes stay."""
        for path in self._folders(key).values():
            remove_folder(path)

    def tidy(self) -> None:
        """Remove the folder of all groups, if it is empty."""
        for path in self._parents.values():
            remove_folder(path)

    def use_s(self, key: str) -> float | None:
        """From ``cpuacct.usage``."""
        folder = self._folders(key).get("cpuacct")
        found = None if folder is None else read_counter(folder / "cpuacct.usage")
        return None if found is None else found / 1e9

    def memory_bytes(self, key: str) -> int | None:
        """Anonymous and shared memory; what the kernel keeps of files could go at any time."""
        folder = self._folders(key).get("memory")
        if folder is None or (own := read_counter(folder / "memory.stat", "total_rss")) is None:
            return None
        return own + (read_counter(folder / "memory.stat", "total_shmem") or 0)

    def pids(self, key: str) -> list[int]:
        """Processes in a group."""
        found: set[int] = set()
        for path in self._folders(key).values():
            with contextlib.suppress(OSError, ValueError):
                found |= set(map(int, (path / "cgroup.procs").read_text().split()))
        return sorted(found)


def _memory(folder: Path, size: int) -> None:
    """Set the limit; with swap, where the kernel counts it, and in the order in which it accepts them."""
    limit, swap = folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"
    value = size or -1
    order = [limit, swap] if size and (read_counter(limit) or 0) > size else [swap, limit]
    for path in order:
        if path.exists():
            put(path, value)


def read_cores() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
