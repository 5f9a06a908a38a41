"""Where a job that has waited too long could start soonest; O(cluster), used rarely."""

from __future__ import annotations

from cotenant.model.records import JobRecord
from cotenant.model.view import View

__all__ = ["soonest_anywhere", "soonest_block"]


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
