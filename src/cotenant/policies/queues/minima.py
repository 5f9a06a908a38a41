"""Numbers in a row, kept so that the first at most some limit is found without looking at them all."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

__all__ = ["MinRow", "MinTree"]

_INF = float("inf")
_BITS = 5
_SIZE = 1 << _BITS


class MinTree:
    """Numbers in a row, with the least of each power-of-two stretch.

    Attributes
    ----------
    room : int
        How many numbers there can be: a power of two.
    nodes : list of float
        The least of all at 1; under ``i`` are ``2 * i`` and ``2 * i + 1``; the numbers begin at ``room``.

    Examples
    --------
    >>> tree = MinTree([5.0, 2.0, 9.0, 2.0])
    >>> tree.least, tree.first(2.0), tree.first(1.0)
    (2.0, 1, -1)
    >>> tree.set(1, 7.0)
    >>> tree.first(2.0), tree[1]
    (3, 7.0)
    """

    __slots__ = ("nodes", "room")

    def __init__(self, values: Sequence[float]) -> None:
        room = self.room = 1 << max(len(values) - 1, 0).bit_length()
        tree = self.nodes = [_INF] * (2 * room)
        tree[room : room + len(values)] = values
        for i in range(room - 1, 0, -1):
            one, two = tree[2 * i], tree[2 * i + 1]
            tree[i] = one if one <= two else two

    def __getitem__(self, place: int) -> float:
        return self.nodes[self.room + place]

    def set(self, place: int, value: float) -> None:
        """Change one number."""
        tree = self.nodes
        i = self.room + place
        tree[i] = value
        while i > 1:
            other = tree[i ^ 1]
            low = value if value <= other else other
            i >>= 1
            if tree[i] == low:
                return
            tree[i] = value = low

    def first(self, limit: float) -> int:
        """The first place whose number is at most ``limit``; -1 if there is none."""
        tree, room = self.nodes, self.room
        if tree[1] > limit:
            return -1
        i = 1
        while i < room:
            i += i
            if tree[i] > limit:
                i += 1
        return i - room

    @property
    def least(self) -> float:
        """The least number."""
        return self.nodes[1]


class MinRow:
    """A growing row of numbers: a tree over the least of each few, so a number costs 8 bytes.

    Examples
    --------
    >>> row = MinRow([5.0, 2.0, 9.0])
    >>> row.append(1.0)
    >>> row.least, row.first(2.0), row.first(0.5)
    (1.0, 1, -1)
    >>> row.set(1, 7.0)
    >>> row.first(2.0), len(row)
    (3, 4)
    """

    __slots__ = ("_tree", "_values")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values = array("d", values)
        starts = range(0, len(self._values), _SIZE)
        self._tree = MinTree([min(self._values[i : i + _SIZE]) for i in starts])

    def __len__(self) -> int:
        return len(self._values)

    def append(self, value: float) -> None:
        """Add a number at the end."""
        values, tree = self._values, self._tree
        block = len(values) >> _BITS
        values.append(value)
        room = tree.room
        if block >= room:
            self._tree = MinTree([*tree.nodes[room : room + block], value])
        elif value < tree.nodes[room + block]:
            tree.set(block, value)

    def set(self, place: int, value: float) -> None:
        """Change one number."""
        values, tree, block = self._values, self._tree, place >> _BITS
        before, values[place] = values[place], value
        least = tree.nodes[tree.room + block]
        if value < least:
            tree.set(block, value)
        elif before == least < value:
            self._renew(block)

    def _renew(self, block: int) -> None:
        self._tree.set(block, min(self._values[block << _BITS : (block + 1) << _BITS]))

    def shift(self, start: int, stop: int) -> None:
        """Move the numbers from ``start`` up to ``stop`` one place on, over the one at ``stop``."""
        self._values[start + 1 : stop + 1] = self._values[start:stop]
        for block in range(start >> _BITS, (stop >> _BITS) + 1):
            self._renew(block)

    def first(self, limit: float) -> int:
        """The first place whose number is at most ``limit``; -1 if there is none."""
        block = self._tree.first(limit)
        if block < 0:
            return -1
        values, place = self._values, block << _BITS
        while values[place] > limit:
            place += 1
        return place

    @property
    def least(self) -> float:
        """The least number; infinity if there is none."""
        return self._tree.nodes[1]
