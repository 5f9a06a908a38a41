"""Running jobs that may be stopped for others, on shared devices, too.

A device can be had if all its residents may be stopped, at the cost of the best of their
standings; a free one costs nothing. As in ``victims``, the g-th cheapest device of a bay is what g
devices cost there, and bays are kept in a heap for each g that was asked for. Besides, jobs are
kept by size, the first to give way first, so that one of them can be replaced beside its neighbours.

Events only note what they touch; it is looked at when somebody waits in vain.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from typing import Any

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord, Status
from cotenant.model.settings import Settings
from cotenant.model.view import Index, View
from cotenant.policies.company.ranked import learned_top
from cotenant.policies.preemption.victims import FREE, Order
from cotenant.policies.queues.levels import level, level_until_s

__all__ = ["Standing", "Yielding", "tier", "works_from_s"]

Standing = tuple[int, float, int]
"""Tier, minus level, minus id: smaller gives way first; the youngest among equals."""

_SWEEP = 256
_TURN_SHARE = 0.125
"""Of the devices: a job that holds more has a turn that is shorter in proportion."""
_INF = math.inf
_RUNNING = Status.RUNNING


def tier(record: JobRecord) -> int:
    """Priority, and within it the class: opportunistic jobs give way before guaranteed ones."""
    return 2 * record.priority + (record.job.job_class == "guaranteed")


def works_from_s(record: JobRecord, settings: Settings) -> float:
    """When a running job works, or will, after it last got devices: when it has started up, or loaded its state."""
    return record.started_s + settings.startup_s(record.job, record.ran_s > 0.0)


class Yielding(Index):
    """Standings of running jobs, and what devices cost.

    Parameters
    ----------
    view : View
    quantum_s : float
        Nobody gives way before having worked so long at a stretch; loading does not count.
    turn_s : float
        The same for the job that has its turn after it was stopped, if it holds an eighth of the devices or less.
    """

    def __init__(self, view: View, quantum_s: float, turn_s: float) -> None:
        self._view, self._ledger, self._layout = view, view.ledger, view.layout
        self._top = learned_top(view)
        self._min_quantum_s = view.settings.min_quantum_s
        self._quantum_s = max(quantum_s, self._min_quantum_s)
        self._turn_s = turn_s
        self._turn_devices = max(1.0, _TURN_SHARE * view.layout.device_count)
        self.standing: dict[int, Standing] = {}
        self._changed: dict[int, JobRecord] = dict(view.running)
        self._touched: dict[int, None] = dict.fromkeys(range(view.layout.device_count))
        self._costs: list[Standing | None] = [None] * view.layout.device_count
        self._orders: dict[tuple[int, int], Order] = {}
        self._by_size: dict[int, list[Standing]] = {}
        self._size_of: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._timers: list[tuple[float, int]] = []
        self._had: float | None = None
        self._memo: Any = None
        self._turn_job = -1

    def renew(self) -> None:
        """The policy has noted another top level: everybody is looked at again."""
        self._top = learned_top(self._view)
        self._changed = dict(self._view.running)

    # -- hooks -----------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        self._changed[record.id] = record
        self._touch(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        self._touch(place.devices)
        if record.id in self._ledger.held:
            self._changed[record.id] = record
            return
        self._changed.pop(record.id, None)
        self._due.pop(record.id, None)
        standing = self.standing.get(record.id)
        if standing is not None:
            self._strike(record.id, standing)

    def rated(self, record: JobRecord) -> None:
        """Speed, priority or status changed."""
        self._changed[record.id] = record

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came, went or were kept."""
        self._touch(devices)

    def _touch(self, devices: tuple[int, ...]) -> None:
        touched = self._touched
        for device in devices:
            touched[device] = None

    # -- standing --------------------------------------------------------------------

    def turn(self) -> None:
        """Bring everything up to the present."""
        for record in self._changed.values():
            self._judge(record)
        self._changed.clear()
        now, timers, due = self._view.now, self._timers, self._due
        while timers and timers[0][0] <= now:
            t, job_id = heapq.heappop(timers)
            if due.get(job_id) == t:
                del due[job_id]
                self._judge(self._view.running[job_id])
        if self._touched:
            self._refresh()

    def next_turn_s(self) -> float:
        """When a standing may change by itself; infinite if never. After ``turn``."""
        timers, due = self._timers, self._due
        while timers and due.get(timers[0][1]) != timers[0][0]:
            heapq.heappop(timers)
        return timers[0][0] if timers else _INF

    def _judge(self, record: JobRecord) -> None:
        job_id, before = record.id, self.standing.get(record.id)
        self._had = self._due.pop(job_id, None)
        after = self._judged(record)
        if before == after:
            return
        if before is not None:
            self._strike(job_id, before)
        if after is not None:
            self.standing[job_id] = after
            size = self._size_of[job_id] = len(record.place.devices) if record.place is not None else 0
            insort(self._by_size.setdefault(size, []), after)
        if record.place is not None:
            self._touch(record.place.devices)

    def _strike(self, job_id: int, standing: Standing) -> None:
        line = self._by_size[self._size_of.pop(job_id)]
        del line[bisect_left(line, standing)]
        del self.standing[job_id]

    def _judged(self, record: JobRecord) -> Standing | None:
        place, now = record.place, self._view.now
        if record.status != _RUNNING or place is None or not place.devices or not record.job.suspendable:
            return None
        if record.id in self._ledger.leaving:
            return None
        of_age_s = self._of_age_s(record)
        if now < of_age_s:
            self._set_timer(record.id, of_age_s)
            return None
        here = level(record, now, self._top)
        until_s = level_until_s(record, now, self._top, here)
        if until_s < _INF:
            self._set_timer(record.id, until_s)
        return tier(record), -float(here), -record.id

    def _least_s(self, record: JobRecord) -> float:
        if record.id != self._turn():
            return self._quantum_s
        return max(self._quantum_s, self._turn_s * min(1.0, self._turn_devices / (record.job.gpus or 1)))

    def _turn(self) -> int:
        """The job whose turn was the last, as the policy has noted it; -1 if there was none."""
        memo = self._view.memo
        if memo is not self._memo:
            self._memo, self._turn_job = memo, int(memo.get("turn", -1)) if memo else -1
        return self._turn_job

    def turn_ends_s(self) -> float:
        """When the next of those that were stopped may have its turn, or somebody who keeps the last from its own
        may be stopped."""
        record = self._view.records.get(self._turn())
        if record is None or record.status == Status.STOPPING:
            return 0.0
        if record.status == _RUNNING:
            return self._of_age_s(record)
        return self.next_of_age_s(record.reserved) if record.reserved else 0.0

    def next_of_age_s(self, devices: tuple[int, ...]) -> float:
        """When the next of the jobs on some devices may be stopped; infinite if never."""
        now, running, residents = self._view.now, self._view.running, self._ledger.residents
        ages = [self.of_age_s(running[j]) for d in devices for j in residents[d]]
        return min([t for t in ages if t > now], default=_INF)

    def _of_age_s(self, record: JobRecord) -> float:
        """The first instant at which the quantum is over: it counts from when the job works.

        A job that still loads, later than reckoned with, has all of it ahead.
        """
        least_s, began_s = self._least_s(record), works_from_s(record, self._view.settings)
        if not record.rate > 0.0 and began_s < self._view.now:
            began_s = self._view.now
        t = began_s + least_s
        while t - began_s < least_s or t - record.started_s < self._min_quantum_s:
            t = math.nextafter(t, _INF)
        return t

    def of_age_s(self, record: JobRecord) -> float:
        """When a running job may be stopped; infinite if never."""
        if record.status != _RUNNING or not record.job.suspendable:
            return _INF
        return self._of_age_s(record)

    def _set_timer(self, job_id: int, t: float) -> None:
        self._due[job_id] = t
        if t == self._had:
            return  # it is set already
        heapq.heappush(self._timers, (t, job_id))
        if len(self._timers) > 2 * len(self._due) + _SWEEP:
            self._timers = [(t, j) for j, t in self._due.items()]
            heapq.heapify(self._timers)

    def first(self, size: int, count: int) -> list[Standing]:
        """So many of the jobs on so many devices, the first to give way first."""
        line = self._by_size.get(size)
        return line[:count] if line else []

    def lowest(self) -> Standing | None:
        """Of all jobs the one that gives way first; None if nobody may be stopped."""
        return min([line[0] for line in self._by_size.values() if line], default=None)

    # -- devices ---------------------------------------------------------------------

    def cost(self, device: int) -> Standing | None:
        """What a device costs now: the best standing of its residents; None if it can't be had."""
        ledger = self._ledger
        if device in ledger.reserved or not ledger.usable[device]:
            return None
        if ledger.impaired and ledger.draining[self._layout.device_node[device]]:
            return None
        worst, standing = FREE, self.standing
        for job_id in ledger.residents[device]:
            its = standing.get(job_id)
            if its is None:
                return None
            if its > worst:
                worst = its
        return worst

    def _refresh(self) -> None:
        """Work out again what touched devices, and their bays, cost."""
        bay_of, costs = self._layout.device_bay, self._costs
        bays: dict[int, None] = {}
        for device in self._touched:
            cost = self.cost(device)
            if cost != costs[device]:
                costs[device] = cost
                bays[bay_of[device]] = None
        self._touched.clear()
        if self._orders:
            for bay in bays:
                self._set_bay(bay)

    def row(self, bay: int) -> list[tuple[Standing, int]]:
        """Devices of a bay that can be had, the cheapest first."""
        first, size = self._layout.bay_first[bay], self._layout.bay_size[bay]
        found = [(c, d) for d in range(first, first + size) if (c := self._costs[d]) is not None]
        found.sort()
        return found

    def _set_bay(self, bay: int) -> None:
        row, kind = self.row(bay), self._layout.bay_type[bay]
        for (of_kind, gpus), order in self._orders.items():
            if of_kind != kind:
                continue
            cost = row[gpus - 1][0] if gpus <= len(row) else None
            entry = None if cost is None else (cost[0], cost[1], bay)
            if entry == order.entries[bay]:
                continue
            order.entries[bay] = entry
            if entry is not None:
                heapq.heappush(order.heap, entry)
                if len(order.heap) > 2 * len(order.entries) + _SWEEP:
                    order.sweep()

    def order(self, kind: int, gpus: int) -> Order:
        """Bays of a type where so many devices can be had, by what they cost. After ``turn``."""
        order = self._orders.get((kind, gpus))
        if order is None:
            order = self._orders[kind, gpus] = Order(gpus, len(self._layout.bay_type))
            for bay in self._layout.type_bays[kind]:
                self._set_bay(bay)
        return order
