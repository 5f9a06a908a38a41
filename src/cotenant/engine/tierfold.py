"""Folds what happens to saved state into the books of the tiers, in clusters that have tiers.

Clusters without any keep their appliers as they are: nothing is looked at twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.errors import IllegalEventError
from cotenant.model import events as ev
from cotenant.model.poolevents import Loaded, Spilled, Stored, TierResized
from cotenant.model.rules import Books
from cotenant.model.tiers import TierBooks

__all__ = ["with_tiers"]

Appliers = dict[type, Callable[[Any], Any]]


def with_tiers(books: Books, appliers: Appliers) -> Appliers:
    """Add the events of state tiers to a state's appliers; they change ``books.tiers``."""
    tiers = books.ledger.layout.cluster.state_tiers
    if not tiers:
        return appliers | dict.fromkeys((Stored, Spilled, Loaded, TierResized), _no_tiers)
    kept = books.tiers = TierBooks(tiers, books.settings)

    def started(event: ev.Started) -> None:
        appliers[ev.Started](event)
        if event.resumed:
            kept.starts(event.id)

    def suspended(event: ev.Suspended) -> None:
        appliers[ev.Suspended](event)
        kept.complete(event.id)

    def ended(event: ev.Ended) -> None:
        appliers[ev.Ended](event)
        if event.id in kept.copies:
            again = event.work_s if event.outcome != "failed" else 0.0
            kept.left(event.id, final=event.final, work_s=again)

    def rejected(event: ev.Rejected) -> None:
        appliers[ev.Rejected](event)
        kept.drop(event.id)

    return appliers | {
        ev.Started: started,
        ev.Suspended: suspended,
        ev.Ended: ended,
        ev.Rejected: rejected,
        Stored: lambda event: kept.stored(event.id, event.tier, event.size_bytes),
        Spilled: lambda event: kept.complete(event.id),
        Loaded: lambda event: kept.drop(event.id),
        TierResized: lambda event: kept.resized(event.tier, event.capacity_bytes),
    }


def _no_tiers(event: Any) -> None:
    raise IllegalEventError(f"{type(event).__name__} at {event.t}, but this cluster has no state tiers")
