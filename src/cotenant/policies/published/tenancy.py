"""Tenants: their tree, what each holds now, what each would get, and their waiting jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.model.cluster import Tenant
from cotenant.model.placement import Placement
from cotenant.model.plan import Reason, Refusal
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.usage import ancestry
from cotenant.model.view import Index, View
from cotenant.policies.queues.demands import Alike

__all__ = ["Footprint", "Holdings", "TenantQueues", "fair_shares", "footprint"]


class Holdings(Index):
    """Devices held by each tenant and those below it.

    Attributes
    ----------
    held : dict of str to int
        By all jobs.
    guaranteed : dict of str to int
        By guaranteed jobs alone: only these count against a quota.
    quotas : dict of str to int
    weights : dict of str to float
    depth : int
        Levels of the hierarchy.
    jobs : dict of str to dict of int to JobRecord
        Guaranteed jobs that run, by tenant, in order of start.
    opportunistic : dict of int to JobRecord
        Opportunistic jobs that run, in order of start.
    """

    def __init__(self, view: View) -> None:
        tenants = view.cluster.tenants
        self._paths = ancestry(tenants)
        self._limits = view.books.limits
        self.quotas = {t.name: t.quota_gpus for t in tenants}
        self.weights = {t.name: t.weight for t in tenants}
        self.depth = max((len(path) for path in self._paths.values()), default=1)
        self.held: dict[str, int] = {}
        self.guaranteed: dict[str, int] = {}
        self.jobs: dict[str, dict[int, JobRecord]] = {}
        self.opportunistic: dict[int, JobRecord] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
        for job_id, place in view.ledger.leaving.items():
            self.placed(view.records[job_id], place)

    def path(self, tenant: str) -> tuple[str, ...]:
        """Names from the root down to a tenant; one that is not declared stands alone."""
        return self._paths.get(tenant, (tenant,))

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        self._change(record, len(place.devices))
        self._running(record)[record.id] = record

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        self._change(record, -len(place.devices))
        if record.place is None:
            self._running(record).pop(record.id, None)

    def _running(self, record: JobRecord) -> dict[int, JobRecord]:
        if record.job.job_class == "opportunistic":
            return self.opportunistic
        return self.jobs.setdefault(record.job.tenant, {})

    def _change(self, record: JobRecord, by: int) -> None:
        job = record.job
        kept = (self.held,) if job.job_class == "opportunistic" else (self.held, self.guaranteed)
        for counts in kept:
            for name in self.path(job.tenant):
                counts[name] = counts.get(name, 0) + by

    def within_quota(self, name: str, gpus: int, claimed: Mapping[str, int]) -> bool:
        """Whether a tenant has this many devices of its quota left, besides what it claims already."""
        return self.guaranteed.get(name, 0) + claimed.get(name, 0) + gpus <= self.quotas.get(name, 0)

    def over_quota(self, name: str, taken: Mapping[str, int]) -> int:
        """Devices that a tenant borrows, less those being taken back; negative below its quota."""
        return self.guaranteed.get(name, 0) - taken.get(name, 0) - self.quotas.get(name, 0)

    def refusal(self, record: JobRecord, claimed: Mapping[str, int]) -> Refusal | None:
        """Whether a ceiling forbids the job, its own tenant's or one above."""
        limits = self._limits
        if not limits:
            return None
        job = record.job
        for name in reversed(self.path(job.tenant)):
            limit = limits.get(name)
            used = self.held.get(name, 0) + claimed.get(name, 0)
            if limit is not None and used + job.gpus > limit:
                reason = Reason.TENANT_LIMIT if limit else Reason.TENANT_CAPACITY_ZERO
                return Refusal(reason, {"tenant": name, "limit_gpus": limit, "used_gpus": used})
        return None


Footprint = tuple[int, tuple[int, ...], int, int]
"""Devices, types that will do, host CPU and memory: all that matters where devices are whole."""


def footprint(shape: Shape) -> Footprint:
    """What a demand needs to find whole devices."""
    return (shape.gpus, shape.types, shape.cpu_milli, shape.host_bytes)


class TenantQueues(Index):
    """Waiting jobs by tenant and demand.

    Attributes
    ----------
    groups : dict of str to dict of (Footprint, bool) to Alike
        For each tenant that waits: its jobs by footprint and whether opportunistic.
    misfits : set of Footprint
        Footprints for which there are no devices; true until capacity grows.
    """

    def __init__(self, view: View) -> None:
        self.groups: dict[str, dict[tuple[Footprint, bool], Alike]] = {}
        self.misfits: set[Footprint] = set()
        self._serial = 0
        self._keys: dict[tuple[int, str], tuple[Footprint, bool]] = {}
        for record in view.queue:
            self.enqueued(record)

    def enqueued(self, record: JobRecord) -> None:
        """A job joined."""
        if record.shape.never:
            return
        mine, key = self.groups.setdefault(record.job.tenant, {}), self._key(record)
        alike = mine.get(key)
        if alike is None:
            alike = mine[key] = Alike()
        self._serial += 1
        alike.push(record, self._serial)

    def dequeued(self, record: JobRecord) -> None:
        """A job left."""
        if record.shape.never:
            return
        tenant, key = record.job.tenant, self._key(record)
        mine = self.groups[tenant]
        if not mine[key].left():
            del mine[key]
            if not mine:
                del self.groups[tenant]

    def _key(self, record: JobRecord) -> tuple[Footprint, bool]:
        demand = (record.shape.number, record.job.job_class)
        key = self._keys.get(demand)
        if key is None:
            key = self._keys[demand] = (footprint(record.shape), demand[1] == "opportunistic")
        return key

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Capacity grew."""
        self.misfits.clear()

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Capacity or ceilings changed."""
        self.misfits.clear()


class _Child(msgspec.Struct):
    name: str
    weight: float
    quota: float
    demand: float
    got: float = 0.0


def fair_shares(capacity: float, tenants: Iterable[Tenant], demand: Mapping[str, float]) -> dict[str, float]:
    """Devices each tenant would get now, if devices could be divided at will.

    At each level of the hierarchy quotas are served first (scaled down together if there is
    not enough), then what is left goes by weight to whoever wants more (max-min fairness),
    never beyond demand or ceiling.

    Parameters
    ----------
    capacity : float
        Devices there are.
    tenants : iterable of Tenant
    demand : mapping of str to float
        Devices each tenant's own jobs want; tenants not declared have weight 1 and no quota.

    Returns
    -------
    dict of str to float
        For each tenant with a demand, what its own jobs get.

    Examples
    --------
    >>> a, b = Tenant(name="a", quota_gpus=6), Tenant(name="b", weight=3.0)
    >>> fair_shares(10, (a, b), {"a": 8, "b": 8})
    {'a': 7.0, 'b': 3.0}
    """
    tree = _Tree(tenants, demand)
    result: dict[str, float] = {}
    tree.divide(capacity, None, result)
    return result


class _Tree:
    """Tenants by parent (None is the root), with what each one's own jobs want."""

    def __init__(self, tenants: Iterable[Tenant], demand: Mapping[str, float]) -> None:
        self.known = {t.name: t for t in tenants}
        self.demand = demand
        self.below: dict[str | None, list[str]] = {}
        for tenant in self.known.values():
            self.below.setdefault(tenant.parent or None, []).append(tenant.name)
        self.below.setdefault(None, []).extend(sorted(n for n in demand if n not in self.known))

    def wanted(self, name: str) -> float:
        """What a tenant and those below it want, at most its ceiling."""
        total = self.demand.get(name, 0.0) + sum(self.wanted(n) for n in self.below.get(name, ()))
        limit = self.known[name].limit_gpus if name in self.known else None
        return float(total if limit is None else min(total, limit))

    def divide(self, capacity: float, parent: str | None, result: dict[str, float]) -> None:
        """Divide what a tenant gets among its own jobs (weight 1, no quota) and those below it."""
        children = []
        for name in self.below.get(parent, ()):
            tenant, want = self.known.get(name) or Tenant(name=name), self.wanted(name)
            children.append(_Child(name, tenant.weight, min(float(tenant.quota_gpus), want), want))
        own = _Child("", 1.0, 0.0, float(self.demand.get(parent, 0.0)) if parent is not None else 0.0)
        _fill(capacity, [*children, own])
        if parent is not None and parent in self.demand:
            result[parent] = own.got
        for child in children:
            if self.below.get(child.name):
                self.divide(child.got, child.name, result)
            elif child.name in self.demand:
                result[child.name] = child.got


def _fill(capacity: float, children: list[_Child]) -> None:
    """Quotas, then the rest by weight until nobody wants more."""
    promised = sum(c.quota for c in children)
    scale = min(1.0, capacity / promised) if promised > 0 else 1.0
    for child in children:
        child.got = child.quota * scale
    left = capacity - sum(c.got for c in children)
    hungry = [c for c in children if c.demand > c.got]
    while hungry and left > 0:
        total = sum(c.weight for c in hungry)
        full = [c for c in hungry if (c.demand - c.got) * total <= left * c.weight]
        if not full:
            for child in hungry:
                child.got += left * child.weight / total
            return
        for child in full:
            left -= child.demand - child.got
            child.got = child.demand
        hungry = [c for c in hungry if c.demand > c.got]
