"""Making elastic jobs give devices back to a waiting job with a guarantee."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.model.plan import Resize, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import check_resize
from cotenant.model.view import View

__all__ = ["give_back"]


def give_back(view: View, record: JobRecord, count: int, grown: Iterable[int]) -> list[Resize]:
    """Resizes of elastic jobs after which ``count`` devices are free for a waiting job; empty if there are none.

    No job goes below its ``min_gpus``; opportunistic ones give first, then those that hold most beyond it.
    On the node where fewest are missing (all nodes, if the waiting job may span them).

    Parameters
    ----------
    grown : iterable of int
        Elastic jobs that hold more than their least.
    """
    shape, layout = record.shape, view.layout
    holders = [r for i in sorted(grown) if _excess(r := view.records[i]) > 0]
    if not holders or shape.cpu_milli or shape.host_bytes:
        return []
    holders.sort(key=lambda r: (r.job.job_class != "opportunistic", -_excess(r), r.id))
    best: tuple[int, int, list[Resize]] | None = None
    for kind in shape.types:
        if shape.spans:
            scopes: list[tuple[int, ...]] = [tuple(layout.type_bays[kind])]
        else:
            bays = {layout.device_bay[d] for r in holders if r.place for d in r.place.devices}
            scopes = [(bay,) for bay in sorted(bays) if layout.bay_type[bay] == kind]
        for scope in scopes:
            missing = count - sum(view.ledger.whole[bay].bit_count() for bay in scope)
            if missing <= 0 or (best is not None and best[0] <= missing):
                continue
            taken = _take(view, record, holders, frozenset(scope), missing)
            if taken:
                best = (missing, scope[0], taken)
    return [] if best is None else best[2]


def _excess(record: JobRecord) -> int:
    return len(record.place.devices) - record.job.min_gpus if record.place is not None else 0


def _take(
    view: View, record: JobRecord, holders: list[JobRecord], scope: frozenset[int], missing: int
) -> list[Resize]:
    """So many devices of these bays, or nothing."""
    layout, found = view.layout, []
    for holder in holders:
        if holder.place is None:
            continue
        devices = holder.place.devices
        here = [d for d in devices if layout.device_bay[d] in scope]
        take = min(len(here), _excess(holder), missing)
        if not take:
            continue
        gone = set(here[-take:])
        kept = tuple(d for d in devices if d not in gone)
        if check_resize(view.books, holder, kept, holder.place.share, view.now) is not None:
            continue
        facts = {"for_job": record.id, "gpus_before": len(devices), "gpus_after": len(kept)}
        found.append(Resize(holder.id, kept, holder.place.share, Why("given-back", facts)))
        missing -= take
        if not missing:
            return found
    return []
