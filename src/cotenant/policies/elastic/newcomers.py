"""Elastic jobs that wait and that run, and what is remembered of them from call to call."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.elastic.workplan import is_elastic
from cotenant.policies.queues.lines import Line, RoomLines

__all__ = ["Memory", "Newcomers", "Running"]


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What is remembered from call to call; keys are job numbers.

    ``trials``: attempt, speed and devices before the last growth, until the speed after it is measured.
    ``caps``: devices beyond which a job was no faster. ``lost``: device type that was taken from a job, and
    until when it waits for one like it.
    """

    trials: dict[str, list[Any]] = {}
    caps: dict[str, int] = {}
    lost: dict[str, list[float]] = {}

    @classmethod
    def of(cls, memo: Any) -> Memory:
        return cls(**memo) if memo else cls()

    def plain(self, view: View) -> dict[str, Any]:
        """As plain JSON, without jobs that ended and what is empty."""
        told = {}
        for name in self.__struct_fields__:
            living = {k: v for k, v in getattr(self, name).items() if int(k) in view.records}
            if living:
                told[name] = living
        return told

    def told(self, view: View) -> dict[str, Any] | None:
        """What to return as memo: nothing where there is and was nothing to remember."""
        return self.plain(view) or ({} if view.memo else None)


class Newcomers(RoomLines):
    """Waiting jobs by demand; elastic ones by the least that they need."""

    def line_of(self, record: JobRecord) -> Line:
        """The line a job belongs to."""
        job = record.job
        if not is_elastic(job):
            return super().line_of(record)
        tenant = job.tenant if job.tenant in self._limits else ""
        key = ("elastic", record.shape.number, job.min_gpus, job.determinism, job.model, tenant)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(record.shape, tenant, self.hold_s)
        return line

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        if not is_elastic(record.job):
            super().enqueued(record)
            return
        line = self.line_of(record)
        line.push(record)
        self.active[line] = self.news[line] = None

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue: its line may have a new head."""
        if not is_elastic(record.job):
            super().dequeued(record)
            return
        line = self.line_of(record)
        line.pop(record)
        if line.count:
            self.news[line] = None
        else:
            del self.active[line]
            self.news.pop(line, None)


class Running(Index):
    """Elastic jobs that hold devices.

    Attributes
    ----------
    jobs : set of int
    grown : set of int
        Those that hold more than their least.
    """

    def __init__(self, view: View) -> None:
        self.jobs: set[int] = set()
        self.grown: set[int] = set()
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if is_elastic(record.job):
            self.jobs.add(record.id)
            if len(place.devices) > record.job.min_gpus:
                self.grown.add(record.id)
            else:
                self.grown.discard(record.id)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        if record.place in (None, place):
            self.jobs.discard(record.id)
            self.grown.discard(record.id)
