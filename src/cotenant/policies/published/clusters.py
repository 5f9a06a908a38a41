"""k-means classes of waiting jobs, by Manhattan distance, and shares of a round by weight.

Points that many jobs share are weighted, not repeated, so a clustering costs what differs, not what
waits. Everything is deterministic: points are sorted, seeds are the point nearest the median and then
always the farthest, ties go to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Classes", "apportioned", "cluster"]

Features = tuple[float, ...]
_ROUNDS = 20


class Classes:
    """Classes by their centres, in standardised coordinates.

    Parameters
    ----------
    mean, scale : list of float
        By feature; a feature that does not vary has scale 1.
    centres : list of list of float
    """

    __slots__ = ("centres", "mean", "scale")

    def __init__(self, mean: list[float], scale: list[float], centres: list[list[float]]) -> None:
        self.mean, self.scale, self.centres = mean, scale, centres

    def __len__(self) -> int:
        """Number of classes."""
        return len(self.centres)

    def of(self, features: Features) -> int:
        """The nearest class, the first among equals."""
        at = [(x - m) / s for x, m, s in zip(features, self.mean, self.scale, strict=True)]
        return min(range(len(self.centres)), key=lambda c: (_distance(at, self.centres[c]), c))


def _distance(one: Sequence[float], two: Sequence[float]) -> float:
    return sum([abs(a - b) for a, b in zip(one, two, strict=True)])


def cluster(weights: dict[Features, int], k: int) -> Classes:
    """Cluster weighted points; fewer distinct points than ``k`` are a class each.

    >>> classes = cluster({(1.0, 10.0): 5, (1.0, 12.0): 3, (8.0, 90.0): 1}, 2)
    >>> classes.of((1.0, 11.0)) == classes.of((1.0, 10.0)) != classes.of((8.0, 80.0))
    True
    """
    points = sorted(weights)
    raw = np.array(points, np.float64)
    weight = np.array([weights[p] for p in points], np.float64)
    share = weight / weight.sum()
    mean = (share[:, None] * raw).sum(axis=0)
    scale = np.sqrt((share[:, None] * (raw - mean) ** 2).sum(axis=0))
    scale[scale <= 1e-12 * np.maximum(np.abs(mean), 1.0)] = 1.0
    at = (raw - mean) / scale
    centres = _seeds(at, weight, min(k, len(points)))
    label = _nearest(at, centres)
    for _ in range(_ROUNDS):
        for c in range(len(centres)):
            mine = label == c
            if mine.any():
                centres[c] = _median(at[mine], weight[mine])
        before, label = label, _nearest(at, centres)
        if (before == label).all():
            break
    return Classes(_rounded(mean), _rounded(scale), sorted([_rounded(row) for row in centres]))


def _rounded(row: NDArray[np.float64]) -> list[float]:
    """Six digits are plenty, and the same on every machine."""
    return [round(float(x), 6) for x in row]


def _seeds(at: NDArray[np.float64], weight: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    chosen = [int(np.abs(at - _median(at, weight)).sum(axis=1).argmin())]
    while len(chosen) < k:
        far = np.min([np.abs(at - at[c]).sum(axis=1) for c in chosen], axis=0)
        chosen.append(int(far.argmax()))
    return at[chosen].copy()


def _nearest(at: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.intp]:
    found: NDArray[np.intp] = np.abs(at[:, None, :] - centres[None, :, :]).sum(axis=2).argmin(axis=1)
    return found


def _median(at: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted median of each coordinate: what has least Manhattan distance to all."""
    found = np.empty(at.shape[1])
    for column in range(at.shape[1]):
        order = at[:, column].argsort(kind="stable")
        half = np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())
        found[column] = at[order[min(int(half), len(order) - 1)], column]
    return found


def apportioned(total: int, weights: Sequence[float]) -> list[int]:
    """Whole parts of ``total`` in proportion to weights, by largest remainder, the first among equals.

    >>> apportioned(10, [5.0, 3.0, 1.0])
    [6, 3, 1]
    >>> apportioned(4, [0.0, 0.0])
    [0, 0]
    """
    whole = sum(weights)
    if whole <= 0:
        return [0] * len(weights)
    exact = [total * w / whole for w in weights]
    parts = [int(x) for x in exact]
    by_rest = sorted(range(len(weights)), key=lambda c: (parts[c] - exact[c], c))
    for c in by_rest[: total - sum(parts)]:
        parts[c] += 1
    return parts
