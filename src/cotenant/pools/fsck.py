"""Looks whether books and files agree."""

from __future__ import annotations

import msgspec

from cotenant.errors import StateError
from cotenant.pools.registry import StateRegistry

__all__ = ["Findings", "fsck"]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What does not agree; all empty if all is well.

    Parameters
    ----------
    orphans : tuple of str
        ``tier/block``: files that the books do not know.
    missing, torn : tuple of str
        ``tier/block``: copies without a file, or with other content.
    lost : tuple of (int, int)
        Job and version that cannot be read any more: a block has no good copy.
    over : tuple of str
        Tiers that hold more than their limit.
    """

    orphans: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    over: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return self == Findings()


def fsck(registry: StateRegistry) -> Findings:
    """Read every block and compare. Changes nothing: opening a registry mends what can be mended."""
    books, folders = registry.books_of()
    orphans, missing, torn, bad = [], [], [], {}
    with books.alone():
        for name, folder in folders.items():
            known = {block for (block,) in books.rows("SELECT hash FROM copies WHERE tier = ?", name)}
            there = set(folder.list())
            orphans += [f"{name}/{block}" for block in sorted(there - known)]
            missing += [f"{name}/{block}" for block in sorted(known - there)]
            for block in sorted(known & there):
                try:
                    folder.read(block)
                except StateError:
                    torn.append(f"{name}/{block}")
            bad[name] = {
                place.partition("/")[2] for place in (*missing, *torn) if place.startswith(f"{name}/")
            }
        good = {b for b, name in books.rows("SELECT hash, tier FROM copies") if b not in bad.get(name, {b})}
        lost = {(j, v) for j, v, b in books.rows("SELECT job, version, hash FROM parts") if b not in good}
        tiers = registry.stats().tiers
    return Findings(
        orphans=tuple(orphans),
        missing=tuple(missing),
        torn=tuple(torn),
        lost=tuple(sorted(lost)),
        over=tuple(t.name for t in tiers if t.limit_bytes is not None and t.held_bytes > t.limit_bytes),
    )
