"""Pending jobs in default order: higher priority first, then submission order.

Arrivals come in order and are appended; jobs that return, or whose priority changed,
go through a heap. Entries of jobs that left are skipped, and swept when there are an eighth
as many as of the living, since each keeps a whole record: memory follows the living.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from cotenant.model.records import JobRecord

__all__ = ["PendingQueue"]

_Entry = tuple[int, int, JobRecord]
_BEFORE_ALL = -(1 << 128)
_SWEEP = 4096
# "if record.status" below means "not pending": Status.PENDING is 0, which a test holds.


class PendingQueue:
    """The queue.

    Attributes
    ----------
    count : int
        Waiting jobs; also ``len``.
    """

    def __init__(self) -> None:
        self._line: deque[JobRecord] = deque()
        self._last_key = _BEFORE_ALL
        self._late: list[_Entry] = []
        self._serial = 0
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, record: JobRecord) -> None:
        """A job starts to wait."""
        self.count += 1
        line, key = self._line, record.key
        if not record.attempt and key > self._last_key:
            self._last_key = key
            line.append(record)
            if len(line) < _SWEEP:
                return
        else:
            self._serial += 1
            heapq.heappush(self._late, (key, self._serial, record))
        if len(line) + len(self._late) > self.count + (self.count >> 3) + _SWEEP:
            self._sweep()

    def left(self, record: JobRecord) -> None:
        """A job waits no more; its status has changed already."""
        self.count -= 1

    def reorder(self, record: JobRecord) -> None:
        """A live job's key changed; O(waiting), as owners change priorities seldom."""
        self._line = deque(r for r in self._line if r is not record)
        if not record.status:
            self._serial += 1
            heapq.heappush(self._late, (record.key, self._serial, record))

    def head(self) -> JobRecord | None:
        """The first waiting job."""
        line, late = self._line, self._late
        first: JobRecord | None = None
        while line:
            first = line[0]
            if not first.status:
                break
            line.popleft()
            first = None
        while late and (late[0][2].status or late[0][0] != late[0][2].key):
            heapq.heappop(late)
        if not late or (first is not None and first.key <= late[0][0]):
            return first
        return late[0][2]

    def __iter__(self) -> Iterator[JobRecord]:
        """All waiting jobs, in order; O(pending)."""
        late = sorted((e for e in self._late if not e[2].status and e[0] == e[2].key), key=lambda e: e[:2])
        line = ((r.key, -1, r) for r in self._line if not r.status)
        last: JobRecord | None = None
        for entry in heapq.merge(line, late, key=lambda e: e[:2]):
            if entry[2] is not last:
                last = entry[2]
                yield last

    def _sweep(self) -> None:
        # Who was ever started and waits again came through the heap: it is not needed in the line, too.
        self._line = deque(r for r in self._line if not r.status and not r.attempt)
        once = {e[2].id: e for e in self._late if not e[2].status and e[0] == e[2].key}
        self._late = sorted(once.values(), key=lambda e: e[:2])
