"""Interference-aware sharing over a forecast: pairs and larger sets.

Card: ``docs/policies/colocate.md``.
"""

from __future__ import annotations

import heapq
from typing import Any

from cotenant.model.jobs import Job
from cotenant.model.params import Params
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Reason, Reserve, Start, Why
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_start
from cotenant.model.view import Index, View
from cotenant.policies.groups import Circle, Group, GroupIndex, SlotKey, circle_of, needed_gib

__all__ = ["Colocate"]

_ALONE = Why("free-devices")
_OVERDUE = Why("overdue-reservation")
_DROPPED = Why("reservation-unusable")
_LEVELS = 16
_Verdict = tuple[int, tuple[float, SlotKey]]


class Colocate(Params):
    """Put a waiting job alone if devices are free, else beside the neighbours it suits best.

    A set is acceptable if the forecast says that even at the low end of its interval no
    member falls below ``min_speed``, and that the device gains at least ``min_gain`` of
    throughput. Among acceptable sets, the largest gain wins. Jobs are tried oldest first;
    one that does not fit blocks nobody. A job that waits longer than ``patience_s`` gets a
    node reserved, where nobody else may start.

    Parameters
    ----------
    min_speed : float
        Least predicted speed of any member beside the others, relative to alone.
    min_gain : float
        Least predicted gain of total normalised throughput by one more member.
    patience_s : float
        Wait after which a reservation is made; 0 makes none.
    """

    def __init__(
        self, *, min_speed: float = 0.45, min_gain: float = 0.1, patience_s: float = 14400.0
    ) -> None:
        self.min_speed = min_speed
        self.min_gain = min_gain
        self.patience_s = patience_s

    def decide(self, view: View) -> Plan:
        """Start the oldest waiting job that fits somewhere."""
        index = view.index(_Candidates, self.min_speed, self.min_gain)
        if index.forecast_version != view.forecast.version:
            # Verdicts are out of date: everything is a candidate again.
            view.drop_indexes()
            index = view.index(_Candidates, self.min_speed, self.min_gain)
        wake = None
        if self.patience_s and len(view.queue):
            plan, wake = self._overdue(view)
            if plan is not None:
                return plan
        if not index.heap:
            return EMPTY if wake is None else Plan(wake_at_s=wake)
        holds: list[Decision] = []
        while True:
            candidate = index.next()
            if candidate is None:
                return Plan(tuple(holds), wake_at_s=wake) if holds or wake is not None else EMPTY
            record, together = candidate
            start = index.together(record) if together else _alone(view, record)
            if start is not None:
                holds.append(start)
                return Plan(tuple(holds), wake_at_s=wake, again=True)
            index.exhausted()
            if record.hold is None and (together or circle_of(record.job) is None):
                holds.append(index.hold(record))

    def _overdue(self, view: View) -> tuple[Plan | None, float | None]:
        """Serve the reservation, or make one for a head that has waited too long."""
        reserved = view.ledger.reserved
        if reserved:
            owner = view.records[min(reserved.values())]
            ledger = view.ledger
            if not all(ledger.usable[d] for d in owner.reserved):
                return Plan((Reserve(owner.id, (), _DROPPED),), again=True), None
            if not any(ledger.residents[d] for d in owner.reserved):
                share = _share(owner.job, ledger.layout.device_memory[owner.reserved[0]])
                start = Start(owner.id, owner.reserved, share, _OVERDUE)
                if check_start(view.books, owner, owner.reserved, share) is None:
                    return Plan((start,), again=True), None
            return None, None
        head = view.queue.head()
        if head is None or head.shape.gpus == 0 or (view.books.limits and view.limit_refusal(head)):
            return None, None
        due = head.queued_s + self.patience_s
        if view.now < due:
            return None, due
        devices = _soonest_block(view, head) if head.shape.single else _soonest_anywhere(view, head)
        if not devices:
            return None, None
        return Plan((Reserve(head.id, devices, _OVERDUE),), again=True), None


def _share(job: Job, capacity: int) -> Share:
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


def _alone(view: View, record: JobRecord) -> Start | None:
    """Start on free devices."""
    if view.books.limits and view.limit_refusal(record):
        return None
    if record.shape.gpus == 0:
        node = view.find_node(record)
        return Start(record.id, (), why=_ALONE, node=node) if node >= 0 else None
    devices = view.find(record)
    if devices is None:
        return None
    return Start(record.id, devices, _share(record.job, view.layout.device_memory[devices[0]]), _ALONE)


def _soonest_block(view: View, record: JobRecord) -> tuple[int, ...]:
    """The devices of one node that are predicted to be empty soonest; O(cluster), used rarely."""
    ledger, layout, now = view.ledger, view.layout, view.now
    best: tuple[float, int] | None = None
    chosen: tuple[int, ...] = ()
    for kind in record.shape.types:
        for bay in layout.type_bays[kind]:
            if layout.bay_size[bay] < record.shape.gpus or ledger.draining[layout.bay_node[bay]]:
                continue
            first = layout.bay_first[bay]
            ends = []
            for device in range(first, first + layout.bay_size[bay]):
                if ledger.usable[device]:
                    ends.append((_empty_at(view, device, now), device))
            ends.sort()
            if len(ends) < record.shape.gpus:
                continue
            taken = ends[: record.shape.gpus]
            if best is None or (taken[-1][0], bay) < best:
                best = (taken[-1][0], bay)
                chosen = tuple(sorted(d for _, d in taken))
    return chosen


def _soonest_anywhere(view: View, record: JobRecord) -> tuple[int, ...]:
    """For a gang larger than a node: the devices of one type predicted to be empty soonest."""
    ledger, layout = view.ledger, view.layout
    for kind in record.shape.types:
        ends = sorted(
            (_empty_at(view, device, view.now), device)
            for bay in layout.type_bays[kind]
            if not ledger.draining[layout.bay_node[bay]]
            for device in range(layout.bay_first[bay], layout.bay_first[bay] + layout.bay_size[bay])
            if ledger.usable[device]
        )
        if len(ends) >= record.shape.gpus:
            return tuple(sorted(device for _, device in ends[: record.shape.gpus]))
    return ()


def _empty_at(view: View, device: int, now: float) -> float:
    ends = [0.0]
    for job_id in view.ledger.residents[device]:
        record = view.records[job_id]
        ends.append(record.remaining_at(now) / max(record.rate, 0.05))
    return max(ends)


class _Class:
    """Waiting jobs that are alike for sharing: same size, model, memory, circle, types."""

    __slots__ = ("circle", "gib", "gpus", "levels", "model", "queue", "seen", "types", "verdicts")

    def __init__(self, gpus: int, model: str, gib: int, circle: Circle, types: tuple[int, ...]) -> None:
        self.gpus = gpus
        self.model = model
        self.gib = gib
        self.circle = circle
        self.types = types
        self.queue = PendingQueue()
        self.seen = 0
        self.levels = [0] * _LEVELS
        self.verdicts: dict[int, tuple[float, SlotKey]] = {}


class _Candidates(Index):
    """Which waiting jobs might start now, oldest first.

    Invariant: a job that fits somewhere is at the head of a demand or class that lies in
    ``heap``. So a call without candidates has nothing to do, and a fresh index, where
    everything is a candidate, decides the same.
    """

    def __init__(self, view: View, min_speed: float, min_gain: float) -> None:
        self._view = view
        self._min_speed, self._min_gain = min_speed, min_gain
        self._groups = view.index(GroupIndex)
        self._groups.changed = self._group_changed
        self.forecast_version = view.forecast.version
        self._verdicts: dict[tuple[str, int], _Verdict | None] = {}
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
        key = (job.gpus, job.model, needed_gib(job), circle, types, self._tenant(record))
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _Class(job.gpus, job.model, key[2], circle, types)
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
        group, verdict = self._best(found, record)
        if group is None:
            return None
        job = record.job
        share = _share(job, self._view.layout.device_memory[group.devices[0]])
        facts = {"beside": list(group.jobs), "gain": round(-verdict[0], 4)}
        return Start(record.id, group.devices, share, Why("best-partners", facts))

    def _best(self, found: _Class, record: JobRecord) -> tuple[Group | None, tuple[float, SlotKey]]:
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
                group = self._group_in(found, slot, record)
                if group is not None:
                    return group, verdict
        return None, (0.0, (0, (), ()))

    def _group_in(self, found: _Class, slot: int, record: JobRecord) -> Group | None:
        job = record.job
        if not (job.cpu_milli or job.host_memory_bytes or job.compute_milli < 1000):
            return self._groups.tightest(found.gpus, slot, found.gib)
        for group in self._groups.roomy(found.gpus, slot, found.gib):
            share = _share(job, self._view.layout.device_memory[group.devices[0]])
            if check_start(self._view.books, record, group.devices, share) is None:
                return group
        return None

    def _judge_slots(self, found: _Class) -> None:
        """Judge the slots that this class has not met yet."""
        slots = self._groups.slots
        for slot in range(found.seen, len(slots)):
            key = slots[slot]
            if key[0] in found.types and key[2] == found.circle:
                verdict = self._verdict(found.model, slot, key)
                if verdict is not None:
                    level, rank = verdict
                    found.levels[level] |= 1 << slot
                    found.verdicts[slot] = rank
        found.seen = len(slots)

    def _verdict(self, model: str, slot: int, key: SlotKey) -> _Verdict | None:
        memo = (model, slot)
        if memo in self._verdicts:
            return self._verdicts[memo]
        verdict = self._verdicts[memo] = self._judge(model, key)
        return verdict

    def _judge(self, model: str, key: SlotKey) -> _Verdict | None:
        """Level and rank of adding a model to a slot; None if not acceptable."""
        forecast, kind = self._view.forecast, self._view.layout.types[key[0]].name
        present = key[1]
        everyone = (*present, model)
        speeds = {m: forecast.co_speed(m, _without(everyone, m), kind) for m in set(everyone)}
        if any(speed.low < self._min_speed for speed in speeds.values()):
            return None
        after = sum(speeds[m].mean for m in everyone)
        if len(present) == 1:
            before = 1.0
        else:
            before = sum(forecast.co_speed(m, _without(present, m), kind).mean for m in present)
        gain = after - before
        if gain < self._min_gain:
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
