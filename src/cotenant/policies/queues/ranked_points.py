"""Points of demand whose jobs stand in an order of the policy's own, not in that of the queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.queues.demands import Alike
from cotenant.policies.queues.points import Point, Points

__all__ = ["Rank", "RankedPoints"]

Rank = Callable[[JobRecord], float]
"""Of a waiting job, smaller goes first; it must not change while the job waits."""

_SWEEP = 64
_Entry = tuple[float, int, int, JobRecord]
"""Rank, place in the queue, serial number (entries never compare further), job."""


class _ByRank(Alike):
    """Waiting jobs that ask for exactly the same, the first in rank on top of the heap."""

    __slots__ = ("_entries", "_rank")

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self._rank = rank
        self._entries: list[_Entry] = []

    def head(self) -> JobRecord:
        entries = self._entries
        while not self._true(entries[0]):
            heapq.heappop(entries)
        return entries[0][3]

    def push(self, record: JobRecord, serial: int) -> None:
        self.count += 1
        heapq.heappush(self._entries, (self._rank(record), record.key, serial, record))

    def left(self) -> int:
        self.count -= 1
        if len(self._entries) > 2 * self.count + _SWEEP:
            self._entries = list({e[3].id: e for e in self._entries if self._true(e)}.values())
            heapq.heapify(self._entries)
        return self.count

    def first(self, count: int) -> list[_Entry]:
        """The first so many in rank, one entry for each job; their number decides the effort, not that of all."""
        entries, seen = self._entries, set[int]()
        found: list[_Entry] = []
        ahead = [(entries[0], 0)] if entries else []
        while ahead and len(found) < count:
            entry, at = heapq.heappop(ahead)
            if entry[3].id not in seen and self._true(entry):
                seen.add(entry[3].id)
                found.append(entry)
            for below in (2 * at + 1, 2 * at + 2):
                if below < len(entries):
                    heapq.heappush(ahead, (entries[below], below))
        return found

    def _true(self, entry: _Entry) -> bool:
        record = entry[3]
        return not record.status and entry[:2] == (self._rank(record), record.key)


class RankedPoints(Points):
    """Points of which ``head`` is the first in rank.

    Parameters
    ----------
    view : View
    rank : callable
    """

    def __init__(self, view: View, rank: Rank) -> None:
        self.rank = rank
        super().__init__(view)

    def point(self, record: JobRecord) -> Point:
        """The point of a job."""
        point = super().point(record)
        if not point.lines:
            point.lines[0] = _ByRank(self.rank)
        return point

    def first(self, point: Point, count: int) -> list[tuple[float, int, JobRecord]]:
        """The first jobs of a point with rank and place in the queue, in order."""
        line = point.lines[0]
        return [(e[0], e[1], e[3]) for e in line.first(count)] if isinstance(line, _ByRank) else []
