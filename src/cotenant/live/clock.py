"""The log's clock: seconds since the log began, by a clock of the machine that nobody can set.

Between restarts of the scheduler the wall clock fills the gap, but never backwards. Wall time is for
people alone: a jump of it changes nothing that is decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["BootClock", "boot_s"]


def boot_s() -> float:
    """Seconds since the machine started, sleep included; monotonic seconds where there is no such clock."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class BootClock:
    """``model.liveports.Clock`` of a real machine.

    Parameters
    ----------
    began_wall_s : float
        When the log began, in seconds since 1970.
    last_s : float
        The last time in the log: the present is never before it.
    steady, wall : callable
        The machine's clocks; others in tests.
    """

    def __init__(
        self,
        began_wall_s: float,
        last_s: float = 0.0,
        *,
        steady: Callable[[], float] = boot_s,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._steady, self._wall = steady, wall
        self._at = steady()
        now_wall = wall()
        self._base = max(now_wall - began_wall_s, last_s, 0.0)
        self._to_wall = now_wall - self._base

    def now(self) -> float:
        """The present."""
        return self._base + (self._steady() - self._at)

    def wall(self, t: float) -> float:
        """The same instant as seconds since 1970, for people."""
        return self._to_wall + t

    def at_least(self, last_s: float) -> None:
        """Never show less than this from now on: another scheduler has written that time into the log."""
        behind = last_s - self.now()
        if behind > 0.0:
            self._base += behind
            self._to_wall -= behind

    def jumped_s(self) -> float:
        """By how much the machine's wall clock was set since we began; for people, who may wonder."""
        return self._wall() - self.wall(self.now())
