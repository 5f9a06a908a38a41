"""Waiting jobs in the order in which their present wait began: those that never ran, and those that were stopped."""

from __future__ import annotations

from bisect import bisect_left, insort

from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View

__all__ = ["Line", "Turns"]

Line = list[tuple[float, int]]
"""When each began to wait, and its id; the longest first."""


class Turns(Index):
    """Jobs that wait for devices, the longest first.

    Attributes
    ----------
    new, stopped : list of (float, int)
        Jobs that never ran, and jobs that did: when each began to wait, and its id.
    """

    def __init__(self, view: View) -> None:
        self.new: Line = []
        self.stopped: Line = []
        for record in view.queue:
            if record.shape.gpus:
                self._line(record).append((record.queued_s, record.id))
        self.new.sort()
        self.stopped.sort()

    def _line(self, record: JobRecord) -> Line:
        return self.stopped if record.started_s >= 0.0 else self.new

    def due_s(self, longest_wait_s: float) -> float:
        """When the first of all has waited so long; infinite if nobody waits."""
        began_s = min([line[0][0] for line in (self.new, self.stopped) if line], default=float("inf"))
        return began_s + longest_wait_s

    def last_s(self) -> float:
        """When the last of all began to wait; minus infinity if nobody waits."""
        return max([line[-1][0] for line in (self.new, self.stopped) if line], default=-float("inf"))

    def enqueued(self, record: JobRecord) -> None:
        """A job begins to wait, or its priority changed."""
        if record.shape.gpus:
            insort(self._line(record), (record.queued_s, record.id))

    def dequeued(self, record: JobRecord) -> None:
        """A job waits no more."""
        if not record.shape.gpus:
            return
        entry = record.queued_s, record.id
        # Its start may be noted already, so it is not known from the record where it waited.
        for line in (self.new, self.stopped):
            at = bisect_left(line, entry)
            if at < len(line) and line[at] == entry:
                del line[at]
                return
