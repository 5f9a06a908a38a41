"""Who held the cores during a window: the jobs, nobody, or somebody else.

Linux counts, for every thread, the time that it ran and the time that it waited for a core
(``/proc/PID/task/TID/schedstat``), and for every core the time that it was idle (``/proc/stat``). What
is neither idle nor the jobs' own was taken by others: other processes, interrupts, the
hypervisor.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

__all__ = ["CoreUse", "TaskUse", "core_use", "taken_by_others", "task_use"]


class TaskUse(msgspec.Struct, frozen=True):
    """A process tree's counters since its start.

    Parameters
    ----------
    ran_s, waited_s : float or None
        On a core, and ready but without one, summed over threads; None where the kernel does not
        count them.
    switches : int
        Times that it gave its core up of its own accord.
    faults : int
        Pages that it had to be given.
    resident_bytes : int
        Now, shared pages included.
    """

    ran_s: float | None
    waited_s: float | None
    switches: int
    faults: int
    resident_bytes: int


class CoreUse(msgspec.Struct, frozen=True):
    """Cores' counters: monotonic time, and idle seconds summed over the cores (None if unknown)."""

    time_ns: int
    idle_s: float | None


def task_use(pid: int) -> TaskUse:
    """Counters of a process with its descendants; zeros and None if it is gone."""
    ran = waited = 0.0
    known = False
    switches = faults = resident = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError, ValueError, IndexError):
                resident += process.memory_info().rss
                switches += process.num_ctx_switches().voluntary
                faults += _faults(process.pid)
                for task in os.listdir(f"/proc/{process.pid}/task"):  # noqa: PTH208
                    words = Path(f"/proc/{process.pid}/task/{task}/schedstat").read_text().split()
                    ran += int(words[0]) / 1e9
                    waited += int(words[1]) / 1e9
                    known = True
    return TaskUse(ran if known else None, waited if known else None, switches, faults, resident)


def _faults(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


def core_use(cores: Sequence[int]) -> CoreUse:
    """Counters of a set of cores."""
    now = time.monotonic_ns()
    each = psutil.cpu_times(percpu=True)
    if not cores or max(cores) >= len(each):
        return CoreUse(now, None)
    return CoreUse(now, sum(each[core].idle + getattr(each[core], "iowait", 0.0) for core in cores))


def taken_by_others(
    cores: Sequence[int],
    before: CoreUse,
    after: CoreUse,
    tasks_before: Sequence[TaskUse],
    tasks_after: Sequence[TaskUse],
    *,
    threads: int = 1,
) -> list[float] | None:
    """Share of the time that others took from each of the jobs; None if it cannot be told.

    Others took from a job at most the time for which it waited for a core (what they did while
    it slept took nothing from it), and at most the time that was neither idle nor the jobs'
    own. On one core, and wherever the jobs have a core for each thread, that is exact.

    Parameters
    ----------
    cores : sequence of int
    before, after : CoreUse
        At the edges of the window.
    tasks_before, tasks_after : sequence of TaskUse
        Of each job, in one order.
    threads : int
        Threads of each job that run at a time.
    """
    seconds = (after.time_ns - before.time_ns) / 1e9
    if before.idle_s is None or after.idle_s is None or seconds <= 0 or not cores:
        return None
    own, waits = 0.0, []
    for first, last in zip(tasks_before, tasks_after, strict=True):
        if first.ran_s is None or last.ran_s is None or first.waited_s is None or last.waited_s is None:
            return None
        own += max(last.ran_s - first.ran_s, 0.0)
        waits.append(max(last.waited_s - first.waited_s, 0.0) / threads)
    others = len(cores) * seconds - max(after.idle_s - before.idle_s, 0.0) - own
    return [min(max(min(others, wait), 0.0) / seconds, 0.95) for wait in waits]
