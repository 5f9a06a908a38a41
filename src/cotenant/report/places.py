"""Devices of the running jobs, as arrays: found, added and dropped many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.report.columns import stable_order

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
    """

    def __init__(self, ids: Ints, lengths: Ints, devices: Ints) -> None:
        self._order = stable_order(ids, int(ids.max(initial=0)) + 1)
        self.ids, self.lengths, self.devices = ids[self._order], lengths[self._order], devices
        self.begin: Ints = (np.cumsum(lengths) - lengths)[self._order]

    @classmethod
    def of(cls, held: Mapping[int, Sequence[int]]) -> Places:
        """From a mapping of jobs to devices."""
        return cls(np.array(list(held), dtype=np.int64), *flattened(list(held.values())))

    @property
    def distinct(self) -> bool:
        """Whether no job is in it twice."""
        return not (self.ids[1:] == self.ids[:-1]).any()

    def mapping(self) -> dict[int, tuple[int, ...]]:
        """Devices by job."""
        flat, begin = self.devices.tolist(), self.begin.tolist()
        ends = (self.begin + self.lengths).tolist()
        return {j: tuple(flat[a:b]) for j, a, b in zip(self.ids.tolist(), begin, ends, strict=True)}

    def joined(self, ids: Ints, lengths: Ints, devices: Ints) -> Places:
        """With other jobs."""
        old = self.devices[ranges(self.begin, self.lengths)]
        parts = ((self.ids, ids), (self.lengths, lengths), (old, devices))
        return Places(*map(np.concatenate, parts))

    def find(self, ids: Ints) -> tuple[Ints, Ints]:
        """Number of devices of each of these jobs, and where they begin; 0 for jobs that are not in it."""
        if not self.ids.size:
            return np.zeros_like(ids), np.zeros_like(ids)
        at = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        return np.where(self.ids[at] == ids, self.lengths[at], 0), self.begin[at]

    def without(self, ids: Ints) -> Places:
        """Without these jobs."""
        stays = np.ones(self.ids.size, dtype=bool)
        if self.ids.size:
            at = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
            stays[at[self.ids[at] == ids]] = False
        keep = np.flatnonzero(stays)
        lengths = self.lengths[keep]
        return Places(self.ids[keep], lengths, self.devices[ranges(self.begin[keep], lengths)])
