"""From results to a ranking: ratios to the best in each world, intervals over seeds, paired tests.

A world is a scenario with a seed; there all policies meet the same jobs, failures and speeds. In each
the ratio to the best is taken, metric by metric; a policy's score is the geometric mean over scenarios
of the geometric mean over seeds. Waits are compared with a minute added, since a ratio to a wait of
zero says nothing. The overall score is the geometric mean of those of mean completion time, 99th
percentile of waits for the first start, and makespan. Beside it stand the same percentile of all waits of
a job, those after suspensions included (whoever starts everybody at once and stops them again has no
first waits), and the largest slowdown by neighbours, which whoever never shares would win by itself. Perfect forecasts bound what could be gained and count for no rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.tournament.play import METRICS, Played

__all__ = ["JUDGED", "OVERALL", "Grid", "Row", "Score", "grid_of", "holm", "rank", "scores_by"]

Array = NDArray[np.float64]

JUDGED = METRICS[:3]
"""What makes up the overall score."""

OVERALL = "overall"
RESAMPLES = 2000
_ADDED = {"wait_s_p99": 60.0, "queued_s_p99": 60.0}
_SAME = 0.01


class Score(msgspec.Struct, frozen=True):
    """Geometric mean of ratios to the best, and its 95% bootstrap interval over seeds."""

    mean: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's place.

    Parameters
    ----------
    scores : dict
        By metric, and ``overall``.
    wins, losses : int
        Scenarios in which it does better, or worse, than the leader by more than 1% overall.
    p_value : float or None
        Two-sided Wilcoxon signed-rank test of its overall score against the leader's, over scenarios,
        after Holm; None for the leader, and where there are too few.
    firsts : int
        Scenarios in which its mean completion time is the least.
    failed : int
        Worlds in which it raised an error or left jobs behind; it then stands behind those that did not.
    best_in, worst_in : str
        Scenarios in which its overall score is nearest to, and farthest from, the best of all policies.
    """

    policy: str
    scores: dict[str, Score]
    wins: int
    losses: int
    p_value: float | None
    firsts: int
    failed: int
    best_in: str
    worst_in: str


class Grid:
    """Logarithms of ratios to the best.

    Attributes
    ----------
    policies, scenarios : list of str
    logs : dict of str to array
        By metric (and ``overall``): shape (policies, scenarios, seeds), NaN where there is no result.
    failed : array
        Worlds by policy in which it failed.
    """

    def __init__(
        self,
        policies: Sequence[str],
        scenarios: Sequence[str],
        logs: dict[str, Array],
        failed: NDArray[np.int64],
    ) -> None:
        self.policies, self.scenarios = list(policies), list(scenarios)
        self.logs, self.failed = logs, failed

    def means(self, metric: str) -> Array:
        """Mean over seeds, shape (policies, scenarios)."""
        return _mean(self.logs[metric], 2)


def _mean(values: Array, axis: int) -> Array:
    """Mean without NaN; NaN where nothing is left."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def grid_of(results: Iterable[Played], policies: Sequence[str]) -> Grid:
    """Arrange results; policies in the order given, scenarios as they first appear."""
    results = list(results)
    scenarios = list(dict.fromkeys(_scenario(r) for r in results))
    seeds = sorted({r.seed for r in results})
    at = {(r.policy, _scenario(r), r.seed): r for r in results}
    shape = (len(policies), len(scenarios), len(seeds))
    values = {metric: np.full(shape, np.nan) for metric in METRICS}
    failed = np.zeros(len(policies), np.int64)
    for j, scenario in enumerate(scenarios):
        for k, seed in enumerate(seeds):
            there = [at.get((policy, scenario, seed)) for policy in policies]
            most = max((r.values.get("jobs_finished") or 0.0 for r in there if r is not None), default=0.0)
            for i, found in enumerate(there):
                if found is None:
                    continue
                if not _whole(found, most):
                    failed[i] += 1
                    continue
                for metric in METRICS:
                    value = found.values.get(metric)
                    values[metric][i, j, k] = math.nan if value is None else value + _ADDED.get(metric, 0.0)
    logs = {metric: _against_best(found) for metric, found in values.items()}
    logs[OVERALL] = np.mean([logs[metric] for metric in JUDGED], axis=0)
    return Grid(policies, scenarios, logs, failed)


def _scenario(result: Played) -> str:
    return f"{result.workload}-{result.load:g}-{result.condition}"


def _whole(result: Played, most: float) -> bool:
    finished = result.values.get("jobs_finished") or 0.0
    return not result.error and not result.values.get("jobs_unfinished") and finished >= most


def _against_best(values: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.where(values > 0, values, np.nan))
    best = np.where(np.isnan(logs), np.inf, logs).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(best), logs - best, np.nan)


def rank(grid: Grid, *, seed: int = 0) -> list[Row]:
    """Rows from first to last; equal inputs give equal rows."""
    counted = [j for j, name in enumerate(grid.scenarios) if not name.endswith("perfect-forecast")]
    counted = counted or list(range(len(grid.scenarios)))
    logs = {metric: found[:, counted] for metric, found in grid.logs.items()}
    means = _mean(logs[OVERALL], 2)
    overall = _mean(means, 1)
    order = sorted(
        range(len(grid.policies)),
        key=lambda i: (grid.failed[i] > 0, np.inf if np.isnan(overall[i]) else overall[i], grid.policies[i]),
    )
    leader = order[0]
    p_values = holm([_p_value(means[i], means[leader]) if i != leader else None for i in order])
    intervals = {metric: _intervals(found, seed) for metric, found in logs.items()}
    names = [grid.scenarios[j] for j in counted]
    first = _firsts(_mean(logs["jct_s_mean"], 2))
    rows = []
    for i, p in zip(order, p_values, strict=True):
        gap = means[i] - means[leader]
        known = np.flatnonzero(~np.isnan(means[i]))
        ranked = known[np.argsort(means[i][known], kind="stable")]
        rows.append(
            Row(
                policy=grid.policies[i],
                scores={metric: Score(*(float(a[i]) for a in found)) for metric, found in intervals.items()},
                wins=int((gap < -_SAME).sum()),
                losses=int((gap > _SAME).sum()),
                p_value=p,
                firsts=int(first[i]),
                failed=int(grid.failed[i]),
                best_in=names[ranked[0]] if len(ranked) else "",
                worst_in=names[ranked[-1]] if len(ranked) else "",
            )
        )
    return rows


def _firsts(means: Array) -> NDArray[np.int64]:
    filled = np.where(np.isnan(means), np.inf, means)
    best = filled.min(axis=0, initial=np.inf)
    return np.asarray((np.isfinite(filled) & (filled <= best + 1e-12)).sum(axis=1), np.int64)


def _intervals(logs: Array, seed: int) -> tuple[Array, Array, Array]:
    """Mean, and 2.5% and 97.5% of it when the seeds of each scenario are drawn anew."""
    policies, scenarios, seeds = logs.shape
    rng = np.random.default_rng(seed)
    # How often each seed of each scenario is drawn, in every resample.
    often = rng.multinomial(seeds, np.full(seeds, 1.0 / seeds), size=(RESAMPLES, scenarios)).astype(
        np.float64
    )
    known = (~np.isnan(logs)).astype(np.float64)
    filled = np.where(np.isnan(logs), 0.0, logs)
    low, high = np.full(policies, np.nan), np.full(policies, np.nan)
    for i in range(policies):
        if known[i].any():
            count = (often * known[i]).sum(axis=2)
            total = (often * filled[i]).sum(axis=2)
            means = np.where(count > 0, total / np.maximum(count, 1.0), np.nan)
            low[i], high[i] = np.nanquantile(_mean(means, 1), (0.025, 0.975))
    return np.exp(_mean(_mean(logs, 2), 1)), np.exp(low), np.exp(high)


def _p_value(own: Array, leader: Array) -> float | None:
    from scipy.stats import wilcoxon

    gap = own - leader
    gap = gap[~np.isnan(gap)]
    if len(gap) < 6 or not np.any(np.abs(gap) > 1e-12):
        return None
    return float(wilcoxon(gap).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction for many tests; None stays None.

    Source: Holm, Scandinavian Journal of Statistics 6(2), 1979.

    >>> holm([None, 0.01, 0.04])
    [None, 0.02, 0.04]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    found: list[float | None] = [None] * len(p_values)
    least = 0.0
    for place, (p, i) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - place)))
        found[i] = least
    return found


def scores_by(grid: Grid, metric: str, part: int) -> dict[str, dict[str, float]]:
    """Score by policy and part of the scenario's name: 0 workload, 1 load, 2 condition.

    Workloads and loads are those of the base condition.
    """
    means = grid.means(metric)
    found: dict[str, dict[str, float]] = {policy: {} for policy in grid.policies}
    split = [name.split("-", 2) for name in grid.scenarios]
    middle = {words[1] for words in split if words[2] != "base"} or {words[1] for words in split}
    parts = dict.fromkeys(words[part] for words in split)
    for value in parts:
        columns = [
            j
            for j, words in enumerate(split)
            if words[part] == value and (words[2] == "base" if part < 2 else words[1] in middle)
        ]
        over = _mean(means[:, columns], 1)
        for i, policy in enumerate(grid.policies):
            if not np.isnan(over[i]):
                found[policy][value] = float(np.exp(over[i]))
    return found
