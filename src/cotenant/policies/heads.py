"""The first waiting job that its tenant's ceiling allows: a full tenant blocks only itself."""

from __future__ import annotations

from cotenant.model.plan import Hold
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View

__all__ = ["EligibleHead", "limit_holds"]


class EligibleHead(Index):
    """Waiting jobs by tenant; asking costs as many looks as tenants wait."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._queues: dict[str, PendingQueue] = {}
        for record in view.queue:
            self.enqueued(record)

    def enqueued(self, record: JobRecord) -> None:
        """A job waits."""
        queue = self._queues.get(record.job.tenant)
        if queue is None:
            queue = self._queues[record.job.tenant] = PendingQueue()
        queue.push(record)

    def dequeued(self, record: JobRecord) -> None:
        """A job waits no more."""
        self._queues[record.job.tenant].left(record)

    def head(self) -> JobRecord | None:
        """First in default order among the heads of tenants whose ceiling allows their head."""
        best: JobRecord | None = None
        for queue in self._queues.values():
            head = queue.head()
            if head is None or (best is not None and best.key < head.key):
                continue
            if self._view.limit_refusal(head) is None:
                best = head
        return best

    def blocked(self) -> list[JobRecord]:
        """Heads that only their tenant's ceiling holds back, in default order."""
        heads = [h for h in (q.head() for q in self._queues.values()) if h is not None]
        return sorted((h for h in heads if self._view.limit_refusal(h)), key=lambda r: r.key)


def limit_holds(view: View, heads: EligibleHead) -> tuple[Hold, ...]:
    """Say of each tenant's head that it waits for its ceiling, where that is news."""
    holds = []
    for record in heads.blocked():
        refusal = view.limit_refusal(record)
        if refusal is not None and record.hold != refusal.reason:
            holds.append(Hold(record.id, refusal.reason, refusal.facts))
    return tuple(holds)
