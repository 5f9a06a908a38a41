"""What stands beside each figure of the live scheduler: processor time, noise, and how busy the machine was."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["AHEAD", "Load", "as_others", "cpu_s", "go_ahead", "spread"]

AHEAD = "the bench and the scheduler, but not its jobs, go before all other work (root), as if the machine were quiet"


def go_ahead() -> None:
    """This process, and all that it starts from now on, go before other work.

    By the real-time class: niceness counts within a session alone where the kernel groups processes by session.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        raise SystemExit("--ahead: only root may go before others") from None


def as_others() -> None:
    """In a child before it runs its program: no more ahead than a job is."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def cpu_s(pid: int) -> float:
    """Processor time of a process, all threads, in seconds, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Median, least and most, and the first and last tenth: what a busy machine does to a figure."""
    ordered = sorted(values)
    last = len(ordered) - 1
    found = {
        "median": statistics.median(ordered),
        "least": ordered[0],
        "p10": ordered[round(0.1 * last)],
        "p90": ordered[round(0.9 * last)],
        "most": ordered[last],
    }
    return {name: round(value, digits) for name, value in found.items()}


class Load:
    """How busy the machine is from now until ``told``."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), _ticks()

    def told(self) -> dict[str, Any]:
        """Load average, processors kept busy by anybody (the bench included), and how long it took."""
        lasted = time.monotonic() - self._begun
        busy, stolen = (now - then for now, then in zip(_ticks(), self._before, strict=True))
        tick = os.sysconf("SC_CLK_TCK")
        return {
            "load_1min": round(os.getloadavg()[0], 1),
            "cpus": os.cpu_count(),
            "cpus_busy": round(busy / tick / lasted, 2),
            "cpus_stolen": round(stolen / tick / lasted, 2),
            "lasted_s": round(lasted, 1),
        }


def _ticks() -> tuple[int, int]:
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
    return sum(fields[:3]) + sum(fields[5:7]), fields[7]
