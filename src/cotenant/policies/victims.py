"""Running jobs as victims: in every bay, how good a reason is needed to get g devices.

A device that is free costs nothing; one whose job may be stopped costs that job's standing;
any other cannot be had. Sorted, the g-th of a bay's devices is what g devices there cost
(its bottleneck). Bays are kept sorted by it for each g that was asked for, so the best bay
is the first entry, and equal entries fall to the lowest bay.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord, Status
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.ranking import Ranking

__all__ = ["FREE", "Standing", "Victims"]

Standing = tuple[int, float]
"""(priority, minus badness): smaller is stopped first."""

FREE: Standing = (-(1 << 62), 0.0)
_Entry = tuple[int, float, int]
"""A standing and a bay; it compares with a standing as if it had no bay."""
_SWEEP = 256
_RUNNING, _STOPPING = Status.RUNNING, Status.STOPPING
# Names of their own: looking up members of an enumeration is slow on the hot path.


class _Order:
    """Bays of one device type, sorted by what ``gpus`` devices cost there."""

    __slots__ = ("costs", "entries", "last")

    def __init__(self, gpus: int, bays: int) -> None:
        self.last = gpus - 1
        self.entries: list[_Entry] = []
        self.costs: list[Standing | None] = [None] * bays

    def set(self, bay: int, new: Standing | None) -> None:
        """So many devices of a bay cost this; None if they cannot be had."""
        old = self.costs[bay]
        if new == old:
            return
        entries = self.entries
        if old is not None:
            del entries[bisect_left(entries, (*old, bay))]
        if new is not None:
            insort(entries, (*new, bay))
        self.costs[bay] = new


class Victims(Index):
    """Costs of bays.

    Events only note which jobs and bays they touched; those are looked at when somebody asks,
    so that while nobody waits in vain, or several events fall together, little is worked out.

    Attributes
    ----------
    standing : dict of int to Standing
        Running jobs that may be stopped, apart from whose gain it is; as of the last ``turn``.
    in_bay : list of dict of int to int
        For each bay: running jobs, and how many devices each holds there.
    """

    def __init__(self, view: View, ranking: Ranking) -> None:
        self._view, self._ranking = view, ranking
        self._ledger, self._layout = view.ledger, view.layout
        self._quantum = view.settings.min_quantum_s
        bays = len(view.layout.bay_node)
        self.standing: dict[int, Standing] = {}
        self.in_bay: list[dict[int, int]] = [{} for _ in range(bays)]
        self._rows: list[list[Standing]] = [[] for _ in range(bays)]
        self._orders: dict[tuple[int, int], _Order] = {}
        self._of_kind: list[list[_Order]] = [[] for _ in view.layout.types]
        self._due: dict[int, float] = {}
        self._timers: list[tuple[float, int]] = []
        self._gained: Standing | None = None
        self._changed: dict[int, JobRecord] = {}
        self._dirty = set(range(bays))
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    # -- hooks -----------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        job_id = record.id
        for bay, mask in self._layout.blocks(place.devices) or ():
            jobs, count = self.in_bay[bay], mask.bit_count()
            jobs[job_id] = jobs.get(job_id, 0) + count
            self._dirty.add(bay)
            if job_id in self.standing:
                _insert(self._rows[bay], self.standing[job_id], count)
        self._changed[job_id] = record

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        job_id, standing = record.id, self.standing.get(record.id)
        for bay, mask in self._layout.blocks(place.devices) or ():
            jobs, count = self.in_bay[bay], mask.bit_count()
            left = jobs.pop(job_id, 0) - count
            if left > 0:
                jobs[job_id] = left
            self._dirty.add(bay)
            if standing is not None:
                _remove(self._rows[bay], standing, count)
        if job_id in self._ledger.held:
            self._changed[job_id] = record
            return
        self._changed.pop(job_id, None)
        self.standing.pop(job_id, None)
        self._due.pop(job_id, None)

    def rated(self, record: JobRecord) -> None:
        """Speed, priority or status changed."""
        before = self.standing.get(record.id)
        if record.status == _STOPPING:
            if before is None:
                return
        elif not self._ranking.by_speed and before is not None and before[0] == record.priority:
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
        for place in (record.place, self._ledger.leaving.get(job_id)):
            for bay, mask in (self._layout.blocks(place.devices) or ()) if place is not None else ():
                self._dirty.add(bay)
                row = self._rows[bay]
                if before is not None:
                    _remove(row, before, mask.bit_count())
                if after is not None:
                    _insert(row, after, mask.bit_count())

    def _judged(self, record: JobRecord) -> Standing | None:
        job_id, due = record.id, self._due
        due.pop(job_id, None)
        place = record.place
        if record.status != _RUNNING or not record.job.suspendable or place is None:
            return None
        if not place.devices or place.share.mode != "exclusive" or job_id in self._ledger.leaving:
            return None
        if self._quantum and self._view.now - record.started_s < self._quantum:
            self._set_timer(job_id, self._of_age(record))
            return None
        badness, until = self._ranking.badness(self._view, record)
        if until < math.inf:
            self._set_timer(job_id, until)
        return record.priority, -badness

    def _of_age(self, record: JobRecord) -> float:
        """The first instant at which the rules let the job be stopped."""
        t = record.started_s + self._quantum
        while t - record.started_s < self._quantum:
            t = math.nextafter(t, math.inf)
        return t

    def _set_timer(self, job_id: int, t: float) -> None:
        self._due[job_id] = t
        heapq.heappush(self._timers, (t, job_id))
        if len(self._timers) > 2 * len(self._due) + _SWEEP:
            self._timers = [(t, j) for j, t in self._due.items()]
            heapq.heapify(self._timers)

    def _settle(self) -> None:
        """Look at the jobs that events have touched."""
        changed = self._changed
        if changed:
            for record in changed.values():
                self._update(record)
            changed.clear()

    def turn(self, now: float) -> Standing | None:
        """Bring standings up to the present; the best that was gained since last asked, if any."""
        if self._changed:
            self._settle()
        timers, due = self._timers, self._due
        while timers and timers[0][0] <= now:
            t, job_id = heapq.heappop(timers)
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
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    # -- bays ------------------------------------------------------------------------

    def costs(self, shape: Shape) -> tuple[list[_Entry], ...]:
        """For each type that will do, its ``order``, kept by ``refresh``; empty if that does not tell."""
        if shape.spans or not shape.gpus:
            return ()
        return tuple([self.order(kind, shape.gpus) for kind in shape.types])

    def order(self, kind: int, gpus: int) -> list[_Entry]:
        """(priority, minus badness, bay), best first, of bays where ``gpus`` devices can be had."""
        order = self._orders.get((kind, gpus))
        if order is None:
            order = self._orders[kind, gpus] = _Order(gpus, len(self._rows))
            self._of_kind[kind].append(order)
            self._dirty.update(self._layout.type_bays[kind])
        if self._dirty:
            self.refresh()
        return order.entries

    def refresh(self) -> None:
        """Work out what so many devices of touched bays cost, for each number asked for."""
        layout, ledger, rows = self._layout, self._ledger, self._rows
        whole, of_kind, bay_type = ledger.whole, self._of_kind, layout.bay_type
        draining = ledger.draining if ledger.impaired else None
        for bay in self._dirty:
            row, free = rows[bay], whole[bay].bit_count()
            have = free + len(row)
            if draining is not None and draining[layout.bay_node[bay]]:
                have = 0
            for order in of_kind[bay_type[bay]]:
                last = order.last
                cost = None if last >= have else FREE if last < free else row[last - free]
                if cost is not order.costs[bay]:
                    order.set(bay, cost)
        self._dirty.clear()


def _insert(row: list[Standing], standing: Standing, count: int) -> None:
    if count == 1:
        insort(row, standing)
    else:
        at = bisect_left(row, standing)
        row[at:at] = (standing,) * count


def _remove(row: list[Standing], standing: Standing, count: int) -> None:
    at = bisect_left(row, standing)
    del row[at : at + count]
