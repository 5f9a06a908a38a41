"""Helpers for columns that grow, and for series grouped by an id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Codes", "Grouped", "grown", "running_totals", "stable_order"]

Ints = npt.NDArray[Any]


class Codes(dict[str, int]):
    """Numbers words in order of appearance."""

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self)
        return code

    def encode(self, words: Iterable[str]) -> list[int]:
        """Codes of the words; new ones get the next number."""
        return list(map(self.__getitem__, words))

    @property
    def words(self) -> list[str]:
        """Words by code."""
        return list(self)


def grown(column: npt.NDArray[Any], used: int, size: int, fill: float = 0) -> npt.NDArray[Any]:
    """The column with ``size`` values in use, of which those after the first ``used`` are new.

    There is room for half as many again where it must grow. The room is not written to, nor are
    zeros: until somebody does, the system gives them no memory.
    """
    if column.size < size:
        bigger = np.zeros(max(size, column.size + column.size // 2, 1024), dtype=column.dtype)
        if fill or column[:used].any():
            bigger[:used] = column[:used]
        column = bigger
    if fill:
        column[used:size] = fill
    return column


def stable_order(keys: Ints, limit: int) -> Ints:
    """Order that sorts small whole numbers, equal ones as they come.

    Parameters
    ----------
    keys : (n,) array of int
        None is negative.
    limit : int
        All keys are below it.
    """
    # numpy sorts 16-bit numbers by radix, several times faster than it sorts longer ones.
    low = np.argsort(keys.astype(np.uint16), kind="stable")
    if limit <= 1 << 16:
        return low
    if limit > 1 << 32:
        return np.argsort(keys, kind="stable")
    return low[np.argsort((keys >> 16).astype(np.uint16)[low], kind="stable")]


def running_totals(key: Ints, change: Ints, carried: Ints) -> Ints:
    """Running total for each key, which must be sorted, on top of what was carried over.

    >>> running_totals(np.array([0, 0, 2]), np.array([1, 1, 1]), np.array([5, 0, 7])).tolist()
    [6, 7, 8]
    """
    if key.size == 0:
        return change.copy()
    total = np.cumsum(change)
    start = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    base = np.repeat(total[start] - change[start], np.diff(np.r_[start, key.size]))
    out: Ints = total - base + carried[key]
    return out


class Grouped:
    """Events of one block, put together by job, in their order within each job.

    Parameters
    ----------
    ids : (m,) array
        Job of each event, in log order.
    """

    def __init__(self, ids: Ints) -> None:
        self.order = stable_order(ids, int(ids.max(initial=0)) + 1)
        self.ids = ids[self.order]
        size = self.ids.size
        self.opens = np.ones(size, dtype=bool)
        self.opens[1:] = self.ids[1:] != self.ids[:-1]
        self._rank = np.arange(size)
        self._begin = np.maximum.accumulate(np.where(self.opens, self._rank, 0))
        self.last = np.flatnonzero(np.r_[self.opens[1:], True]) if size else self._rank

    def fill(
        self, values: npt.NDArray[Any], known: npt.NDArray[np.bool_], carried: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Value before and after each event (grouped order), where some events set it.

        ``carried`` holds each job's value before the block and is brought up to date.
        """
        seen = np.maximum.accumulate(np.where(known[self.order], self._rank, -1))
        inside = seen >= self._begin
        after = np.where(inside, values[self.order][seen], carried[self.ids])
        before = np.empty_like(after)
        before[1:] = after[:-1]
        before[self.opens] = carried[self.ids[self.opens]]
        carried[self.ids[self.last]] = after[self.last]
        return before, after
