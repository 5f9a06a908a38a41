"""Waiting jobs in queue order by demand class, so that a class that fits nowhere costs nothing.

A line answers "who is first" in O(1) and "who is first of those that hold their place for
at most this long" in O(log waiting): a tree of minima over the line, in queue order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.queues.minima import MinRow
from cotenant.policies.space.fit import UNKNOWN_S, Speeds, startup_s

__all__ = ["Line", "Lines", "RoomLines"]

_INF = float("inf")
_SPARE = 64
_EVERY = 8
_REACH = 32


class Line:
    """The waiting jobs of one class, in queue order.

    Jobs keep slots in a growing row; slots of jobs that left are reused or squeezed out, so
    memory follows the living. What is answered depends on who waits, not on the slots.

    Attributes
    ----------
    shape : Shape
        What each of them asks for, as far as whole devices are concerned.
    tenant : str
        Whose jobs these are, if that tenant has a ceiling.
    plain : bool
        Whether all they ask for is devices of one node, and no ceiling is theirs.
    count : int
    """

    __slots__ = (
        "_front",
        "_hold_s",
        "_keys",
        "_records",
        "_rows",
        "count",
        "gpus",
        "plain",
        "shape",
        "tenant",
    )

    def __init__(self, shape: Shape, tenant: str, hold_s: Callable[[JobRecord, int], float]) -> None:
        self.shape = shape
        self.gpus = shape.gpus
        self.tenant = tenant
        self.plain = bool(shape.gpus) and not (shape.spans or shape.cpu_milli or shape.host_bytes or tenant)
        self.count = 0
        self._hold_s = hold_s
        self._keys: list[int] = []
        self._records: list[JobRecord | None] = []
        self._rows: dict[int, MinRow] = {}
        self._front = 0

    def push(self, record: JobRecord) -> None:
        """A job starts to wait."""
        key = record.key
        keys = self._keys
        self.count = count = self.count + 1
        if not keys or key > keys[-1]:
            keys.append(key)
            self._records.append(record)
            for kind, row in self._rows.items():
                row.append(self._hold_s(record, kind))
            if len(keys) > 2 * count + _SPARE:
                self._respace(gaps=False)
            return
        slot = self._dead_slot(key)
        if slot < 0:
            self._respace(gaps=True)
            slot = self._dead_slot(key)
        self._keys[slot] = key
        self._records[slot] = record
        self._front = min(self._front, slot)
        for kind, row in self._rows.items():
            row.set(slot, self._hold_s(record, kind))

    def _dead_slot(self, key: int) -> int:
        """A slot of nobody where ``key`` belongs, made by moving a few; -1 if none is near."""
        keys, records = self._keys, self._records
        slot = bisect_left(keys, key)
        for dead in range(slot, min(slot + _REACH, len(keys))):
            if records[dead] is None:
                records[slot + 1 : dead + 1] = records[slot:dead]
                keys[slot + 1 : dead + 1] = keys[slot:dead]
                if dead > slot:
                    for row in self._rows.values():
                        row.shift(slot, dead)
                return slot
        return slot - 1 if slot > 0 and records[slot - 1] is None else -1

    def _respace(self, gaps: bool) -> None:
        """Squeeze out the dead, or, for those who return, leave a dead slot after every few."""
        living = list(self.records())
        self._keys, self._records = [], []
        for number, record in enumerate(living, 1):
            key = record.key
            self._keys.append(key)
            self._records.append(record)
            if gaps and (number % _EVERY == 0 or number == len(living)):
                self._keys.append(key)
                self._records.append(None)
        self._front = 0
        for kind in self._rows:
            self._rows[kind] = self._row(kind)

    def pop(self, record: JobRecord) -> None:
        """A job waits no more."""
        self.count = count = self.count - 1
        if not count:
            self._keys.clear()
            self._records.clear()
            self._rows.clear()
            self._front = 0
            return
        records, slot = self._records, self._front
        if records[slot] is not record:
            slot = bisect_left(self._keys, record.key)
        records[slot] = None
        for row in self._rows.values():
            row.set(slot, _INF)

    def records(self) -> Iterable[JobRecord]:
        """All of them, in order; O(waiting)."""
        return (record for record in self._records if record is not None)

    def first(self) -> JobRecord:
        """The first; there must be one."""
        records, front = self._records, self._front
        found = records[front]
        while found is None:
            front += 1
            found = records[front]
        self._front = front
        return found

    def first_within(self, kind: int, limit_s: float) -> JobRecord | None:
        """The first that holds a place on this device type for at most ``limit_s``, as predicted."""
        row = self._rows.get(kind) or self._row_of(kind)
        if row.least > limit_s:
            return None
        slot = row.first(limit_s)
        return self._records[slot] if slot >= 0 else None

    def least(self, kind: int) -> float:
        """The least time that any of them holds a place on this device type."""
        return (self._rows.get(kind) or self._row_of(kind)).least

    def _row_of(self, kind: int) -> MinRow:
        row = self._rows.get(kind)
        if row is None:
            row = self._rows[kind] = self._row(kind)
        return row

    def _row(self, kind: int) -> MinRow:
        hold_s = self._hold_s
        return MinRow(_INF if r is None else hold_s(r, kind) for r in self._records)


class Lines(Index):
    """All waiting jobs, in a line for each class.

    A class is what decides where whole devices are found: gang size, device types, span,
    host needs; and the tenant, where it has a ceiling.

    Attributes
    ----------
    active : dict of Line to None
        Lines with somebody in them; their order means nothing.
    news : dict of Line to None
        Lines somebody joined since the policy last cleared this; at first, all.
    speeds : Speeds
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.build()

    def build(self) -> None:
        """Build again from the view."""
        self.speeds = Speeds(self._view)
        self._cold_s = self._view.settings.decision_latency_s + self._view.settings.start_s
        self.active: dict[Line, None] = {}
        self.news: dict[Line, None] = {}
        self._limits = dict(self._view.books.limits)
        self._lines: dict[tuple[object, ...], Line] = {}
        self._by_shape: dict[int, Line] = {}
        for record in self._view.queue:
            self.enqueued(record)

    def hold_s(self, record: JobRecord, kind: int) -> float:
        """How long a job will hold its place on a device type, from its start, as predicted."""
        work_s = record.predicted_s
        if work_s <= 0.0:
            return UNKNOWN_S
        if not record.suspended and not record.work_s:
            return self._cold_s + work_s / self.speeds.of(record.job.model, kind)
        work_s = record.remaining_at(self._view.now)
        return startup_s(self._view.settings, record) + work_s / self.speeds.of(record.job.model, kind)

    def line_of(self, record: JobRecord) -> Line:
        """The line a job belongs to."""
        shape = record.shape
        tenant = record.job.tenant if self._limits and record.job.tenant in self._limits else ""
        if not tenant:
            line = self._by_shape.get(shape.number)
            if line is not None:
                return line
        key = (shape.gpus, shape.types, shape.single, shape.spans, shape.cpu_milli, shape.host_bytes, tenant)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(shape, tenant, self.hold_s)
        if not tenant:
            self._by_shape[shape.number] = line
        return line

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        line = None if self._limits else self._by_shape.get(record.shape.number)
        if line is None:
            line = self.line_of(record)
        line.push(record)
        self.active[line] = self.news[line] = None

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        line = None if self._limits else self._by_shape.get(record.shape.number)
        if line is None:
            line = self.line_of(record)
        line.pop(record)
        if not line.count:
            del self.active[line]
            self.news.pop(line, None)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Ceilings may have changed, and classes with them."""
        if self._limits != self._view.books.limits:
            self.build()


class RoomLines(Lines):
    """Lines that also notice when there may be room again.

    Attributes
    ----------
    freed : bool
        Whether anything became free since the policy last cleared this; at first, yes.
        Between, starts only took room: who did not fit then does not fit now.
    """

    def __init__(self, view: View) -> None:
        self.freed = True
        super().__init__(view)

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue: its line may have a new head."""
        super().dequeued(record)
        line = self.line_of(record)
        if line.count:
            self.news[line] = None

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        self.freed = True

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices or ceilings changed."""
        self.freed = True
        super().capacity(devices)

    def to_look_at(self) -> tuple[Line, ...]:
        """Lines whose jobs may fit now, though they did not when the policy last looked."""
        return tuple(self.active if self.freed else self.news)

    def looked(self) -> None:
        """Nobody fits: look again only at what changes from now on."""
        self.freed = False
        self.news.clear()
