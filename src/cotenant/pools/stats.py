"""What the registry holds, counted."""

from __future__ import annotations

import msgspec

from cotenant.pools.books import Books
from cotenant.pools.room import Room

__all__ = ["Stats", "TierStats", "count"]


class TierStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier holds."""

    name: str
    limit_bytes: int | None
    held_bytes: int
    blocks: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry holds.

    Parameters
    ----------
    tiers : tuple of TierStats
    versions : int
        Published.
    published_bytes : int
        Sum over versions, as if nothing were shared.
    distinct_bytes : int
        The same with every block counted once.
    pinned, readers, held : int
        Versions pinned, readers, blocks that were put and are not published yet.
    """

    tiers: tuple[TierStats, ...]
    versions: int
    published_bytes: int
    distinct_bytes: int
    pinned: int
    readers: int
    held: int


def count(books: Books, room: Room) -> Stats:
    """Count what there is."""
    one = books.one
    tiers = tuple(
        TierStats(
            name=name,
            limit_bytes=limit,
            held_bytes=room.held(name),
            blocks=one("SELECT count(*) FROM copies WHERE tier = ?", name),
        )
        for name, limit in room.limits.items()
    )
    total = "SELECT coalesce(sum(size), 0) FROM blocks JOIN parts USING (hash)"
    distinct = "SELECT coalesce(sum(size), 0) FROM blocks WHERE hash IN (SELECT hash FROM parts)"
    return Stats(
        tiers=tiers,
        versions=one("SELECT count(*) FROM versions"),
        published_bytes=one(total),
        distinct_bytes=one(distinct),
        pinned=one("SELECT count(*) FROM pins"),
        readers=one("SELECT count(*) FROM readers"),
        held=one("SELECT count(DISTINCT hash) FROM holds"),
    )
