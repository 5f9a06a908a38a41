"""Who waits for cells of its tenant's own, and who may use idle devices."""

from __future__ import annotations

import heapq

from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.published.cells import Parts
from cotenant.policies.queues.lines import RoomLines

__all__ = ["Heads", "IdleLines", "could_hold"]

_SPARE = 64


def could_hold(cells: list[tuple[int, int]], shape: Shape) -> bool:
    """Whether a part's cells, all idle, have room for a demand."""
    for kind in shape.types:
        sizes = [size for k, size in cells if k == kind]
        if max(sizes, default=0) >= shape.gpus or (shape.spans and sum(sizes) >= shape.gpus):
            return True
    return False


def _is_guaranteed(parts: Parts, record: JobRecord) -> bool:
    job = record.job
    if not job.gpus or job.job_class != "guaranteed":
        return False
    return could_hold(parts.cells[parts.of(job.tenant)], record.shape)


class _Lane:
    """Waiting jobs of one tenant, by place in the queue."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def push(self, record: JobRecord) -> None:
        self.waiting[record.id] = record.key
        heapq.heappush(self._heap, (record.key, record.id))
        if len(self._heap) > 2 * len(self.waiting) + _SPARE:
            self._heap = sorted((key, job_id) for job_id, key in self.waiting.items())

    def first(self) -> tuple[int, int]:
        """Key and id; there must be one."""
        while self.waiting.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0]


class Heads(Index):
    """Waiting jobs with a claim to cells: the first of each tenant, by part.

    All tenants that have no part of their own share one.
    """

    def __init__(self, view: View) -> None:
        self._parts = view.index(Parts)
        self._lanes: list[dict[str, _Lane]] = [{} for _ in self._parts.cells]
        self._records = view.records
        for record in view.queue:
            self.enqueued(record)

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        if _is_guaranteed(self._parts, record):
            tenant = record.job.tenant
            self._lanes[self._parts.of(tenant)].setdefault(tenant, _Lane()).push(record)

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        tenant = record.job.tenant
        lanes = self._lanes[self._parts.of(tenant)]
        lane = lanes.get(tenant)
        if lane is not None and lane.waiting.pop(record.id, None) is not None and not lane.waiting:
            del lanes[tenant]

    def of(self, part: int) -> list[JobRecord]:
        """The first of each tenant that waits for cells of a part, in queue order."""
        return [self._records[i] for _, i in sorted(lane.first() for lane in self._lanes[part].values())]


class IdleLines(RoomLines):
    """Waiting jobs that may run on idle devices: opportunistic ones, CPU-only ones, those for which their tenant's cells
    could never have room; and, if they may borrow, all others that can save their state.
    """

    def __init__(self, view: View, borrow: bool) -> None:
        self._parts, self._borrow = view.index(Parts), borrow
        super().__init__(view)

    def takes(self, record: JobRecord) -> bool:
        """Whether a job may run on idle devices."""
        return (self._borrow and record.job.suspendable) or not _is_guaranteed(self._parts, record)

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        if self.takes(record):
            super().enqueued(record)

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        if self.takes(record):
            super().dequeued(record)
