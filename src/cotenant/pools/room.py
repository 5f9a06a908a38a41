"""Room in the tiers: what it is, and how it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cotenant.errors import StateError, StoreError
from cotenant.pools.blocks import BlockFolder, BlockId, Tier
from cotenant.pools.books import Books

__all__ = ["Room"]

_MOVABLE = """
SELECT c.hash, b.size,
  EXISTS (SELECT 1 FROM parts p WHERE p.hash = c.hash) AS needed,
  (SELECT group_concat(o.tier, char(10)) FROM copies o WHERE o.hash = c.hash AND o.tier <> c.tier) AS others
FROM copies c JOIN blocks b USING (hash)
WHERE c.tier = ?
  AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.hash = c.hash)
  AND NOT EXISTS (SELECT 1 FROM parts p JOIN pins USING (job, version) WHERE p.hash = c.hash)
  AND NOT EXISTS (SELECT 1 FROM parts p JOIN readers r USING (job, version) WHERE p.hash = c.hash AND r.valid)
ORDER BY c.used
"""


class _Copy(NamedTuple):
    block: BlockId
    size_bytes: int
    spare: bool
    """It can go without loss: nobody refers to it, or another durable copy is there."""


class Room:
    """Evicts. Its methods are called by one process at a time (``Books.alone``), outside transactions."""

    def __init__(self, books: Books, tiers: Sequence[Tier], folders: dict[str, BlockFolder]) -> None:
        self._books, self._folders = books, folders
        self._order = [tier.name for tier in tiers]
        self._durable = {tier.name for tier in tiers if tier.durable}
        self.limits = {tier.name: tier.limit_bytes for tier in tiers}

    def held(self, tier: str) -> int:
        """Bytes in a tier."""
        query = "SELECT coalesce(sum(size), 0) FROM copies JOIN blocks USING (hash) WHERE tier = ?"
        return int(self._books.one(query, tier))

    def free(self, tier: str) -> float:
        """Room that there is or can be had without moving anything."""
        limit = self.limits[tier]
        if limit is None:
            return float("inf")
        return limit - self.held(tier) + sum(copy.size_bytes for copy in self._movable(tier) if copy.spare)

    def _movable(self, tier: str) -> list[_Copy]:
        """Copies that nobody works with, least recently used first."""
        return [
            _Copy(block, size, not needed or bool(self._durable.intersection((others or "").split("\n"))))
            for block, size, needed, others in self._books.rows(_MOVABLE, tier)
        ]

    def make(self, tier: str, size_bytes: int) -> None:
        """Evict until so much fits.

        Raises
        ------
        StoreError
            If it never will; nothing has been lost then.
        """
        limit = self.limits[tier]
        if limit is None:
            return
        excess = self.held(tier) + size_bytes - limit
        if excess <= 0:
            return
        movable = self._movable(tier)
        spare = [copy for copy in movable if copy.spare]
        leaving: list[BlockId] = []
        for copy in spare:
            if excess <= 0:
                break
            leaving.append(copy.block)
            excess -= copy.size_bytes
        if excess > 0:
            later = self._order[self._order.index(tier) + 1 :]
            needed = [copy for copy in movable if not copy.spare]
            if not later or sum(copy.size_bytes for copy in needed) < excess:
                raise StoreError(
                    f"tier {tier}: no room for {size_bytes} bytes: {self.held(tier)} of {limit} are held, and what is"
                    " published, pinned or being read cannot go; raise the limit or end jobs"
                )
            for copy in needed:
                if excess <= 0:
                    break
                self._demote(copy, tier, later)
                excess -= copy.size_bytes
        self.discard(tier, leaving)

    def _demote(self, copy: _Copy, tier: str, later: Sequence[str]) -> None:
        """Move a block that is needed to the first later tier that takes it."""
        data = self._folders[tier].read(copy.block)
        problem = StoreError(f"tier {tier}: nowhere to move a block to")
        for name in later:
            try:
                self.make(name, copy.size_bytes)
                self._folders[name].write(copy.block, data)
            except (StoreError, OSError, StateError) as error:
                problem = StoreError(f"tier {tier}: a block cannot move to {name}: {error}")
                continue
            with self._books.transaction():
                self._books.run(
                    "INSERT OR REPLACE INTO copies VALUES (?, ?, ?)", copy.block, name, self._books.tick()
                )
            self.discard(tier, [copy.block])
            return
        raise problem

    def discard(self, tier: str, blocks: Sequence[BlockId]) -> None:
        """Take copies out of the books, then delete their files; blocks without copies or use are forgotten."""
        if not blocks:
            return
        with self._books.transaction():
            for block in blocks:
                self._books.run("DELETE FROM copies WHERE hash = ? AND tier = ?", block, tier)
                self._books.run(
                    "DELETE FROM blocks WHERE hash = ? AND hash NOT IN (SELECT hash FROM copies)"
                    " AND hash NOT IN (SELECT hash FROM parts)",
                    block,
                )
        for block in blocks:
            self._folders[tier].remove(block)
