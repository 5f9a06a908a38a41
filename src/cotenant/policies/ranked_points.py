"""Points of demand whose jobs stand in an order of the policy's own, not in that of the queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.demands import Alike
from cotenant.policies.points import Point, Points

__all__ = ["Rank", "RankedPoints"]

Rank = Callable[[JobRecord], float]
"""Of a waiting job, smaller goes first; it must not change while the job waits."""

_SWEEP = 64


class _ByRank(Alike):
    """Waiting jobs that ask for exactly the same, the first in rank on top of the heap."""

    __slots__ = ("_entries", "_rank")

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self._rank = rank
        self._entries: list[tuple[float, int, int, JobRecord]] = []

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
            self._entries = self.living()
            heapq.heapify(self._entries)
        return self.count

    def living(self) -> list[tuple[float, int, int, JobRecord]]:
        """One entry for each job that waits."""
        return list({e[3].id: e for e in self._entries if self._true(e)}.values())

    def _true(self, entry: tuple[float, int, int, JobRecord]) -> bool:
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

    def waiting(self, point: Point) -> list[tuple[float, int, JobRecord]]:
        """All jobs of a point with rank and place in the queue, in no order."""
        line = point.lines[0]
        return [(e[0], e[1], e[3]) for e in line.living()] if isinstance(line, _ByRank) else []
