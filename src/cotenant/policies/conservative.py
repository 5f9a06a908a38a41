"""First come, first served with conservative backfill.

Card: ``docs/policies/conservative.md``.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import ClassVar

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.space.ends import Ends
from cotenant.policies.space.profile import Promises, Room

__all__ = ["Conservative"]

_AHEAD = 4
_MOST = 4096
_FIRST = Why("head-of-queue")
_PASSES = Why("backfill-delays-no-promise")


class _Front(Index):
    """The first jobs of the queue, so that those who passed them need not be stepped over each time."""

    def __init__(self, view: View) -> None:
        self._queue = view.queue
        self._keys: list[int] = []
        self._records: list[JobRecord] = []
        self._all = False
        self._most = _MOST

    def first(self, count: int) -> list[JobRecord]:
        """The first so many jobs, in order."""
        if len(self._records) < count and not self._all:
            self._records = list(islice(self._queue, _AHEAD * count))
            self._keys = [record.key for record in self._records]
            self._all = len(self._records) < _AHEAD * count
            self._most = max(_MOST, 2 * _AHEAD * count)
        return self._records[:count]

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        key, keys = record.key, self._keys
        if self._all or (keys and key < keys[-1]):
            place = bisect_left(keys, key)
            keys.insert(place, key)
            self._records.insert(place, record)
            if len(keys) > self._most:
                del keys[self._most // 2 :], self._records[self._most // 2 :]
                self._all = False

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        key, keys = record.key, self._keys
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            del keys[place], self._records[place]


class _Look(Index):
    """What the last pass settled: nobody it looked at can start, and nothing changed since."""

    def __init__(self, view: View) -> None:
        self.ends = view.index(Ends)
        self.front = view.index(_Front)
        self.version = -1
        self.until_s = -1.0
        self.last = 0
        self.complete = False

    def enqueued(self, record: JobRecord) -> None:
        """A newcomer matters if it comes before the last job that was looked at."""
        if self.complete or record.key < self.last:
            self.version = -1

    def dequeued(self, record: JobRecord) -> None:
        """So does a job that left, as the next moves up."""
        if record.key <= self.last:
            self.version = -1


class Conservative(Params):
    """Every waiting job is promised a place and a time; a job may pass if it breaks no promise.

    At each event the promises are made anew in queue order: each job gets the earliest time
    at which its devices are predicted to be free for as long as it is predicted to run,
    given those that run and the promises before it. Jobs promised the present start.

    Parameters
    ----------
    window : int
        How many jobs, from the head of the queue, are promised anything and may start;
        0 is all of them. What lies behind waits. The work of one event grows with it.

    References
    ----------
    A. W. Mu'alem and D. G. Feitelson, IEEE TPDS 12(6), 2001, section 2.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def __init__(self, *, window: int = 32) -> None:
        if window < 0:
            raise ConfigError(f"Conservative: window must be zero or more, found {window}")
        self.window = window

    def decide(self, view: View) -> Plan:
        """Start those whose promised time is now."""
        look = view.index(_Look)
        if not view.pending_count:
            return EMPTY
        if look.ends.speeds.stale():
            look.ends.build()
        if look.version == look.ends.version and view.now < look.until_s:
            return EMPTY
        decisions: list[Decision] = []
        jobs = self._in_order(view, look.front, decisions)
        promises = Promises(view, look.ends)
        try:
            started = self._promise(view, promises, jobs, decisions)
        finally:
            until_s = promises.close()
        look.version, look.until_s = look.ends.version, until_s
        look.last = jobs[-1][0].key
        look.complete = not self.window or len(jobs) < self.window
        return Plan(tuple(decisions), again=started) if decisions else EMPTY

    @staticmethod
    def _promise(
        view: View, promises: Promises, jobs: list[tuple[JobRecord, bool]], decisions: list[Decision]
    ) -> bool:
        """Go through the jobs in order; whether any starts.

        A promise matters only to those behind who could start now: with the last of them the
        pass is over, and with nothing free at all nothing is promised.
        """
        room = Room(view)
        last = room.last_of(jobs)
        started = False
        for place, (record, allowed) in enumerate(jobs):
            if not allowed:
                continue
            start = promises.promise(record, _PASSES if place else _FIRST) if place <= last else None
            if start is not None:
                decisions.append(start)
                started = True
                if view.books.limits:
                    # The ceiling is in the books only once this one has started.
                    break
                room.take(start)
                last = room.last_of(jobs, place + 1, last)
            elif record.hold is None:
                decisions.append(Hold(record.id, *view.why_not(record)))
            while last > place and not (jobs[last][1] and promises.could_start(jobs[last][0])):
                last -= 1
        return started

    def _in_order(self, view: View, front: _Front, holds: list[Decision]) -> list[tuple[JobRecord, bool]]:
        """The first jobs in order, and whether their tenants' ceilings allow them now."""
        first = front.first(self.window) if self.window else list(view.queue)
        if not view.books.limits:
            return [(record, True) for record in first]
        found = []
        for record in first:
            refusal = view.limit_refusal(record)
            found.append((record, refusal is None))
            if refusal is not None and record.hold != refusal.reason:
                holds.append(Hold(record.id, refusal.reason, refusal.facts))
        return found
