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
_SWEEP = 256


class _Order:
    """Bays of one device type, sorted by what ``gpus`` devices cost there."""

    __slots__ = ("current", "dirty", "entries", "gpus")

    def __init__(self, gpus: int, bays: list[int]) -> None:
        self.gpus = gpus
        self.entries: list[_Entry] = []
        self.current: dict[int, _Entry] = {}
        self.dirty = set(bays)


class Victims(Index):
    """Costs of bays.

    Attributes
    ----------
    standing : dict of int to Standing
        Running jobs that may be stopped now, apart from whose gain it is.
    in_bay : list of dict of int to int
        For each bay: running jobs, and how many devices each holds there.
    gained : Standing or None
        The best standing that any job has come to since ``turn`` was last called.
    """

    def __init__(self, view: View, ranking: Ranking) -> None:
        self._view, self._ranking = view, ranking
        self._ledger, self._layout = view.ledger, view.layout
        self._quantum = view.settings.min_quantum_s
        self.standing: dict[int, Standing] = {}
        self.in_bay: list[dict[int, int]] = [{} for _ in view.layout.bay_node]
        self._rows: dict[int, list[Standing]] = {}
        self._orders: dict[tuple[int, int], _Order] = {}
        self._of_kind: list[list[_Order]] = [[] for _ in view.layout.types]
        self._due: dict[int, float] = {}
        self._timers: list[tuple[float, int]] = []
        self.gained: Standing | None = None
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    # -- hooks -----------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        job_id = record.id
        for bay, mask in self._layout.blocks(place.devices) or ():
            jobs = self.in_bay[bay]
            jobs[job_id] = jobs.get(job_id, 0) + mask.bit_count()
        self._judge(record)
        self._gain(self.standing.get(job_id))
        self._touch(place)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        job_id = record.id
        for bay, mask in self._layout.blocks(place.devices) or ():
            jobs = self.in_bay[bay]
            left = jobs.pop(job_id, 0) - mask.bit_count()
            if left > 0:
                jobs[job_id] = left
        if job_id not in self._ledger.held:
            self.standing.pop(job_id, None)
            self._due.pop(job_id, None)
        self._touch(place)

    def rated(self, record: JobRecord) -> None:
        """Speed, priority or status changed."""
        before = self.standing.get(record.id)
        if record.status == Status.STOPPING:
            if before is None:
                return
        elif not self._ranking.by_speed and before is not None and before[0] == record.priority:
            return
        self._update(record, before)

    def _update(self, record: JobRecord, before: Standing | None) -> None:
        self._judge(record)
        after = self.standing.get(record.id)
        if before != after and record.place is not None:
            self._touch(record.place)
            if before is None or (after is not None and after < before):
                self._gain(after)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came, went or were kept."""
        for bay in {self._layout.device_bay[d] for d in devices}:
            self._touch_bay(bay)

    def _gain(self, standing: Standing | None) -> None:
        if standing is not None and (self.gained is None or standing < self.gained):
            self.gained = standing

    # -- standing --------------------------------------------------------------------

    def _judge(self, record: JobRecord) -> None:
        """Work out a running job's standing and when it changes by itself."""
        job_id, now = record.id, self._view.now
        self._due.pop(job_id, None)
        self.standing.pop(job_id, None)
        place = record.place
        if record.status != Status.RUNNING or not record.job.suspendable or place is None:
            return
        if not place.devices or place.share.mode != "exclusive" or job_id in self._ledger.leaving:
            return
        if self._quantum and now - record.started_s < self._quantum:
            self._set_timer(job_id, self._of_age(record))
            return
        badness, until = self._ranking.badness(self._view, record)
        self.standing[job_id] = (record.priority, -badness)
        if until < math.inf:
            self._set_timer(job_id, until)

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

    def turn(self, now: float) -> Standing | None:
        """Bring standings up to the present; the best that was gained since last asked, if any."""
        timers, due = self._timers, self._due
        while timers and timers[0][0] <= now:
            t, job_id = heapq.heappop(timers)
            if due.get(job_id) == t:
                self._update(self._view.running[job_id], self.standing.get(job_id))
        gained, self.gained = self.gained, None
        return gained

    def next_turn_s(self) -> float:
        """When a standing changes by itself; infinite if never."""
        timers, due = self._timers, self._due
        while timers and due.get(timers[0][1]) != timers[0][0]:
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    # -- bays ------------------------------------------------------------------------

    def _touch(self, place: Placement) -> None:
        for bay, _ in self._layout.blocks(place.devices) or ():
            self._touch_bay(bay)

    def _touch_bay(self, bay: int) -> None:
        self._rows.pop(bay, None)
        for order in self._of_kind[self._layout.bay_type[bay]]:
            order.dirty.add(bay)

    def _row(self, bay: int) -> list[Standing]:
        """What each device of a bay costs, cheapest first; those not to be had left out."""
        ledger = self._ledger
        row: list[Standing] = []
        if not ledger.draining[self._layout.bay_node[bay]]:
            standing = self.standing
            for job_id, count in self.in_bay[bay].items():
                cost = standing.get(job_id)
                if cost is not None:
                    row += (cost,) * count
            row.sort()
            whole = ledger.whole[bay]
            if whole:
                row[:0] = (FREE,) * whole.bit_count()
        self._rows[bay] = row
        return row

    def may_help(self, shape: Shape, limit: Standing, kind: int = -1) -> bool:
        """Whether some bay has the devices for victims below this limit; cheap, and never wrongly no."""
        if shape.spans or not shape.gpus:
            return True
        gpus = shape.gpus
        for k in shape.types if kind < 0 else (kind,):
            entries = self.order(k, gpus)
            if entries and entries[0][:2] < limit:
                return True
        return False

    def order(self, kind: int, gpus: int) -> list[_Entry]:
        """(priority, minus badness, bay), best first, of bays where ``gpus`` devices can be had."""
        order = self._orders.get((kind, gpus))
        if order is None:
            order = self._orders[kind, gpus] = _Order(gpus, self._layout.type_bays[kind])
            self._of_kind[kind].append(order)
        if order.dirty:
            self._refresh(order)
        return order.entries

    def _refresh(self, order: _Order) -> None:
        entries, current, rows, last = order.entries, order.current, self._rows, order.gpus - 1
        for bay in order.dirty:
            row = rows.get(bay)
            if row is None:
                row = self._row(bay)
            old = current.get(bay)
            if last < len(row):
                priority, minus = row[last]
                if old is not None:
                    if old[1] == minus and old[0] == priority:
                        continue
                    del entries[bisect_left(entries, old)]
                new = current[bay] = (priority, minus, bay)
                insort(entries, new)
            elif old is not None:
                del entries[bisect_left(entries, old)]
                del current[bay]
        order.dirty.clear()
