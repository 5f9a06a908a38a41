"""Preemption, shared: start what fits, else empty devices for whoever has the better claim.

One rule for all preemptive policies. Heads of lines are served in order of rank. A head
that fits starts. One that does not may have running jobs stopped, but only with a complete
plan: all its devices are named and reserved before the first victim stops, stay reserved
while the victims save, and the job starts once the last of them is empty. A reservation
whose devices fail or are drained is given up. A waiting job that cannot be helped never
holds back jobs that need something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cotenant.model.ledger import low_bits
from cotenant.model.placement import Placement
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Reason, Reserve, Start, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.settings import Settings
from cotenant.model.shape import Shape, find_whole
from cotenant.model.view import View
from cotenant.policies.preemption.picking import Candidate, fewest
from cotenant.policies.preemption.ranking import Ranking
from cotenant.policies.preemption.victims import Standing, Victims
from cotenant.policies.queues.waiting import NO_VICTIM, Line, Waiting

__all__ = ["advance", "host_has", "suspend_price_s"]

_START = Why("first-in-rank")
_CLAIM = Why("devices-emptied")
_GIVE_UP = Why("reservation-broken")
_INF = math.inf
_LOOK = 16
"""Bays looked at in their order before a job is left waiting: most often the first will do."""


def suspend_price_s(settings: Settings, record: JobRecord) -> float:
    """Seconds for which a suspension and its resumption hold the job's devices idle."""
    return settings.reload_s(record.job)


def advance(view: View, ranking: Ranking) -> Plan:
    """The next step of a preemptive policy: one start, or one preemption, or nothing."""
    waiting = view.index(Waiting, ranking)
    if not waiting.live and not waiting.claims:
        return EMPTY
    now = view.now
    wake = waiting.turn(now) if waiting.turns else _INF
    if waiting.broken:
        return Plan((Reserve(min(waiting.broken), (), _GIVE_UP),), again=True)
    if waiting.ready and (honoured := _honour(view, waiting)) is not EMPTY:
        return honoured
    if waiting.doubtful:
        waiting.reopen_doubtful()
    turned = bool(waiting.blocked)
    if turned:
        waiting.look_again(now)
    holds: list[Decision] = []
    if waiting.open:
        step = _Step(view, waiting, ranking, now, turned)
        holds = step.holds
        for _, record, line in waiting.heads():
            found = step.serve(record, line)
            if found:
                return Plan((*holds, *found) if holds else found, again=True)
    if waiting.blocked:
        turn = waiting.victims().next_turn_s()
        if turn < wake:
            wake = turn
    if wake < _INF:
        return Plan(tuple(holds), wake_at_s=wake)
    return Plan(tuple(holds)) if holds else EMPTY


def _honour(view: View, waiting: Waiting) -> Plan:
    """A job's devices are empty: start it, unless its tenant's ceiling or the host forbids it now."""
    for job_id in sorted(waiting.ready):
        record = waiting.claims[job_id].record
        devices = record.reserved
        limited = bool(view.books.limits) and view.limit_refusal(record) is not None
        if not limited and host_has(view, record, devices, ()):
            return Plan((Start(job_id, devices, why=_CLAIM),), again=True)
        if limited or not _somebody_leaves(view, waiting, devices):
            return Plan((Reserve(job_id, (), _GIVE_UP),), again=True)
    return EMPTY


def _somebody_leaves(view: View, waiting: Waiting, devices: tuple[int, ...]) -> bool:
    """Whether a job beside these devices is stopping: who was stopped for its cores may still save."""
    in_bay, running = waiting.victims().in_bay, view.running
    bays = {view.layout.device_bay[d]: None for d in devices}
    return any(running[job_id].status == Status.STOPPING for bay in bays for job_id in in_bay[bay])


class _Step:
    """Serving heads, one after the other, until something can be done.

    ``turned`` says that the victims are up to the present: once in a decision is enough.
    """

    __slots__ = ("holds", "now", "ranking", "turned", "view", "waiting")

    def __init__(self, view: View, waiting: Waiting, ranking: Ranking, now: float, turned: bool) -> None:
        self.view, self.waiting, self.ranking, self.now, self.turned = view, waiting, ranking, now, turned
        self.holds: list[Decision] = []

    def serve(self, record: JobRecord, line: Line) -> tuple[Decision, ...]:
        """Start a head, or empty devices for it, or block its line and say why."""
        view, limit, shape = self.view, NO_VICTIM, record.shape
        if view.books.limits and self._at_ceiling(record):
            self.waiting.block(line, limit)
            return ()
        gpus = shape.gpus
        if gpus == 0:
            node = view.find_node(record)
            if node >= 0:
                return (Start(record.id, (), why=_START, node=node),)
        else:
            free = view.ledger.free_count
            for kind in shape.types:
                if free[kind] >= gpus:
                    devices = find_whole(view.ledger, shape)
                    if devices is not None:
                        return (Start(record.id, devices, why=_START),)
                    break
            found, limit = self._preempt(record, line, shape)
            if found:
                return found
        if record.hold is None:
            self.holds.append(Hold(record.id, *view.why_not(record)))
        self.waiting.block(line, limit)
        return ()

    def _preempt(self, record: JobRecord, line: Line, shape: Shape) -> tuple[tuple[Decision, ...], Standing]:
        """Reserve, then stop, if there is a complete plan; and what a victim must fall below."""
        view, bound, widest = self.view, self.ranking.bound, NO_VICTIM
        victims = self.waiting.victims()
        if not self.turned:
            self.turned = True
            victims.turn(self.now)
        gpus, types = 0 if shape.spans else shape.gpus, view.layout.types
        for kind in shape.types:
            limit = (record.priority, -bound(view, record, types[kind].speed))
            if widest < limit:
                widest = limit
            if gpus:
                best = victims.order(kind, gpus).best()
                if best is None or not best < limit:
                    continue
            search = _Search(view, self.ranking, victims, record, limit)
            found = search.plan(kind)
            if found:
                return found, limit
            if search.doubtful:
                self.waiting.doubtful[line] = None
        return (), widest

    def _at_ceiling(self, record: JobRecord) -> bool:
        """Whether the tenant holds, or will hold once devices are emptied, as much as it may."""
        view, tenant = self.view, record.job.tenant
        limit = view.books.limits.get(tenant)
        if limit is None:
            return False
        used = view.books.used.get(tenant, 0)
        claimed = self.waiting.claimed_gpus(tenant)
        if used + claimed + record.job.gpus <= limit:
            return False
        reason = Reason.TENANT_LIMIT if limit else Reason.TENANT_CAPACITY_ZERO
        if record.hold is None:
            facts = {"tenant": tenant, "limit_gpus": limit, "used_gpus": used, "claimed_gpus": claimed}
            self.holds.append(Hold(record.id, reason, facts))
        return True


def host_has(view: View, record: JobRecord, devices: tuple[int, ...], leaving: Iterable[JobRecord]) -> bool:
    """Whether the nodes have the CPU and host memory for a job, once some others have left."""
    job, ledger = record.job, view.ledger
    if not (job.cpu_milli or job.host_memory_bytes):
        return True
    cpu: dict[int, int] = {}
    host: dict[int, int] = {}
    for other in leaving:
        place = ledger.held[other.id]
        for node, c, h in ledger.host_parts(place, other.job.cpu_milli, other.job.host_memory_bytes):
            cpu[node], host[node] = cpu.get(node, 0) + c, host.get(node, 0) + h
    wanted = Placement(devices)
    return all(
        (not ledger.has_cpu[node] or c <= ledger.free_cpu[node] + cpu.get(node, 0))
        and (not ledger.has_host[node] or h <= ledger.free_host[node] + host.get(node, 0))
        for node, c, h in ledger.host_parts(wanted, job.cpu_milli, job.host_memory_bytes)
    )


class _Search:
    """The search for victims of one waiting job on devices of one type.

    ``doubtful`` says that not all was tried: although it failed, it may succeed once a bay is
    fuller or dearer than now, for then another comes to its turn.
    """

    def __init__(
        self, view: View, ranking: Ranking, victims: Victims, record: JobRecord, limit: Standing
    ) -> None:
        self.view, self.ranking, self.victims = view, ranking, victims
        self.record, self.limit = record, limit
        # Of a gang over several bays, the host is only checked as a whole.
        whole = record.job.gpus and record.shape.single
        asks_host = bool(record.job.cpu_milli or record.job.host_memory_bytes)
        self._needs_host = bool(whole and asks_host)
        self.doubtful = asks_host and record.shape.spans

    def plan(self, kind: int) -> tuple[Decision, ...]:
        """Reserve, then stop; empty if no complete plan exists."""
        shape = self.record.shape
        found = self._in_one_bay(kind) if shape.single else None
        if found is None and shape.spans:
            found = self._over_bays(kind)
            # Bays were chosen one by one; those that draw on one host pool must have room for all of it.
            if found and self.view.layout.peers and not host_has(self.view, self.record, *found):
                found = None
        return self._decisions(*found) if found else ()

    def _decisions(self, devices: tuple[int, ...], victims: list[JobRecord]) -> tuple[Decision, ...]:
        view, job_id = self.view, self.record.id
        stops: list[Decision] = [Reserve(job_id, devices)]
        for victim in victims:
            price = round(suspend_price_s(view.settings, victim) * victim.job.gpus, 1)
            stops.append(Stop(victim.id, True, job_id, Why("lower-rank", {"price_gpu_s": price})))
        return tuple(stops)

    def _in_one_bay(self, kind: int) -> tuple[tuple[int, ...], list[JobRecord]] | None:
        """The bay whose g-th device costs least; between priorities, the cheapest suspension."""
        gpus, limit, view, priority = self.record.job.gpus, self.limit, self.view, self.record.priority
        best, least, order = None, math.inf, self.victims.order(kind, gpus)
        first = order.best()
        if first is not None and first[0] == priority and first < limit:
            found = self._in_bay(first[2], gpus)
            if found is not None and found[1]:
                return found
        entries = order.first(_LOOK)
        self.doubtful = self.doubtful or (len(entries) == _LOOK and entries[-1] < limit)
        for entry in entries:
            if not entry < limit:
                break
            found = self._in_bay(entry[2], gpus)
            if found is None or not found[1]:
                continue
            if entry[0] == priority:
                return best or found
            price = sum(suspend_price_s(view.settings, v) * v.job.gpus for v in found[1])
            if price < least:
                best, least = found, price
        return best

    def _in_bay(self, bay: int, gpus: int) -> tuple[tuple[int, ...], list[JobRecord]] | None:
        """Free devices of a bay first, then those of the fewest devices' worth of victims."""
        ledger, layout = self.view.ledger, self.view.layout
        whole = ledger.whole[bay]
        need = gpus
        free: tuple[int, ...] = ()
        if whole:
            mask = low_bits(whole, min(gpus, whole.bit_count()))
            need, free = gpus - mask.bit_count(), layout.devices(bay, mask)
            if not need and not (self._needs_host and gpus == self.record.job.gpus):
                return free, []
        candidates = self._candidates(bay)
        if need == 1 and not self._needs_host:
            # As ``fewest``, but the last look is at the best alone, then at the next.
            if len(candidates) > 1:
                candidates.sort()
            for candidate in candidates:
                if self._may_stop(candidate):
                    return self._emptied(bay, gpus, free, [candidate])
            return None
        candidates = [c for c in candidates if self._may_stop(c)]
        picked = fewest(candidates, need)
        if picked is None:
            return None
        if self._needs_host:
            return self._with_host(bay, gpus, free, picked, sorted(candidates))
        return self._emptied(bay, gpus, free, picked)

    def _with_host(
        self,
        bay: int,
        gpus: int,
        free: tuple[int, ...],
        picked: list[Candidate],
        candidates: list[Candidate],
    ) -> tuple[tuple[int, ...], list[JobRecord]] | None:
        """Who frees enough devices may not free enough of the host: try others, then ever more of them.

        Also where devices are free and only the host is short.
        """
        everyone = self._emptied(bay, gpus, free, candidates)
        if not host_has(self.view, self.record, *everyone):
            return None
        several: list[list[Candidate]] = [candidates[: n + 1] for n in range(1, len(candidates) - 1)]
        for choice in (picked, *([c] for c in candidates), *several):
            found = self._emptied(bay, gpus, free, choice)
            if len(found[0]) == gpus and host_has(self.view, self.record, *found):
                return found
        return everyone

    def _emptied(
        self, bay: int, gpus: int, free: tuple[int, ...], picked: list[Candidate]
    ) -> tuple[tuple[int, ...], list[JobRecord]]:
        bay_of, running, held = self.view.layout.device_bay, self.view.running, self.view.ledger.held
        if len(picked) == 1 and not free and picked[0][0] == gpus == picked[0][3]:
            # Most often one takes exactly another's place.
            return held[picked[0][2]].devices, [running[picked[0][2]]]
        devices = list(free)
        for _, _, job_id, _ in picked:
            here = [d for d in held[job_id].devices if bay_of[d] == bay]
            devices += here[: gpus - len(devices)]
        return tuple(sorted(devices)), [running[c[2]] for c in picked]

    def _candidates(self, bay: int) -> list[Candidate]:
        """Jobs of a bay whose standing is bad enough, on devices that are not reserved."""
        held, reserved = self.view.ledger.held, self.view.ledger.reserved
        found: list[Candidate] = []
        for mine, count in self.victims.below(bay, self.limit):
            devices = held[mine[2]].devices
            if reserved and not reserved.keys().isdisjoint(devices):
                continue
            found.append((len(devices), mine, mine[2], count))
        return found

    def _may_stop(self, candidate: Candidate) -> bool:
        view, (_, standing, job_id, _) = self.view, candidate
        if standing[0] != self.limit[0]:
            return True
        return self.ranking.may_stop(view, view.running[job_id], self.record)

    def _over_bays(self, kind: int) -> tuple[tuple[int, ...], list[JobRecord]] | None:
        """Whole bays as far as they go, the remainder in one more."""
        layout, gpus = self.view.layout, self.record.job.gpus
        widest = max(layout.bay_size[b] for b in layout.type_bays[kind])
        parts = [widest] * (gpus // widest) + ([gpus % widest] if gpus % widest else [])
        devices: list[int] = []
        victims: dict[int, JobRecord] = {}
        taken: set[int] = set()
        for part in parts:
            found = self._next_bay(kind, part, taken)
            if found is None:
                return None
            taken.add(found[0])
            devices += found[1]
            victims.update({v.id: v for v in found[2]})
        whole = tuple(sorted(devices))
        if not victims or not host_has(self.view, self.record, whole, victims.values()):
            return None
        return whole, list(victims.values())

    def _next_bay(
        self, kind: int, part: int, taken: set[int]
    ) -> tuple[int, tuple[int, ...], list[JobRecord]] | None:
        looked = 0
        for entry in self.victims.order(kind, part).first(_LOOK + len(taken) + 1):
            if not entry < self.limit:
                return None
            if looked == _LOOK:
                self.doubtful = True
                return None
            if entry[2] in taken:
                continue
            looked += 1
            found = self._in_bay(entry[2], part)
            if found is not None:
                return entry[2], *found
        return None
