"""Taking lent devices back: who gives way to a tenant that is within its quota, and where.

A job may claim devices held by others if, at the level of the hierarchy where its tenant and
theirs part, its side stays within its quota and theirs is over it. Opportunistic jobs give way
to any guaranteed job within a quota. Order of giving way: opportunistic jobs first; then the
tenant furthest over its quota; within it, who started last.
"""

from __future__ import annotations

from cotenant.model.ledger import low_bits
from cotenant.model.placement import Placement
from cotenant.model.plan import Decision, Reserve, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.published.tenancy import Holdings, footprint

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
    """The search for victims, for all waiting jobs of one moment.

    Attributes
    ----------
    ready_s : float
        When the next job becomes old enough to give way; infinite if none will.
    """

    def __init__(self, view: View, holdings: Holdings, claims: Claims) -> None:
        self.view, self.holdings, self.claims = view, holdings, claims
        self.ready_s = float("inf")
        over = {n for n in holdings.guaranteed if holdings.over_quota(n, claims.taken) > 0}
        self._borrowers = [
            tenant
            for tenant, jobs in holdings.jobs.items()
            if jobs and not over.isdisjoint(holdings.path(tenant))
        ]
        self._orders: dict[tuple[tuple[str, str], ...], list[JobRecord]] = {}
        self._within: dict[tuple[str, int], bool] = {}
        self._hopeless: set[tuple[object, ...]] = set()

    def entitled(self, record: JobRecord) -> bool:
        """Whether a job may claim anything at all: guaranteed, and within some quota above it."""
        job = record.job
        if job.job_class != "guaranteed" or not job.gpus:
            return False
        if not self._borrowers and not self.holdings.opportunistic:
            return False
        key = (job.tenant, job.gpus)
        found = self._within.get(key)
        if found is None:
            path, claimed = self.holdings.path(job.tenant), self.claims.claimed
            found = any(self.holdings.within_quota(name, job.gpus, claimed) for name in path)
            self._within[key] = found
        return found

    def plan(self, record: JobRecord) -> tuple[Decision, ...]:
        """Keep devices for a job and stop who is there; empty if there is no complete plan."""
        sides = tuple((t, s) for t in self._borrowers if (s := self._side(record, t)))
        # All who ask the same and may claim from the same share one search.
        key = (sides, footprint(record.shape))
        if key in self._hopeless:
            return ()
        order = self._orders.get(sides)
        if order is None:
            order = self._orders[sides] = self._order(sides)
        for kind in record.shape.types if order else ():
            found = self._on(kind, record, order)
            if found is not None:
                devices, victims = found
                stops = [Stop(v.id, v.job.suspendable, record.id, _why(v)) for v in victims]
                return (Reserve(record.id, devices), *sorted(stops, key=lambda s: s.id))
        self._hopeless.add(key)
        return ()

    # -- who -----------------------------------------------------------------------------

    def _side(self, record: JobRecord, tenant: str) -> str:
        """The borrower, a tenant or an ancestor of it, from whom this job may claim; empty if none."""
        holdings, claims = self.holdings, self.claims
        mine, theirs = holdings.path(record.job.tenant), holdings.path(tenant)
        at = 0
        while at < min(len(mine), len(theirs)) and mine[at] == theirs[at]:
            at += 1
        if at in (len(mine), len(theirs)):
            return ""
        if not holdings.within_quota(mine[at], record.job.gpus, claims.claimed):
            return ""
        return theirs[at] if holdings.over_quota(theirs[at], claims.taken) > 0 else ""

    def _order(self, sides: tuple[tuple[str, str], ...]) -> list[JobRecord]:
        """Jobs that may give way, first to go first.

        Of borrowing jobs, always one of who is furthest over quota once those before have gone.
        """
        holdings = self.holdings
        order = [r for r in reversed(holdings.opportunistic.values()) if self._may_stop(r)]
        over = {side: holdings.over_quota(side, self.claims.taken) for _, side in sides}
        stacks: dict[str, list[JobRecord]] = {}
        for tenant, side in sides:
            stacks.setdefault(side, []).extend(holdings.jobs[tenant].values())
        for stack in stacks.values():
            stack.sort(key=lambda r: (r.started_s, r.id))
        while over:
            side = min(over, key=lambda s: (-over[s], s))
            if over[side] <= 0 or not stacks[side]:
                del over[side]
                continue
            job = stacks[side].pop()
            if job.job.suspendable and self._may_stop(job):
                over[side] -= job.job.gpus
                order.append(job)
        return order

    def _may_stop(self, record: JobRecord) -> bool:
        """Whether a job runs on devices and has had its least quantum."""
        if record.status != Status.RUNNING or not record.job.gpus:
            return False
        ready_s = record.started_s + self.view.settings.min_quantum_s
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


def _why(victim: JobRecord) -> Why:
    return _OPPORTUNISTIC if victim.job.job_class == "opportunistic" else _BORROWER
