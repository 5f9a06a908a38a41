"""Pools of room: which slot has enough free memory, by one of three orders, in logarithmic time.

A *slot* is a device, or a group of devices that hold the same residents. Inside a pool slots
lie in rows by free guaranteed compute; inside a row by free memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Literal

__all__ = ["Order", "Pool", "Rank", "Slot"]

Order = Literal["pack", "spread", "first"]
Rank = tuple[int, ...]
Slot = tuple[Rank, int]
"""How a slot ranks (smaller is better), and its lowest device."""


class _ByMemory:
    """A row that answers with the smallest free memory that suffices, then the lowest slot."""

    def __init__(self, size: int) -> None:
        self._values: list[int] = []
        self._slots: dict[int, int] = {}

    def put(self, value: int, slot: int) -> None:
        slots = self._slots
        if value in slots:
            slots[value] |= 1 << slot
        else:
            insort(self._values, value)
            slots[value] = 1 << slot

    def drop(self, value: int, slot: int) -> bool:
        """Take a slot out; whether the row is empty now."""
        bits = self._slots[value] ^ 1 << slot
        if bits:
            self._slots[value] = bits
            return False
        del self._slots[value]
        del self._values[bisect_left(self._values, value)]
        return not self._values

    def largest(self) -> int:
        return self._values[-1] if self._values else -1

    def pick(self, need: int) -> tuple[int, int] | None:
        at = bisect_left(self._values, need)
        if at == len(self._values):
            return None
        value = self._values[at]
        return value, _lowest(self._slots[value])

    def each(self, need: int) -> Iterator[tuple[int, int]]:
        for value in self._values[bisect_left(self._values, need) :]:
            yield from ((value, slot) for slot in _ascending(self._slots[value]))


class _ByMostMemory(_ByMemory):
    """A row that answers with the largest free memory."""

    def pick(self, need: int) -> tuple[int, int] | None:
        if not self._values or self._values[-1] < need:
            return None
        return self._values[-1], _lowest(self._slots[self._values[-1]])


class _ByNumber:
    """A row that answers with the lowest slot whose free memory suffices: a tree of maxima."""

    def __init__(self, size: int) -> None:
        self._leaves = 1 << max(size - 1, 1).bit_length()
        self._most: dict[int, int] = {}

    def put(self, value: int, slot: int) -> None:
        most, at = self._most, self._leaves + slot
        most[at] = value
        while at > 1:
            at >>= 1
            if most.get(at, -1) >= value:
                return
            most[at] = value

    def drop(self, value: int, slot: int) -> bool:
        """Take a slot out; whether the row is empty now."""
        most, at = self._most, self._leaves + slot
        del most[at]
        while at > 1:
            at >>= 1
            left, right = most.get(2 * at, -1), most.get(2 * at + 1, -1)
            now = max(left, right)
            if now == most[at]:
                return False
            if now < 0:
                del most[at]
            else:
                most[at] = now
        return not most

    def largest(self) -> int:
        return self._most.get(1, -1)

    def pick(self, need: int) -> tuple[int, int] | None:
        most = self._most
        if most.get(1, -1) < need:
            return None
        at, leaves = 1, self._leaves
        while at < leaves:
            at *= 2
            if most.get(at, -1) < need:
                at += 1
        return most[at], at - leaves

    def each(self, need: int) -> Iterator[tuple[int, int]]:
        stack, most = [1], self._most
        while stack:
            at = stack.pop()
            if most.get(at, -1) < need:
                continue
            if at >= self._leaves:
                yield most[at], at - self._leaves
            else:
                stack += (2 * at + 1, 2 * at)


_Row = _ByMemory | _ByNumber
_ROWS: dict[str, type[_Row]] = {"pack": _ByMemory, "spread": _ByMostMemory, "first": _ByNumber}


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _ascending(bits: int) -> Iterator[int]:
    while bits:
        yield _lowest(bits)
        bits &= bits - 1


class Pool:
    """Slots of one domain, type and size."""

    __slots__ = ("_make", "_order", "_rows", "_size")

    def __init__(self, order: Order, size: int) -> None:
        self._order, self._size = order, size
        self._make = _ROWS[order]
        self._rows: dict[tuple[int, int], _Row] = {}

    def put(self, row: tuple[int, int], value: int, slot: int) -> None:
        """A slot has this much room."""
        found = self._rows.get(row)
        if found is None:
            found = self._rows[row] = self._make(self._size)
        found.put(value, slot)

    def drop(self, row: tuple[int, int], value: int, slot: int) -> None:
        """A slot has this much room no more."""
        found = self._rows[row]
        if found.drop(value, slot):
            del self._rows[row]

    def largest(self, milli: int) -> int:
        """Most free memory of a slot with this much free compute; -1 if none."""
        best = -1
        for row, found in self._rows.items():
            if row[1] >= milli:
                most = found.largest()
                if most > best:
                    best = most
        return best

    def compute(self) -> int:
        """Most free guaranteed compute of any slot; -1 if the pool is empty."""
        return max((row[1] for row in self._rows), default=-1)

    def best(self, need: int, milli: int) -> Slot | None:
        """The best slot with this much room."""
        best: Slot | None = None
        for row, found in self._rows.items():
            if row[1] >= milli:
                got = found.pick(need)
                if got is not None:
                    slot = (self.rank(row, *got), got[1])
                    if best is None or slot < best:
                        best = slot
        return best

    def each(self, need: int, milli: int) -> list[Slot]:
        """All slots with this much room, best first."""
        return sorted(
            (self.rank(row, *got), got[1])
            for row, found in self._rows.items()
            if row[1] >= milli
            for got in found.each(need)
        )

    def rank(self, row: tuple[int, int], value: int, slot: int) -> Rank:
        """How a slot ranks; smaller is better."""
        if self._order == "pack":
            return (value, row[1], slot)
        if self._order == "spread":
            return (row[0], -value, -row[1], slot)
        return (slot,)
