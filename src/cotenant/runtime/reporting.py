"""What a job tells about its steps, by its status file; nothing where nobody listens."""

from __future__ import annotations

import os
import sys
import time

from cotenant.runtime.statusfile import (
    CAN_SUSPEND,
    ORDER_SUSPEND,
    RUNTIME_ATTACHED,
    STATE_SAVED,
    StatusFile,
)

__all__ = ["Reporter"]

_WEIGHT = 0.1
"""Of the newest step in the mean."""


class Reporter:
    """Counts and times the steps of one process.

    Parameters
    ----------
    status : StatusFile or None
    """

    def __init__(self, status: StatusFile | None) -> None:
        self._status = status
        self._mean_s = 0.0
        self._timed = 0
        self._last_ns = self._began_ns = time.monotonic_ns()
        self._waited_ns = 0
        self._busy_ns = 0

    @classmethod
    def from_environment(cls) -> Reporter:
        """The one of ``COTENANT_STATUS``; of several processes of one run the first alone reports.

        A status file that cannot be used is told on standard error: a job does not fail for it.
        """
        path = os.environ.get("COTENANT_STATUS")
        if not path or os.environ.get("RANK", "0") != "0":
            return cls(None)
        try:
            return cls(StatusFile(path))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"cotenant: no progress will be reported: {error}\n")
            return cls(None)

    @property
    def to_suspend(self) -> bool:
        """The job is asked to save and leave."""
        return self._status is not None and self._status.order == ORDER_SUSPEND

    def limit_milli(self) -> int:
        """Ceiling allowed now; 0 is none."""
        return 0 if self._status is None else self._status.compute_limit_milli

    def begin(self, steps: int, total: int, *, can_suspend: bool, saved: bool) -> None:
        """Ready to train."""
        flags = RUNTIME_ATTACHED | (CAN_SUSPEND if can_suspend else 0) | (STATE_SAVED if saved else 0)
        if self._status is not None:
            self._status.begin(steps, total, flags)
        self._last_ns = self._began_ns = time.monotonic_ns()

    def waited(self, ns: int) -> None:
        """The step that begins had to wait for its data."""
        self._waited_ns += ns

    def step(self, done: int) -> int:
        """A step has ended; returns how long it was busy, in nanoseconds."""
        now = time.monotonic_ns()
        busy = max(now - self._began_ns - self._waited_ns, 0)
        wall_s = (now - self._last_ns) / 1e9
        self._busy_ns += busy
        # The first step warms up: it counts only until there is a second.
        self._mean_s = wall_s if self._timed < 2 else self._mean_s + _WEIGHT * (wall_s - self._mean_s)
        self._timed += 1
        self._last_ns = self._began_ns = now
        self._waited_ns = 0
        if self._status is not None:
            self._status.stepped(done, now, self._mean_s, self._busy_ns)
        return busy

    def resume(self) -> None:
        """What comes next belongs to the next step: saving and sleeping are over."""
        self._began_ns = time.monotonic_ns()

    def slept(self, ns: int) -> None:
        """The gate held the job, so long in all."""
        if self._status is not None:
            self._status.slept(ns)

    def saving(self, now: bool) -> None:
        """State is being written, or is not any more."""
        if self._status is not None:
            self._status.saving(now)

    def saved(self, step: int, size_bytes: int) -> None:
        """State is on disk."""
        if self._status is not None:
            self._status.saved(step, size_bytes)
