"""One decision of Tong: claims, guard, order, fragments, suspensions, in this order."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cotenant.model.plan import Decision, Hold, Reason, Reserve, Start, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.company.joins import JoinPoints, Joins
from cotenant.policies.published.tong_fragments import fragment
from cotenant.policies.published.tong_guard import Overdue, Way, soonest, way
from cotenant.policies.published.tong_swaps import LateEnds, Swaps
from cotenant.policies.queues.circles import share_of
from cotenant.policies.queues.points import Point
from cotenant.policies.space.boards import Boards, pick
from cotenant.policies.space.rooms import hosts_fit

if TYPE_CHECKING:
    from cotenant.policies.tong import Tong

__all__ = ["NOBODY", "Rank", "Step"]

NOBODY: dict[str, Any] = {"guard": -1, "devices": [], "by_s": -1.0, "oldest": -1, "passed": 0, "stopped": []}
"""What is remembered at first: nobody is guarded, nobody was overtaken, nobody was stopped for another."""

_STOPPING, _RUNNING = Status.STOPPING, Status.RUNNING
_NODE = Why("cpu-only")
_CLAIM = Why("devices-emptied")
_GIVE_UP = Why("reservation-broken")
_IDLE = Why("idle-device")
_HEADS, _VICTIMS = 8, 32
_UTILS = 8192.0

Rank = tuple[int, float, int]


class Step:
    """A decision over the present state.

    Attributes
    ----------
    boards : Boards
    memo : dict
        What is to be remembered.
    acted : bool
        Whether the policy wants to be asked again at this instant.
    """

    def __init__(self, view: View, policy: Tong) -> None:
        self.view, self.policy = view, policy
        most = min(policy.max_residents, view.settings.max_sharers)
        self.boards = view.index(Boards, most, 0, round(1000.0 * policy.spare))
        self.joins = view.index(Joins, policy.min_gain)
        self.points = view.index(JoinPoints)
        self.overdue = view.index(Overdue, policy.large, policy.guard_s, policy.guard_factor)
        self.swaps = view.index(Swaps, self.boards, self.joins, policy.large)
        self.memo: dict[str, Any] = dict(view.memo or NOBODY)
        self.acted = False
        self._seen: tuple[float, list[JobRecord]] | None = None
        self._ways: dict[tuple[int, int], Way | None] = {}

    def choose(self) -> tuple[Decision, ...]:
        """What to do now."""
        guard = self._watch()
        self._keep(frozenset(self.memo["devices"]))
        found = (
            self._claims()
            or (guard is not None and self._serve(guard))
            or self._next()
            or (guard is not None and fragment(self, guard))
            or self._suspend()
        )
        self.acted = bool(found)
        return found or self._holds()

    def wake_s(self) -> float | None:
        """When to ask again if nothing happens: a job falls overdue, or suspensions are due."""
        view, quantum = self.view, self.policy.quantum_s
        if not view.running or not self.points.living:
            return None
        guarded = self.memo["guard"] >= 0
        wake = math.inf if guarded else self.overdue.next_s(view.now)
        if not guarded and all(point.shape.gpus != 1 for point in self.points.living):
            return wake if wake < math.inf else None
        turns = math.floor(view.now / quantum) + 1
        turn_s = turns * quantum
        return min(wake, turn_s if turn_s > view.now else turn_s + quantum)

    def limited(self, who: JobRecord | Point) -> bool:
        """Whether the tenant's ceiling forbids a job, or all of a point, to start."""
        if not self.view.books.limits:
            return False
        return self.view.limit_refusal(who.head() if isinstance(who, Point) else who) is not None

    # -- claims: devices being emptied for somebody ---------------------------------------

    def _claims(self) -> tuple[Decision, ...]:
        """Start whom devices were emptied for; drop what will not come true."""
        view, ledger = self.view, self.view.ledger
        for owner in sorted(set(ledger.reserved.values())):
            record = view.records[owner]
            devices = record.reserved
            sound = all(ledger.usable[d] and not ledger.draining[view.layout.device_node[d]] for d in devices)
            if sound and any(
                view.records[j].status == _STOPPING for d in devices for j in ledger.residents[d]
            ):
                continue
            share = share_of(record.job, view.layout.device_memory[devices[0]])
            if sound and view.refusal(record, devices, share) is None:
                return (self.start(record, devices, _CLAIM),)
            return (Reserve(owner, (), _GIVE_UP),)
        return ()

    def start(self, record: JobRecord, devices: tuple[int, ...], why: Why) -> Start:
        """A start, counted by the large job it overtakes."""
        memo = self.memo
        oldest = self.view.records.get(memo["oldest"])
        if oldest is not None and memo["oldest"] != memo["guard"] and record.key > oldest.key:
            memo["passed"] = min(memo["passed"] + 1, self.policy.overtaken)
        capacity = self.view.layout.device_memory[devices[0]]
        return Start(record.id, devices, share_of(record.job, capacity), why)

    # -- the guard ---------------------------------------------------------------------

    def _watch(self) -> JobRecord | None:
        """Who is guarded: as before while that stands, else whoever is overdue longest."""
        memo, view = self.memo, self.view
        oldest = self.overdue.oldest()
        number = -1 if oldest is None else oldest.id
        if memo["oldest"] != number:
            memo |= {"oldest": number, "passed": 0}
        guard = view.records.get(memo["guard"])
        if guard is not None and not guard.status and not self.limited(guard) and self._kept_sound():
            return guard
        memo |= {"guard": -1, "devices": [], "by_s": -1.0}
        late = list(self.overdue.overdue(view.now))
        if oldest is not None and memo["passed"] >= self.policy.overtaken:
            late.insert(0, oldest)
        for record in late:
            if record.reserved or self.limited(record):
                continue
            devices, at_s = soonest(view, record, lambda d, r=record: self._way(r, d))  # type: ignore[misc]
            if devices:
                by_s = at_s if at_s < math.inf else -1.0
                memo |= {"guard": record.id, "devices": list(devices), "by_s": by_s}
                return record
        return None

    def _kept_sound(self) -> bool:
        ledger, nodes = self.view.ledger, self.view.layout.device_node
        return not ledger.impaired or all(
            ledger.usable[d] and not ledger.draining[nodes[d]] for d in self.memo["devices"]
        )

    def _way(self, record: JobRecord, device: int) -> Way | None:
        key = (record.id, device)
        if key not in self._ways:
            self._ways[key] = way(self.view, self.boards, self.joins, record, device)
        return self._ways[key]

    def _keep(self, devices: frozenset[int]) -> None:
        changed = devices ^ self.boards.kept
        if changed:
            self.boards.keep(devices)
            self.points.touch(changed)

    def ahead(self, guard: JobRecord) -> tuple[float, list[JobRecord]]:
        """When the guarded job's devices are predicted to be free, and who would have to leave now."""
        if self._seen is None:
            self._seen = self._looked_ahead(guard)
        return self._seen

    def _looked_ahead(self, guard: JobRecord) -> tuple[float, list[JobRecord]]:
        ways = [found for d in self.memo["devices"] if (found := self._way(guard, d)) is not None]
        leave = {record.id: record for found in ways for record in found.leave}
        return max(found.free_s for found in ways), list(leave.values())

    def _serve(self, guard: JobRecord) -> tuple[Decision, ...]:
        """Start the guarded job where it is kept for, or have those in its way suspended."""
        view, devices = self.view, tuple(self.memo["devices"])
        if guard.reserved or not view.ledger.reserved.keys().isdisjoint(devices):
            return ()
        start_s, leave = self.ahead(guard)
        waited = {"waited_s": round(view.now - guard.queued_s, 3)}
        if not leave:
            share = share_of(guard.job, view.layout.device_memory[devices[0]])
            if view.refusal(guard, devices, share) is None:
                return (self.start(guard, devices, Why("starvation-guard", waited)),)
            return ()
        gain_s = start_s - view.now
        price_s = max([view.settings.reload_s(victim.job) for victim in leave])
        if gain_s <= self.policy.gain_factor * price_s or not hosts_fit(view, guard.job, devices):
            return ()
        size = (guard.job.gpus, guard.job.memory_bytes)
        for victim in leave:
            smaller = (victim.job.gpus, victim.job.memory_bytes) < size
            if not smaller or not self._stoppable(victim, guard):
                return ()
        if not view.has_state_room(leave):
            return ()
        self._remember([[victim.id, guard.id] for victim in leave])
        why = Why("starvation-guard", waited | _priced(gain_s, price_s))
        stops = [Stop(victim.id, True, guard.id, why) for victim in sorted(leave, key=lambda r: r.id)]
        return (Reserve(guard.id, devices, why), *stops)

    def _stoppable(self, victim: JobRecord, record: JobRecord) -> bool:
        """Whether a running job may be suspended for another at all."""
        view = self.view
        ran = view.now - victim.started_s
        return (
            victim.status == _RUNNING
            and victim.job.suspendable
            and victim.priority <= record.priority
            and ran >= self.policy.quantum_s
            and ran >= view.settings.min_quantum_s
            and victim.id not in view.ledger.leaving
            and [record.id, victim.id] not in self.memo["stopped"]
            and view.has_state_room((victim,))
        )

    def _remember(self, pairs: list[list[int]]) -> None:
        """Who was stopped for whom: never the other way round, whatever predictions say later."""
        live = self.view.records
        kept = [pair for pair in self.memo["stopped"] if pair[0] in live and pair[1] in live]
        self.memo["stopped"] = kept + [pair for pair in pairs if pair not in kept]

    # -- order -------------------------------------------------------------------------

    def rank(self, record: JobRecord) -> Rank:
        """Smaller goes first: predicted remaining time, less the longer it waits."""
        waited = self.view.now - record.queued_s
        left = record.remaining_at(record.rated_s)
        return -record.priority, left / (1.0 + waited / self.policy.tau_s), record.key

    def _next(self) -> tuple[Decision, ...]:
        """Start the first in order that fits outside of what is kept."""
        points = self.points
        points.review(self.boards.could)
        heads: list[tuple[Rank, JobRecord, Point]] = []
        for point in tuple(points.open):
            if self.limited(point):
                points.settle(point)
            else:
                heads += [(self.rank(r), r, point) for r in point.heads() if not r.reserved]
        heads.sort(key=lambda entry: entry[0])
        full: set[Point] = set()
        for _, record, point in heads:
            if point in full:
                continue
            start = self._place(record, point)
            if start is not None:
                return (start,)
            points.settle(point)
            full.add(point)
        return ()

    def _place(self, record: JobRecord, point: Point) -> Start | None:
        """Idle devices first (unless told otherwise), else the shared one with least memory left."""
        view, boards, shape = self.view, self.boards, record.shape
        if not shape.gpus:
            node = view.find_node(record)
            return Start(record.id, (), why=_NODE, node=node) if node >= 0 else None
        if self.policy.free_first or point.circle is None:
            devices = self._idle(record)
            if devices is not None:
                return self.start(record, devices, _IDLE)
        if point.circle is None:
            return None
        best = None
        for kind in shape.types:
            board = boards.boards[kind]
            room = self.joins.row(boards, board, point, boards.room(board, point))
            left = (board.free - shape.memory_bytes) * _UTILS + board.util
            found = pick(view, board, np.where(room, left, math.inf), record)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            return None
        return self.start(record, best[1], self._beside(best[1], point))

    def _beside(self, devices: tuple[int, ...], point: Point) -> Why:
        free = min([self.view.ledger.free_memory[d] for d in devices]) - point.shape.memory_bytes
        most = max([self.boards.util_after(d, point.model) for d in devices])
        return Why("best-fit-beside", {"left_bytes": free, "utilisation_percent": most / 10.0})

    def _idle(self, record: JobRecord) -> tuple[int, ...] | None:
        if not self.boards.kept:
            return self.view.find(record)
        for kind in record.shape.types:
            board = self.boards.boards[kind]
            found = pick(self.view, board, np.where(board.empty(), 0.0, math.inf), record)
            if found is not None:
                return found[1]
        return None

    # -- suspensions for the order's sake -----------------------------------------------------

    def _suspension_due(self) -> bool:
        quantum, now = self.policy.quantum_s, self.view.now
        return bool(self.view.settings.round_s) or round(now / quantum) * quantum == now

    def _suspend(self) -> tuple[Decision, ...]:
        """Suspend one job that lasts much longer than one of the first in order would."""
        if not self._suspension_due():
            return ()
        waiting = [
            (self.rank(record), record)
            for point in self.points.living
            if point.shape.gpus == 1 and not self.limited(point)
            for record in point.heads()
            if not record.reserved and record.id != self.memo["guard"]
        ]
        late = self.view.index(LateEnds)
        for _, record in heapq.nsmallest(_HEADS, waiting, key=lambda entry: entry[0]):
            point = self.points.point(record)
            for row in late.rows[:_VICTIMS]:
                found = self._swap(record, point, self.view.running[row[1]], -row[0])
                if found:
                    return found
        return ()

    def _swap(self, record: JobRecord, point: Point, victim: JobRecord, end_s: float) -> tuple[Decision, ...]:
        """Suspend a job for another, if that has room then and gains enough."""
        view, place = self.view, victim.place
        price_s = view.settings.reload_s(victim.job)
        left_s = record.remaining_at(record.rated_s)
        if place is None or end_s - view.now <= self.policy.gain_factor * price_s:
            return ()
        (device,) = place.devices
        ledger = view.ledger
        if device in ledger.reserved or device in self.boards.kept:
            return ()
        if ledger.impaired and (
            not ledger.usable[device] or ledger.draining[view.layout.device_node[device]]
        ):
            return ()
        speed = self.swaps.speed(point, record, victim, device)
        gain_s = end_s - view.now - left_s / speed if speed else -math.inf
        if not left_s < math.inf or gain_s <= self.policy.gain_factor * price_s:
            return ()
        if not self._stoppable(victim, record) or not hosts_fit(view, record.job, (device,)):
            return ()
        self._remember([[victim.id, record.id]])
        why = Why("shorter-first", _priced(gain_s, price_s))
        return (Reserve(record.id, (device,), why), Stop(victim.id, True, record.id, why))

    # -- why not -------------------------------------------------------------------------

    def _holds(self) -> tuple[Decision, ...]:
        """Why the first job of each demand that was found blocked waits, once for each job."""
        holds, untold = [], self.points.untold
        for point in tuple(untold):
            head = point.head()
            if head.reserved:
                continue  # devices are being emptied for it; should that fail, it is told then
            del untold[point]
            if head.hold is None:
                holds.append(Hold(head.id, *self._reason(head, point)))
        return tuple(sorted(holds, key=lambda hold: hold.id))

    def _reason(self, head: JobRecord, point: Point) -> tuple[Reason, dict[str, Any]]:
        refusal = self.view.limit_refusal(head) if self.view.books.limits else None
        if refusal is not None:
            return refusal.reason, refusal.facts
        reason, facts = self.boards.blocked(head, point)
        if reason == Reason.NO_CAPACITY and point.circle is not None and point.shape.gpus == 1:
            return Reason.SLOWDOWN, {"min_gain": self.policy.min_gain}
        return reason, facts


def _priced(gain_s: float, price_s: float) -> dict[str, float]:
    """What is gained and paid; a gain that nobody can tell is left out."""
    gain = {"gain_s": round(gain_s, 3)} if gain_s < math.inf else {}
    return gain | {"price_s": round(price_s, 3)}
