"""Where a job that has waited too long could start soonest; O(cluster), used rarely."""

from __future__ import annotations

from cotenant.model.plan import Plan, Reserve, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.queues.circles import share_of

__all__ = ["serve_overdue", "soonest_anywhere", "soonest_block"]

_OVERDUE = Why("overdue-reservation")
_DROPPED = Why("reservation-unusable")


def soonest_block(view: View, record: JobRecord) -> tuple[int, ...]:
    """The devices of one node that are predicted to be empty soonest; O(cluster), used rarely."""
    ledger, layout, now = view.ledger, view.layout, view.now
    best: tuple[float, int] | None = None
    chosen: tuple[int, ...] = ()
    for kind in record.shape.types:
        for bay in layout.type_bays[kind]:
            if layout.bay_size[bay] < record.shape.gpus or ledger.draining[layout.bay_node[bay]]:
                continue
            first = layout.bay_first[bay]
            ends = []
            for device in range(first, first + layout.bay_size[bay]):
                if ledger.usable[device]:
                    ends.append((_empty_at(view, device, now), device))
            ends.sort()
            if len(ends) < record.shape.gpus:
                continue
            taken = ends[: record.shape.gpus]
            if best is None or (taken[-1][0], bay) < best:
                best = (taken[-1][0], bay)
                chosen = tuple(sorted(d for _, d in taken))
    return chosen


def soonest_anywhere(view: View, record: JobRecord) -> tuple[int, ...]:
    """For a gang larger than a node: the devices of one type predicted to be empty soonest."""
    ledger, layout = view.ledger, view.layout
    for kind in record.shape.types:
        ends = sorted(
            (_empty_at(view, device, view.now), device)
            for bay in layout.type_bays[kind]
            if not ledger.draining[layout.bay_node[bay]]
            for device in range(layout.bay_first[bay], layout.bay_first[bay] + layout.bay_size[bay])
            if ledger.usable[device]
        )
        if len(ends) >= record.shape.gpus:
            return tuple(sorted(device for _, device in ends[: record.shape.gpus]))
    return ()


def _empty_at(view: View, device: int, now: float) -> float:
    ends = [0.0]
    for job_id in view.ledger.residents[device]:
        record = view.records[job_id]
        ends.append(record.remaining_at(now) / max(record.rate, 0.05))
    return max(ends)


def serve_overdue(view: View, patience_s: float, why: Why = _OVERDUE) -> tuple[Plan | None, float | None]:
    """Start whom devices are reserved for, or reserve some for a head that has waited too long.

    Parameters
    ----------
    view : View
    patience_s : float
        How long that is; infinite, if only who has a reservation is to be served.
    why : Why
        What starts and reservations are told by.

    Returns
    -------
    Plan or None
        What to do now.
    float or None
        When to ask again, if there is nothing to do yet.
    """
    ledger = view.ledger
    if ledger.reserved:
        owner = view.records[min(ledger.reserved.values())]
        if not all(ledger.usable[d] for d in owner.reserved) or view.limit_refusal(owner) is not None:
            return Plan((Reserve(owner.id, (), _DROPPED),), again=True), None
        if not any(ledger.residents[d] for d in owner.reserved):
            share = share_of(owner.job, view.layout.device_memory[owner.reserved[0]])
            if view.refusal(owner, owner.reserved, share) is None:
                return Plan((Start(owner.id, owner.reserved, share, why),), again=True), None
        return None, None
    head = view.queue.head()
    if head is None or head.shape.gpus == 0 or (view.books.limits and view.limit_refusal(head)):
        return None, None
    due_s = head.queued_s + patience_s
    if view.now < due_s:
        return None, due_s
    devices = soonest_block(view, head) if head.shape.single else soonest_anywhere(view, head)
    return (Plan((Reserve(head.id, devices, why),), again=True) if devices else None), None
