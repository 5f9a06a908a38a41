"""Where saved state lies, as an explanation tells it: from the events of tiers alone."""

from __future__ import annotations

from typing import Any

from cotenant.model import events as ev
from cotenant.model.poolevents import Loaded, Spilled, Stored, TierResized
from cotenant.model.quantities import format_bytes, format_duration
from cotenant.model.settings import Settings
from cotenant.model.tiers import TierBooks

__all__ = ["StateTiers"]


class StateTiers:
    """The books of the tiers, folded from a log, and sentences about one job's state in them.

    In clusters without tiers it sees nothing and tells nothing.
    """

    def __init__(self) -> None:
        self._books: TierBooks | None = None
        self._since_s: dict[int, float] = {}
        self._sizes: dict[int, int] = {}
        self._home_before = -1
        self._capacity_before: int | None = None

    def see(self, event: Any) -> None:
        """Fold one event."""
        if isinstance(event, ev.Opened):
            tiers = event.cluster.state_tiers
            # Settings only tell sizes, and the log tells those.
            self._books = TierBooks(tiers, Settings()) if tiers else None
        elif self._books is not None:
            self._fold(event, self._books)

    def _fold(self, event: Any, books: TierBooks) -> None:
        if isinstance(event, ev.Started):
            self._since_s[event.id] = event.t
            if event.resumed:
                books.starts(event.id)
        elif isinstance(event, (ev.Suspended, Spilled)):
            copy = books.copies.get(event.id)
            self._home_before = copy.home if copy is not None else -1
            books.complete(event.id)
        elif isinstance(event, ev.Ended):
            books.left(event.id, final=event.final, work_s=event.work_s if event.outcome != "failed" else 0.0)
        elif isinstance(event, (ev.Rejected, Loaded)):
            books.drop(event.id)
        elif isinstance(event, Stored):
            books.stored(event.id, event.tier, event.size_bytes)
            self._sizes[event.id] = event.size_bytes
        elif isinstance(event, TierResized):
            self._capacity_before = books.capacity[event.tier]
            books.resized(event.tier, event.capacity_bytes)

    def waits_where(self, job: int) -> str:
        """``its state of 6,144 MiB waits in tier nvme (12,288 MiB of 81,920 MiB used)``; empty if it lies in none."""
        copy = self._books.copies.get(job) if self._books is not None else None
        if copy is None or copy.home < 0:
            return ""
        return f"its state of {format_bytes(copy.size_bytes)} waits in {self._tier(copy.home)}"

    def told(self, event: Any, job: int) -> str:
        """One sentence about an event of tiers that was seen last; empty if it does not concern the job's state."""
        books = self._books
        if books is None:
            return ""
        copy = books.copies.get(job)
        if isinstance(event, TierResized):
            if copy is None or event.tier not in (copy.home, copy.coming):
                return ""
            before = self._capacity_before
            had = "" if before is None else f" instead of {format_bytes(before)}"
            cause = f" ({event.cause})" if event.cause else ""
            return (
                f"Tier {books.tiers[event.tier].name} is to have {format_bytes(event.capacity_bytes)}{had}{cause};"
                f" its state of {format_bytes(copy.size_bytes)} lies there."
            )
        if event.id != job:
            return ""
        size = format_bytes(self._sizes.get(job, 0))
        if isinstance(event, Stored):
            moved = f", away from tier {books.tiers[copy.home].name}" if copy and copy.home >= 0 else ""
            return f"Its state of {size} is on its way to {self._tier(event.tier)}{moved}."
        if isinstance(event, Spilled):
            left = self._home_before
            free = f"; its room in tier {books.tiers[left].name} is free" if left >= 0 else ""
            return f"Its state of {size} lies in {self._tier(event.tier)} now{free}."
        took = format_duration(event.t - self._since_s.get(job, event.t))
        return f"Its state of {size} is loaded back from tier {books.tiers[event.tier].name}, in {took}."

    def _tier(self, tier: int) -> str:
        """A tier's name, and how full it is."""
        books = self._books
        assert books is not None  # noqa: S101 - asked only where there are tiers
        capacity = books.capacity[tier]
        of = "" if capacity is None else f" of {format_bytes(capacity)}"
        return f"tier {books.tiers[tier].name} ({format_bytes(books.held[tier])}{of} used)"
