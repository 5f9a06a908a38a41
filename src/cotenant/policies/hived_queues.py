"""Who waits for cells of its tenant's own, and who may use idle devices."""

from __future__ import annotations

import heapq

from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.cells import Parts
from cotenant.policies.lines import RoomLines

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


class Heads(Index):
    """Waiting jobs with a claim to their tenant's cells, in queue order for each part."""

    def __init__(self, view: View) -> None:
        self._parts = view.index(Parts)
        self._waiting: dict[int, dict[int, int]] = {}
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        self._records = view.records
        for record in view.queue:
            self.enqueued(record)

    def enqueued(self, record: JobRecord) -> None:
        """A job joined the queue."""
        if not _is_guaranteed(self._parts, record):
            return
        part = self._parts.of(record.job.tenant)
        waiting, heap = self._waiting.setdefault(part, {}), self._heaps.setdefault(part, [])
        waiting[record.id] = record.key
        heapq.heappush(heap, (record.key, record.id))
        if len(heap) > 2 * len(waiting) + _SPARE:
            heap[:] = sorted((key, job_id) for job_id, key in waiting.items())

    def dequeued(self, record: JobRecord) -> None:
        """A job left the queue."""
        waiting = self._waiting.get(self._parts.of(record.job.tenant))
        if waiting is not None:
            waiting.pop(record.id, None)

    def head(self, part: int) -> JobRecord | None:
        """The first that waits for cells of a part."""
        waiting, heap = self._waiting.get(part), self._heaps.get(part)
        if not waiting or not heap:
            return None
        while waiting.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return self._records[heap[0][1]]


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
