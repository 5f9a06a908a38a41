"""Devices of the running jobs, as arrays: found, added and dropped many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Places", "flattened", "ranges"]

Ints = npt.NDArray[Any]


def ranges(begin: Ints, lengths: Ints) -> Ints:
    """Indices of several ranges, one after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    shift = np.repeat(begin - ends + lengths, lengths)
    return shift + np.arange(shift.size)


def flattened(devices: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Length of each, and all of them one after the other."""
    lengths = np.fromiter(map(len, devices), np.int64, len(devices))
    return lengths, np.fromiter(chain.from_iterable(devices), np.int64, int(lengths.sum()))


class Places:
    """Which devices each of some jobs holds.

    Parameters
    ----------
    ids : (n,) array
    lengths : (n,) array
        Number of devices of each.
    devices : array
        Devices of the first job, then of the second, and so on.

    Attributes
    ----------
    distinct : bool
        Whether no job is in it twice.
    """

    def __init__(self, ids: Ints, lengths: Ints, devices: Ints) -> None:
        self.ids, self.lengths, self.devices = ids, lengths, devices
        self.begin: Ints = np.cumsum(lengths) - lengths
        # Ids are dense and those of running jobs lie close together: a table beats a search.
        self._low = int(ids.min()) if ids.size else 0
        self._row: Ints = np.full(int(ids.max(initial=-1)) + 1 - self._low, -1, dtype=np.int32)
        rows = np.arange(ids.size, dtype=np.int32)
        self._row[ids - self._low] = rows
        self.distinct = bool((self._row[ids - self._low] == rows).all())

    @classmethod
    def of(cls, held: Mapping[int, Sequence[int]]) -> Places:
        """From a mapping of jobs to devices."""
        return cls(np.array(list(held), dtype=np.int64), *flattened(list(held.values())))

    def mapping(self) -> dict[int, tuple[int, ...]]:
        """Devices by job."""
        flat, begin = self.devices.tolist(), self.begin.tolist()
        ends = (self.begin + self.lengths).tolist()
        return {j: tuple(flat[a:b]) for j, a, b in zip(self.ids.tolist(), begin, ends, strict=True)}

    def joined(self, ids: Ints, lengths: Ints, devices: Ints) -> Places:
        """With other jobs."""
        parts = ((self.ids, ids), (self.lengths, lengths), (self.devices, devices))
        return Places(*map(np.concatenate, parts))

    def find(self, ids: Ints) -> Ints:
        """Row of each of these jobs; -1 for those that are not in it."""
        at = ids - self._low
        inside = (at >= 0) & (at < self._row.size)
        rows: Ints = np.full(ids.size, -1, dtype=np.int32)
        rows[inside] = self._row[at[inside]]
        return rows

    def devices_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Number of devices of the jobs of these rows, none for -1, and the devices."""
        lengths = np.where(rows >= 0, self.lengths[rows], 0) if self.ids.size else np.zeros_like(rows)
        begin = self.begin[rows] if self.ids.size else rows
        return lengths, self.devices[ranges(begin, lengths)]

    def without(self, rows: Ints) -> Places:
        """Without the jobs of these rows; -1 is none."""
        stays = np.ones(self.ids.size, dtype=bool)
        stays[rows[rows >= 0]] = False
        return Places(self.ids[stays], self.lengths[stays], self.devices[np.repeat(stays, self.lengths)])
