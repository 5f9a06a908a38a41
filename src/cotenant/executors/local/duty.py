"""A share of CPU time kept by stopping a job and letting it go, for machines whose cgroups are not ours to write.

A bucket of CPU seconds fills at the rate of the share and is emptied by what the job's processes really used;
while it is empty the job is stopped by signal. So the mean is exact whatever the job does, and a job that
overdraws in one go waits for as long as that costs. Standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable

from cotenant.executors.local.trees import TreeClock

__all__ = ["BURST_S", "DutyCycle"]

BURST_S = 0.1
"""The bucket holds this many seconds of the share: a job that idled may run ahead by no more."""

_REFRESH_S = 0.5
_SHORTEST_S, _LONGEST_S = 0.005, 0.25


class DutyCycle:
    """Decides, when asked, whether the job may run, and when to ask again.

    Parameters
    ----------
    clock : TreeClock
        Of the job's processes.
    cores : int
        That the job may use; a share of 1000 is all of them.
    stop, go : callable
        Stop all processes of the job, and let them run.
    """

    def __init__(
        self, clock: TreeClock, cores: int, stop: Callable[[], None], go: Callable[[], None], now: float
    ) -> None:
        self._clock, self._cores = clock, max(cores, 1)
        self._stop, self._go = stop, go
        self._balance_s, self._at, self._used_s = 0.0, now, clock.read()
        self._refreshed = now
        self.running, self._free = True, False
        self.stops = 0

    def step(self, now: float, milli: int) -> float | None:
        """Settle what was used since the last call; returns seconds until the next, None if none is needed.

        Parameters
        ----------
        now : float
            Monotonic seconds.
        milli : int
            The share, in thousandths of the cores; 1000 and more is no limit.
        """
        if milli >= 1000:
            if not self.running:
                self._go()
                self.running = True
            self._free = True
            return None
        if self._free:
            # What it used while nothing was limited is no debt.
            self._free = False
            self.reset(now)
        refresh = now - self._refreshed >= _REFRESH_S
        if refresh:
            self._refreshed = now
        rate = max(milli, 1) / 1000.0 * self._cores
        used_s = self._clock.read(refresh=refresh)
        self._balance_s += rate * (now - self._at) - (used_s - self._used_s)
        self._balance_s = min(self._balance_s, rate * BURST_S)
        self._at, self._used_s = now, used_s
        if self._balance_s <= 0.0:
            if self.running:
                self._stop()
                self.running, self.stops = False, self.stops + 1
            # Until the debt is paid, and a little of the next turn is saved up: fewer, longer turns.
            return min(max((rate * BURST_S / 4 - self._balance_s) / rate, _SHORTEST_S), _LONGEST_S)
        if not self.running and self._balance_s >= rate * BURST_S / 4 - 1e-4:
            self._go()
            self.running = True
        if not self.running:
            return max((rate * BURST_S / 4 - self._balance_s) / rate, _SHORTEST_S)
        # On all its cores, and filling meanwhile, it empties the bucket at the earliest after this.
        return min(max(self._balance_s / max(self._cores - rate, 1e-3), _SHORTEST_S), _LONGEST_S)

    def reset(self, now: float) -> None:
        """Time in which the job was paused or stopping earns it nothing."""
        self._at, self._used_s = now, self._clock.read()
        self._balance_s = 0.0
