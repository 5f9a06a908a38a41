"""The first waiting job that its tenant's ceiling allows: a full tenant blocks only itself."""

from __future__ import annotations

from cotenant.model.plan import Hold
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View

__all__ = ["EligibleHead", "limit_holds"]


class EligibleHead(Index):
    """Waiting jobs by tenant and size; asking costs as many looks as there are such pairs.

    A job larger than its tenant's whole ceiling is passed over, by its own tenant too; one that
    only waits for others of its tenant to end keeps its place in the tenant's order.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._queues: dict[str, dict[int, PendingQueue]] = {}
        for record in view.queue:
            self.enqueued(record)

    def enqueued(self, record: JobRecord) -> None:
        """A job waits."""
        sizes = self._queues.setdefault(record.job.tenant, {})
        queue = sizes.get(record.job.gpus)
        if queue is None:
            queue = sizes[record.job.gpus] = PendingQueue()
        queue.push(record)

    def dequeued(self, record: JobRecord) -> None:
        """A job waits no more."""
        self._queues[record.job.tenant][record.job.gpus].left(record)

    def _first(self, tenant: str, *, fitting: bool) -> JobRecord | None:
        """The tenant's first job among those that its ceiling allows at all, or does not."""
        limit = self._view.books.limits.get(tenant)
        heads = (
            queue.head()
            for gpus, queue in self._queues[tenant].items()
            if (limit is None or gpus <= limit) == fitting
        )
        return min((h for h in heads if h is not None), key=lambda r: r.key, default=None)

    def head(self) -> JobRecord | None:
        """First in default order among the heads of tenants whose ceiling allows their head."""
        heads = (self._first(tenant, fitting=True) for tenant in self._queues)
        allowed = (h for h in heads if h is not None and self._view.limit_refusal(h) is None)
        return min(allowed, key=lambda r: r.key, default=None)

    def blocked(self) -> list[JobRecord]:
        """Heads that only their tenant's ceiling holds back, in default order."""
        heads = [self._first(t, fitting=fitting) for t in self._queues for fitting in (True, False)]
        return sorted(
            (h for h in heads if h is not None and self._view.limit_refusal(h)), key=lambda r: r.key
        )


def limit_holds(view: View, heads: EligibleHead) -> tuple[Hold, ...]:
    """Say of each tenant's head that it waits for its ceiling, where that is news."""
    holds = []
    for record in heads.blocked():
        refusal = view.limit_refusal(record)
        if refusal is not None and record.hold != refusal.reason:
            holds.append(Hold(record.id, refusal.reason, refusal.facts))
    return tuple(holds)
