"""Devices kept for a waiting job until it can start there, and jobs whose turn it is after a long wait."""

from __future__ import annotations

import math
from typing import NamedTuple

from cotenant.model.placement import WHOLE, Share
from cotenant.model.plan import Decision, Plan, Reserve, Start, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_start
from cotenant.model.view import View
from cotenant.policies.company.ranked import RankedCandidates
from cotenant.policies.preemption.preempt import host_has
from cotenant.policies.preemption.room import suits
from cotenant.policies.preemption.yielding import Standing, Yielding
from cotenant.policies.queues.circles import circle_of, share_of
from cotenant.policies.queues.turns import Line, Turns

__all__ = ["Owed", "entitle", "honour"]

_READY = Why("room-ready")
_DROPPED = Why("room-lost")
_TURN = Why("longest-wait")
_OVERDUE = Why("overdue-first")
_LOOK = 16
_DEAR: Standing = (1 << 62, 0.0, 0)
_INF = math.inf


def honour(view: View, index: RankedCandidates, giving: Yielding, longest_wait_s: float) -> Plan | None:
    """The next step for jobs that devices are kept for; None if all must wait."""
    ledger, running, now = view.ledger, view.running, view.now
    for job_id in index.restless(now):
        record = index.claimed[job_id]
        decisions = _step(view, index, giving, record, longest_wait_s)
        if decisions:
            return Plan(decisions, again=True)
        due_s = record.queued_s + longest_wait_s if longest_wait_s else _INF
        if due_s > now:
            here = (j for d in record.reserved for j in ledger.residents[d])
            stopping = next((j for j in here if running[j].status == Status.STOPPING), None)
            if stopping is not None:
                index.sleep(job_id, stopping, due_s)
    return None


def _step(
    view: View, index: RankedCandidates, giving: Yielding, record: JobRecord, longest_wait_s: float
) -> tuple[Decision, ...]:
    ledger, devices = view.ledger, record.reserved
    node, running = view.layout.device_node, view.running
    if ledger.impaired and not all(ledger.usable[d] and not ledger.draining[node[d]] for d in devices):
        return (Reserve(record.id, (), _DROPPED),)
    here = {j: running[j] for d in devices for j in ledger.residents[d]}
    first = ledger.residents[devices[0]]
    overdue = bool(longest_wait_s) and view.now >= record.queued_s + longest_wait_s
    if any(r.status == Status.STOPPING for r in here.values()):
        return _displace(view, index, giving, here, record) if overdue else ()
    if suits(view, index, record, devices, first) and all(ledger.residents[d] == first for d in devices):
        share = share_of(record.job, view.layout.device_memory[devices[0]])
        if check_start(view.books, record, devices, share) is None:
            why = _READY if not first else Why("room-ready", {"beside": list(first)})
            return (Start(record.id, devices, share, why),)
    return (
        _displace(view, index, giving, here, record)
        if here and overdue
        else (Reserve(record.id, (), _DROPPED),)
    )


def _displace(
    view: View, index: RankedCandidates, giving: Yielding, here: dict[int, JobRecord], record: JobRecord
) -> tuple[Decision, ...]:
    """Its turn: those of whom it does not suit the company go, each as soon as its quantum is over."""
    now, leaving = view.now, view.ledger.leaving
    stays = _neighbours(view, index, giving, here, record)
    goes = [r for r in here.values() if r.id not in stays]
    if not goes:  # it suits all of them, but something else is lacking
        goes = list(here.values())
    return tuple(
        [
            Stop(r.id, True, record.id, _OVERDUE)
            for r in goes
            if giving.of_age_s(r) <= now and r.id not in leaving
        ]
    )


def _neighbours(
    view: View, index: RankedCandidates, giving: Yielding, here: dict[int, JobRecord], record: JobRecord
) -> tuple[int, ...]:
    """Who may stay beside a job: first those that have not had their quantum, then who would give way last."""
    ledger, devices, job = view.ledger, record.reserved, record.job
    if circle_of(job) is None or any(len(ledger.residents[d]) != len(here) for d in devices):
        return ()
    if any(_held(r).mode != "spatial" for r in here.values()):
        return ()
    memory = min([ledger.free_memory[d] for d in devices]) + sum(
        [_held(r).memory_bytes for r in here.values()]
    )
    milli = min([ledger.free_milli[d] for d in devices]) + sum(
        [_held(r).compute_milli for r in here.values()]
    )
    memory, milli = memory - job.memory_bytes, milli - share_of(job, 1).compute_milli
    stays: tuple[int, ...] = ()
    giving.turn()
    standing, now = giving.standing, view.now

    def worth(other: JobRecord) -> tuple[bool, Standing]:
        return giving.of_age_s(other) > now, standing.get(other.id, _DEAR)

    for other in sorted(here.values(), key=worth, reverse=True):
        share = _held(other)
        if share.memory_bytes > memory or share.compute_milli > milli:
            continue
        if other.status == Status.RUNNING and suits(view, index, record, devices, (*stays, other.id)):
            stays = (*stays, other.id)
            memory, milli = memory - share.memory_bytes, milli - share.compute_milli
    return stays


def _held(record: JobRecord) -> Share:
    return WHOLE if record.place is None else record.place.share


class Owed(NamedTuple):
    """What is done for jobs that have waited too long."""

    plan: Plan | None
    wake_s: float
    """When something is due next."""
    blocked: bool = False
    """Whether one finds no devices because all that would do are just kept for others."""


def entitle(view: View, turns: Turns, giving: Yielding, longest_wait_s: float) -> Owed:
    """Keep devices for the job that has waited longest, if its time has come; else when it comes.

    Those that never ran are served one after the other; of those that were stopped one at a time
    has its turn, in which it is not stopped.
    """
    turn_ends_s, blocked, wake = giving.turn_ends_s(), False, _INF
    if turn_ends_s > view.now:
        wake = turn_ends_s
    else:
        plan, wake, blocked = _first(view, turns.stopped, giving, longest_wait_s)
        if plan is not None:
            (reserve,) = plan.decisions
            return Owed(Plan((reserve,), memo={**(view.memo or {}), "turn": reserve.id}, again=True), wake)
    owed = _first(view, turns.new, giving, longest_wait_s)
    return Owed(owed.plan, min(wake, owed.wake_s), blocked or owed.blocked)


def _first(view: View, line: Line, giving: Yielding, longest_wait_s: float) -> Owed:
    """Keep devices for the first of a line."""
    now = view.now
    for queued_s, job_id in line[:_LOOK]:
        due_s = queued_s + longest_wait_s
        if due_s > now:
            return Owed(None, due_s)
        record = view.records[job_id]
        if record.reserved:
            return Owed(None, giving.next_of_age_s(record.reserved))  # one at a time
        if view.books.limits and view.limit_refusal(record):
            continue
        giving.turn()
        devices = _soonest(view, giving, record, kept=False)
        if devices:
            return Owed(Plan((Reserve(job_id, devices, _TURN),), again=True), _INF)
        if view.ledger.reserved and _soonest(view, giving, record, kept=True):
            return Owed(None, _INF, blocked=True)
    return Owed(None, _INF)


def _soonest(view: View, giving: Yielding, record: JobRecord, *, kept: bool) -> tuple[int, ...]:
    """The devices that can be empty soonest, and of these those whose jobs give way first; O(cluster), for one job at a time.

    ``kept`` : those that are kept for others are among them.
    """
    layout, shape = view.layout, record.shape
    best: tuple[float, Standing, int] | None = None
    chosen: tuple[int, ...] = ()
    for kind in shape.types:
        everywhere: list[tuple[float, Standing, int]] = []
        for bay in layout.type_bays[kind]:
            first = layout.bay_first[bay]
            ready = []
            for d in range(first, first + layout.bay_size[bay]):
                t = _empty_s(view, giving, d, kept=kept)
                if t < _INF:
                    ready.append((t, giving.cost(d) or _DEAR, d))
            ready.sort()
            everywhere += ready
            if not shape.single or len(ready) < shape.gpus:
                continue
            dearest = ready[shape.gpus - 1]
            entry = (dearest[0], dearest[1], bay)
            if best is None or entry < best:
                devices = tuple(sorted(d for _, _, d in ready[: shape.gpus]))
                if host_has(view, record, devices, _residents(view, devices)):
                    best, chosen = entry, devices
        if not chosen and shape.spans and len(everywhere) >= shape.gpus:
            everywhere.sort()
            devices = tuple(sorted(d for _, _, d in everywhere[: shape.gpus]))
            if host_has(view, record, devices, _residents(view, devices)):
                return devices
    return chosen


def _residents(view: View, devices: tuple[int, ...]) -> list[JobRecord]:
    ids = {j: None for d in devices for j in view.residents(d)}
    return [view.running[j] for j in ids]


def _empty_s(view: View, giving: Yielding, device: int, *, kept: bool) -> float:
    """When a device can be empty: after the quantum of its residents, or as predicted if one can't be stopped."""
    ledger = view.ledger
    if not ledger.usable[device] or (not kept and device in ledger.reserved):
        return _INF
    if ledger.draining[view.layout.device_node[device]]:
        return _INF
    ready = 0.0
    for job_id in ledger.residents[device]:
        record = view.running[job_id]
        if record.status != Status.RUNNING:
            continue
        t = giving.of_age_s(record)
        if t == _INF:
            t = view.now + min(record.remaining_at(view.now), 1e12) / max(record.rate, 0.05)
        ready = max(ready, t)
    return max(ready, view.now) if ready else 0.0
