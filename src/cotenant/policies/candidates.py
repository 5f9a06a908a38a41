"""Which waiting jobs might start now, and beside whom: the incremental half of co-location."""

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
from cotenant.policies.groups import Circle, GroupIndex, SlotKey, circle_of, needed_gib

__all__ = ["Candidates", "share_of"]

_LEVELS = 16
_Verdict = tuple[int, tuple[float, SlotKey]]


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

    __slots__ = ("circle", "gib", "gpus", "levels", "model", "queue", "seen", "short", "types", "verdicts")

    def __init__(
        self, *, gpus: int, model: str, gib: int, circle: Circle, types: tuple[int, ...], short: bool
    ) -> None:
        self.gpus = gpus
        self.short = short
        self.model = model
        self.gib = gib
        self.circle = circle
        self.types = types
        self.queue = PendingQueue()
        self.seen = 0
        self.levels = [0] * _LEVELS
        self.verdicts: dict[int, tuple[float, SlotKey]] = {}


class Candidates(Index):
    """Which waiting jobs might start now, oldest first.

    Invariant: a job that fits somewhere is at the head of a demand or class that lies in
    ``heap``. So a call without candidates has nothing to do, and a fresh index, where
    everything is a candidate, decides the same.
    """

    def __init__(self, view: View, min_speed: float, min_gain: float, guest_s: float) -> None:
        self._view = view
        self._min_speed, self._min_gain, self._guest_s = min_speed, min_gain, guest_s
        self._groups = view.index(GroupIndex)
        self._groups.changed = self._group_changed
        self.forecast_version = view.forecast.version
        self._verdicts: dict[tuple[str, bool, int], _Verdict | None] = {}
        self._demands: dict[tuple[Any, ...], PendingQueue] = {}
        self._classes: dict[tuple[Any, ...], _Class] = {}
        # What waits, so that a change looks at nothing else.
        self._waiting_classes: dict[int, dict[int, _Class]] = {}
        self._waiting_demands: dict[int, tuple[int, tuple[int, ...], PendingQueue]] = {}
        self._demand_keys: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.heap: list[tuple[tuple[int, int], int, PendingQueue]] = []
        self._fill()

    def _fill(self) -> None:
        """Take in all that waits."""
        self._limited = frozenset(self._view.books.limits)
        self._demands.clear()
        self._classes.clear()
        self._demand_keys.clear()
        self._waiting_classes.clear()
        self._waiting_demands.clear()
        self.heap.clear()
        for record in self._view.queue:
            self.enqueued(record)

    # -- what is waiting ---------------------------------------------------------------

    def _tenant(self, record: JobRecord) -> str:
        return record.job.tenant if self._limited and record.job.tenant in self._limited else ""

    def _demand(self, record: JobRecord) -> PendingQueue:
        shape = record.shape
        short = (shape.number, self._tenant(record))
        key = self._demand_keys.get(short)
        if key is None:
            key = (shape.gpus, shape.types, shape.cpu_milli, shape.host_bytes, short[1])
            self._demand_keys[short] = key
        queue = self._demands.get(key)
        if queue is None:
            queue = self._demands[key] = PendingQueue()
        return queue

    def _class(self, record: JobRecord) -> _Class | None:
        job = record.job
        circle = circle_of(job)
        if circle is None or job.gpus == 0:
            return None
        types = record.shape.types
        short = 0.0 < record.predicted_s <= self._guest_s
        key = (job.gpus, job.model, needed_gib(job), circle, types, short, self._tenant(record))
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _Class(
                gpus=job.gpus, model=job.model, gib=key[2], circle=circle, types=types, short=short
            )
        return found

    def enqueued(self, record: JobRecord) -> None:
        """A new job is a candidate if it heads its demand or class."""
        demand = self._demand(record)
        demand.push(record)
        if len(demand) == 1:
            self._waiting_demands[id(demand)] = (record.shape.gpus, record.shape.types, demand)
        if demand.head() is record:
            heapq.heappush(self.heap, (record.key, 0, demand))
        found = self._class(record)
        if found is not None:
            found.queue.push(record)
            if len(found.queue) == 1:
                self._waiting_classes.setdefault(found.gpus, {})[id(found)] = found
            if found.queue.head() is record:
                heapq.heappush(self.heap, (record.key, 1, found.queue))

    def dequeued(self, record: JobRecord) -> None:
        """Whoever heads its demand and class now is a candidate."""
        demand = self._demand(record)
        demand.left(record)
        if not len(demand):
            del self._waiting_demands[id(demand)]
        else:
            self._offer(demand, 0)
        found = self._class(record)
        if found is not None:
            found.queue.left(record)
            if not len(found.queue):
                del self._waiting_classes[found.gpus][id(found)]
            else:
                self._offer(found.queue, 1)

    def _offer(self, queue: PendingQueue, together: int) -> None:
        head = queue.head()
        if head is not None:
            heapq.heappush(self.heap, (head.key, together, queue))

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
        if ledger.residents[devices[0]]:
            return
        bay = layout.device_bay[devices[0]]
        kind, room = layout.bay_type[bay], ledger.whole[bay].bit_count()
        for gpus, types, queue in self._waiting_demands.values():
            if kind in types and (gpus <= room or ledger.free_count[kind] >= gpus > room):
                self._offer(queue, 0)

    def _offer_all(self) -> None:
        for _, _, queue in self._waiting_demands.values():
            self._offer(queue, 0)
        for classes in self._waiting_classes.values():
            for found in classes.values():
                self._offer(found.queue, 1)

    def _group_changed(self, gpus: int, slot: int, gib: int) -> None:
        waiting = self._waiting_classes.get(gpus)
        if not waiting:
            return
        for found in waiting.values():
            if found.gib <= gib:
                if found.seen <= slot:
                    self._judge_slots(found)
                if slot in found.verdicts:
                    self._offer(found.queue, 1)

    # -- candidates ----------------------------------------------------------------------

    def next(self) -> tuple[JobRecord, bool] | None:
        """The oldest candidate, and whether it is to be tried beside others."""
        heap = self.heap
        while heap:
            key, together, queue = heap[0]
            head = queue.head()
            if head is not None and head.key == key:
                return head, bool(together)
            heapq.heappop(heap)
        return None

    def exhausted(self) -> None:
        """The candidate just given does not fit."""
        top = heapq.heappop(self.heap)
        while self.heap and self.heap[0][:2] == top[:2]:
            heapq.heappop(self.heap)

    # -- partners ------------------------------------------------------------------------

    def together(self, record: JobRecord) -> Start | None:
        """Start beside the best acceptable partners."""
        if self._view.books.limits and self._view.limit_refusal(record):
            return None
        found = self._class(record)
        if found is None:
            return None
        devices, gain = self._best(found, record)
        if devices is None:
            return None
        share = share_of(record.job, self._view.layout.device_memory[devices[0]])
        beside = self._view.ledger.residents[devices[0]]
        return Start(record.id, devices, share, Why("best-partners", {"beside": list(beside), "gain": gain}))

    def _best(self, found: _Class, record: JobRecord) -> tuple[tuple[int, ...] | None, float]:
        groups = self._groups
        if found.seen < len(groups.slots):
            self._judge_slots(found)
        live = groups.live.get(found.gpus, 0)
        for level in found.levels:
            mask = level & live
            if not mask:
                continue
            options = []
            while mask:
                bit = mask & -mask
                mask ^= bit
                slot = bit.bit_length() - 1
                options.append((found.verdicts[slot], slot))
            options.sort()
            for verdict, slot in options:
                devices = self._place_in(found, slot, record)
                if devices is not None:
                    return devices, round(-verdict[0], 4)
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

    def _judge_slots(self, found: _Class) -> None:
        """Judge the slots that this class has not met yet."""
        slots = self._groups.slots
        for slot in range(found.seen, len(slots)):
            key = slots[slot]
            if found.gpus > 1 and key[1][0][1] > 1:
                continue  # a seat beside a gang member: not for gangs
            if key[0] in found.types and key[2] == found.circle:
                verdict = self._verdict(found.model, found.short, slot, key)
                if verdict is not None:
                    level, rank = verdict
                    found.levels[level] |= 1 << slot
                    found.verdicts[slot] = rank
        found.seen = len(slots)

    def _verdict(self, model: str, short: bool, slot: int, key: SlotKey) -> _Verdict | None:
        memo = (model, short, slot)
        if memo in self._verdicts:
            return self._verdicts[memo]
        verdict = self._verdicts[memo] = self._judge(model, short, key)
        return verdict

    def _judge(self, model: str, short: bool, key: SlotKey) -> _Verdict | None:
        """Level and rank of adding a model to a slot; None if not acceptable."""
        forecast, kind = self._view.forecast, self._view.layout.types[key[0]].name
        present = tuple(m for m, _ in key[1])
        everyone = (*present, model)
        speeds = {m: forecast.co_speed(m, _without(everyone, m), kind) for m in set(everyone)}
        if any(speed.low < self._min_speed for speed in speeds.values()):
            return None
        gain = speeds[model].mean
        for member, weight in key[1]:
            beside = _without(present, member)
            before = forecast.co_speed(member, beside, kind).mean if beside else 1.0
            gain -= weight * (before - speeds[member].mean)
        if gain < self._min_gain and not short:
            return None
        level = _LEVELS - 1 - min(_LEVELS - 1, max(0, int(gain * _LEVELS)))
        return level, (-gain, key)

    def hold(self, record: JobRecord) -> Hold:
        """Why a job fits nowhere: no partner it suits, no memory beside them, or no room at all."""
        refusal = self._view.limit_refusal(record) if self._view.books.limits else None
        if refusal is not None:
            return Hold(record.id, refusal.reason, refusal.facts)
        reason, facts = self._view.why_not(record)
        found = self._class(record)
        live = self._groups.live.get(record.shape.gpus, 0)
        if found is not None and live:
            suits = any(level & live for level in found.levels)
            return Hold(record.id, Reason.MEMORY if suits else Reason.SLOWDOWN, facts)
        return Hold(record.id, reason, facts)


def _without(models: tuple[str, ...], one: str) -> tuple[str, ...]:
    rest = list(models)
    rest.remove(one)
    return tuple(sorted(rest))
