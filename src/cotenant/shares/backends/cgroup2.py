"""CPU time and memory by cgroups of version 2: ``cpu.max``, ``cpu.weight``, ``memory.max``, ``cgroup.freeze``, ``cgroup.kill``.

A group may hold processes or hand controllers down, not both; so where our own group is delegated to us (a
systemd user unit with ``Delegate=yes``), we move into a leaf of it first. docs.kernel.org/admin-guide/cgroup-v2.html.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cotenant.shares.backends.base import Applied, Enforcement, Want
from cotenant.shares.backends.groups import own_groups, put, read_counter, remove_folder

__all__ = ["CgroupV2"]

_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000
_LEAF = "cotenant-daemon"


class CgroupV2:
    """Groups below one folder, one for each attempt.

    Parameters
    ----------
    parent : Path
        A group whose ``cgroup.subtree_control`` hands down the controllers.
    controllers : frozenset of str
        Those of ``cpu`` and ``memory`` that it hands down.
    """

    name = "cgroup v2"

    def __init__(self, parent: Path, controllers: frozenset[str]) -> None:
        self._parent, self._controllers = parent, controllers
        self.enforcement = Enforcement(
            memory="hard" if "memory" in controllers else "none",
            compute="averaged" if "cpu" in controllers else "none",
            fault_isolation=True,
            note="compute within each 100 ms; memory beyond the limit ends the job",
        )

    @classmethod
    def detect(cls, scope: str, *, mounts: str | None = None, groups: str | None = None) -> CgroupV2 | None:
        """Make ready below our own group; None where that is not delegated to us."""
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8") if mounts is None else mounts
            groups = Path("/proc/self/cgroup").read_text(encoding="utf-8") if groups is None else groups
            own = own_groups(mounts, groups).get("unified")
            return None if own is None else cls.below(own, scope)
        except OSError:
            return None

    @classmethod
    def below(cls, own: Path, scope: str) -> CgroupV2 | None:
        """The same for a given group; None if it lends neither ``cpu`` nor ``memory``."""
        offered = set((own / "cgroup.controllers").read_text().split()) & {"cpu", "memory"}
        if not offered or not os.access(own / "cgroup.subtree_control", os.W_OK):
            return None
        if not offered <= set((own / "cgroup.subtree_control").read_text().split()):
            _move_into_leaf(own)
            _hand_down(own, offered)
        parent = own / scope
        parent.mkdir(exist_ok=True)
        _hand_down(parent, offered)
        return cls(parent, frozenset(offered))

    def apply(self, want: Want) -> Applied:
        """Make the group and set the limits."""
        folder = self._parent / want.key
        try:
            if not self._parent.is_dir():
                # A scheduler that gave up its lead may have tidied it away.
                self._parent.mkdir(exist_ok=True)
                _hand_down(self._parent, set(self._controllers))
            folder.mkdir(exist_ok=True)
            self.adjust(want)
        except OSError:
            self.remove(want.key)
            raise
        return Applied(
            procs=(str(folder / "cgroup.procs"),),
            freezer=str(folder / "cgroup.freeze"),
            kill_file=str(folder / "cgroup.kill"),
            oom_files=(str(folder / "memory.events"),) if "memory" in self._controllers else (),
            remove=(str(folder),),
        )

    def adjust(self, want: Want) -> None:
        """Set quota, weight and memory limit."""
        folder = self._parent / want.key
        if "cpu" in self._controllers:
            cores = want.compute_cores
            quota = "max" if cores is None else str(max(round(cores * _PERIOD_US), _LEAST_QUOTA_US))
            put(folder / "cpu.max", f"{quota} {_PERIOD_US}")
            put(folder / "cpu.weight", min(max(round(want.weight_milli / 10), 1), 10_000))
        if "memory" in self._controllers:
            put(folder / "memory.max", want.host_bytes or "max")
            with contextlib.suppress(OSError):
                put(folder / "memory.swap.max", 0 if want.host_bytes else "max")

    def remove(self, key: str) -> None:
        """Remove the group; one that still holds processes stays."""
        remove_folder(self._parent / key)

    def tidy(self) -> None:
        """Remove the folder of all groups, if it is empty."""
        remove_folder(self._parent)

    def use_s(self, key: str) -> float | None:
        """From ``cpu.stat``."""
        found = read_counter(self._parent / key / "cpu.stat", "usage_usec")
        return None if found is None else found / 1e6

    def memory_bytes(self, key: str) -> int | None:
        """Anonymous and shared memory; what the kernel keeps of files could go at any time."""
        own = read_counter(self._parent / key / "memory.stat", "anon")
        return None if own is None else own + (read_counter(self._parent / key / "memory.stat", "shmem") or 0)

    def pids(self, key: str) -> list[int]:
        """Processes in a group."""
        with contextlib.suppress(OSError, ValueError):
            return sorted(map(int, (self._parent / key / "cgroup.procs").read_text().split()))
        return []


def _hand_down(folder: Path, controllers: set[str]) -> None:
    put(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))


def _move_into_leaf(own: Path) -> None:
    """Leave the group that is to hand controllers down, if nobody else is in it.

    Raises
    ------
    OSError
        If others are: to move them is not ours.
    """
    inside = set(map(int, (own / "cgroup.procs").read_text().split()))
    if inside - {os.getpid()}:
        raise OSError(16, f"holds other processes: {sorted(inside - {os.getpid()})[:5]}", str(own))
    if inside:
        leaf = own / _LEAF
        leaf.mkdir(exist_ok=True)
        put(leaf / "cgroup.procs", os.getpid())
