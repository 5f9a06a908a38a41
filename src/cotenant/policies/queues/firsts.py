"""Jobs that are alike, of which only the first ever matters."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from cotenant.model.records import JobRecord

__all__ = ["Firsts"]

_Entry = tuple[int, int, JobRecord]
_SWEEP = 64


class Firsts:
    """Waiting jobs in default order; the first is always at hand.

    Jobs that left from further back are passed over when they come to the front, and swept when
    they outnumber the living.

    Attributes
    ----------
    head : JobRecord or None
        The first of them.
    count : int
        How many wait.
    """

    __slots__ = ("_last", "_late", "_line", "_serial", "count", "head")

    def __init__(self) -> None:
        self.head: JobRecord | None = None
        self.count = 0
        # Behind the head: jobs in the order of their coming, and those that came out of turn.
        self._line: deque[JobRecord] = deque()
        self._late: list[_Entry] = []
        self._last = -(1 << 128)
        self._serial = 0

    def __iter__(self) -> Iterator[JobRecord]:
        """All of them, in no order; one that returned may come twice."""
        if self.head is not None:
            yield self.head
        for record in (*self._line, *[entry[2] for entry in self._late]):
            if not record.status:
                yield record

    def push(self, record: JobRecord) -> bool:
        """A job starts to wait; whether it is the first now."""
        self.count += 1
        head, key = self.head, record.key
        if head is None:
            self.head = record
            self._line.clear()
            self._late.clear()
            self._last = key
            return True
        if key > self._last:
            self._last = key
            self._line.append(record)
        elif key < head.key:
            self._push_late(head)
            self.head = record
            return True
        else:
            self._push_late(record)
        if len(self._line) + len(self._late) > 2 * self.count + _SWEEP:
            self._sweep()
        return False

    def left(self, record: JobRecord) -> bool:
        """A job waits no more; whether another is the first now, or nobody.

        A job whose priority is about to change leaves while it is still pending.
        """
        self.count -= 1
        if not record.status:
            self._line = deque(r for r in self._line if r is not record)
            self._late = [e for e in self._late if e[2] is not record]
            heapq.heapify(self._late)
        if record is not self.head:
            return False
        self.head = self._next() if self.count else None
        return True

    def _push_late(self, record: JobRecord) -> None:
        self._serial += 1
        heapq.heappush(self._late, (record.key, self._serial, record))

    def _next(self) -> JobRecord | None:
        """Take out the first living job behind the head."""
        line, late = self._line, self._late
        while line and line[0].status:
            line.popleft()
        while late and late[0][2].status:
            heapq.heappop(late)
        if late and not (line and line[0].key < late[0][0]):
            return heapq.heappop(late)[2]
        return line.popleft() if line else None

    def _sweep(self) -> None:
        living = {record.id: record for record in self}
        if self.head is not None:
            living.pop(self.head.id, None)
        self._line = deque(sorted(living.values(), key=lambda r: r.key))
        self._late = []
