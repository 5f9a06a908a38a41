"""Free capacity by node: the largest job that could be placed, and what is stranded.

Let ``N[k]`` be the number of nodes with at least ``k`` wholly free devices. Taking or
freeing one device changes exactly one of them by one, and everything here follows from
them: free devices are their sum, the largest hole is the number of ``k`` with ``N[k] > 0``,
and devices on nodes with at least ``m`` free ones number ``m * N[m] + sum(N[k] for k > m)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.report.bins import StepBins
from cotenant.report.columns import running_totals, stable_order

__all__ = ["Holes"]

Ints = npt.NDArray[Any]
Floats = npt.NDArray[Any]

_CELLS = 1_000_000
_PLACEABLE, _STRANDED, _FRAGMENT, _ANY_FREE = range(10, 14)


class Holes:
    """Fold of free devices per node and of waiting gang sizes.

    Parameters
    ----------
    sizes : sequence of int
        Devices of each node, all free at first.
    bins : StepBins
        Where the series go.
    start_s : float
    """

    def __init__(self, sizes: Sequence[int], bins: StepBins, start_s: float) -> None:
        self.largest_node = max(sizes, default=0)
        self._bins = bins
        self._free: Ints = np.array(sizes, dtype=np.int64)
        levels = np.arange(1, self.largest_node + 1)
        # N[1..L], then the number of waiting jobs by gang size 1..L.
        self._state = np.zeros(2 * self.largest_node, dtype=np.int32)
        self._state[: self.largest_node] = (self._free[:, None] >= levels).sum(axis=0)
        self._value: Floats = np.zeros(4)
        self._last_t = start_s
        self.min_placeable: int | None = None
        self._emit(np.array([start_s]), self._values(self._state[:, None]))

    def apply(self, frees: tuple[Ints, Ints, Ints], queue: tuple[Ints, Ints, Ints], t: Floats) -> None:
        """Fold changes of one block, each given as (position in the block, node or gang size, +1 or -1)."""
        if not self.largest_node:
            return  # a cluster without devices has no holes
        at, node, by = frees
        order = stable_order(node, self._free.size)
        after = np.empty_like(by)
        after[order] = running_totals(node[order], by[order], self._free)
        self._free[node[order]] = after[order]
        level = np.where(by > 0, after, after + 1) - 1
        waits = np.flatnonzero(queue[1] > 0)
        gang = np.minimum(queue[1][waits], self.largest_node) - 1
        position = np.concatenate([at, queue[0][waits]])
        if not position.size:
            return
        row = np.concatenate([level, gang + self.largest_node])
        change = np.concatenate([by, queue[2][waits]])
        # Within one instant only the last state counts.
        instant = np.cumsum(np.r_[False, t[1:] != t[:-1]])[position]
        touched = np.bincount(instant) > 0
        at = (np.cumsum(touched) - 1)[instant]
        when = np.empty(int(at.max()) + 1)
        when[at] = t[position]
        step = max(1, _CELLS // (2 * self.largest_node))
        if when.size <= step:
            self._block(row, change, at, when)
            return
        order = np.argsort(at, kind="stable")
        row, change, at = row[order], change[order], at[order]
        for begin in range(0, when.size, step):
            part = slice(*np.searchsorted(at, [begin, begin + step]))
            self._block(row[part], change[part], at[part] - begin, when[begin : begin + step])

    def _block(self, row: Ints, change: Ints, at: Ints, when: Floats) -> None:
        cells = 2 * self.largest_node * when.size
        wide = np.bincount(row * when.size + at, change, cells).reshape(-1, when.size).astype(np.int32)
        np.cumsum(wide, axis=1, out=wide)
        wide += self._state[:, None]
        self._state = wide[:, -1].copy()
        self._emit(when, self._values(wide))

    def _values(self, wide: npt.NDArray[np.int32]) -> Floats:
        size = self.largest_node
        if not size:
            return np.zeros((4, wide.shape[1]))
        nodes, waiting = wide[:size], wide[size:]
        free = nodes.sum(axis=0)
        placeable = (nodes > 0).sum(axis=0)
        stranded = np.zeros(free.size)
        some = np.flatnonzero((waiting > 0).any(axis=0))
        need = np.argmax(waiting[:, some] > 0, axis=0)
        # Devices on nodes with at least m free ones, m = need + 1.
        smaller = np.cumsum(nodes[:, some], axis=0)[need, np.arange(need.size)]
        stranded[some] = smaller - (need + 1) * nodes[need, some]
        hole = np.minimum(free, size)
        fragment = np.where(free > 0, 1.0 - placeable / np.maximum(hole, 1), 0.0)
        return np.stack([placeable, stranded, fragment, free > 0]).astype(np.float64)

    def _emit(self, when: Floats, values: Floats) -> None:
        jumps = np.diff(values, axis=1, prepend=self._value[:, None])
        for i, channel in enumerate((_PLACEABLE, _STRANDED, _FRAGMENT, _ANY_FREE)):
            hit = np.flatnonzero(jumps[i])
            self._bins.add(channel, when[hit], jumps[i][hit])
        lasted = values[0][:-1]
        if when[0] > self._last_t:
            lasted = np.r_[self._value[0], lasted]
        if lasted.size:
            low = int(lasted.min())
            self.min_placeable = low if self.min_placeable is None else min(low, self.min_placeable)
        self._value, self._last_t = values[:, -1].copy(), float(when[-1])

    def lowest(self, end_s: float) -> int | None:
        """Smallest value of the largest placeable job that lasted, until ``end_s``."""
        lows = [] if self.min_placeable is None else [self.min_placeable]
        if end_s > self._last_t:
            lows.append(int(self._value[0]))
        return min(lows, default=None)
