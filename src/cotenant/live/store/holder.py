"""Who holds the lease, as a process of a boot of a machine, and the clock that no one can set."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from cotenant.executors.local import layout

__all__ = ["Holder", "alive", "boot_ns", "myself"]

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Holder(msgspec.Struct, frozen=True):
    """A process, never to be mistaken for another.

    Parameters
    ----------
    boot : str
        The kernel's id of this boot; empty where it tells none.
    space : str
        The pid namespace: pids of another one mean nothing here.
    pid, start_ticks : int
        The process, and when the kernel started it; the pid alone may be used again.
    """

    boot: str
    space: str
    pid: int
    start_ticks: int


def boot_ns() -> int:
    """Nanoseconds since the machine started, sleep included; setting its date does not move it."""
    return time.clock_gettime_ns(_BOOT_CLOCK)


def myself() -> Holder:
    """This process."""
    pid = os.getpid()
    return Holder(layout.boot_id(), _space(), pid, layout.start_ticks(pid))


def alive(holder: Holder) -> bool | None:
    """Whether that process still runs; None if that cannot be seen from here."""
    if not holder.boot or (holder.boot, holder.space) != (layout.boot_id(), _space()):
        return None
    if not Path("/proc/self/stat").exists():
        return None
    return layout.alive(holder.pid, holder.start_ticks)


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
