"""Waiting jobs in the order in which their present wait began."""

from __future__ import annotations

from bisect import bisect_left, insort

from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View

__all__ = ["Turns"]


class Turns(Index):
    """Jobs that wait for devices, the longest first.

    Attributes
    ----------
    line : list of (float, int)
        When each began to wait, and its id.
    """

    def __init__(self, view: View) -> None:
        self.line: list[tuple[float, int]] = sorted((r.queued_s, r.id) for r in view.queue if r.shape.gpus)

    def enqueued(self, record: JobRecord) -> None:
        """A job begins to wait, or its priority changed."""
        if record.shape.gpus:
            insort(self.line, (record.queued_s, record.id))

    def dequeued(self, record: JobRecord) -> None:
        """A job waits no more."""
        if record.shape.gpus:
            del self.line[bisect_left(self.line, (record.queued_s, record.id))]
