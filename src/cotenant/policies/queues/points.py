"""Waiting jobs by all that decides where they fit and what they do there: the *points* of demand.

Jobs of one shape, model and circle are one point; a place that is good for one of them is good for
all. A point of which no job fits is *settled* until a bay that could take it gains room, or its own
queue changes: a cached truth about the present state.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.queues.circles import Circle, circle_of
from cotenant.policies.queues.demands import Alike

__all__ = ["Point", "PointKey", "Points"]

PointKey = tuple[int, str, Circle | None, str]
_STEPS = 4
_UNKNOWN = 1 << 20


class Point:
    """Waiting jobs that ask for the same and disturb in the same way.

    Attributes
    ----------
    shape : Shape
    model : str
    circle : tuple of str or None
        With whom its jobs share; None if they want whole devices.
    milli : int
        Compute to guarantee on each device: the fraction declared, else 0.
    tenant : str
        Where some tenant has a ceiling.
    lines : dict of int to Alike
        Its jobs, first of the queue first; by length, where that matters.
    count : int
    """

    __slots__ = ("circle", "count", "key", "lines", "milli", "model", "shape", "tenant")

    def __init__(self, key: PointKey, shape: Shape) -> None:
        self.key = key
        self.shape = shape
        self.model, self.circle, self.tenant = key[1:]
        self.milli = shape.compute_milli if 0 < shape.compute_milli < DEVICE_MILLI else 0
        self.lines: dict[int, Alike] = {}
        self.count = 0

    def heads(self, most_s: float = math.inf) -> list[JobRecord]:
        """The first of each line; of lines by length, only those that may hold jobs of at most this length."""
        if most_s == math.inf:
            return [line.head() for line in self.lines.values()]
        last = _STEPS * math.log2(max(most_s, 1.0)) + 1.0
        return [line.head() for number, line in self.lines.items() if number <= last]

    def head(self) -> JobRecord:
        """The first in queue order; only while somebody waits."""
        if len(self.lines) == 1:
            (line,) = self.lines.values()
            return line.head()
        return min(self.heads(), key=lambda record: record.key)


class Points(Index):
    """All points.

    Parameters
    ----------
    view : View
    by_length : bool
        Whether jobs of a point are kept apart by predicted work left: four lines for each doubling.
    by_tenant : bool
        Whether tenants are kept apart even if none has a ceiling.

    Attributes
    ----------
    living : dict of Point to None
        Those with waiting jobs.
    open : dict of Point to None
        Those of which it is not known that no job fits.
    untold : dict of Point to None
        Those found blocked, whose first job may not have been told why.
    """

    def __init__(self, view: View, by_length: bool = False, by_tenant: bool = False) -> None:
        self._view, self._by_length, self._by_tenant = view, by_length, by_tenant
        self._serial = 0
        self.living: dict[Point, None] = {}
        self.open: dict[Point, None] = {}
        self.untold: dict[Point, None] = {}
        self._touched: dict[int, None] = {}
        self._build()

    def _build(self) -> None:
        self._apart = self._by_tenant or bool(self._view.books.limits)
        self._points: dict[PointKey, Point] = {}
        self._in: dict[int, tuple[Point, int]] = {}
        for group in (self.living, self.open, self.untold):
            group.clear()
        for record in self._view.queue:
            self.enqueued(record)

    def point(self, record: JobRecord) -> Point:
        """The point of a job."""
        job, shape = record.job, record.shape
        key = (shape.number, job.model, circle_of(job), job.tenant if self._apart else "")
        found = self._points.get(key)
        if found is None:
            found = self._points[key] = Point(key, shape)
        return found

    def _line(self, record: JobRecord) -> int:
        if not self._by_length:
            return 0
        left = record.remaining_at(record.rated_s)
        return round(_STEPS * math.log2(max(left, 1.0))) if left < math.inf else _UNKNOWN

    def enqueued(self, record: JobRecord) -> None:
        """A job joined."""
        if record.shape.never:
            return
        point, number = self.point(record), self._line(record)
        self._in[record.id] = (point, number)
        line = point.lines.get(number)
        if line is None:
            line = point.lines[number] = Alike()
        self._serial += 1
        line.push(record, self._serial)
        point.count += 1
        self.living[point] = None
        # A job behind others of its line fits no better than they do.
        if line.count == 1 or line.head() is record:
            self.reopen(point)

    def put_back(self, record: JobRecord) -> None:
        """A job that was only tried waits on: it was counted all the time."""
        point, number = self._in[record.id]
        line = point.lines[number]
        self._serial += 1
        line.push(record, self._serial)
        line.count -= 1

    def dequeued(self, record: JobRecord) -> None:
        """A job left."""
        if record.shape.never:
            return
        point, number = self._in.pop(record.id)
        if not point.lines[number].left():
            del point.lines[number]
        point.count -= 1
        if point.count:
            self.reopen(point)
            return
        del self.living[point], self._points[point.key]
        self.open.pop(point, None)
        self.untold.pop(point, None)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Devices gained room."""
        bays = self._view.layout.device_bay
        for device in place.devices:
            self._touched[bays[device]] = None
        if self._apart or not place.devices:
            self._reopen_all()  # another of its tenant's jobs may start, wherever there is room

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Capacity or ceilings changed."""
        if not self._apart and self._view.books.limits:
            self._build()
        if not devices:
            self._reopen_all()
        self.touch(devices)

    def touch(self, devices: tuple[int, ...] | frozenset[int]) -> None:
        """There may be more room on these devices."""
        bays = self._view.layout.device_bay
        for device in devices:
            self._touched[bays[device]] = None

    def _reopen_all(self) -> None:
        self.open.update(self.living)

    def reopen(self, point: Point) -> None:
        """It is not known any more that no job of this point fits."""
        self.open[point] = None

    def settle(self, point: Point) -> None:
        """No job of this point fits the present state."""
        self.open.pop(point, None)
        self.untold[point] = None

    def review(self, could: Callable[[Point, int], bool]) -> None:
        """Open the points that could fit a bay that gained room."""
        if self._touched:
            bays = tuple(self._touched)
            self._touched.clear()
            for point in self.living:
                if point not in self.open:
                    host = point.shape.cpu_milli or point.shape.host_bytes
                    if host or any(could(point, bay) for bay in bays):
                        self.open[point] = None
