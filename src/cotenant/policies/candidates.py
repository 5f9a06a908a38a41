"""Which waiting jobs might start now, and beside whom: the incremental half of co-location.

The invariant: a waiting job that fits somewhere is reached from an entry of ``heap``. So a
call without entries has nothing to do, and a fresh index, where everything is an entry,
decides the same. Entries are of three kinds, oldest job first: a demand whose head may find
free devices, a class whose head may find partners, a place whose oldest taker may come.
"""

from __future__ import annotations

import heapq
from typing import Any

from cotenant.model.jobs import Job
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.plan import Hold, Reason, Start, Why
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_start
from cotenant.model.view import Index, View
from cotenant.policies.groups import Circle, GroupIndex, circle_of, needed_gib
from cotenant.policies.verdicts import LEVELS, Rank, Verdicts

__all__ = ["Candidates", "share_of"]

_FREE, _BESIDE, _PLACE = range(3)


def share_of(job: Job, capacity: int) -> Share:
    """What a job holds: a share if it may have neighbours, else the whole device."""
    if circle_of(job) is None or capacity == 0:
        return WHOLE
    declared = job.compute_milli if job.compute_milli < 1000 else 0
    key = (job.memory_bytes, declared)
    share = _SHARES.get(key)
    if share is None:
        if len(_SHARES) > 65536:
            _SHARES.clear()
        share = _SHARES[key] = Share("spatial", job.memory_bytes, declared)
    return share


_SHARES: dict[tuple[int, int], Share] = {}
"""One object for each distinct share; a cache of values, so it carries no state."""


class _Class:
    """Waiting jobs that are alike for sharing: same size, model, memory, circle, types."""

    __slots__ = (
        "bit",
        "circle",
        "gib",
        "gpus",
        "judged",
        "levels",
        "model",
        "queue",
        "ranks",
        "short",
        "types",
        "used",
    )

    def __init__(self, job: Job, circle: Circle, types: tuple[int, ...], *, short: bool, bit: int) -> None:
        self.gpus = job.gpus
        self.model = job.model
        self.gib = needed_gib(job)
        self.circle = circle
        self.types = types
        self.short = short
        self.bit = bit
        self.queue = PendingQueue()
        self.judged = 0
        self.levels = [0] * LEVELS
        self.used = 0
        self.ranks: dict[int, Rank] = {}


class Candidates(Index):
    """Waiting jobs by demand and class, and what changed for them."""

    def __init__(self, view: View, min_speed: float, min_gain: float, guest_s: float) -> None:
        self._view = view
        self._guest_s = guest_s
        self._groups = view.index(GroupIndex)
        self._groups.changed = self._place_changed
        self.forecast_version = view.forecast.version
        self._verdicts = Verdicts(view, min_speed, min_gain)
        self.heap: list[tuple[tuple[int, int], int, Any]] = []
        self._fill()

    def _fill(self) -> None:
        """Take in all that waits."""
        self._limited = frozenset(self._view.books.limits)
        self._demands: dict[tuple[Any, ...], PendingQueue] = {}
        self._demand_keys: dict[tuple[int, str], PendingQueue] = {}
        self._classes: dict[tuple[Any, ...], _Class] = {}
        self._by_number: list[_Class] = []
        self._where: dict[int, tuple[PendingQueue, _Class | None]] = {}
        # What waits, so that a change looks at nothing else: demands, and classes as bits by size.
        self._waiting_demands: dict[int, tuple[int, tuple[int, ...], PendingQueue]] = {}
        self._waiting_bits: dict[int, int] = {}
        # Classes whose head was tried and fits nowhere: only these need to be told of changes.
        self._cold = 0
        self._told: set[tuple[int, int]] = set()
        # For each slot: classes that have judged it, and those that accept it, as bits.
        self._judged: dict[int, int] = {}
        self._accepts: dict[int, int] = {}
        self.heap.clear()
        for record in self._view.queue:
            self.enqueued(record)

    # -- what is waiting ---------------------------------------------------------------

    def _tenant(self, record: JobRecord) -> str:
        return record.job.tenant if self._limited and record.job.tenant in self._limited else ""

    def _demand(self, record: JobRecord) -> PendingQueue:
        shape = record.shape
        short = (shape.number, self._tenant(record))
        queue = self._demand_keys.get(short)
        if queue is None:
            key = (shape.gpus, shape.types, shape.cpu_milli, shape.host_bytes, short[1])
            queue = self._demands.setdefault(key, PendingQueue())
            self._demand_keys[short] = queue
        return queue

    def _class(self, record: JobRecord) -> _Class | None:
        job = record.job
        circle = circle_of(job)
        if circle is None or job.gpus == 0:
            return None
        short = 0.0 < record.predicted_s <= self._guest_s
        types = record.shape.types
        key = (job.gpus, job.model, needed_gib(job), circle, types, short, self._tenant(record))
        found = self._classes.get(key)
        if found is None:
            found = _Class(job, circle, types, short=short, bit=1 << len(self._by_number))
            self._classes[key] = found
            self._by_number.append(found)
        return found

    def enqueued(self, record: JobRecord) -> None:
        """A new job is a candidate if it heads its demand or class."""
        demand, found = where = self._demand(record), self._class(record)
        self._where[record.id] = where
        key = record.key
        demand.push(record)
        if demand.count == 1:
            self._waiting_demands[id(demand)] = (record.shape.gpus, record.shape.types, demand)
        if demand.head() is record:
            heapq.heappush(self.heap, (key, _FREE, demand))
        if found is not None:
            queue = found.queue
            queue.push(record)
            if queue.count == 1:
                self._waiting_bits[found.gpus] = self._waiting_bits.get(found.gpus, 0) | found.bit
            if queue.head() is record:
                self._offer_class(found)

    def dequeued(self, record: JobRecord) -> None:
        """Whoever heads its demand and class now is a candidate."""
        demand, found = self._where.pop(record.id)
        demand.left(record)
        if not demand.count:
            del self._waiting_demands[id(demand)]
        else:
            self._offer(demand)
        if found is not None:
            queue = found.queue
            queue.left(record)
            if not queue.count:
                self._waiting_bits[found.gpus] ^= found.bit
            else:
                self._offer_class(found)

    def _offer(self, demand: PendingQueue) -> None:
        head = demand.head()
        if head is not None:
            heapq.heappush(self.heap, (head.key, _FREE, demand))

    def _offer_class(self, found: _Class) -> None:
        head = found.queue.head()
        if head is not None:
            self._cold &= ~found.bit
            heapq.heappush(self.heap, (head.key, _BESIDE, found))

    # -- what became free ----------------------------------------------------------------

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Freed devices make candidates of the demands that could use them."""
        job, limits = record.job, self._view.books.limits
        if job.cpu_milli or job.host_memory_bytes or (limits and job.tenant in limits):
            self._offer_all()
        else:
            self._offer_room(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Returned or released devices, or changed ceilings."""
        if self._limited != frozenset(self._view.books.limits):
            self._fill()
        else:
            self._offer_all()

    def _offer_room(self, devices: tuple[int, ...]) -> None:
        ledger, layout = self._view.ledger, self._view.layout
        if not devices or ledger.residents[devices[0]]:
            return
        bay = layout.device_bay[devices[0]]
        kind, room = layout.bay_type[bay], ledger.whole[bay].bit_count()
        for gpus, types, queue in self._waiting_demands.values():
            if kind in types and (gpus <= room or ledger.free_count[kind] >= gpus > room):
                self._offer(queue)

    def _offer_all(self) -> None:
        for _, _, queue in self._waiting_demands.values():
            self._offer(queue)
        for waiting in self._waiting_bits.values():
            self._offer_classes(waiting)

    def _offer_classes(self, bits: int) -> None:
        while bits:
            bit = bits & -bits
            bits ^= bit
            self._offer_class(self._by_number[bit.bit_length() - 1])

    def _place_changed(self, gpus: int, slot: int) -> None:
        if self._waiting_bits.get(gpus, 0) & self._cold and (gpus, slot) not in self._told:
            taker = self._taker(gpus, slot)
            if taker is not None:
                self._told.add((gpus, slot))
                heapq.heappush(self.heap, (taker.key, _PLACE, (gpus, slot)))

    def _takers(self, gpus: int, slot: int) -> int:
        """Cold classes that wait and accept a slot, as bits."""
        waiting = self._waiting_bits.get(gpus, 0) & self._cold
        unjudged = waiting & ~self._judged.get(slot, 0)
        while unjudged:
            bit = unjudged & -unjudged
            unjudged ^= bit
            self._judge(self._by_number[bit.bit_length() - 1], slot)
        return waiting & self._accepts.get(slot, 0)

    def _taker(self, gpus: int, slot: int) -> JobRecord | None:
        """The oldest head of a cold class that a slot's places would take."""
        room = self._groups.most_room(gpus, slot)
        best: JobRecord | None = None
        bits = self._takers(gpus, slot)
        while bits:
            bit = bits & -bits
            bits ^= bit
            found = self._by_number[bit.bit_length() - 1]
            if found.gib <= room:
                head = found.queue.head()
                if head is not None and (best is None or head.key < best.key):
                    best = head
        return best

    # -- candidates ----------------------------------------------------------------------

    def next(self) -> tuple[JobRecord, bool] | None:
        """The oldest candidate, and whether it is to be tried beside others."""
        heap = self.heap
        while heap:
            key, kind, what = heap[0]
            if kind == _PLACE:
                head = self._taker(*what)
            else:
                head = what.head() if kind == _FREE else what.queue.head()
            if head is not None and head.key == key:
                return head, kind != _FREE
            if kind == _PLACE and head is not None:
                heapq.heapreplace(heap, (head.key, kind, what))
                continue
            heapq.heappop(heap)
            if kind == _PLACE:
                self._told.discard(what)
        return None

    def exhausted(self) -> None:
        """The candidate just given does not fit."""
        key, kind, what = heapq.heappop(self.heap)
        while self.heap and self.heap[0][0] == key and self.heap[0][1] == kind:
            heapq.heappop(self.heap)
        if kind == _BESIDE:
            self._cold |= what.bit
        elif kind == _PLACE:
            # Ceilings or host memory keep the oldest taker out: the others are tried one by one.
            self._told.discard(what)
            self._offer_classes(self._takers(*what))

    # -- partners ------------------------------------------------------------------------

    def _judge(self, found: _Class, slot: int) -> None:
        """Judge a slot for a class, once."""
        found.judged |= 1 << slot
        self._judged[slot] = self._judged.get(slot, 0) | found.bit
        key = self._groups.slots[slot]
        if key[0] not in found.types or key[2] != found.circle or (found.gpus > 1 and key[1][0][1] > 1):
            return
        verdict = self._verdicts.of(found.model, found.short, slot, key)
        if verdict is not None:
            level, rank = verdict
            found.levels[level] |= 1 << slot
            found.used |= 1 << level
            found.ranks[slot] = rank
            self._accepts[slot] = self._accepts.get(slot, 0) | found.bit

    def together(self, record: JobRecord) -> Start | None:
        """Start beside the best acceptable partners."""
        if self._view.books.limits and self._view.limit_refusal(record):
            return None
        found = self._where[record.id][1]
        if found is None:
            return None
        devices, gain = self._best(found, record)
        if devices is None:
            return None
        share = share_of(record.job, self._view.layout.device_memory[devices[0]])
        beside = self._view.ledger.residents[devices[0]]
        return Start(record.id, devices, share, Why("best-partners", {"beside": list(beside), "gain": gain}))

    def _best(self, found: _Class, record: JobRecord) -> tuple[tuple[int, ...] | None, float]:
        live = self._groups.live.get(found.gpus, 0)
        unjudged = live & ~found.judged
        while unjudged:
            bit = unjudged & -unjudged
            unjudged ^= bit
            self._judge(found, bit.bit_length() - 1)
        levels, used, ranks = found.levels, found.used, found.ranks
        while used:
            best = used & -used
            used ^= best
            mask = levels[best.bit_length() - 1] & live
            if not mask:
                continue
            slots = []
            while mask:
                bit = mask & -mask
                mask ^= bit
                slots.append(bit.bit_length() - 1)
            for rank, slot in sorted([(ranks[s], s) for s in slots]):
                devices = self._place_in(found, slot, record)
                if devices is not None:
                    return devices, round(-rank[0], 4)
        return None, 0.0

    def _place_in(self, found: _Class, slot: int, record: JobRecord) -> tuple[int, ...] | None:
        job = record.job
        if not (job.cpu_milli or job.host_memory_bytes or job.compute_milli < 1000):
            return self._groups.tightest(found.gpus, slot, found.gib)
        for devices in self._groups.roomy(found.gpus, slot, found.gib):
            share = share_of(job, self._view.layout.device_memory[devices[0]])
            if check_start(self._view.books, record, devices, share) is None:
                return devices
        return None

    def hold(self, record: JobRecord) -> Hold:
        """Why a job fits nowhere: no partner it suits, no memory beside them, or no room at all."""
        refusal = self._view.limit_refusal(record) if self._view.books.limits else None
        if refusal is not None:
            return Hold(record.id, refusal.reason, refusal.facts)
        reason, facts = self._view.why_not(record)
        found = self._where[record.id][1]
        live = self._groups.live.get(record.shape.gpus, 0)
        if found is not None and live:
            suits = any(level & live for level in found.levels)
            return Hold(record.id, Reason.MEMORY if suits else Reason.SLOWDOWN, facts)
        return Hold(record.id, reason, facts)
