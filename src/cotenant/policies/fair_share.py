"""Weighted fair share over tenants, with hierarchical quotas, lending and taking back.

Card: ``docs/policies/fair-share.md``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, ClassVar, Literal

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Reserve, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.preemption.reclaim import Claims, Reclaim
from cotenant.policies.published.tenancy import Footprint, Holdings, TenantQueues, fair_shares, footprint
from cotenant.policies.space.rooms import hosts_fit

__all__ = ["FairShare"]

_QUOTA = Why("within-quota")
_BORROWED = Why("lowest-usage-per-weight")
_CLAIMED = Why("reclaimed")
_BROKEN = Why("reservation-broken")
_Rank = tuple[tuple[float, float], ...]
_Place = tuple[tuple[int, ...], int]
_Candidate = tuple[_Rank, int, JobRecord]


class FairShare(Params):
    """Who is within its quota goes first, then who has used least for its weight.

    Parameters
    ----------
    half_life_s : float
        Past use counts half after this long.
    queueing : {"best-effort", "strict"}
        Whether later jobs of a tenant may pass one that does not fit.
    reclaim : bool
        Whether lent devices are taken back by suspending who borrows them.

    Raises
    ------
    ConfigError
        If the half-life is not positive or the word is unknown.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = False
    uses_service: ClassVar[bool] = False

    def __init__(
        self,
        *,
        half_life_s: float = 1_209_600.0,
        queueing: Literal["best-effort", "strict"] = "best-effort",
        reclaim: bool = True,
    ) -> None:
        if not 0.0 < half_life_s < float("inf"):
            raise ConfigError(f"half_life_s of fair-share must be positive and finite, found {half_life_s}")
        if queueing not in ("best-effort", "strict"):
            raise ConfigError(f'queueing of fair-share must be best-effort or strict, found "{queueing}"')
        self.half_life_s = half_life_s
        self.queueing = queueing
        self.reclaim = reclaim

    @property
    def usage_half_life_s(self) -> float:
        """Asks the state to fold usage with this half-life."""
        return self.half_life_s

    def would_get(self, view: View) -> dict[str, float]:
        """Devices each tenant would get now, if devices could be divided at will.

        Its demand is what its jobs hold and what its waiting jobs ask for.
        """
        ledger, layout = view.ledger, view.layout
        demand: dict[str, float] = {}
        for record in view.records.values():
            if not record.shape.never:
                tenant = record.job.tenant
                demand[tenant] = demand.get(tenant, 0.0) + record.job.gpus
        capacity = sum(
            ledger.usable[d] and not ledger.draining[layout.device_node[d]]
            for d in range(layout.device_count)
        )
        return fair_shares(capacity, view.cluster.tenants, demand)

    def decide(self, view: View) -> Plan:
        """Go on with a reclaim, else start one job, else take devices back for one."""
        queues = view.index(TenantQueues)
        if not queues.groups:
            return EMPTY
        holdings = view.index(Holdings)
        claims = Claims(view, holdings)
        for record in claims.records:
            step = self._go_on(view, holdings, record)
            if step is not None:
                return Plan((step,), again=True)
        best = self._best(view, queues, holdings, claims)
        if best is not None:
            return Plan((best,), again=True)
        return self._take_back(view, queues, holdings, claims)

    @staticmethod
    def _go_on(view: View, holdings: Holdings, record: JobRecord) -> Decision | None:
        """Start a job whose devices are empty; give up what can no longer be had."""
        ledger, devices = view.ledger, record.reserved
        lost = any(not ledger.usable[d] or ledger.draining[ledger.layout.device_node[d]] for d in devices)
        if lost or holdings.refusal(record, {}):
            return Reserve(record.id, (), _BROKEN)
        if any(ledger.residents[d] for d in devices):
            return None
        if not hosts_fit(view, record.job, devices):
            return Reserve(record.id, (), _BROKEN)
        return Start(record.id, devices, why=_CLAIMED)

    # -- who is next -----------------------------------------------------------------------

    def _rank(self, view: View, holdings: Holdings, claims: Claims, record: JobRecord) -> _Rank:
        """From the root down: within quota first, then least usage for the weight."""
        job, usage = record.job, view.usage
        guaranteed = job.job_class == "guaranteed"
        rank = []
        for name in holdings.path(job.tenant):
            within = guaranteed and holdings.within_quota(name, job.gpus, claims.claimed)
            rank.append((0.0 if within else 1.0, usage.decayed(name) / holdings.weights.get(name, 1.0)))
        rank += [(0.0, 0.0)] * (holdings.depth - len(rank))
        return tuple(rank)

    def _heads(self, queues: TenantQueues, but: Container[Footprint] = ()) -> Iterator[JobRecord]:
        """The first job of each demand of each tenant; under strict queueing, of each tenant.

        Those with a footprint in ``but`` are left out.
        """
        strict = self.queueing == "strict"
        for groups in queues.groups.values():
            if strict:
                heads = [h for g in groups.values() if not (h := g.head()).reserved]
                if heads and footprint((first := min(heads, key=lambda h: h.key)).shape) not in but:
                    yield first
                continue
            for (needs, _), alike in groups.items():
                if needs not in but:
                    head = alike.head()
                    if not head.reserved:
                        yield head

    def _best(self, view: View, queues: TenantQueues, holdings: Holdings, claims: Claims) -> Start | None:
        """The start of the best job that fits."""
        best: _Candidate | None = None
        place: _Place | None = None
        for head in self._heads(queues, queues.misfits):
            if holdings.refusal(head, claims.claimed):
                continue
            candidate = (self._rank(view, holdings, claims, head), head.key)
            if best is not None and candidate > best[:2]:
                continue
            found = self._place(view, queues, head)
            if found is not None:
                best, place = (*candidate, head), found
        if best is None or place is None:
            return None
        why = _QUOTA if best[0][0][0] == 0.0 else _BORROWED
        return Start(best[2].id, place[0], why=why, node=place[1])

    @staticmethod
    def _place(view: View, queues: TenantQueues, record: JobRecord) -> _Place | None:
        """Whole free devices, or a node; remembered for all who ask the same if there are none."""
        shape = record.shape
        if shape.gpus == 0:
            node = view.find_node(record)
            if node >= 0:
                return (), node
        else:
            devices = view.find(record)
            if devices is not None:
                return devices, -1
        queues.misfits.add(footprint(shape))
        return None

    # -- taking back -----------------------------------------------------------------------

    def _take_back(self, view: View, queues: TenantQueues, holdings: Holdings, claims: Claims) -> Plan:
        """Take lent devices back for the first job with a claim; tell the others why they wait."""
        search = Reclaim(view, holdings, claims)
        untold, entitled = [], []
        for head in self._heads(queues):
            if head.hold is None:
                untold.append(head)
            if self.reclaim and search.entitled(head) and not holdings.refusal(head, claims.claimed):
                entitled.append((self._rank(view, holdings, claims, head), head.key, head))
        for _, _, record in sorted(entitled, key=lambda c: c[:2]):
            found = search.plan(record)
            if found:
                return Plan(found, again=True)
        holds = [self._hold(view, holdings, record) for record in sorted(untold, key=lambda r: r.id)]
        wake_s = search.ready_s if search.ready_s < float("inf") else None
        return Plan(tuple(holds), wake_at_s=wake_s) if holds or wake_s is not None else EMPTY

    @staticmethod
    def _hold(view: View, holdings: Holdings, record: JobRecord) -> Hold:
        refusal = holdings.refusal(record, {})
        if refusal is not None:
            return Hold(record.id, refusal.reason, refusal.facts)
        reason, facts = view.why_not(record)
        tenant, ledger = record.job.tenant, view.ledger
        told: dict[str, Any] = {
            **facts,
            "tenant": tenant,
            "quota_gpus": holdings.quotas.get(tenant, 0),
            "used_gpus": holdings.guaranteed.get(tenant, 0),
            "unavailable_gpus": ledger.usable.count(False) if ledger.impaired else 0,
        }
        return Hold(record.id, reason, told)
