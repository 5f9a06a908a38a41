"""Choosing among members, and how wide their intervals must be.

For each world and novelty (``cases``) members are weighed by their errors on groups that they
had not seen. A world has few groups, so its errors are shrunk towards what members do in all
worlds, and instead of one winner those near the best are averaged. Of members within 2% the
simpler one goes first.

Intervals are conformal over groups: the error of each case is divided by a scale that grows with
the spread that the models expect and with their disagreement, and the quantiles are taken with
equal weight for each group, because rows of one architecture err together (Lee, Barber and
Willett 2023, "Distribution-free inference with hierarchical data"). Each group's cases are
predicted with weights that were chosen without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.cases import Cases
from cotenant.predictors.interference.zoo import SIMPLICITY

__all__ = ["Choice", "Key", "choose", "default_choice"]

Array = NDArray[np.float64]
Key = tuple[int, int]
"""World and novelty."""

_SHRINK = 4.0
_WINDOW = 0.4
_TIE = 0.02
_COVERAGE = 0.9
_TYPICAL = 2.0
"""95% quantile of signed errors in multiples of the mean absolute error: 2.06 were they normal."""
_PRIOR = 10.0
"""Groups that the typical quantile is worth."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is used in one world for one novelty.

    Parameters
    ----------
    weights : tuple of float
        Of members, in their order; they add up to 1.
    errors : tuple of float
        Mean absolute error of each member on unseen groups.
    error : float
        That of the weighted mean, with weights chosen without each group.
    scale : tuple of float
        Constant, share of the expected spread, share of the disagreement.
    low, high : float
        Multiples of the scale from the mean to the ends of the interval.
    groups, cases : int
        How many this rests on.
    """

    weights: tuple[float, ...]
    errors: tuple[float, ...]
    error: float
    scale: tuple[float, float, float]
    low: float
    high: float
    groups: int
    cases: int


def choose(
    names: Sequence[str], cases: Mapping[Key, Cases], truth: Array, ceilings: Array
) -> dict[Key, Choice]:
    """Choices for all worlds and novelties with cases.

    Parameters
    ----------
    names : sequence of str
        Members.
    cases : mapping
        By world and novelty.
    truth : ndarray, shape (rows,)
        Speeds, re-based.
    ceilings : ndarray, shape (rows,)
        Highest speed that the row's world reports.
    """
    tables = {key: _by_group(found, truth, ceilings) for key, found in cases.items()}
    general = _general(tables, len(names))
    order = np.argsort([SIMPLICITY.index(n) if n in SIMPLICITY else len(SIMPLICITY) for n in names])
    chosen = {}
    for key, found in cases.items():
        sums, counts = tables[key]
        weights = _weights(sums.sum(axis=1) / counts.sum(), general[key[1]], len(counts), order)
        without = np.stack(
            [
                _weights(
                    (sums.sum(axis=1) - sums[:, g]) / (counts.sum() - counts[g]),
                    general[key[1]],
                    len(counts) - 1,
                    order,
                )
                for g in range(len(counts))
            ]
        )
        chosen[key] = _calibrated(found, truth, ceilings, weights, without)
    return chosen


def _by_group(cases: Cases, truth: Array, ceilings: Array) -> tuple[Array, Array]:
    """Summed absolute errors, members by groups, and cases in each group."""
    n = int(cases.group.max()) + 1
    errors = np.abs(np.minimum(cases.predicted, ceilings[cases.rows]) - truth[cases.rows])
    sums = np.stack([np.bincount(cases.group, weights=row, minlength=n) for row in errors])
    counts = np.bincount(cases.group, minlength=n)
    return np.asarray(sums, np.float64), counts.astype(np.float64)


def _general(tables: Mapping[Key, tuple[Array, Array]], members: int) -> dict[int, Array]:
    """Relative error of each member over all worlds, by novelty; the mean member has 1."""
    found: dict[int, list[tuple[float, Array]]] = {}
    for (_, novelty), (sums, counts) in tables.items():
        errors = sums.sum(axis=1) / counts.sum()
        found.setdefault(novelty, []).append(
            (float(np.sqrt(counts.sum())), errors / max(errors.mean(), 1e-9))
        )
    general = {}
    for novelty, rows in found.items():
        weight = np.array([w for w, _ in rows])
        general[novelty] = np.asarray(weight @ np.stack([e for _, e in rows]) / weight.sum())
    return general or {0: np.ones(members)}


def _weights(errors: Array, general: Array, groups: int, order: NDArray[np.intp]) -> Array:
    level = float(errors.mean())
    shrunk = (groups * errors + _SHRINK * general * level) / (groups + _SHRINK)
    # A tie goes to the simpler: complexity costs up to 2% of the best error.
    rank = np.empty(len(errors))
    rank[order] = np.arange(len(errors))
    shrunk = shrunk * (1.0 + _TIE * rank / max(len(errors) - 1, 1))
    near = np.maximum(0.0, 1.0 - (shrunk / max(float(shrunk.min()), 1e-9) - 1.0) / _WINDOW)
    weight = near * near
    return np.asarray(weight / weight.sum())


def _calibrated(cases: Cases, truth: Array, ceilings: Array, weights: Array, without: Array) -> Choice:
    speeds = np.minimum(cases.predicted, ceilings[cases.rows])
    own = without[cases.group].T
    mean = (own * speeds).sum(axis=0)
    apart = np.sqrt((own * (speeds - mean) ** 2).sum(axis=0))
    error = truth[cases.rows] - mean
    # Each group counts the same, however many rows it has.
    share = 1.0 / np.bincount(cases.group)[cases.group]
    scale = _scale(np.abs(error), cases.spread, apart, share)
    sigma = scale[0] + scale[1] * cases.spread + scale[2] * apart
    counts = len(np.unique(cases.group))
    each = np.abs(speeds - truth[cases.rows]).mean(axis=1)
    return Choice(
        weights=tuple(weights.tolist()),
        errors=tuple(each.tolist()),
        error=float(np.abs(error).mean()),
        scale=scale,
        low=_multiple(_quantile(-error / sigma, share), counts),
        high=_multiple(_quantile(error / sigma, share), counts),
        groups=counts,
        cases=len(error),
    )


def _scale(error: Array, spread: Array, apart: Array, share: Array) -> tuple[float, float, float]:
    """Non-negative weights with which the expected error follows spread and disagreement."""
    from scipy.optimize import nnls

    root = np.sqrt(share)
    terms = np.stack([np.ones_like(error), spread, apart], axis=1)
    mean = float((share * error).sum() / share.sum())
    # A few cases of the plain average keep the fit tame.
    extra = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]) * np.sqrt(share.sum() * 0.2)
    goal = np.array([mean, mean * 0.5]) * np.sqrt(share.sum() * 0.2)
    found, _ = nnls(np.vstack([terms * root[:, None], extra]), np.concatenate([error * root, goal]))
    floor = 0.25 * mean + 0.005
    return max(float(found[0]), floor), float(found[1]), float(found[2])


def _multiple(quantile: float, groups: int) -> float:
    """Multiple of the scale to the end of an interval.

    A quantile over few groups is little more than their worst one, so it is drawn towards what is
    typical. And exchangeable groups call for a quantile beyond those seen, which a few do not
    have: instead of an infinite interval it is stretched, the more the fewer there are. The constants
    make groups of the public campaigns that were left out come out near 90%.
    """
    drawn = (groups * quantile + _PRIOR * _TYPICAL) / (groups + _PRIOR)
    return drawn * (1.06 + 0.4 / groups + 2.0 / groups**2)


def _quantile(score: Array, share: Array) -> float:
    """95% quantile of signed scores, groups weighted equally, on the safe side."""
    order = np.argsort(score)
    weight = share[order] / share.sum()
    level = 1.0 - (1.0 - _COVERAGE) / 2.0
    at = min(int(np.searchsorted(np.cumsum(weight), level)), len(score) - 1)
    return max(float(score[order][at]), 0.25)


def default_choice(members: int, error: float) -> Choice:
    """Where nothing could be judged: the mean of all members, and wide intervals."""
    return Choice(
        weights=(1.0 / members,) * members,
        errors=(error,) * members,
        error=error,
        scale=(error, 0.0, 1.0),
        low=2.5,
        high=2.5,
        groups=0,
        cases=0,
    )
