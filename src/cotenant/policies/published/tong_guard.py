"""Tong's starvation guard: which large job is overdue, where it could start soonest, who is in its way."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.company.joins import Joins
from cotenant.policies.queues.circles import circle_of
from cotenant.policies.space.boards import Boards, Company

__all__ = ["Beside", "Overdue", "Way", "end_s", "soonest", "way"]


class Overdue(Index):
    """Large waiting jobs by the time from which they are guarded.

    Parameters
    ----------
    view : View
    large : float
        A job is large if it needs more than this part of the smallest device of known memory that
        will do, or more than one device.
    least_s, factor : float
        It is overdue after ``factor`` times its predicted work, but not before ``least_s``.
    """

    def __init__(self, view: View, large: float, least_s: float, factor: float) -> None:
        self._large, self._least_s, self._factor = large, least_s, factor
        self._types = view.layout.types
        self._due: dict[int, tuple[float, int, int]] = {}
        self._rows: list[tuple[float, int, int]] = []
        self._keys: list[tuple[int, int]] = []
        self._records = view.records
        for record in view.queue:
            self.enqueued(record)

    def is_large(self, record: JobRecord) -> bool:
        """Whether small jobs could keep a job from ever starting."""
        shape = record.shape
        if shape.never or not shape.gpus:
            return False
        if shape.gpus > 1 or circle_of(record.job) is None:
            return True
        sizes = [self._types[k].memory_bytes for k in shape.types if self._types[k].memory_bytes]
        return not sizes or shape.memory_bytes > self._large * min(sizes)

    def enqueued(self, record: JobRecord) -> None:
        """A job joined."""
        if self.is_large(record):
            left = record.remaining_at(record.rated_s)
            wait = max(self._least_s, self._factor * left) if left < math.inf else self._least_s
            row = self._due[record.id] = (record.queued_s + wait, record.key, record.id)
            insort(self._rows, row)
            insort(self._keys, row[1:])

    def dequeued(self, record: JobRecord) -> None:
        """A job left."""
        row = self._due.pop(record.id, None)
        if row is not None:
            del self._rows[bisect_left(self._rows, row)]
            del self._keys[bisect_left(self._keys, row[1:])]

    def oldest(self) -> JobRecord | None:
        """The large job first in the queue."""
        return self._records[self._keys[0][1]] if self._keys else None

    def overdue(self, now: float) -> Iterator[JobRecord]:
        """Those that are overdue, longest first."""
        for row in self._rows:
            if row[0] > now:
                return
            yield self._records[row[2]]

    def next_s(self, now: float) -> float:
        """When the next one will be; infinite if none is left."""
        at = bisect_right(self._rows, (now, 1 << 200, 0))
        return self._rows[at][0] if at < len(self._rows) else math.inf


def end_s(view: View, record: JobRecord, now: float) -> float:
    """When a running job is predicted to end at its present speed; infinite if nobody knows."""
    rate = record.rate
    if rate <= 0.0 and record.place is not None and record.place.devices:
        rate = view.layout.types[view.layout.device_type[record.place.devices[0]]].speed
    return max(now, record.rated_s) + record.remaining_at(now) / (rate or 1.0)


class Way(NamedTuple):
    """How one device comes free for a job.

    Attributes
    ----------
    free_s : float
        When, if those who end first are waited for.
    leave : tuple of JobRecord
        Who would have to leave for it to be now: of those that last longest, as few as will do.
    """

    free_s: float
    leave: tuple[JobRecord, ...]


def way(view: View, boards: Boards, joins: Joins, record: JobRecord, device: int) -> Way | None:
    """How a device comes free for a job; None if it is down or drained.

    Residents are taken off one by one, by predicted end, until the rest have room for the job, may share
    with it, and are worth joining.
    """
    ledger, layout, now = view.ledger, view.layout, view.now
    if not ledger.usable[device] or ledger.draining[layout.device_node[device]]:
        return None
    residents = [view.records[job_id] for job_id in ledger.residents[device]]
    ends = {other.id: end_s(view, other, now) for other in residents}
    residents.sort(key=lambda other: (ends[other.id], other.id))
    fits = Beside(view, boards, joins, record, device)
    free_s, stay = now, list(residents)
    while stay and not fits(stay):
        free_s = max(free_s, ends[stay.pop(0).id])
    stay = list(residents)
    leave: list[JobRecord] = []
    while stay and not fits(stay):
        leave.append(stay.pop())
    return Way(free_s, tuple(leave))


class Beside:
    """Whether a job has room on a device beside some of its residents."""

    def __init__(self, view: View, boards: Boards, joins: Joins, record: JobRecord, device: int) -> None:
        self._ledger, self._joins, self._record, self._device = view.ledger, joins, record, device
        self._kind = view.layout.device_type[device]
        self._capacity = view.layout.device_memory[device]
        self._most, self._spare = boards.most, boards.spare_bytes(self._kind)
        self._milli = record.shape.compute_milli if 0 < record.shape.compute_milli < 1000 else 0

    def __call__(self, stay: list[JobRecord]) -> bool:
        record, circle = self._record, circle_of(self._record.job)
        if circle is None or not self._capacity or len(stay) >= self._most:
            return False
        shares = [self._ledger.share_on(other.id, self._device) for other in stay]
        if any(share.mode != "spatial" for share in shares):
            return False
        if any(circle_of(other.job) != circle for other in stay):
            return False
        memory = sum(share.memory_bytes for share in shares) + record.shape.memory_bytes
        milli = sum(share.compute_milli for share in shares) + self._milli
        if memory > self._capacity - self._spare or milli > 1000:
            return False
        company: Company = tuple(sorted([(other.job.model, other.job.gpus) for other in stay]))
        return self._joins.rises(self._kind, company, record.job.model, record.job.gpus)


def soonest(
    view: View, record: JobRecord, ways: Callable[[int], Way | None]
) -> tuple[tuple[int, ...], float]:
    """The devices where a job can start soonest, and when; none if it can start nowhere. O(cluster).

    On one node where it can be, else, if it may span, over all devices of one type.
    """
    layout, shape = view.layout, record.shape
    best: tuple[float, int] | None = None
    chosen: tuple[int, ...] = ()
    spread: list[tuple[float, int, tuple[int, ...]]] = []
    for order, kind in enumerate(shape.types):
        everywhere: list[tuple[float, int]] = []
        for bay in layout.type_bays[kind]:
            first = layout.bay_first[bay]
            here = [(w.free_s, d) for d in range(first, first + layout.bay_size[bay]) if (w := ways(d))]
            everywhere += here
            if shape.single and len(here) >= shape.gpus:
                taken = sorted(here)[: shape.gpus]
                if best is None or (taken[-1][0], bay) < best:
                    best = (taken[-1][0], bay)
                    chosen = tuple(sorted([d for _, d in taken]))
        if shape.spans and len(everywhere) >= shape.gpus:
            taken = sorted(everywhere)[: shape.gpus]
            spread.append((taken[-1][0], order, tuple(sorted([d for _, d in taken]))))
    if best is not None:
        return chosen, best[0]
    if spread:
        at_s, _, devices = min(spread)
        return devices, at_s
    return (), math.inf
