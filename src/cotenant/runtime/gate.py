"""The step gate: keeps a job's busy share of wall-clock time to its ceiling, by sleeping between steps.

A token bucket. Time passing puts tokens in at the allowed rate, up to a burst; a step takes out
what it was busy for. With too few left the job sleeps, at a place where it holds nothing half-done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Gate"]

_SLICE_NS = 50_000_000
"""Longest sleep before ceiling and orders are looked at again."""
_DEBT_NS = 2_000_000
"""Debts below this are carried on: a sleep costs some 50 us itself."""
_BURST_NS = 50_000_000


class Gate:
    """Makes a job pay for the time it was busy.

    Parameters
    ----------
    limit_milli : callable
        The ceiling now, in thousandths; 0, or 1000 and more, is none.
    interrupted : callable
        True if the job should not sleep any more: it is to be suspended.
    clock_ns, sleep : callable
        The monotonic clock and how to wait; replaced in tests.
    """

    def __init__(
        self,
        limit_milli: Callable[[], int],
        interrupted: Callable[[], bool],
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit_milli, self._interrupted = limit_milli, interrupted
        self._clock_ns, self._sleep = clock_ns, sleep
        self._tokens_ns = 0.0
        self._seen_ns = clock_ns()
        self.slept_ns = 0

    @property
    def open(self) -> bool:
        """Nothing is limited now."""
        return not 0 < self._limit_milli() < 1000

    def pay(self, busy_ns: int) -> bool:
        """Settle for a step that was busy for so long; returns whether the job slept."""
        limit = self._limit_milli()
        if not 0 < limit < 1000:
            self._tokens_ns, self._seen_ns = 0.0, 0
            return False
        now = self._clock_ns()
        if not self._seen_ns:
            self._seen_ns = now - busy_ns  # limited since this step began
        # Credit for waiting (for data, say) is worth one step at least, or long steps would lose it.
        self._fill(now, limit, float(max(_BURST_NS, busy_ns)))
        self._tokens_ns -= busy_ns
        if self._tokens_ns > -_DEBT_NS:
            return False
        began = now
        while self._tokens_ns < 0 and 0 < limit < 1000 and not self._interrupted():
            self._sleep(min(-self._tokens_ns * 1000 / limit, _SLICE_NS) / 1e9)
            now = self._clock_ns()
            self._fill(now, limit, float(_BURST_NS))
            limit = self._limit_milli()
        self.slept_ns += now - began
        return True

    def _fill(self, now_ns: int, limit_milli: int, most_ns: float) -> None:
        self._tokens_ns = min(self._tokens_ns + (now_ns - self._seen_ns) * limit_milli / 1000, most_ns)
        self._seen_ns = now_ns
