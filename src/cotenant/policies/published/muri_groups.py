"""Who runs with whom under Muri, who joins whom, and who gives way: over the whole cluster, on a period."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cotenant.model.plan import Decision, Reserve, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.published.muri_stages import Stages, efficiency, group_time, stages_of
from cotenant.policies.queues.circles import Circle, circle_of, share_of
from cotenant.policies.queues.ranked_points import RankedPoints
from cotenant.policies.space.boards import forecast_of
from cotenant.policies.space.rooms import hosts_fit

__all__ = ["Group", "Matching", "Worse", "groups_of", "make_room"]

_MOST = 256
"""Groups and waiting jobs of one size that are looked at in one round of matching."""

_Waiting = tuple[float, int, JobRecord]
_Entry = tuple[float, int, Stages]
Worse = Callable[[JobRecord, JobRecord], bool]
"""Whether a running job should give way to a waiting one."""


class Group(NamedTuple):
    """Jobs that run on the same devices, ascending by id."""

    devices: tuple[int, ...]
    members: tuple[JobRecord, ...]
    circle: Circle


def groups_of(view: View, most: int) -> dict[int, list[Group]]:
    """Groups that one more could join, by their number of devices; O(running)."""
    places: dict[tuple[int, ...], list[JobRecord]] = {}
    for record in view.running.values():
        if record.place is not None and record.place.share.mode == "spatial":
            places.setdefault(record.place.devices, []).append(record)
    residents = view.ledger.residents
    found: dict[int, list[Group]] = {}
    for devices, members in places.items():
        members.sort(key=lambda record: record.id)
        ids = tuple([record.id for record in members])
        circle = circle_of(members[0].job)
        sound = all(r.status == Status.RUNNING and circle_of(r.job) == circle for r in members)
        if circle is None or not sound or len(ids) >= most or any(residents[d] != ids for d in devices):
            continue
        found.setdefault(len(devices), []).append(Group(devices, tuple(members), circle))
    for groups in found.values():
        groups.sort(key=lambda group: group.members[0].id)
    return found


class _Seat(NamedTuple):
    """A group as a newcomer sees it: device type, free memory, and what matters of its members."""

    group: Group
    kind: int
    free_bytes: int
    members: list[_Entry]


class Matching:
    """One round: each group may get one more of its size, so that interleaving is best in all.

    Parameters
    ----------
    view : View
    points : RankedPoints
    most : int
        Largest group.
    given : dict of str to Stages
    rank : callable
        Of a running job, as of waiting ones.
    """

    def __init__(
        self,
        view: View,
        points: RankedPoints,
        most: int,
        given: dict[str, Stages],
        rank: Callable[[JobRecord], float],
    ) -> None:
        self._view, self._points, self._most = view, points, most
        self._given, self._rank = given, rank
        self._forecast = forecast_of(view)
        self._stages: dict[tuple[str, int, int], Stages] = {}

    def stages(self, record: JobRecord, kind: int) -> Stages:
        """Of a job on a device type."""
        key = (record.job.model, record.job.gpus, kind)
        found = self._stages.get(key)
        if found is None:
            name = self._view.layout.types[kind].name
            found = self._stages[key] = stages_of(*key[:2], self._given, self._forecast, name)
        return found

    def starts(self) -> tuple[Decision, ...]:
        """Who joins whom now."""
        groups = groups_of(self._view, self._most)
        waiting: dict[int, list[_Waiting]] = {gpus: [] for gpus in sorted(groups)}
        for point in self._points.living:
            gpus = point.shape.gpus
            if point.circle is not None and gpus in waiting:
                # Jobs of a point fit the same groups, so more of them than groups are never needed.
                waiting[gpus] += self._points.first(point, min(len(groups[gpus]), _MOST))
        with self._view.draft() as draft:
            for gpus, line in waiting.items():
                there = groups[gpus][:_MOST]
                first = heapq.nsmallest(_MOST, line, key=lambda entry: entry[:2])
                for record, group, gain in self._matched([entry[2] for entry in first], there):
                    share = share_of(record.job, self._view.layout.device_memory[group.devices[0]])
                    facts = {"beside": [r.id for r in group.members], "efficiency": round(gain, 4)}
                    draft.start(record, group.devices, share, Why("interleaves-best", facts))
            return tuple(draft.decisions)

    def _matched(self, records: list[JobRecord], groups: list[Group]) -> list[tuple[JobRecord, Group, float]]:
        """Maximum-weight matching to groups of as many waiting jobs, first in rank, that may join some."""
        # Loaded when it is needed: that takes a while.
        from scipy.optimize import linear_sum_assignment

        kinds = self._view.layout.device_type
        there = []
        for group in groups:
            kind = kinds[group.devices[0]]
            free = min([self._view.ledger.free_memory[d] for d in group.devices])
            there.append(_Seat(group, kind, free, [self._entry(r, kind) for r in group.members]))
        largest = max([seat.free_bytes for seat in there])
        kinds_there = sorted({seat.kind for seat in there})
        able, found = [], []
        for record in records:
            if record.shape.memory_bytes > largest:
                continue
            mine = {kind: self._entry(record, kind) for kind in kinds_there}
            row = [self._weight(record, mine[seat.kind], seat) for seat in there]
            if any(row):
                able.append(record)
                found.append(row)
                if len(able) == len(there):
                    break
        if not able:
            return []
        weights = np.array(found)
        rows, columns = linear_sum_assignment(weights, maximize=True)
        return [
            (able[i], groups[j], float(weights[i, j]))
            for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
            if weights[i, j] > 0.0
        ]

    def _entry(self, record: JobRecord, kind: int) -> _Entry:
        return self._rank(record), record.key, self.stages(record, kind)

    def _weight(self, record: JobRecord, mine: _Entry, seat: _Seat) -> float:
        """Interleaving efficiency with the newcomer; 0 if it may not join."""
        shape = record.shape
        if seat.kind not in shape.types or shape.memory_bytes > seat.free_bytes:
            return 0.0
        if circle_of(record.job) != seat.group.circle:
            return 0.0
        together = [*seat.members, mine]
        stages = tuple(sorted([entry[2] for entry in together]))
        # As published: not if the first in rank would rather have the devices in turn with the others.
        if group_time(stages) > len(together) * sum(min(together)[2]):
            return 0.0
        return efficiency(stages)


def make_room(view: View, record: JobRecord, worse: Worse, quantum_s: float) -> tuple[Decision, ...]:
    """Keep the devices of one node for a job, and stop those there who should give way; fewest stops win.

    Nothing if there is no such node. O(cluster).
    """
    best: tuple[int, int] | None = None
    plan: tuple[tuple[int, ...], list[int]] = ((), [])
    layout, gpus = view.layout, record.shape.gpus
    for kind in record.shape.types:
        for bay in layout.type_bays[kind]:
            first = layout.bay_first[bay]
            devices = [
                (len(view.ledger.residents[d]), d)
                for d in range(first, first + layout.bay_size[bay])
                if _can_empty(view, d, record, worse, quantum_s)
            ]
            if len(devices) < gpus:
                continue
            chosen = tuple(sorted([d for _, d in sorted(devices)[:gpus]]))
            leave = sorted({job_id for d in chosen for job_id in view.ledger.residents[d]})
            if leave and (best is None or (len(leave), bay) < best) and hosts_fit(view, record.job, chosen):
                best, plan = (len(leave), bay), (chosen, leave)
    if best is None:
        return ()
    why = Why("lower-rank", {"stops": len(plan[1])})
    stops = [Stop(job_id, True, record.id, why) for job_id in plan[1]]
    return (Reserve(record.id, plan[0], why), *stops)


def _can_empty(view: View, device: int, record: JobRecord, worse: Worse, quantum_s: float) -> bool:
    ledger = view.ledger
    if (
        not ledger.usable[device]
        or ledger.draining[view.layout.device_node[device]]
        or device in ledger.reserved
    ):
        return False
    for job_id in ledger.residents[device]:
        victim = view.records[job_id]
        ran = view.now - victim.started_s
        fine = victim.status == Status.RUNNING and victim.job.suspendable and job_id not in ledger.leaving
        fine = fine and victim.priority <= record.priority
        if not fine or ran < max(quantum_s, view.settings.min_quantum_s) or not worse(victim, record):
            return False
    return True
