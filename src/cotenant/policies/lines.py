"""Waiting jobs in queue order by demand class, so that a class that fits nowhere costs nothing.

A line answers "who is first" in O(1) and "who is first of those that hold their place for
at most this long" in O(log waiting): a tree of minima over the line, in queue order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.fit import UNKNOWN_S, Speeds, order, startup_s

__all__ = ["Line", "Lines", "MinTree", "RoomLines"]

_INF = float("inf")
_ROOM = 64
_EVERY = 8
_REACH = 32


class MinTree:
    """Numbers in a row, with the least of each power-of-two stretch.

    Examples
    --------
    >>> tree = MinTree([5.0, 2.0, 9.0, 2.0])
    >>> tree.least, tree.first(2.0), tree.first(1.0)
    (2.0, 1, -1)
    >>> tree.set(1, 7.0)
    >>> tree.first(2.0), tree[1]
    (3, 7.0)
    """

    __slots__ = ("_room", "_tree")

    def __init__(self, values: Sequence[float]) -> None:
        room = self._room = 1 << max(len(values) - 1, 0).bit_length()
        tree = self._tree = [_INF] * (2 * room)
        tree[room : room + len(values)] = values
        for i in range(room - 1, 0, -1):
            one, two = tree[2 * i], tree[2 * i + 1]
            tree[i] = one if one <= two else two

    def __getitem__(self, place: int) -> float:
        return self._tree[self._room + place]

    def set(self, place: int, value: float) -> None:
        """Change one number."""
        tree = self._tree
        i = self._room + place
        tree[i] = value
        while i > 1:
            other = tree[i ^ 1]
            low = value if value <= other else other
            i >>= 1
            if tree[i] == low:
                return
            tree[i] = value = low

    def first(self, limit: float) -> int:
        """The first place whose number is at most ``limit``; -1 if there is none."""
        tree, room = self._tree, self._room
        if tree[1] > limit:
            return -1
        i = 1
        while i < room:
            i += i
            if tree[i] > limit:
                i += 1
        return i - room

    @property
    def least(self) -> float:
        """The least number."""
        return self._tree[1]


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
    count : int
    """

    __slots__ = (
        "_front",
        "_hold_s",
        "_keys",
        "_records",
        "_room",
        "_trees",
        "count",
        "gpus",
        "shape",
        "tenant",
    )

    def __init__(self, shape: Shape, tenant: str, hold_s: Callable[[JobRecord, int], float]) -> None:
        self.shape = shape
        self.gpus = shape.gpus
        self.tenant = tenant
        self.count = 0
        self._hold_s = hold_s
        self._keys: list[int] = []
        self._records: list[JobRecord | None] = []
        self._trees: dict[int, MinTree] = {}
        self._front = 0
        self._room = _ROOM

    def push(self, record: JobRecord) -> None:
        """A job starts to wait."""
        key = order(record)
        if not self._keys or key > self._keys[-1]:
            if len(self._keys) == self._room:
                self._respace(gaps=False)
            slot = len(self._keys)
            self._keys.append(key)
            self._records.append(record)
        else:
            slot = self._dead_slot(key)
            if slot < 0:
                self._respace(gaps=True)
                slot = self._dead_slot(key)
            self._keys[slot] = key
            self._records[slot] = record
            self._front = min(self._front, slot)
        self.count += 1
        for kind, tree in self._trees.items():
            tree.set(slot, self._hold_s(record, kind))

    def _dead_slot(self, key: int) -> int:
        """A slot of nobody where ``key`` belongs, made by moving a few; -1 if none is near."""
        keys, records = self._keys, self._records
        slot = bisect_left(keys, key)
        for dead in range(slot, min(slot + _REACH, len(keys))):
            if records[dead] is None:
                records[slot + 1 : dead + 1] = records[slot:dead]
                keys[slot + 1 : dead + 1] = keys[slot:dead]
                for tree in self._trees.values():
                    for i in range(dead, slot, -1):
                        tree.set(i, tree[i - 1])
                return slot
        return slot - 1 if slot > 0 and records[slot - 1] is None else -1

    def _respace(self, gaps: bool) -> None:
        """Squeeze out the dead, or, for those who return, leave a dead slot after every few."""
        living = list(self.records())
        self._keys, self._records = [], []
        for number, record in enumerate(living, 1):
            self._keys.append(order(record))
            self._records.append(record)
            if gaps and (number % _EVERY == 0 or number == len(living)):
                self._keys.append(order(record))
                self._records.append(None)
        self._front = 0
        self._room = max(_ROOM, 1 << (len(self._keys) * 2 - 1).bit_length())
        for kind in self._trees:
            self._trees[kind] = self._tree(kind)

    def pop(self, record: JobRecord) -> None:
        """A job waits no more."""
        slot = bisect_left(self._keys, order(record))
        self._records[slot] = None
        self.count -= 1
        for tree in self._trees.values():
            tree.set(slot, _INF)
        if not self.count:
            self._keys.clear()
            self._records.clear()
            self._front = 0

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
        slot = self._tree_of(kind).first(limit_s)
        return self._records[slot] if slot >= 0 else None

    def least(self, kind: int) -> float:
        """The least time that any of them holds a place on this device type."""
        return self._tree_of(kind).least

    def _tree_of(self, kind: int) -> MinTree:
        tree = self._trees.get(kind)
        if tree is None:
            tree = self._trees[kind] = self._tree(kind)
        return tree

    def _tree(self, kind: int) -> MinTree:
        values = [_INF] * self._room
        for slot, record in enumerate(self._records):
            if record is not None:
                values[slot] = self._hold_s(record, kind)
        return MinTree(values)


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
        line = self.line_of(record)
        line.push(record)
        self.active[line] = self.news[line] = None

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
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
