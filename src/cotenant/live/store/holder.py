"""Who holds the lease, as a process of a boot of a machine, and the clock that no one can set."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

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
    return Holder(_boot_id(), _space(), pid, _start_ticks(pid) or 0)


def alive(holder: Holder) -> bool | None:
    """Whether that process still runs; None if that cannot be seen from here."""
    if not holder.boot or (holder.boot, holder.space) != (_boot_id(), _space()):
        return None
    if not Path("/proc/self/stat").exists():
        return None
    return _start_ticks(holder.pid) == holder.start_ticks


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None for one that is gone, or a zombie."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])
