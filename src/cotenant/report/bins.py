"""Step functions of time, kept as exact integrals over at most a few thousand bins.

A step function is the sum of its jumps. A jump ``d`` at time ``t`` adds ``d * (end - t)`` to
the integral over its own bin and ``d * width`` to every later bin, whatever else happens;
so jumps may come in any order, cost O(1) each and need no memory of their own. When time
outgrows the bins, neighbours are merged and the width doubles, which is exact as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["StepBins"]

Floats = npt.NDArray[Any]
Ints = npt.NDArray[Any]


class StepBins:
    """Integrals of several step functions over common bins.

    Parameters
    ----------
    rows : int
        Number of step functions.
    start_s : float
        Where the first bin begins; earlier jumps count as made there.
    max_bins : int
        Even number of bins at which neighbours are merged.
    width_s : float
        First width of a bin, in seconds; a power of two keeps the edges exact.
    """

    def __init__(self, rows: int, start_s: float, *, max_bins: int = 4000, width_s: float = 0.0625) -> None:
        self.start_s, self.width_s, self.max_bins = start_s, width_s, max_bins
        self._area: Floats = np.zeros((rows, max_bins))
        self._jump: Floats = np.zeros((rows, max_bins))

    def add(self, row: int | Ints, t: npt.ArrayLike, jump: npt.ArrayLike, also: int = 0) -> None:
        """Add jumps of one step function, or of several (``row`` an array like ``t``).

        With ``also`` the same jumps go to the row so many further on, too.
        """
        at: Floats = np.maximum(np.asarray(t, dtype=np.float64) - self.start_s, 0.0)
        if at.size == 0:
            return
        self._reach(float(at.max()))
        by: Floats = np.asarray(jump, dtype=np.float64)
        index = (at / self.width_s).astype(np.int64)
        areas = by * ((index + 1) * self.width_s - at)
        size = self.max_bins
        offsets = (0, also) if also else (0,)
        if isinstance(row, int):
            area, total = np.bincount(index, areas, size), np.bincount(index, by, size)
            for offset in offsets:
                self._area[row + offset] += area
                self._jump[row + offset] += total
        else:
            for offset in offsets:
                flat = (row + offset) * size + index
                np.add.at(self._area.reshape(-1), flat, areas)
                np.add.at(self._jump.reshape(-1), flat, by)

    def _reach(self, span_s: float) -> None:
        while span_s >= self.width_s * self.max_bins:
            self.merge()

    def merge(self) -> None:
        """Merge neighbouring bins: half as many, twice as wide."""
        even, odd = self._area[:, 0::2], self._area[:, 1::2]
        area, jump = np.zeros_like(self._area), np.zeros_like(self._jump)
        half = self.max_bins // 2
        area[:, :half] = even + odd + self._jump[:, 0::2] * self.width_s
        jump[:, :half] = self._jump[:, 0::2] + self._jump[:, 1::2]
        self._area, self._jump, self.width_s = area, jump, self.width_s * 2

    def means(self, end_s: float, max_bins: int) -> tuple[Floats, Floats, Floats]:
        """Mean of each step function in each bin up to ``end_s``.

        Returns
        -------
        starts_s, widths_s : (bins,) arrays
            The last bin ends at ``end_s``. Empty if ``end_s`` is not after the start.
        means : (rows, bins) array
        """
        span = end_s - self.start_s
        if span <= 0:
            return np.zeros(0), np.zeros(0), np.zeros((self._area.shape[0], 0))
        while span > self.width_s * min(max_bins, self.max_bins):
            self.merge()
        used = int(np.ceil(span / self.width_s))
        area, jump = self._area[:, :used].copy(), self._jump[:, :used]
        before = np.cumsum(jump, axis=1) - jump
        area += before * self.width_s
        starts = self.start_s + self.width_s * np.arange(used)
        widths = np.full(used, self.width_s)
        widths[-1] = end_s - starts[-1]
        # Beyond the end each function stays at its last value: take that part off again.
        area[:, -1] -= jump.sum(axis=1) * (self.width_s - widths[-1])
        means = np.round(area / widths, 9) + 0.0
        return starts, widths, means

    def grow(self, rows: int) -> None:
        """Make room for more step functions."""
        extra = rows - self._area.shape[0]
        if extra > 0:
            pad: Sequence[Sequence[int]] = ((0, extra), (0, 0))
            self._area, self._jump = np.pad(self._area, pad), np.pad(self._jump, pad)
