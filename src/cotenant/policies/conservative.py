"""First come, first served with conservative backfill.

Card: ``docs/policies/conservative.md``.
"""

from __future__ import annotations

from itertools import islice

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.ends import Ends
from cotenant.policies.fit import order
from cotenant.policies.profile import Promises, Room

__all__ = ["Conservative"]

_INF = float("inf")
_FIRST = Why("head-of-queue")
_PASSES = Why("backfill-delays-no-promise")


class _Look(Index):
    """What the last pass settled: nobody it looked at can start, and nothing changed since."""

    def __init__(self, view: View) -> None:
        self.ends = view.index(Ends)
        self.version = -1
        self.until_s = -1.0
        self.last = 0
        self.complete = False

    def enqueued(self, record: JobRecord) -> None:
        """A newcomer matters if it comes before the last job that was looked at."""
        if self.complete or order(record) < self.last:
            self.version = -1

    def dequeued(self, record: JobRecord) -> None:
        """So does a job that left, as the next moves up."""
        if order(record) <= self.last:
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
        jobs = self._in_order(view, decisions)
        promises = Promises(view, look.ends)
        try:
            started = self._promise(view, promises, jobs, decisions)
        finally:
            until_s = promises.close()
        look.version, look.until_s = look.ends.version, until_s
        look.last = order(jobs[-1][0])
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
        return started

    def _in_order(self, view: View, holds: list[Decision]) -> list[tuple[JobRecord, bool]]:
        """The first jobs in order, and whether their tenants' ceilings allow them now."""
        first = list(islice(view.queue, self.window)) if self.window else list(view.queue)
        if not view.books.limits:
            return [(record, True) for record in first]
        found = []
        for record in first:
            refusal = view.limit_refusal(record)
            found.append((record, refusal is None))
            if refusal is not None and record.hold != refusal.reason:
                holds.append(Hold(record.id, refusal.reason, refusal.facts))
        return found
