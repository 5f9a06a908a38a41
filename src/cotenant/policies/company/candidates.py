"""Which waiting jobs might start now, and beside whom: the incremental half of co-location.

The invariant: a waiting job that fits somewhere is reached from an entry of ``heap``. So a
call without entries has nothing to do, and a fresh index, where everything is an entry,
decides the same. Entries are of four kinds, oldest job first: a demand whose head may find
free devices, a newcomer that may find either, a class whose head may find partners, a bucket
of places whose oldest taker may come.

A class whose head was tried and fits nowhere is *cold*: only a place that changed can help it, so
the heads of cold classes are kept in order, and a changed place asks for the first it suits.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import Any

from cotenant.model.jobs import Job
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.plan import Hold, Reason, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_start
from cotenant.model.shape import Shape, find_whole
from cotenant.model.view import Index, View
from cotenant.policies.company.groups import GroupIndex
from cotenant.policies.company.lacking import kept_apart, lacking
from cotenant.policies.company.verdicts import Bounds
from cotenant.policies.queues.circles import Circle, circle_of, needed_gib, share_of
from cotenant.policies.queues.classes import ClassLine, DemandLine, Key, Where
from cotenant.policies.space.buckets import Bucket

__all__ = ["Candidates"]

_ALONE = Why("free-devices")
_FREE, _NEW, _BESIDE, _PLACE = range(4)


class Candidates(Index):
    """Waiting jobs by demand and class, and what changed for them."""

    def __init__(self, view: View, bounds: Bounds) -> None:
        self._view, self._ledger, self._capacity = view, view.ledger, view.layout.device_memory
        self._guest_s, self.label = bounds.guest_s, bounds.label
        self._groups = view.index(GroupIndex, bounds.by_class)
        self._groups.changed = self._place_changed
        self._forecast = view.forecast
        self._version = self._forecast.version
        self._verdicts = bounds.verdicts(view)
        self.heap: list[tuple[Key, int, int]] = []
        self._fill()

    def _fill(self) -> None:
        """Take in all that waits."""
        self._limited = frozenset(self._view.books.limits)
        self._demand_of: dict[tuple[Any, ...], DemandLine] = {}
        self._class_of: dict[tuple[Any, ...], ClassLine] = {}
        self._pair_of: dict[tuple[Any, ...], Where] = {}
        self._demands: list[DemandLine] = []
        self._classes: list[ClassLine] = []
        self._pairs: list[Where] = []
        self._where: dict[int, Where] = {}
        # What waits, so that a change looks at nothing else.
        self._waiting: dict[int, DemandLine] = {}
        self._waiting_classes: dict[int, ClassLine] = {}
        # Cold classes by size: as bits, and in the order of their heads.
        self._cold = self._groups.wanted = {}
        self._coldest: dict[int, list[tuple[Key, int]]] = {}
        for bucket in self._groups.buckets:  # which classes have judged it and which accept it, as bits
            bucket.accepts = bucket.judged = 0
            bucket.told = False
        self._fitting: dict[int, int] = {}  # for each amount of memory the classes that need no more, as bits
        self.heap.clear()
        for record in self._view.queue:
            self.enqueued(record)

    def stale(self) -> bool:
        """Whether the forecast has changed since everything was judged."""
        return self._forecast.version != self._version

    # -- what is waiting ---------------------------------------------------------------

    def _pair(self, record: JobRecord) -> Where:
        """The demand and the class of a job, looked up by all that they depend on."""
        job, shape = record.job, record.shape
        short = 0.0 < record.predicted_s <= self._guest_s
        tenant = job.tenant if self._limited and job.tenant in self._limited else ""
        circle = circle_of(job)
        least = job.min_gpus if job.max_gpus > job.min_gpus else 0
        key = (shape.number, self.label(job), short, circle, tenant, least)
        found = self._pair_of.get(key)
        if found is None:
            demand = self._demand(shape, tenant, least)
            beside = None
            if circle is not None and job.gpus:
                beside = self._class(job, shape, circle, tenant, short=short)
            found = self._pair_of[key] = (demand, beside, len(self._pairs), share_of(job, 1))
            self._pairs.append(found)
        return found

    def _demand(self, shape: Shape, tenant: str, least: int) -> DemandLine:
        key = (shape.gpus, shape.types, shape.cpu_milli, shape.host_bytes, tenant, least)
        found = self._demand_of.get(key)
        if found is None:
            found = self._demand_of[key] = DemandLine(len(self._demands), shape)
            self._demands.append(found)
        return found

    def _class(self, job: Job, shape: Shape, circle: Circle, tenant: str, *, short: bool) -> ClassLine:
        label = self.label(job)
        key = (job.gpus, label, needed_gib(job), circle, shape.types, short, tenant)
        found = self._class_of.get(key)
        if found is None:
            taste = self._verdicts.taste(label)
            found = self._class_of[key] = ClassLine(len(self._classes), job, circle, shape, taste)
            found.short = short
            self._classes.append(found)
            self._fitting.clear()
        return found

    def enqueued(self, record: JobRecord) -> None:
        """A new job is a candidate if it heads its demand or class."""
        where = self._where[record.id] = self._pair(record)
        demand, found, number, _ = where
        first = demand.push(record)
        if demand.count == 1:
            self._waiting[demand.number] = demand
        if found is None:
            if first:
                heapq.heappush(self.heap, (record.key, _FREE, demand.number))
            return
        leads = found.push(record)
        if found.count == 1:
            self._waiting_classes[found.number] = found
        if leads:
            if found.cold is not None:
                self._warm(found)
            heapq.heappush(self.heap, (record.key, _NEW, number))
        elif first:
            self._offer(demand)

    def dequeued(self, record: JobRecord) -> None:
        """Whoever heads its demand and class now is a candidate."""
        demand, found, _, _ = self._where.pop(record.id)
        if demand.left(record):
            if demand.count:
                self._offer(demand)
            else:
                del self._waiting[demand.number]
        if found is not None and found.left(record):
            if found.cold is not None:
                self._warm(found)
            if found.count:
                self._offer_class(found)
            else:
                del self._waiting_classes[found.number]

    def _offer(self, demand: DemandLine) -> None:
        """The head of a demand may find free devices, unless there are too few in all."""
        head = demand.head
        if head is None:
            return
        if self._where[head.id][1] is not None:
            free, gpus = self._ledger.free_count, demand.gpus
            for kind in demand.types:
                if free[kind] >= gpus:
                    break
            else:
                return  # its class says why it waits
        heapq.heappush(self.heap, (head.key, _FREE, demand.number))

    def _offer_class(self, found: ClassLine) -> None:
        head = found.head
        if head is not None:
            if found.cold is not None:
                self._warm(found)
            heapq.heappush(self.heap, (head.key, _BESIDE, found.number))

    def _chill(self, found: ClassLine) -> None:
        head = found.head
        if head is not None and found.cold is None:
            gpus = found.gpus
            found.cold = head.key
            self._cold[gpus] = self._cold.get(gpus, 0) | found.bit
            insort(self._coldest.setdefault(gpus, []), (head.key, found.number))

    def _warm(self, found: ClassLine) -> None:
        key, found.cold = found.cold, None
        if key is not None:
            self._cold[found.gpus] ^= found.bit
            line = self._coldest[found.gpus]
            del line[bisect_left(line, (key, found.number))]

    # -- what became free ----------------------------------------------------------------

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Freed devices make candidates of the demands that could use them."""
        if not self._waiting:
            return
        job, limits = record.job, self._view.books.limits
        if job.cpu_milli or job.host_memory_bytes or (limits and job.tenant in limits):
            self._offer_all()
            return
        ledger, layout = self._ledger, self._view.layout
        for bay, _ in layout.blocks(place.devices) or ():
            kind, room = layout.bay_type[bay], ledger.whole[bay].bit_count()
            if room:
                for demand in self._waiting.values():
                    if kind in demand.types and (demand.gpus <= room or demand.spans):
                        self._offer(demand)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Returned or released devices, or changed ceilings."""
        if self._limited != frozenset(self._view.books.limits):
            self._fill()
        else:
            self._offer_all()

    def _offer_all(self) -> None:
        for demand in self._waiting.values():
            self._offer(demand)
        for found in self._waiting_classes.values():
            self._offer_class(found)

    def _place_changed(self, bucket: Bucket) -> None:
        if not bucket.told:
            taker = self._taker(bucket)
            if taker is not None:
                bucket.told = True
                heapq.heappush(self.heap, (taker.key, _PLACE, bucket.number))

    def _takers(self, bucket: Bucket) -> int:
        """Cold classes that accept a bucket's slot, as bits."""
        cold = self._cold.get(bucket.gpus, 0)
        unjudged = cold & ~bucket.judged
        if unjudged:
            bucket.judged |= unjudged
            while unjudged:
                bit = unjudged & -unjudged
                unjudged ^= bit
                if self._suits(self._classes[bit.bit_length() - 1], bucket.bit):
                    bucket.accepts |= bit
        return cold & bucket.accepts

    def _taker(self, bucket: Bucket) -> JobRecord | None:
        """The oldest head of a cold class that a bucket's places would take."""
        takers = self._takers(bucket)
        if not takers or not bucket.word:
            return None
        takers &= self._needing(bucket.word.bit_length() - 1)
        if not takers:
            return None
        classes = self._classes
        if not takers & (takers - 1):
            return classes[takers.bit_length() - 1].head
        for _, number in self._coldest[bucket.gpus]:
            if takers >> number & 1:
                return classes[number].head
        return None

    def _needing(self, gib: int) -> int:
        """Classes that need no more than this, as bits."""
        found = self._fitting.get(gib)
        if found is None:
            found = self._fitting[gib] = sum(c.bit for c in self._classes if c.gib <= gib)
        return found

    # -- candidates ----------------------------------------------------------------------

    def next(self) -> tuple[JobRecord, bool, bool] | None:
        """The oldest candidate; whether to try it alone, and whether beside others."""
        heap = self.heap
        while heap:
            key, kind, number = heap[0]
            if kind == _NEW:
                demand, found, _, _ = self._pairs[number]
                first, leader = demand.head, found.head if found is not None else None
            elif kind == _FREE:
                first, leader = self._demands[number].head, None
            elif kind == _BESIDE:
                first, leader = None, self._classes[number].head
            else:
                bucket = self._groups.buckets[number]
                first, leader = None, self._taker(bucket)
                if leader is None:
                    bucket.told = False
                elif leader.key != key:
                    heapq.heapreplace(heap, (leader.key, kind, number))
                    continue
            beside = leader is not None and leader.key == key
            if first is not None and first.key == key:
                return first, True, beside
            if beside and leader is not None:
                return leader, False, True
            heapq.heappop(heap)
        return None

    def exhausted(self) -> None:
        """The candidate just given does not fit."""
        key, kind, number = heapq.heappop(self.heap)
        while self.heap and self.heap[0][0] == key and self.heap[0][1] == kind:
            heapq.heappop(self.heap)
        if kind == _BESIDE:
            self._chill(self._classes[number])
        elif kind == _NEW:
            found = self._pairs[number][1]
            if found is not None and found.head is not None and found.head.key == key:
                self._chill(found)
        elif kind == _PLACE:
            # Ceilings or host memory keep the oldest taker out: the others are tried one by one.
            bucket = self._groups.buckets[number]
            bucket.told = False
            bits = self._takers(bucket)
            while bits:
                bit = bits & -bits
                bits ^= bit
                self._offer_class(self._classes[bit.bit_length() - 1])

    # -- partners ------------------------------------------------------------------------

    def _suits(self, found: ClassLine, slots: int) -> int:
        """Of some slots, given as bits, those that are acceptable to a class."""
        if found.known != len(self._groups.slots):
            within = self._groups.within
            for kind in found.types:
                found.mine |= within.get((kind, found.circle), 0)
            found.known = len(self._groups.slots)
        slots &= found.mine
        taste = found.taste
        unjudged = slots & ~taste.judged
        if unjudged:
            self._verdicts.judge(taste, unjudged, self._groups.slots)
        return slots & (taste.fine if found.short else taste.worth)

    def alone(self, record: JobRecord) -> Start | None:
        """Start on free devices."""
        view = self._view
        if view.books.limits and view.limit_refusal(record):
            return None
        if record.shape.gpus == 0:
            node = view.find_node(record)
            return Start(record.id, (), why=_ALONE, node=node) if node >= 0 else None
        devices = find_whole(self._ledger, record.shape)
        if devices is None:
            return None
        share = self._where[record.id][3] if self._capacity[devices[0]] else WHOLE
        return Start(record.id, devices, share, _ALONE)

    def together(self, record: JobRecord) -> Start | None:
        """Start beside the best acceptable partners."""
        if self._view.books.limits and self._view.limit_refusal(record):
            return None
        _, found, _, share = self._where[record.id]
        if found is None:
            return None
        suits = self._suits(found, self._groups.live.get(found.gpus, 0))
        while suits:
            for rank, slot in found.taste.best(suits):
                suits ^= 1 << slot
                devices = self._place_in(found, slot, record, share)
                if devices is not None:
                    beside = list(self._ledger.residents[devices[0]])
                    why = Why("best-partners", {"beside": beside, "gain": round(-rank[0], 4)})
                    return Start(record.id, devices, share, why)
        return None

    def _place_in(
        self, found: ClassLine, slot: int, record: JobRecord, share: Share
    ) -> tuple[int, ...] | None:
        job = record.job
        if not (job.cpu_milli or job.host_memory_bytes or job.compute_milli < 1000):
            devices = self._groups.tightest(found.gpus, slot, found.gib)
            # A gang that may not span nodes can't join one that does.
            if (
                devices is None
                or found.gpus == 1
                or record.shape.spans
                or len(self._view.layout.nodes_of(devices)) == 1
            ):
                return devices
        for devices in self._groups.roomy(found.gpus, slot, found.gib):
            if check_start(self._view.books, record, devices, share) is None:
                return devices
        return None

    def hold(self, record: JobRecord) -> Hold:
        """Why a job fits nowhere: nobody it may join or that it suits, no memory there, or no room at all."""
        if self._view.books.limits and (refusal := self._view.limit_refusal(record)):
            return Hold(record.id, refusal.reason, refusal.facts)
        reason, facts = self._view.why_not(record)
        _, found, _, share = self._where[record.id]
        if found is not None and (live := self._groups.live.get(record.shape.gpus, 0)):
            suits = self._suits(found, live)
            if not live & found.mine:
                apart = kept_apart(self._groups, found, live)
                return Hold(record.id, Reason.ISOLATION if apart else reason, facts)
            tight = lacking(self._groups, self._view.books, record, found, share=share, suits=suits)
            return tight or Hold(record.id, Reason.MEMORY if suits else Reason.SLOWDOWN, facts)
        return Hold(record.id, reason, facts)
