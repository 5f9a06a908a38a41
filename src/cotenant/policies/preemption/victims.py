"""Running jobs as victims: in every bay, how good a reason is needed to get g devices.

A device that is free costs nothing; one whose job may be stopped costs that job's standing;
any other cannot be had. Sorted, the g-th of a bay's devices is what g devices there cost
(its bottleneck). Bays are kept in a heap by it for each g that was asked for, so the best bay
is on top, and equal entries fall to the lowest bay.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from heapq import heappop, heappush

from cotenant.model.placement import WHOLE, Placement
from cotenant.model.records import JobRecord, Status
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.preemption.ranking import Ranking

__all__ = ["FREE", "Order", "Standing", "Victims"]

Standing = tuple[int, float]
"""(priority, minus badness): smaller is stopped first."""

FREE: tuple[int, float, int] = (-(1 << 62), 0.0, -1)
"""What a device without a job costs."""
_Entry = tuple[int, float, int]
"""A standing and a bay; it compares with a standing as if it had no bay."""
_Held = tuple[int, float, int]
"""A standing and the job whose it is."""
_SWEEP = 256
_INF = math.inf
_RUNNING, _STOPPING = Status.RUNNING, Status.STOPPING
# Names of their own: looking up members of an enumeration is slow on the hot path.


class Order:
    """Bays of one device type by what ``gpus`` devices cost there, the cheapest first.

    A heap with void entries: one is valid while it is its bay's present one. Void ones are
    dropped at the top, and all of them by ``sweep``.

    Attributes
    ----------
    last : int
        Place, in a bay's sorted row of costs, of what so many devices cost.
    costs : list of ((priority, minus badness, id) or None)
        For each bay, with the job it is read from; None if so many devices cannot be had.
    entries : list of (entry or None)
        For each bay, its valid entry.
    heap : list of entry
    """

    __slots__ = ("costs", "entries", "heap", "last")

    def __init__(self, gpus: int, bays: int) -> None:
        self.last = gpus - 1
        self.costs: list[_Held | None] = [None] * bays
        self.entries: list[_Entry | None] = [None] * bays
        self.heap: list[_Entry] = []

    def sweep(self) -> None:
        """Drop void entries."""
        self.heap[:] = [e for e in self.entries if e is not None]
        heapq.heapify(self.heap)

    def best(self) -> _Entry | None:
        """(priority, minus badness, bay) of the first bay, if there is any."""
        heap, entries = self.heap, self.entries
        while heap:
            entry = heap[0]
            if entries[entry[2]] is entry:
                return entry
            heappop(heap)
        return None

    def first(self, count: int) -> list[_Entry]:
        """So many of the first bays, in order."""
        heap, entries = self.heap, self.entries
        found: list[_Entry] = []
        while heap and len(found) < count:
            entry = heappop(heap)
            if entries[entry[2]] is entry:
                found.append(entry)
        for entry in found:
            heappush(heap, entry)
        return found


_Parts = tuple[int, list[_Held | None], list[_Entry | None], list[_Entry]]
"""What an order is made of, looked up once: ``refresh`` is the hottest place of a preemptive policy."""


class Victims(Index):
    """Costs of bays.

    Events only note which jobs and bays they touched; those are looked at when somebody asks,
    so that while nobody waits in vain, or several events fall together, little is worked out.

    Attributes
    ----------
    standing : dict of int to (priority, minus badness, id)
        Running jobs that may be stopped, apart from whose gain it is; as of the last ``turn``.
    in_bay : list of dict of int to int
        For each bay: running jobs, and how many devices each holds there.
    """

    def __init__(self, view: View, ranking: Ranking) -> None:
        self._view = view
        self._ledger, self._layout = view.ledger, view.layout
        self._blocks, self._badness = view.layout.blocks, ranking.badness
        self._by_speed = ranking.by_speed
        self._quantum = view.settings.min_quantum_s
        bays = len(view.layout.bay_node)
        self.standing: dict[int, _Held] = {}
        self.in_bay: list[dict[int, int]] = [{} for _ in range(bays)]
        self._rows: list[list[_Held]] = [[] for _ in range(bays)]
        self._orders: dict[tuple[int, int], Order] = {}
        self._of_kind: list[list[_Parts]] = [[] for _ in view.layout.types]
        self._pushes = 0  # since void entries were dropped last
        self._due: dict[int, float] = {}
        self._timers: list[tuple[float, int]] = []
        self._gained: _Held | None = None
        self._changed: dict[int, JobRecord] = {}
        self._dirty = set(range(bays))
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
            if (old := self._ledger.leaving.get(record.id)) is not None:
                self.placed(record, old)

    # -- hooks -----------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        job_id, standing = record.id, self.standing.get(record.id)
        for bay, mask in self._blocks(place.devices) or ():
            jobs = self.in_bay[bay]
            jobs[job_id] = jobs.get(job_id, 0) + mask.bit_count()
            self._dirty.add(bay)
        if standing is not None:
            self._shift(place, None, standing)
        self._changed[job_id] = record

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        job_id, standing = record.id, self.standing.get(record.id)
        for bay, mask in self._blocks(place.devices) or ():
            jobs = self.in_bay[bay]
            left = jobs.pop(job_id, 0) - mask.bit_count()
            if left > 0:
                jobs[job_id] = left
            self._dirty.add(bay)
        if standing is not None:
            self._shift(place, standing, None)
        if job_id in self._ledger.held:
            self._changed[job_id] = record
            return
        self._changed.pop(job_id, None)
        self._due.pop(job_id, None)
        if standing is not None:
            del self.standing[job_id]

    def rated(self, record: JobRecord) -> None:
        """Speed, priority or status changed."""
        before = self.standing.get(record.id)
        if record.status == _STOPPING:
            if before is None:
                return
        elif not self._by_speed and before is not None and before[0] == record.priority:
            return
        self._changed[record.id] = record

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came, went or were kept."""
        bay_of = self._layout.device_bay
        for device in devices:
            self._dirty.add(bay_of[device])

    # -- standing --------------------------------------------------------------------

    def _update(self, record: JobRecord) -> None:
        """Work out a running job's standing and when it changes by itself."""
        job_id, standing = record.id, self.standing
        before, after = standing.get(job_id), self._judged(record)
        if before == after:
            return
        if after is None:
            del standing[job_id]
        else:
            standing[job_id] = after
            if before is None or after < before:
                gained = self._gained
                if gained is None or after < gained:
                    self._gained = after
        if record.place is not None:
            self._shift(record.place, before, after)
        if self._ledger.leaving and (old := self._ledger.leaving.get(job_id)) is not None:
            self._shift(old, before, after)

    def _shift(self, place: Placement, before: _Held | None, after: _Held | None) -> None:
        """Devices of a place cost something else now."""
        for bay, mask in self._blocks(place.devices) or ():
            self._dirty.add(bay)
            row = self._rows[bay]
            if mask & (mask - 1):
                count = mask.bit_count()
                if before is not None:
                    at = bisect_left(row, before)
                    del row[at : at + count]
                if after is not None:
                    at = bisect_left(row, after)
                    row[at:at] = (after,) * count
                continue
            if before is not None:
                del row[bisect_left(row, before)]
            if after is not None:
                insort(row, after)

    def _judged(self, record: JobRecord) -> _Held | None:
        job_id, place = record.id, record.place
        self._due.pop(job_id, None)
        if record.status != _RUNNING or place is None or not place.devices or not record.job.suspendable:
            return None
        if place.share is not WHOLE and place.share.mode != "exclusive":
            return None
        if self._ledger.leaving and job_id in self._ledger.leaving:
            return None
        if self._quantum and self._view.now - record.started_s < self._quantum:
            self._set_timer(job_id, self._of_age(record))
            return None
        badness, until = self._badness(self._view, record)
        if until < _INF:
            self._set_timer(job_id, until)
        return record.priority, -badness, job_id

    def _of_age(self, record: JobRecord) -> float:
        """The first instant at which the rules let the job be stopped."""
        t = record.started_s + self._quantum
        while t - record.started_s < self._quantum:
            t = math.nextafter(t, math.inf)
        return t

    def _set_timer(self, job_id: int, t: float) -> None:
        self._due[job_id] = t
        heappush(self._timers, (t, job_id))
        if len(self._timers) > 2 * len(self._due) + _SWEEP:
            self._timers = [(t, j) for j, t in self._due.items()]
            heapq.heapify(self._timers)

    def _settle(self) -> None:
        """Look at the jobs that events have touched."""
        changed, update = self._changed, self._update
        for record in changed.values():
            update(record)
        changed.clear()

    def turn(self, now: float) -> _Held | None:
        """Bring standings up to the present; the best that was gained since last asked, if any."""
        if self._changed:
            self._settle()
        timers, due = self._timers, self._due
        while timers and timers[0][0] <= now:
            t, job_id = heappop(timers)
            if due.get(job_id) == t:
                self._update(self._view.running[job_id])
                timers = self._timers  # it may have been swept
        gained, self._gained = self._gained, None
        return gained

    def next_turn_s(self) -> float:
        """When a standing changes by itself; infinite if never."""
        if self._changed:
            self._settle()
        timers, due = self._timers, self._due
        while timers and due.get(timers[0][1]) != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else math.inf

    def below(self, bay: int, limit: Standing) -> list[tuple[_Held, int]]:
        """Jobs of a bay whose standing is below a limit, worst first, each with the devices it holds there."""
        row = self._rows[bay]
        found: list[tuple[_Held, int]] = []
        last: _Held | None = None
        for mine in row:
            if mine is last:
                continue
            if not mine < limit:
                break
            last = mine
            found.append((mine, self.in_bay[bay][mine[2]]))
        return found

    # -- bays ------------------------------------------------------------------------

    def costs(self, shape: Shape) -> tuple[Order, ...]:
        """For each type that will do, its ``order``, kept by ``refresh``; empty if that does not tell."""
        if shape.spans or not shape.gpus:
            return ()
        return tuple([self.order(kind, shape.gpus) for kind in shape.types])

    def order(self, kind: int, gpus: int) -> Order:
        """Bays where ``gpus`` devices can be had, by what they cost."""
        order = self._orders.get((kind, gpus))
        if order is None:
            order = self._orders[kind, gpus] = Order(gpus, len(self._rows))
            self._of_kind[kind].append((order.last, order.costs, order.entries, order.heap))
            self._dirty.update(self._layout.type_bays[kind])
        if self._dirty:
            self.refresh()
        return order

    def refresh(self) -> None:
        """Work out what so many devices of touched bays cost, for each number asked for."""
        layout, ledger, rows = self._layout, self._ledger, self._rows
        whole, of_kind, bay_type = ledger.whole, self._of_kind, layout.bay_type
        draining = ledger.draining if ledger.impaired else None
        pushes = 0
        for bay in self._dirty:
            row, free = rows[bay], whole[bay].bit_count()
            if draining is not None and draining[layout.bay_node[bay]]:
                row = []
            elif free:
                row = [FREE] * free + row
            have = len(row)
            for last, costs, entries, heap in of_kind[bay_type[bay]]:
                cost, before = row[last] if last < have else None, costs[bay]
                if cost is before:
                    continue
                costs[bay] = cost
                if cost and before and cost[1] == before[1] and cost[0] == before[0]:
                    continue
                if cost is None:
                    entries[bay] = None
                    continue
                entry = entries[bay] = (cost[0], cost[1], bay)
                heappush(heap, entry)
                pushes += 1
        self._dirty.clear()
        self._pushes += pushes
        if self._pushes > (2 * len(rows) + _SWEEP) * len(self._orders):
            self._pushes = 0
            for order in self._orders.values():
                order.sweep()
