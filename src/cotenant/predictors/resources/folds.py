"""Judging by families: folds that split no architecture, errors, and quantiles over families."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["balanced", "family_folds", "family_quantile", "rms"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def family_folds(families: Sequence[str], folds: int) -> Iterator[tuple[Index, Index]]:
    """Rows to fit and rows to judge: each family is judged once, by what never saw it.

    Parameters
    ----------
    families : sequence of str, length n
    folds : int
        At most; with as many families or fewer each is left out alone. Large families are
        dealt out first.

    Examples
    --------
    >>> [held.tolist() for _, held in family_folds(["a", "b", "a"], 5)]
    [[0, 2], [1]]
    """
    names = np.array(families)
    kinds, counts = np.unique(names, return_counts=True)
    order = sorted(range(len(kinds)), key=lambda i: (-int(counts[i]), str(kinds[i])))
    bins: list[list[str]] = [[] for _ in range(min(folds, len(kinds)))]
    sizes = [0] * len(bins)
    for i in order:
        smallest = sizes.index(min(sizes))
        bins[smallest].append(str(kinds[i]))
        sizes[smallest] += int(counts[i])
    for members in bins:
        held = np.isin(names, members)
        yield np.flatnonzero(~held), np.flatnonzero(held)


def balanced(families: Sequence[str]) -> Array:
    """Weights with which every family counts alike; their mean is 1."""
    names = np.array(families)
    _, place, counts = np.unique(names, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[place]
    found: Array = weights * len(names) / weights.sum()
    return found


def family_quantile(values: Array, families: Sequence[str], level: float) -> float:
    """Quantile in which every family has the same weight (the smallest value that reaches it).

    Examples
    --------
    >>> family_quantile(np.array([1.0, 2.0, 3.0, 9.0]), ["a", "a", "a", "b"], 0.5)
    3.0
    """
    if not len(values):
        return math.nan
    order = np.argsort(values, kind="stable")
    weights = balanced(families)[order]
    reached = np.cumsum(weights) / weights.sum()
    place = int(np.searchsorted(reached, level - 1e-9))
    return float(values[order[min(place, len(values) - 1)]])


def rms(errors: Array) -> float:
    """Root of the mean square; NaN of nothing."""
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else math.nan
