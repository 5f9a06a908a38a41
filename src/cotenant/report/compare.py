"""Policies compared: means with intervals over seeds, and pair by pair over the same jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from cotenant.errors import InputError
from cotenant.report.jobtable import SIZE_CLASSES, size_class
from cotenant.report.names import METRICS
from cotenant.report.rundir import Run

__all__ = [
    "Estimate",
    "GroupChange",
    "Pairing",
    "bootstrap",
    "by_policy",
    "estimates",
    "in_effect",
    "pair",
    "relative_change",
    "summary_frame",
]

RESAMPLES = 4000
LEVEL = 0.95
SAME_SHARE = 0.01
"""A job counts as better or worse when its completion time changes by more than this share."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean over seeds and the interval that resampling the seeds gives.

    ``low`` and ``high`` are None with fewer than two seeds: one run has no interval.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def excludes_zero(self) -> bool:
        """True if the interval lies wholly on one side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


class GroupChange(msgspec.Struct, frozen=True):
    """How one group of jobs fares: winners, losers and mean times under both policies."""

    group: str
    jobs: int
    better: float
    worse: float
    base_jct_s: float
    jct_s: float
    base_wait_s: float
    wait_s: float


class Pairing(msgspec.Struct, frozen=True):
    """One policy against another, over the same seeds and the same jobs.

    Parameters
    ----------
    seeds : tuple of int
        Seeds that both have.
    differences : dict
        For each metric, mean over seeds of (other - base).
    changes : dict
        The same as a share of the base; None inside where the base is not positive.
    speedup : Estimate
        Mean completion time under the base over that under the other, of the same jobs.
    better, worse : float or None
        Share of jobs whose completion time fell or rose by more than 1 %.
    longest_loss_s : float or None
        The largest rise of one job's wait.
    """

    base: str
    other: str
    seeds: tuple[int, ...]
    jobs: int
    differences: dict[str, Estimate]
    changes: dict[str, Estimate]
    speedup: Estimate
    better: float | None
    worse: float | None
    longest_loss_s: float | None
    by_size: tuple[GroupChange, ...]
    by_tenant: tuple[GroupChange, ...]


def bootstrap(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """Mean and percentile bootstrap interval (95 %), from a generator of its own.

    Source: Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 7(1), 1979.

    >>> bootstrap([3.0]).low is None, bootstrap([2.0, 2.0]).high
    (True, 2.0)
    """
    x: npt.NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        return Estimate(None, None, None, 0)
    if x.size == 1:
        return Estimate(float(x[0]), None, None, 1)
    draws = np.random.default_rng(seed).integers(0, x.size, size=(RESAMPLES, x.size))
    low, high = np.quantile(x[draws].mean(axis=1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Estimate(float(x.mean()), float(low), float(high), int(x.size))


def relative_change(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> Estimate:
    """Mean of ``after`` over mean of ``before``, less one; pairs are resampled together.

    >>> relative_change([2.0, 4.0], [1.0, 2.0]).mean
    -0.5
    """
    x, y = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if x.size == 0 or not (x > 0).all():
        return Estimate(None, None, None, int(x.size))
    mean = float(y.mean() / x.mean()) - 1.0
    if x.size == 1:
        return Estimate(mean, None, None, 1)
    draws = np.random.default_rng(seed).integers(0, x.size, size=(RESAMPLES, x.size))
    ratios = y[draws].mean(axis=1) / x[draws].mean(axis=1) - 1.0
    low, high = np.quantile(ratios, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Estimate(mean, float(low), float(high), int(x.size))


def by_policy(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of each policy, in the order given."""
    out: dict[str, list[Run]] = {}
    for run in runs:
        out.setdefault(run.policy, []).append(run)
    return out


def in_effect(runs: Sequence[Run]) -> list[Run]:
    """The runs, or those of the first seed where the seeds changed nothing at all.

    Where neither the workload nor anything else depends on the seed, more seeds are copies of
    one run; an interval from them would be a false certainty.
    """
    policies = by_policy(runs).values()
    if all(len(own) > 1 and all(_same(own[0], run) for run in own[1:]) for own in policies):
        return [own[0] for own in policies]
    return list(runs)


def _same(a: Run, b: Run) -> bool:
    first, second = a.metrics.summary, b.metrics.summary
    if any(first.get(m.key) != second.get(m.key) for m in METRICS):
        return False
    columns = ("name", "first_start_s", "end_s")
    return a.metrics.jobs.select(columns).equals(b.metrics.jobs.select(columns))


def _numbers(runs: Sequence[Run], key: str) -> list[float]:
    found = [run.metrics.summary.get(key) for run in runs]
    return [float(v) for v in found if v is not None]


def estimates(runs: Sequence[Run]) -> dict[str, Estimate]:
    """Each metric over the seeds of one policy; seeds without a value are left out and counted by ``n``."""
    return {metric.key: bootstrap(_numbers(runs, metric.key)) for metric in METRICS}


def pair(base: Sequence[Run], other: Sequence[Run]) -> Pairing:
    """Compare two policies over the seeds that both have.

    Raises
    ------
    InputError
        If under one seed the two ran different jobs.
    """
    common = _common(base, other)
    differences, changes = {}, {}
    for metric in METRICS:
        values = [(a.metrics.summary.get(metric.key), b.metrics.summary.get(metric.key)) for a, b in common]
        known = [(float(x), float(y)) for x, y in values if x is not None and y is not None]
        differences[metric.key] = bootstrap([y - x for x, y in known])
        changes[metric.key] = relative_change([x for x, _ in known], [y for _, y in known])
    frames = [_joined(a, b) for a, b in common]
    both = [f.filter(pl.col("jct_s").is_not_null() & pl.col("jct_base").is_not_null()) for f in frames]
    ratios = []
    for frame in both:
        before, after = float(frame["jct_base"].sum()), float(frame["jct_s"].sum())
        if before > 0 and after > 0:
            ratios.append(before / after)
    jobs = pl.concat(both) if both else None
    some = jobs is not None and jobs.height > 0
    size, tenant = ((), ()) if jobs is None else (_by_size(jobs), _groups(jobs, "tenant", _tenants(jobs)))
    loss = (
        jobs.select((pl.col("wait_s") - pl.col("wait_base")).max()).item()
        if jobs is not None and some
        else None
    )
    return Pairing(
        base=base[0].policy if base else "",
        other=other[0].policy if other else "",
        seeds=tuple(a.seed for a, _ in common),
        jobs=jobs.height if jobs is not None else 0,
        differences=differences,
        changes=changes,
        speedup=bootstrap(ratios),
        better=_share(jobs, _better()) if jobs is not None and some else None,
        worse=_share(jobs, _worse()) if jobs is not None and some else None,
        longest_loss_s=loss,
        by_size=size,
        by_tenant=tenant,
    )


def _common(base: Sequence[Run], other: Sequence[Run]) -> list[tuple[Run, Run]]:
    # Runs that were cut short have seen other jobs, or not all of them to their end.
    ours = {run.seed: run for run in other if run.complete}
    return [(run, ours[run.seed]) for run in base if run.seed in ours and run.complete]


def _joined(a: Run, b: Run) -> pl.DataFrame:
    before, after = a.metrics.jobs, b.metrics.jobs
    same = before.height == after.height and (before["name"] == after["name"]).all()
    if not same:
        raise InputError(
            f"{a.path} and {b.path} have the same seed but not the same jobs; they cannot be compared job by job"
        )
    old = before.select("id", jct_base="jct_s", wait_base="wait_s")
    return after.select("id", "name", "tenant", "gpus", "jct_s", "wait_s").join(
        old, on="id", maintain_order="left"
    )


def _better() -> pl.Expr:
    return pl.col("jct_s") < pl.col("jct_base") * (1 - SAME_SHARE)


def _worse() -> pl.Expr:
    return pl.col("jct_s") > pl.col("jct_base") * (1 + SAME_SHARE)


def _share(jobs: pl.DataFrame, which: pl.Expr) -> float:
    return float(jobs.select(which.mean()).item())


def _tenants(jobs: pl.DataFrame) -> list[str]:
    return sorted(jobs["tenant"].unique().to_list())


def _by_size(jobs: pl.DataFrame) -> tuple[GroupChange, ...]:
    names = pl.Series(SIZE_CLASSES, dtype=pl.String).gather(size_class(jobs["gpus"].to_numpy()))
    return _groups(jobs.with_columns(size=names), "size", list(SIZE_CLASSES))


def _groups(jobs: pl.DataFrame, column: str, order: Sequence[str]) -> tuple[GroupChange, ...]:
    found = jobs.group_by(column).agg(
        pl.len(),
        _better().mean().alias("better"),
        _worse().mean().alias("worse"),
        *(pl.col(c).mean() for c in ("jct_base", "jct_s", "wait_base", "wait_s")),
    )
    rows = {row[0]: GroupChange(*row) for row in found.iter_rows()}
    return tuple(rows[name] for name in order if name in rows)


def summary_frame(runs: Sequence[Run]) -> pl.DataFrame:
    """One row for each policy and metric: mean, interval, n, and the difference to the first policy."""
    policies = by_policy(runs)
    first = next(iter(policies.values()))
    rows: list[dict[str, Any]] = []
    for policy, own in policies.items():
        against = pair(first, own).differences if own is not first else {}
        for metric in METRICS:
            value, gap = bootstrap(_numbers(own, metric.key)), against.get(metric.key)
            rows.append(
                {
                    "policy": policy,
                    "metric": metric.key,
                    "mean": value.mean,
                    "low_95": value.low,
                    "high_95": value.high,
                    "seeds": value.n,
                    "difference": gap.mean if gap else None,
                    "difference_low_95": gap.low if gap else None,
                    "difference_high_95": gap.high if gap else None,
                    "better": metric.better or None,
                }
            )
    numbers = ("mean", "low_95", "high_95", "difference", "difference_low_95", "difference_high_95")
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(numbers, pl.Float64))
