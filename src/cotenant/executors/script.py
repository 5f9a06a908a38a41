"""What happens in a simulated world at set times: jobs that arrive, and what befalls the cluster."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence

from cotenant.model.events import Event
from cotenant.model.jobs import Job
from cotenant.model.workload import Workload

__all__ = ["Arrivals", "Incidents"]

_NO_MORE = Job(id=-1, name="", submit_s=math.inf)


class Arrivals:
    """Jobs to come, in order.

    Attributes
    ----------
    next_s : float
        When the next arrives; infinite if none is left.
    """

    def __init__(self, workload: Workload) -> None:
        self._jobs = workload.jobs()
        self._next = next(self._jobs, _NO_MORE)
        self.next_s = self._next.submit_s

    def take(self) -> Job:
        """The next job; only while ``next_s`` is finite."""
        taken = self._next
        self._next = found = next(self._jobs, _NO_MORE)
        self.next_s = found.submit_s
        return taken


class Incidents:
    """Events to be played, in order of time.

    Attributes
    ----------
    next_s : float
        When the next is due; infinite if none is left.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = sorted(events, key=lambda e: e.t)
        self._at = 0
        self.next_s = self._events[0].t if self._events else math.inf

    def add(self, event: Event) -> None:
        """Another event to be played, not before those of the past."""
        insort(self._events, event, lo=self._at, key=lambda e: e.t)
        self.next_s = self._events[self._at].t

    def due(self, t: float) -> list[Event]:
        """Take the events up to ``t``."""
        first = self._at
        while self._at < len(self._events) and self._events[self._at].t <= t:
            self._at += 1
        self.next_s = self._events[self._at].t if self._at < len(self._events) else math.inf
        return self._events[first : self._at]
