"""Ours: everybody starts at once, shares where the forecast says that it pays, and gives way by work left.

Card: ``docs/policies/cotenant.md``.
"""

from __future__ import annotations

import math

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Move, Plan, Why
from cotenant.model.rules import check_move
from cotenant.model.shape import find_whole
from cotenant.model.view import View
from cotenant.policies.company.crowded import Crowded, part
from cotenant.policies.company.misjudged import Misjudged
from cotenant.policies.company.ranked import RankedCandidates
from cotenant.policies.company.verdicts import Bounds
from cotenant.policies.elastic.sizes import Elastics, growth, larger, smaller
from cotenant.policies.elastic.workplan import is_elastic
from cotenant.policies.preemption.claims import Owed, entitle, honour
from cotenant.policies.preemption.holders import Holders
from cotenant.policies.preemption.room import at_ceiling, make_room
from cotenant.policies.preemption.yielding import Yielding
from cotenant.policies.queues.circles import circle_of, share_of
from cotenant.policies.queues.fairness import bands
from cotenant.policies.queues.levels import top_level
from cotenant.policies.queues.turns import Turns

__all__ = ["Cotenant"]

_LOOK, _LOOKS = 4, 24
_LEAST_ENDED, _GROWTH = 20, 1.25
_INF = math.inf


class Cotenant(Params):
    """Start newcomers at once, beside others if that pays, in place of others if it does not.

    Parameters
    ----------
    min_speed : float
        Least predicted speed of any member of a set, relative to alone.
    min_gain : float
        Least predicted gain of total normalised throughput by one more member.
    doubt : float
        How much of the forecast's doubt about guaranteed jobs counts against ``min_speed``: 1 the low
        end of the interval, 0 its mean.
    doubt_opportunistic : float
        The same about opportunistic jobs.
    quantum_s : float
        Nobody is stopped before having worked so long at a stretch; loading does not count.
    longest_wait_s : float
        A job that has waited so long goes before all others, one after the other; 0 knows no such.
    turn_s : float
        One at a time of the jobs that were stopped and have waited so long has its turn, in which
        it is not stopped before it has run for this long.
    move_gain : float
        A job moves to free devices if it gains this many times the price of moving; 0 never moves.
    long_jobs : float
        Jobs of more than so many times the mean service go by submission; 0: none.
    resize_gain : float
        An elastic job grows if it gains this many times the price, and is left with fewer devices than it
        declares only if it has work for so long; 0 never resizes.
    fair_half_life_s : float
        Among jobs of a level, those of tenants that used least lately for their weight go first; past
        use counts half after so long. 0: tenants are all alike.
    """

    def __init__(
        self,
        *,
        min_speed: float = 0.2,
        min_gain: float = 0.1,
        doubt: float = 0.5,
        doubt_opportunistic: float = 0.0,
        quantum_s: float = 300.0,
        longest_wait_s: float = 43200.0,
        turn_s: float = 3600.0,
        move_gain: float = 2.0,
        long_jobs: float = 4.0,
        resize_gain: float = 10.0,
        fair_half_life_s: float = 7200.0,
    ) -> None:
        self.long_jobs = long_jobs
        for name, value in (
            ("quantum_s", quantum_s),
            ("longest_wait_s", longest_wait_s),
            ("turn_s", turn_s),
            ("move_gain", move_gain),
            ("resize_gain", resize_gain),
            ("fair_half_life_s", fair_half_life_s),
        ):
            if not 0.0 <= value < _INF:
                raise ConfigError(f"{name} must be zero or more and finite, found {value}")
        for name, value in (
            ("min_speed", min_speed),
            ("doubt", doubt),
            ("doubt_opportunistic", doubt_opportunistic),
        ):
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} must lie in [0, 1], found {value}")
        self.min_speed, self.min_gain, self.doubt = min_speed, min_gain, doubt
        self.doubt_opportunistic = doubt_opportunistic
        self.quantum_s, self.longest_wait_s, self.turn_s, self.move_gain = (
            quantum_s,
            longest_wait_s,
            turn_s,
            move_gain,
        )
        self.resize_gain, self.fair_half_life_s = resize_gain, fair_half_life_s
        self._bounds = Bounds(min_speed, min_gain, 0.0, doubt, doubt_opportunistic)

    def decide(self, view: View) -> Plan:
        """One step: a start, a preemption, a move, or nothing; now and then take up what was learned."""
        if not view.settings.undo_after_s:
            return self._decided(view)
        misjudged = Misjudged(view, self.min_gain)
        return misjudged.noted(misjudged.undo(self._bounds.label) or self._decided(view))

    def _decided(self, view: View) -> Plan:
        due = self._look_at_tenants(view)
        plan, ended = self._step(view), view.service.total
        memo = view.memo or {}
        if plan.memo:
            return plan
        if self.long_jobs and ended >= max(_LEAST_ENDED, _GROWTH * memo.get("ended", 0)):
            learned = {**memo, "ended": ended, "top": top_level(view.service, self.long_jobs)}
            return msgspec.structs.replace(plan, memo=learned)
        if due:
            told = {**memo, "bands_s": view.now + self.fair_half_life_s / _LOOKS, "bands": bands(view)}
            return msgspec.structs.replace(plan, memo=told)
        return plan

    def _look_at_tenants(self, view: View) -> bool:
        """Whether it is time to, there are several, and one of their jobs begins to wait now.

        Only then, so that what is noted does not depend on when else the policy is called.
        """
        if not self.fair_half_life_s or not len(view.queue):
            return False
        if view.memo and view.now < view.memo.get("bands_s", 0.0):
            return False
        waiting, known = view.index(RankedCandidates, self._bounds).tenants, view.books.used
        several = len(known) > 1 or len(waiting) > 1 or not known.keys() >= waiting.keys()
        return bool(waiting) and several and view.index(Turns).last_s() >= view.now

    @property
    def usage_half_life_s(self) -> float | None:
        """Asks the state to fold what tenants used with this half-life; None asks for nothing."""
        return self.fair_half_life_s or None

    def _step(self, view: View) -> Plan:
        index = view.index(RankedCandidates, self._bounds)
        if index.stale():
            view.drop_indexes()
            index = view.index(RankedCandidates, self._bounds)
        elif index.renew():
            self._giving(view).renew()
        crowded = view.index(Crowded, self.move_gain, self.min_speed)
        crowded.turn()
        if crowded.suffering:
            plan = part(view, crowded, index.label)
            if plan is not None:
                return plan
        wake, holds = _INF, list[Decision]()
        elastics = view.index(Elastics) if self.resize_gain else None
        if len(view.queue):
            owed = self._owed(view, index)
            plan, wake = owed.plan or self._start(view, index, holds), owed.wake_s
            if plan is not None:
                return plan
            if elastics is not None and (elastics.waiting or elastics.jobs):
                plan = self._resized(view, index, elastics, blocked=owed.blocked)
                if plan is not None:
                    return Plan((*holds, *plan.decisions), again=True)
            # Who has waited too long needs devices that are kept for others: no more are kept until it has some.
            if not owed.blocked:
                giving = self._giving(view)
                giving.turn()
                decisions = make_room(view, index, giving)
                if decisions:
                    return Plan((*holds, *decisions), again=True)
                wake = min(wake, giving.next_turn_s())
        if any(view.ledger.free_count):
            plan, grow_s = self._fill(view, crowded, elastics, holds)
            if plan is not None:
                return plan
            wake = min(wake, grow_s)
        if holds or wake < _INF:
            return Plan(tuple(holds), wake_at_s=wake if wake < _INF else None)
        return EMPTY

    def _fill(
        self, view: View, crowded: Crowded, elastics: Elastics | None, holds: list[Decision]
    ) -> tuple[Plan | None, float]:
        """Give what nobody waits for to running jobs; when to look again, if not before the next event."""
        wake_s = _INF
        if elastics is not None and elastics.small:
            resize, wake_s = growth(view, elastics, self.resize_gain)
            if resize is not None:
                return Plan((*holds, resize), again=True), wake_s
        return self._spread(view, crowded) if not holds and self.move_gain else None, wake_s

    def _owed(self, view: View, index: RankedCandidates) -> Owed:
        """What jobs are due that devices are kept for, or that have waited too long; else when one will be."""
        if index.claimed:
            plan = honour(view, index, self._giving(view), self.longest_wait_s)
            if plan is not None:
                return Owed(plan, _INF)
        if not self.longest_wait_s:
            return Owed(None, _INF)
        turns = view.index(Turns)
        due_s = turns.due_s(self.longest_wait_s)
        if due_s > view.now:
            return Owed(None, due_s)
        return entitle(view, turns, self._giving(view), self.longest_wait_s)

    def _giving(self, view: View) -> Yielding:
        return view.index(Yielding, self.quantum_s, self.turn_s)

    def _resized(
        self, view: View, index: RankedCandidates, elastics: Elastics, *, blocked: bool
    ) -> Plan | None:
        """Start the first elastic job that fewer devices will do for, else take devices from elastic jobs."""
        waiting = index.first_waiting()
        if elastics.waiting:
            for record, _ in waiting:
                start = smaller(view, record)
                if start is not None:
                    return Plan((start,))
        if blocked or not elastics.grown:
            return None
        giving = self._giving(view)
        giving.turn()
        holders = Holders(view, giving, elastics, self.resize_gain)
        for record, _ in waiting:
            if record.shape.gpus and not (view.books.limits and at_ceiling(view, index, record)):
                taken = holders.give(record, index.level(record))
                if taken:
                    return Plan(taken)
        return None

    def _start(self, view: View, index: RankedCandidates, holds: list[Decision]) -> Plan | None:
        """Start the first waiting job that finds free devices or neighbours that it suits."""
        while index.heap:
            candidate = index.next()
            if candidate is None:
                return None
            record, alone, beside = candidate
            start = index.anywhere(record, alone=alone, beside=beside)
            if start is not None:
                if self.resize_gain and alone and len(view.queue) == 1 and is_elastic(record.job):
                    start = larger(view, record, start)
                return Plan((*holds, start), again=True)
            index.exhausted()
            if beside or circle_of(record.job) is None:
                hold = index.held(record)
                if hold is not None:
                    holds.append(hold)
        return None

    def _spread(self, view: View, crowded: Crowded) -> Plan | None:
        """Move the job that gains most to free devices."""
        ledger, layout = view.ledger, view.layout
        for job_id in crowded.first(_LOOK):
            record = view.running[job_id]
            if view.now < record.rated_s:
                continue
            devices = find_whole(ledger, record.shape)
            if devices is None or record.place is None or len(record.place.devices) != len(devices):
                continue
            # Only to devices as fast as those it has.
            types = layout.types
            here, there = layout.device_type[record.place.devices[0]], layout.device_type[devices[0]]
            if types[there].speed < types[here].speed:
                continue
            share = share_of(record.job, layout.device_memory[devices[0]])
            if check_move(view.books, record, devices, share, view.now) is None:
                why = Why("own-devices", {"gain_s": round(crowded.gain_s[job_id], 1)})
                return Plan((Move(job_id, devices, share, why),), again=True)
        return None
