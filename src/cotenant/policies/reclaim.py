"""Taking lent devices back: who gives way to a tenant that is within its quota, and where.

A job may claim devices held by others if, at the level of the hierarchy where its tenant and
theirs part, its side stays within its quota and theirs is over it. Opportunistic jobs give way
to any guaranteed job within a quota. Order of giving way: opportunistic jobs first; then the
tenant furthest over its quota; within it, who started last.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.model.ledger import low_bits
from cotenant.model.placement import Placement
from cotenant.model.plan import Decision, Reserve, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.tenancy import Holdings

__all__ = ["Claims", "Reclaim"]

_OPPORTUNISTIC = Why("opportunistic-gives-way")
_BORROWER = Why("lent-devices-reclaimed")


class Claims:
    """Reclaims under way.

    Attributes
    ----------
    records : list of JobRecord
        Waiting jobs with devices kept for them, in order of id.
    claimed : dict of str to int
        Devices they will hold, by tenant, ancestors included.
    taken : dict of str to int
        Devices that guaranteed jobs are leaving for them, likewise.
    """

    def __init__(self, view: View, holdings: Holdings) -> None:
        self.records: list[JobRecord] = []
        self.claimed: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        reserved, residents = view.ledger.reserved, view.ledger.residents
        if not reserved:
            return
        self.records = [view.records[i] for i in sorted(set(reserved.values()))]
        for record in self.records:
            for name in holdings.path(record.job.tenant):
                self.claimed[name] = self.claimed.get(name, 0) + record.job.gpus
        for job_id in sorted({j for d in reserved for j in residents[d]}):
            record = view.records[job_id]
            if record.status == Status.STOPPING and record.job.job_class == "guaranteed":
                for name in holdings.path(record.job.tenant):
                    self.taken[name] = self.taken.get(name, 0) + record.job.gpus


class Reclaim:
    """The search for one waiting job's victims.

    Attributes
    ----------
    ready_s : float
        When the next job becomes old enough to give way; infinite if none will.
    """

    def __init__(self, view: View, holdings: Holdings, claims: Claims) -> None:
        self.view, self.holdings, self.claims = view, holdings, claims
        self.ready_s = float("inf")

    def entitled(self, record: JobRecord) -> bool:
        """Whether a job may claim anything at all: guaranteed, and within some quota above it."""
        job = record.job
        if job.job_class != "guaranteed" or not job.gpus or not self._anything_lent():
            return False
        path, claimed = self.holdings.path(job.tenant), self.claims.claimed
        return any(self.holdings.within_quota(name, job.gpus, claimed) for name in path)

    def _anything_lent(self) -> bool:
        """Whether any device is held by an opportunistic job or over a quota: O(tenants)."""
        holdings, taken = self.holdings, self.claims.taken
        held, guaranteed = holdings.held, holdings.guaranteed
        return any(
            count > guaranteed.get(name, 0) or holdings.over_quota(name, taken) > 0
            for name, count in held.items()
        )

    def plan(self, record: JobRecord) -> tuple[Decision, ...]:
        """Keep devices for a job and stop who is there; empty if there is no complete plan."""
        order = self._order(record)
        if not order:
            return ()
        for kind in record.shape.types:
            found = self._on(kind, record, order)
            if found is None:
                continue
            devices, victims = found
            stops = [
                Stop(v.id, v.job.suspendable, record.id, _why(v)) for v in sorted(victims, key=lambda r: r.id)
            ]
            return (Reserve(record.id, devices), *stops)
        return ()

    # -- who -----------------------------------------------------------------------------

    def _order(self, record: JobRecord) -> list[JobRecord]:
        """Jobs that may give way to this one, first to go first."""
        free: list[JobRecord] = []
        lent: dict[str, list[JobRecord]] = {}
        for other in self.view.running.values():
            if other.status != Status.RUNNING or not other.job.gpus:
                continue
            opportunistic = other.job.job_class == "opportunistic"
            side = "" if opportunistic else self._borrower(record, other)
            if side is None or not (opportunistic or other.job.suspendable) or not self._old_enough(other):
                continue
            if opportunistic:
                free.append(other)
            else:
                lent.setdefault(side, []).append(other)
        free.sort(key=_last_started)
        return free + self._borrowers(lent)

    def _borrower(self, record: JobRecord, other: JobRecord) -> str | None:
        """The borrowing side that another job belongs to, if this job may claim from it."""
        mine, theirs = self.holdings.path(record.job.tenant), self.holdings.path(other.job.tenant)
        at = 0
        while at < min(len(mine), len(theirs)) and mine[at] == theirs[at]:
            at += 1
        if at in (len(mine), len(theirs)):
            return None
        claims = self.claims
        if not self.holdings.within_quota(mine[at], record.job.gpus, claims.claimed):
            return None
        return theirs[at] if self.holdings.over_quota(theirs[at], claims.taken) > 0 else None

    def _borrowers(self, lent: Mapping[str, list[JobRecord]]) -> list[JobRecord]:
        """Borrowing jobs: always from who is furthest over quota once the ones before have gone."""
        over = {side: self.holdings.over_quota(side, self.claims.taken) for side in lent}
        stacks = {side: sorted(jobs, key=_last_started, reverse=True) for side, jobs in lent.items()}
        order = []
        while over:
            side = min(over, key=lambda s: (-over[s], s))
            if over[side] <= 0 or not stacks[side]:
                del over[side]
                continue
            job = stacks[side].pop()
            over[side] -= job.job.gpus
            order.append(job)
        return order

    def _old_enough(self, other: JobRecord) -> bool:
        ready_s = other.started_s + self.view.settings.min_quantum_s
        if ready_s <= self.view.now:
            return True
        self.ready_s = min(self.ready_s, ready_s)
        return False

    # -- where ---------------------------------------------------------------------------

    def _on(
        self, kind: int, record: JobRecord, order: list[JobRecord]
    ) -> tuple[tuple[int, ...], list[JobRecord]] | None:
        """Devices of one type, and the jobs to stop for them."""
        shape, layout, ledger = record.shape, self.view.layout, self.view.ledger
        ready: dict[int, int] = {}
        total, gpus = ledger.free_count[kind], shape.gpus
        alone = shape.single and max(layout.bay_size[b] for b in layout.type_bays[kind]) >= gpus
        for number, other in enumerate(order, start=1):
            for bay, mask in self._usable(kind, other):
                ready[bay] = ready.get(bay, 0) | mask
                total += mask.bit_count()
                if alone and (ready[bay] | ledger.whole[bay]).bit_count() >= gpus:
                    found = self._take([bay], order[:number], record)
                    if found is not None:
                        return found
            if shape.spans and total >= gpus:
                bays = sorted(layout.type_bays[kind], key=lambda b: (-ledger.whole[b].bit_count(), b))
                found = self._take(bays, order[:number], record)
                if found is not None:
                    return found
        return None

    def _usable(self, kind: int, other: JobRecord) -> list[tuple[int, int]]:
        """Devices that a job would leave to others: up, not draining, kept for nobody, of this type."""
        ledger, layout = self.view.ledger, self.view.layout
        place = other.place
        if place is None or place.share.mode != "exclusive":
            return []
        masks: dict[int, int] = {}
        for device in place.devices:
            bay = layout.device_bay[device]
            if (
                layout.bay_type[bay] == kind
                and ledger.usable[device]
                and not ledger.draining[layout.bay_node[bay]]
                and device not in ledger.reserved
            ):
                masks[bay] = masks.get(bay, 0) | 1 << (device - layout.bay_first[bay])
        return list(masks.items())

    def _take(
        self, bays: list[int], victims: list[JobRecord], record: JobRecord
    ) -> tuple[tuple[int, ...], list[JobRecord]] | None:
        """Free devices first, then those of the victims in their order; None if a host is too small."""
        ledger, layout = self.view.ledger, self.view.layout
        devices: list[int] = []
        for bay in bays:
            mask = ledger.whole[bay]
            need = record.shape.gpus - len(devices)
            if mask and need:
                devices += layout.devices(bay, low_bits(mask, min(need, mask.bit_count())))
        chosen, inside = [], set(bays)
        for other in victims:
            if len(devices) == record.shape.gpus:
                break
            left = [
                d
                for bay, mask in self._usable(layout.bay_type[bays[0]], other)
                if bay in inside
                for d in layout.devices(bay, mask)
            ]
            if left:
                chosen.append(other)
                devices += left[: record.shape.gpus - len(devices)]
        if len(devices) < record.shape.gpus or not self._host_has(record, devices, chosen):
            return None
        return tuple(sorted(devices)), chosen

    def _host_has(self, record: JobRecord, devices: list[int], leaving: list[JobRecord]) -> bool:
        """Whether the nodes have the CPU and host memory for a job, once these have left."""
        job, ledger = record.job, self.view.ledger
        if not (job.cpu_milli or job.host_memory_bytes):
            return True
        cpu, host = dict[int, int](), dict[int, int]()
        for other in leaving:
            parts = ledger.host_parts(ledger.held[other.id], other.job.cpu_milli, other.job.host_memory_bytes)
            for node, c, h in parts:
                cpu[node], host[node] = cpu.get(node, 0) + c, host.get(node, 0) + h
        wanted = ledger.host_parts(Placement(tuple(devices)), job.cpu_milli, job.host_memory_bytes)
        return all(
            (not ledger.has_cpu[node] or c <= ledger.free_cpu[node] + cpu.get(node, 0))
            and (not ledger.has_host[node] or h <= ledger.free_host[node] + host.get(node, 0))
            for node, c, h in wanted
        )


def _last_started(record: JobRecord) -> tuple[float, int]:
    return (-record.started_s, -record.id)


def _why(victim: JobRecord) -> Why:
    return _OPPORTUNISTIC if victim.job.job_class == "opportunistic" else _BORROWER
