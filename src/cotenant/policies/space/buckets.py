"""Places that are alike for whoever may join, in rows by free memory."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.policies.queues.circles import Circle

__all__ = ["At", "Bucket", "Member", "SlotKey"]

Member = tuple[str, int]
"""Model and weight: devices it holds for each device of the newcomer that joins."""

SlotKey = tuple[int, tuple[Member, ...], Circle]
"""Device type, sorted members present, circle."""


class Bucket:
    """Places of one size and slot, in rows by free GiB; ``word`` has a bit for each row.

    Attributes
    ----------
    accepts, judged : int
    told : bool
        Notes of who listens for changes: what would join here, what was looked at, whether it
        has noted already that a place came.
    """

    __slots__ = ("_at", "accepts", "bit", "gpus", "judged", "number", "rows", "slot", "told", "word")

    def __init__(self, number: int, gpus: int, slot: int) -> None:
        self.number = number
        self.gpus = gpus
        self.slot = slot
        self.bit = 1 << slot
        self.word = self.accepts = self.judged = 0
        self.told = False
        self.rows: dict[int, int] = {}
        self._at: dict[int, At] = {}

    def at(self, gib: int) -> At:
        """This bucket with an amount of free memory, always the same object."""
        found = self._at.get(gib)
        if found is None:
            found = self._at[gib] = (self, gib)
        return found

    def firsts(self, gib: int) -> Iterator[int]:
        """First devices of places with at least this much free memory, tightest first."""
        word = self.word >> gib << gib
        while word:
            bit = word & -word
            row = self.rows[bit.bit_length() - 1]
            while row:
                yield (row & -row).bit_length() - 1
                row &= row - 1
            word ^= bit


At = tuple[Bucket, int]
"""Where a place lies: bucket and free GiB."""
