"""What a job with a gate in it uses: its own word, over a time that holds several of its steps."""

from __future__ import annotations

from collections import deque

from cotenant.executors.local.attempts import Reading
from cotenant.model.placement import DEVICE_MILLI

__all__ = ["GateMeter"]

_LEAST_S, _STEPS, _MOST_S = 1.0, 4.0, 10.0


class GateMeter:
    """Readings of one job.

    A job tells what it was busy at the end of each step, and how long the gate made it sleep after that; so what
    it used is known over several steps, and that it was held back from any sleep within them.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()
        self._slept_at = float("-inf")
        self._window_s = _LEAST_S

    def read(self, now: float, reading: Reading) -> float | None:
        """Thousandths used over the window; None before there is one."""
        step_s = reading.step_s if 0.0 < reading.step_s < _MOST_S else 0.0
        self._window_s = min(max(_LEAST_S, _STEPS * step_s), _MOST_S)
        if self._seen and reading.slept_ns > self._seen[-1][2]:
            self._slept_at = now
        self._seen.append((now, reading.busy_ns, reading.slept_ns))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._window_s:
            self._seen.popleft()
        first = self._seen[0]
        if now - first[0] <= 0.0:
            return None
        return DEVICE_MILLI * max(reading.busy_ns - first[1], 0) / 1e9 / (now - first[0])

    def held(self, now: float) -> bool:
        """Whether the gate made it sleep within the window."""
        return now - self._slept_at <= self._window_s
