"""Counts the steps of jobs without our runtime: a line for each, into a pipe that the shepherd empties.

Standard library alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from cotenant.executors.local import layout

__all__ = ["StepCounter"]

_EVERY_S = 0.25
_WEIGHT = 0.1


class StepCounter:
    """Empties the pipe at most every quarter of a second, whatever the job's speed.

    Parameters
    ----------
    path : str
        The FIFO that ``COTENANT_STEPS`` names.
    status : int
        Descriptor of the status file, in which steps and their mean time are written, unless the job's own
        runtime does that.
    """

    def __init__(self, path: str, status: int) -> None:
        self.pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.pipe, getattr(fcntl, "F_SETPIPE_SZ", 1031), 1 << 20)
        self._status = status
        self._rest = b""
        self._from = 0.0
        self._watched = False
        self._steps, self._last_ns, self._mean_s = 0, 0, 0.0

    def due(self, now: float) -> bool:
        """Whether the pipe should be watched from now on, and is not."""
        if self._watched or now < self._from:
            return False
        self._watched = True
        return True

    def wait_s(self, now: float) -> float | None:
        """Until it should be watched again; None while it is."""
        return None if self._watched else max(self._from - now, 0.0)

    def count(self, now: float) -> None:
        """Read what is there."""
        self._watched, self._from = False, now + _EVERY_S
        data = self._rest
        with contextlib.suppress(OSError):
            while more := os.read(self.pipe, 1 << 16):
                data += more
        *lines, self._rest = data.split(b"\n")
        self._rest = self._rest[-256:]
        ends = [int(words[0]) for line in lines if (words := line.split()) and words[0].isdigit()]
        if not ends or layout.read_word(self._status, layout.FLAGS_AT) & layout.RUNTIME_ATTACHED:
            return
        for end in ends:
            if self._last_ns and end > self._last_ns:
                took = (end - self._last_ns) / 1e9
                self._mean_s = took if not self._mean_s else self._mean_s + _WEIGHT * (took - self._mean_s)
            self._last_ns = max(self._last_ns, end)
        self._steps += len(ends)
        layout.write_word(self._status, layout.STEPS_AT, self._steps)
        layout.write_word(self._status, layout.STEP_NS_AT, min(self._last_ns, 2**64 - 1))
        os.pwrite(self._status, struct.pack("<d", self._mean_s), layout.STEP_S_AT)
