"""Process trees: who descends from a process, how long they ran, and signals to all of them.

Standard library alone, as the shepherd is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from cotenant.executors.local.layout import stat_fields

__all__ = [
    "TreeClock",
    "cpu_clock_s",
    "descendants",
    "hold_still",
    "resident_bytes",
    "signal_tree",
    "stopped",
]

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LISTS = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return found
    for task in tasks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
            found += map(int, file.read().split())
    return found


def _children_by_parent() -> dict[int, list[int]]:
    """The same for kernels without lists of children: one pass over all processes."""
    found: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        fields = stat_fields(int(name))
        if len(fields) > 1:
            found.setdefault(int(fields[1]), []).append(int(name))
    return found


def descendants(pid: int) -> list[int]:
    """All processes below this one, zombies too, parents before children."""
    table = None if _LISTS else _children_by_parent()
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        below = _children(parent) if table is None else table.get(parent, [])
        new = [child for child in below if child not in found]
        found += new
        waiting += new
    return found


def stopped(pid: int) -> bool:
    """Whether a process is stopped by signal, dead, or gone: it does nothing."""
    fields = stat_fields(pid)
    return not fields or fields[0] in (b"T", b"t", b"Z", b"X")


def signal_tree(root: int, number: int) -> int:
    """Send a signal to all below ``root``; for stops again until nobody new shows up. Returns how many got it."""
    sent = 0
    for _ in range(5):
        below = descendants(root)
        if number == signal.SIGSTOP:
            below = [pid for pid in below if not stopped(pid)]
        for pid in below:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                sent += 1
        if number != signal.SIGSTOP or not below:
            break
    return sent


def hold_still(root: int, patience_s: float = 0.5) -> bool:
    """Stop all below ``root`` and wait until they are; a process that waits for a device may take longer."""
    end = time.monotonic() + patience_s
    while signal_tree(root, signal.SIGSTOP):
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def cpu_clock_s(pid: int) -> float | None:
    """CPU seconds of a process, all its threads, to the nanosecond; None if it is gone."""
    try:
        # The kernel's number of another process's clock, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, OverflowError):
        return None


def resident_bytes(pids: list[int]) -> int:
    """Resident memory, pages shared among them counted each time."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            total += int(file.read().split()[1]) * _PAGE
    return total


class TreeClock:
    """CPU seconds that all processes below ``root`` have used since this clock was made.

    Precise for processes that live; what short-lived ones used is told by their parents, in ticks, once
    they were waited for.
    """

    def __init__(self, root: int, *, itself: bool = False) -> None:
        self.root, self.itself = root, itself
        self.total_s = 0.0
        self.pids: list[int] = []
        self._own: dict[int, float] = {}
        self._waited: dict[int, float] = {}
        self._counted: dict[int, float] = {}

    def read(self, *, refresh: bool = True) -> float:
        """The seconds so far; without ``refresh`` only of processes known already."""
        gone = self._refresh() if refresh or not self.pids else 0.0
        for pid in self.pids:
            now = cpu_clock_s(pid)
            if now is None:
                continue
            more = max(now - self._own.get(pid, 0.0), 0.0)
            self._own[pid] = now
            self._counted[pid] = self._counted.get(pid, 0.0) + more
            self.total_s += more
        self.total_s += gone
        return self.total_s

    def _refresh(self) -> float:
        """List the tree anew; returns seconds of processes that came and went unseen."""
        self.pids = ([self.root] if self.itself else []) + descendants(self.root)
        present = set(self.pids)
        counted = sum(self._counted.pop(pid) for pid in list(self._counted) if pid not in present)
        for pid in list(self._own):
            if pid not in present:
                del self._own[pid]
        waited = 0.0
        for pid in self.pids:
            fields = stat_fields(pid)
            if len(fields) < 15:
                continue
            now = (int(fields[13]) + int(fields[14])) * _TICK_S
            waited += max(now - self._waited.get(pid, 0.0), 0.0)
            self._waited[pid] = now
        self._waited = {pid: at for pid, at in self._waited.items() if pid in present}
        return max(waited - counted, 0.0)
