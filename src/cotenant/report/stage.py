"""The cluster as an explanation needs it: who is where, who waits, what is free."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from cotenant.model import events as ev
from cotenant.model.records import order_key
from cotenant.report.phrases import plural
from cotenant.report.statetiers import StateTiers

__all__ = ["Stage"]

_RANK_RULES = (
    "first-in-rank",
    "devices-emptied",
    "lower-rank",
    "gives-way",
    "room-ready",
    "shortest-predicted",
    "lowest-usage-per-weight",
)
"""Rules of decisions by which a policy shows that it does not serve jobs in order of submission."""


class Stage:
    """A plain replay of a log, one event at a time.

    Attributes
    ----------
    ranked : bool
        True once a decision shows that the policy ranks jobs by something else than submission.
    state_tiers : StateTiers
        Where saved state lies.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.submitted = 0
        self.ranked = False
        self.state_tiers = StateTiers()
        self._names: dict[int, str] = {}
        self._gpus: dict[int, int] = {}
        self._keys: dict[int, int] = {}
        self._aside: set[tuple[str, int]] = set()
        self._waiting: dict[int, None] = {}
        self._held: dict[int, tuple[int, ...]] = {}
        self._on: list[set[int]] = []
        self._models: dict[int, str] = {}
        self._types: list[str] = []
        self._node_of: list[int] = []
        self._bounds: list[int] = [0]
        self._away: set[tuple[str, int]] = set()
        self._rates: dict[int, float] = {}
        self._tenants: dict[int, str] = {}
        self._limits: dict[str, int | None] = {}
        self._used: dict[str, int] = {}

    def see(self, event: Any) -> None:
        """Fold one event."""
        self.now = event.t
        self.state_tiers.see(event)
        if isinstance(event, (ev.Started, ev.Stopping)) and event.why.rule in _RANK_RULES:
            self.ranked = True
        if isinstance(event, ev.Submitted):
            self.submitted += 1
            self._names[event.job.id], self._gpus[event.job.id] = event.job.name, event.job.gpus
            self._keys[event.job.id] = order_key(event.job.id, event.job.priority)
            self._tenants[event.job.id], self._models[event.job.id] = event.job.tenant, event.job.model
            self._waiting[event.job.id] = None
        elif isinstance(event, ev.Rated):
            self._rates[event.id] = event.rate
        elif isinstance(event, (ev.Started, ev.Moved, ev.Resized)):
            self._waiting.pop(event.id, None)
            both = isinstance(event, ev.Moved) or (isinstance(event, ev.Resized) and event.in_place)
            old = self._held.get(event.id, ()) if both else ()
            if isinstance(event, ev.Started):
                self._rates[event.id] = 1.0  # any other speed is told
            self._place(event.id, (*event.devices, *(d for d in old if d not in event.devices)))
        elif isinstance(event, ev.Released):
            self._place(event.id, tuple(d for d in self._held.get(event.id, ()) if d not in event.devices))
        elif isinstance(event, ev.Resettled):
            self._place(event.id, event.devices)
        elif isinstance(event, (ev.Suspended, ev.Ended)):
            self._place(event.id, ())
            self._rates.pop(event.id, None)
            if isinstance(event, ev.Suspended) or not event.final:
                self._waiting[event.id] = None
        elif isinstance(event, ev.Rejected):
            self._waiting.pop(event.id, None)
        elif isinstance(event, (ev.PriorityChanged, ev.Awaited, ev.SuspendRequested, ev.ResumeRequested)):
            self._order(event)
        else:
            self._availability(event)

    def _order(self, event: Any) -> None:
        """Who goes before whom changes, or who takes part at all."""
        if isinstance(event, ev.PriorityChanged):
            self._keys[event.id] = order_key(event.id, event.priority)
        elif isinstance(event, ev.Awaited):
            (self._aside.add if event.after else self._aside.discard)(("awaits", event.id))
        else:
            change = self._aside.add if isinstance(event, ev.SuspendRequested) else self._aside.discard
            change(("held", event.id))

    def _availability(self, event: Any) -> None:
        if isinstance(event, ev.Opened):
            for index, node in enumerate(event.cluster.nodes):
                count = sum(n for _, n in node.gpus)
                self._node_of += [index] * count
                self._bounds.append(self._bounds[-1] + count)
                self._types += [name for name, n in node.gpus for _ in range(n)]
            self._on = [set() for _ in self._node_of]
            self._limits = {tenant.name: tenant.limit_gpus for tenant in event.cluster.tenants}
        elif isinstance(event, ev.TenantsChanged):
            self._limits = {tenant.name: tenant.limit_gpus for tenant in event.tenants}
        elif isinstance(event, ev.TenantLimitChanged):
            self._limits[event.tenant] = event.limit_gpus
        elif isinstance(event, (ev.Drained, ev.Undrained)) and event.device >= 0:
            change = self._away.add if isinstance(event, ev.Drained) else self._away.discard
            change(("drained", event.device))
        elif isinstance(event, (ev.NodeDown, ev.Drained)):
            self._away.add((type(event).__name__[0], event.node))
        elif isinstance(event, (ev.NodeUp, ev.Undrained)):
            self._away.discard(("N" if isinstance(event, ev.NodeUp) else "D", event.node))
        elif isinstance(event, ev.DeviceDown):
            self._away.add(("device", event.device))
        elif isinstance(event, ev.DeviceUp):
            self._away.discard(("device", event.device))

    def _place(self, job: int, devices: tuple[int, ...]) -> None:
        tenant, before = self._tenants.get(job, ""), self._held.pop(job, ())
        self._used[tenant] = self._used.get(tenant, 0) + len(devices) - len(before)
        for device in before:
            self._on[device].discard(job)
        if devices:
            self._held[job] = devices
            for device in devices:
                self._on[device].add(job)

    def free(self) -> tuple[int, int]:
        """Wholly free devices in all, and the most on one node."""
        counts = [0] * (len(self._bounds) - 1)
        for device, jobs in enumerate(self._on):
            node = self._node_of[device]
            blocked = {("N", node), ("D", node), ("device", device), ("drained", device)} & self._away
            if not jobs and not blocked:
                counts[node] += 1
        return sum(counts), max(counts, default=0)

    def largest_node(self) -> int:
        """Devices of the largest node."""
        return max((b - a for a, b in pairwise(self._bounds)), default=0)

    def limit(self, tenant: str) -> tuple[int | None, int]:
        """A tenant's ceiling (None: it has none), and the devices its jobs hold."""
        return self._limits.get(tenant), self._used.get(tenant, 0)

    def ahead(self, job: int) -> tuple[int, int]:
        """Waiting jobs of a higher priority, or of the same and submitted earlier, and the GPUs they ask for.

        Those that await other jobs or are held by their owners are before nobody.

        Nobody where the policy ranks by something else: the log does not say who is ahead then.
        """
        if self.ranked:
            return 0, 0
        mine = self._keys.get(job, job)
        before = [o for o in self._waiting if self._keys[o] < mine and self._takes_part(o)]
        return len(before), sum(self._gpus[other] for other in before)

    def _takes_part(self, job: int) -> bool:
        return ("awaits", job) not in self._aside and ("held", job) not in self._aside

    def others(self, job: int) -> int:
        """Other jobs that wait for devices."""
        return sum(other != job and self._takes_part(other) for other in self._waiting)

    def queue_in_words(self, job: int) -> str:
        """Who waits before a job, or with it where the policy ranks."""
        if self.ranked:
            others = self.others(job)
            return (
                f"waits for its rank among {plural(others, 'other job')}" if others else "no other job waits"
            )
        jobs, gpus = self.ahead(job)
        return f"{plural(jobs, 'job')} ahead, asking for {plural(gpus, 'GPU')}" if jobs else "nobody ahead"

    def neighbours(self, job: int) -> set[int]:
        """Other jobs on its devices."""
        found: set[int] = set()
        for device in self._held.get(job, ()):
            found |= self._on[device]
        return found - {job}

    def company(self, job: int) -> tuple[str, tuple[str, ...]] | None:
        """Device type and models of all on its devices, itself included; None if its devices differ in that."""
        found = {(self._types[d], tuple(sorted(self._on[d]))) for d in self._held.get(job, ())}
        if len(found) != 1:
            return None
        ((kind, ids),) = found
        return kind, tuple(sorted(self._models[i] for i in ids))

    def nodes(self, devices: Iterable[int]) -> int:
        """How many nodes these devices lie on."""
        return len({self._node_of[d] for d in devices})

    def name(self, job: int) -> str:
        """The job's name; empty if the log never submitted it."""
        return self._names.get(job, "")

    def gpus(self, job: int) -> int:
        """GPUs it asked for."""
        return self._gpus.get(job, 0)

    def rate(self, job: int) -> float | None:
        """Its speed now, if the log says."""
        return self._rates.get(job)
