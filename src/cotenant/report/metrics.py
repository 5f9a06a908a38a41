"""What is computed from one run. ``docs/metrics.md`` defines every number, with its unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cotenant.report.calibration import FORETOLD_SCHEMA, calibrated
from cotenant.report.columns import stable_order
from cotenant.report.jobrows import JobRows
from cotenant.report.jobtable import SIZE_CLASSES, Outcomes, size_class
from cotenant.report.occupancy import Channel, Occupancy
from cotenant.report.runtimes import runtimes

if TYPE_CHECKING:
    from cotenant.report.fold import MetricFold

__all__ = ["REASON_PREFIX", "RunMetrics", "build_metrics", "jain", "spread"]

Floats = npt.NDArray[Any]
Ints = npt.NDArray[Any]

MAX_BINS = 2000
HEAT_BINS = 200
REASON_PREFIX = "waiting:"
"""Prefix of timeline columns that count waiting jobs by reason."""

_TIMELINE = {
    "available_gpus": Channel.AVAILABLE,
    "allocated_gpus": Channel.ALLOCATED,
    "busy_gpus": Channel.BUSY,
    "shared_gpus": Channel.SHARED,
    "reserved_idle_gpus": Channel.RESERVED,
    "free_gpus": Channel.FREE,
    "goodput_gpus": Channel.GOODPUT,
    "running_jobs": Channel.RUNNING,
    "queue_jobs": Channel.QUEUE_JOBS,
    "queue_gpus": Channel.QUEUE_GPUS,
    "largest_placeable_gpus": Channel.PLACEABLE,
    "stranded_gpus": Channel.STRANDED,
    "fragmentation": Channel.FRAGMENT,
}
_NEEDS_RATES = ("busy_gpus", "goodput_gpus")


class RunMetrics:
    """Metrics of one run.

    Attributes
    ----------
    jobs : polars.DataFrame
        One row for each job; made when it is first asked for.
    timeline : polars.DataFrame
        Means over at most 2,000 bins of time.
    summary : dict
        Plain JSON values; None where a value does not apply or is not known.
    devices : polars.DataFrame
        Residents and busy share by group of devices and time.
    segments : polars.DataFrame
        Exact residents of the first few devices.
    foretold : polars.DataFrame
        What was foretold of each model in each set, and what happened.
    """

    def __init__(
        self,
        jobs: pl.DataFrame | JobRows,
        timeline: pl.DataFrame,
        summary: dict[str, Any],
        devices: pl.DataFrame,
        segments: pl.DataFrame,
        *,
        foretold: pl.DataFrame | None = None,
    ) -> None:
        self._jobs, self.timeline, self.summary = jobs, timeline, summary
        self.devices, self.segments = devices, segments
        self.foretold = pl.DataFrame(schema=FORETOLD_SCHEMA) if foretold is None else foretold

    @property
    def jobs(self) -> pl.DataFrame:
        """One row for each job."""
        if isinstance(self._jobs, JobRows):
            self._jobs = self._jobs.frame()
        return self._jobs

    def write_jobs(self, path: Path) -> None:
        """Write the jobs to Parquet, without making the whole table first."""
        if isinstance(self._jobs, JobRows):
            self._jobs.write_parquet(path)
        else:
            self._jobs.write_parquet(path, compression="zstd")


def build_metrics(fold: MetricFold, evidence: dict[str, float]) -> RunMetrics:
    """Turn what a fold has accumulated into frames and numbers."""
    end_s = fold.last_s if math.isfinite(fold.last_s) else 0.0
    start_s = end_s if fold.start_s is None else fold.start_s
    capacity = fold.devices.count if fold.devices is not None else 0
    jobs = fold.rows(end_s, capacity)
    timeline = _timeline(fold, end_s)
    foretold, calibration = calibrated(fold.company, end_s)
    summary: dict[str, Any] = {
        "policy": fold.opened.policy if fold.opened else None,
        "seed": fold.opened.seed if fold.opened else None,
        "version": fold.opened.version if fold.opened else None,
        "log_complete": fold.closed,
        "interrupted": fold.interrupted,
        "events": fold.events,
        "gpus": capacity,
        "window_s": end_s - start_s,
        **_counts(jobs),
        **_times(jobs, start_s, end_s),
        **_capacity(fold, jobs, timeline, start_s, end_s),
        **_fairness(fold, jobs),
        "preemptions": int(jobs.column("preemptions").sum()),
        "evictions": fold.evictions,
        "preemption_cycles": fold.cycles,
        "moves": int(jobs.column("moves").sum()),
        "refused": sum(fold.refused.values()),
        "refused_by_reason": dict(sorted(fold.refused.items())),
        "rejected_by_reason": dict(sorted(fold.rejected.items())),
        "speeds_by_source": _evidence(evidence),
        **calibration,
        **runtimes(jobs),
        "by_size": by_group(jobs, size_class(jobs.column("gpus")), list(SIZE_CLASSES), end_s),
        "by_tenant": dict(sorted(by_group(jobs, jobs.column("tenant"), jobs.words("tenant"), end_s).items())),
    }
    devices, segments = _device_frame(fold, end_s), _segment_frame(fold, jobs, end_s)
    return RunMetrics(jobs, timeline, summary, devices, segments, foretold=foretold)


def spread(values: npt.ArrayLike, name: str) -> dict[str, float | None]:
    """Mean, median, 95th and 99th percentile (linear between ranks); None for no values.

    >>> spread([1.0, 3.0], "wait_s")["wait_s_mean"]
    2.0
    """
    found: Floats = np.asarray(values, dtype=np.float64)
    if found.size == 0:
        return dict.fromkeys((f"{name}_mean", f"{name}_median", f"{name}_p95", f"{name}_p99"), None)
    middle, high, top = np.percentile(found, (50, 95, 99))
    return {
        f"{name}_mean": float(found.mean()),
        f"{name}_median": float(middle),
        f"{name}_p95": float(high),
        f"{name}_p99": float(top),
    }


def jain(amounts: npt.ArrayLike) -> float | None:
    """Jain's index: 1 if all get the same, 1/n if one gets everything; None if nobody gets anything.

    Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.

    >>> jain([1, 1, 1, 1]), jain([1, 0])
    (1.0, 0.5)
    """
    x: Floats = np.asarray(amounts, dtype=np.float64)
    square = float((x * x).sum())
    return float(x.sum()) ** 2 / (x.size * square) if square > 0 else None


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _sum(values: Floats) -> float:
    return float(pl.Series(values).sum())


def _counts(jobs: JobRows) -> dict[str, Any]:
    found = np.bincount(jobs.column("outcome"), minlength=len(Outcomes.NAMES)).tolist()
    names = {"done": "finished", **{n: n for n in Outcomes.NAMES if n != "done"}}
    counts = {f"jobs_{label}": found[Outcomes.NAMES.index(name)] for name, label in names.items()}
    never = np.isnan(jobs.column("first_start_s")) & (jobs.column("outcome") == Outcomes.WAITING)
    return {"jobs_submitted": jobs.height, **counts, "jobs_never_started": int(never.sum())}


def _times(jobs: JobRows, start_s: float, end_s: float) -> dict[str, Any]:
    # Of a million jobs a column is 8 MB: each is let go before the next is made.
    found: dict[str, Any] = {}
    jct = jobs.column("jct_s")
    last = jobs.column("end_s")[~np.isnan(jct)].max(initial=-np.inf)
    found["makespan_s"] = None if math.isinf(last) else float(last) - start_s
    found |= spread(_known(jct), "jct_s")
    slowdown = jobs.column("slowdown")
    over = ~np.isnan(slowdown)
    slowed = spread(slowdown[over], "slowdown")
    del slowdown
    bounded = np.maximum(1.0, jct[over] / np.maximum(jobs.column("work_s")[over], 10.0))
    slowed["bounded_slowdown_mean"] = float(bounded.mean()) if bounded.size else None
    del bounded, jct
    wait = jobs.column("wait_s")
    ran = ~np.isnan(wait)
    found |= spread(wait[ran], "wait_s")
    longest = _longest(_waits(jobs, wait, end_s))
    del wait
    queued = jobs.column("queued_s")
    found |= spread(queued[ran], "queued_s")
    ran |= jobs.column("outcome") == Outcomes.WAITING
    found |= {"longest_wait_s": longest, "longest_queued_s": _longest(queued[ran]), **slowed}
    del queued
    return found | spread(jobs.column("corun_slowdown")[over], "corun_slowdown")


def _waits(jobs: JobRows, wait_s: Floats, end_s: float) -> Floats:
    # A job that still waits counts with what it has waited so far: else starving it would look good.
    waits = wait_s.copy()
    still = np.flatnonzero(jobs.column("outcome") == Outcomes.WAITING)
    waits[still] = np.fmax(np.nan_to_num(wait_s[still]), end_s - jobs.column("submit_s")[still])
    return waits


def _longest(waits_s: Floats) -> float | None:
    found = _known(waits_s)
    return float(found.max()) if found.size else None


def _capacity(
    fold: MetricFold, jobs: JobRows, timeline: pl.DataFrame, start_s: float, end_s: float
) -> dict[str, Any]:
    names = ("available", "allocated", "busy", "shared", "goodput", "free", "stranded")
    widths = timeline["width_s"].to_numpy()
    total = {n: _integral(timeline, f"{n}_gpus", widths) for n in names}
    window, have = end_s - start_s, total["available"]
    useful = _sum(jobs.column("kept_s") * jobs.column("gpus"))
    lost = _sum(jobs.column("lost_s") * jobs.column("gpus"))
    busy, allocated = total["busy"], total["allocated"]
    holes = fold.devices.holes if fold.devices is not None else None
    fragment_s = _integral(timeline, "fragmentation", widths)
    free_s = _integral(timeline, "any_free", widths)
    hours = {
        "gpu_hours_available": have,
        "gpu_hours_allocated": allocated,
        "gpu_hours_busy": busy,
        "gpu_hours_overhead": None if busy is None or allocated is None else max(0.0, allocated - busy),
        "gpu_hours_useful": useful,
        "gpu_hours_lost": lost,
    }
    placeable = _integral(timeline, "largest_placeable_gpus", widths)
    return {
        **{k: None if v is None or not window else v / 3600.0 for k, v in hours.items()},
        "goodput_gpus_mean": useful / window if window > 0 else None,
        "goodput_share": _ratio(useful, have),
        "allocated_share": _ratio(allocated, have),
        "busy_share": _ratio(busy, have),
        "shared_share": _ratio(total["shared"], have),
        "stranded_share": _ratio(total["stranded"], have),
        "fragmentation_mean": _ratio(fragment_s, free_s),
        "largest_placeable_gpus_mean": None if placeable is None else placeable / window,
        "largest_placeable_gpus_min": holes.lowest(end_s) if holes is not None and window > 0 else None,
        "energy_kwh": _energy(fold, start_s, end_s),
    }


def _integral(timeline: pl.DataFrame, column: str, widths: Floats) -> float | None:
    if timeline.height == 0 or timeline[column].null_count():
        return None
    return float((timeline[column].to_numpy() * widths).sum())


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _energy(fold: MetricFold, start_s: float, end_s: float) -> float | None:
    devices, opened = fold.devices, fold.opened
    if devices is None or opened is None or not fold.rated or end_s <= start_s or devices.count == 0:
        return None
    types = [opened.cluster.types[i] for i in np.unique(devices.type_of)]
    if any(kind.power_w <= 0 for kind in types):
        return None
    power = np.array([kind.power_w for kind in opened.cluster.types])[devices.type_of]
    idle = np.array([kind.idle_w for kind in opened.cluster.types])[devices.type_of]
    _, busy_s = devices.seconds(end_s)
    return float((busy_s * power + (end_s - start_s - busy_s) * idle).sum()) / 3.6e6


def _fairness(fold: MetricFold, jobs: JobRows) -> dict[str, Any]:
    rho = _known(jobs.column("rho"))
    weights = {t.name: t.weight for t in fold.opened.cluster.tenants} if fold.opened else {}
    tenants, useful = jobs.words("tenant"), jobs.column("kept_s") * jobs.column("gpus")
    served = pl.DataFrame({"tenant": jobs.column("tenant"), "gpu_s": useful}).group_by("tenant").sum()
    amounts = sorted((tenants[code], amount) for code, amount in served.iter_rows())
    shares = [amount / weights.get(tenant, 1.0) for tenant, amount in amounts]
    several = len(shares) > 1
    return {
        "jain_tenants": jain(shares) if several else None,
        "rho_mean": float(rho.mean()) if rho.size else None,
        "rho_p95": float(np.percentile(rho, 95)) if rho.size else None,
        "rho_max": float(rho.max()) if rho.size else None,
        "rho_above_1_share": float((rho > 1).mean()) if rho.size else None,
    }


def _evidence(evidence: dict[str, float]) -> dict[str, float] | None:
    total = sum(evidence.values())
    return {k: v / total for k, v in sorted(evidence.items())} if total > 0 else None


def by_group(jobs: JobRows, key: Ints, names: list[str], end_s: float) -> dict[str, Any]:
    """Counts, waits and completion times for each group that has a job; ``key`` indexes ``names``."""
    order = stable_order(key, len(names))
    ends = np.cumsum(np.bincount(key, minlength=len(names))).tolist()
    groups = [(i, slice(a, b)) for i, (a, b) in enumerate(pairwise([0, *ends])) if b > a]
    out: dict[str, dict[str, Any]] = {names[i]: {"jobs": part.stop - part.start} for i, part in groups}

    def each(values: npt.NDArray[Any], tell: Callable[[Floats], dict[str, Any]]) -> None:
        values = values[order]
        for i, part in groups:
            out[names[i]] |= tell(values[part])

    def spread_of(name: str, *parts: str) -> Callable[[Floats], dict[str, Any]]:
        keys = [f"{name}_{part}" for part in parts]
        return lambda v: {k: x for k, x in spread(_known(v), name).items() if k in keys}

    wait, gpus = jobs.column("wait_s"), jobs.column("gpus")
    each(jobs.column("first_start_s"), lambda v: {"started": _known(v).size})
    each(wait, spread_of("wait_s", "mean", "median", "p95"))
    each(_waits(jobs, wait, end_s), lambda v: {"longest_wait_s": _longest(v)})
    each(jobs.column("jct_s"), spread_of("jct_s", "mean", "p95"))
    each(jobs.column("corun_slowdown"), spread_of("corun_slowdown", "mean"))
    each(jobs.column("kept_s") * gpus, lambda v: {"useful_gpu_hours": _sum(v) / 3600.0})
    each(jobs.column("gpu_s"), lambda v: {"held_gpu_hours": _sum(v) / 3600.0})
    return out


def _timeline(fold: MetricFold, end_s: float) -> pl.DataFrame:
    columns: dict[str, Any] = {"start_s": [], "width_s": [], **{name: [] for name in _TIMELINE}}
    columns["any_free"] = []
    if fold.devices is None or fold.reason_bins is None:
        return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))
    starts, widths, means = fold.devices.bins.means(end_s, MAX_BINS)
    columns = {"start_s": starts, "width_s": widths}
    for name, channel in _TIMELINE.items():
        known = fold.rated or name not in _NEEDS_RATES
        columns[name] = means[channel] if known else pl.Series([None] * starts.size, dtype=pl.Float64)
    columns["any_free"] = means[Channel.ANY_FREE]
    reasons = fold.jobs.reasons.words
    fold.reason_bins.grow(len(reasons))
    # Its bins may still be narrower: they have seen no event as late as the others have.
    while fold.reason_bins.width_s < fold.devices.bins.width_s:
        fold.reason_bins.merge()
    _, _, waits = fold.reason_bins.means(end_s, MAX_BINS)
    for i, reason in enumerate(reasons):
        if waits[i].any():
            columns[REASON_PREFIX + reason] = waits[i]
    return pl.DataFrame(columns)


def _device_frame(fold: MetricFold, end_s: float) -> pl.DataFrame:
    schema = {"group": pl.Int64, "start_s": pl.Float64, "width_s": pl.Float64}
    schema |= {"devices": pl.Int64, "residents": pl.Float64, "busy": pl.Float64}
    if fold.devices is None or fold.devices.count == 0:
        return pl.DataFrame(schema=schema)
    devices: Occupancy = fold.devices
    starts, widths, means = devices.heat.means(end_s, HEAT_BINS)
    sizes = np.bincount(devices.heat_row)
    rows, bins = sizes.size, starts.size
    per = means / np.r_[sizes, sizes][:, None]
    return pl.DataFrame(
        {
            "group": np.repeat(np.arange(rows), bins),
            "start_s": np.tile(starts, rows),
            "width_s": np.tile(widths, rows),
            "devices": np.repeat(sizes, bins),
            "residents": per[:rows].ravel(),
            "busy": per[rows:].ravel(),
        },
        schema=schema,
    )


def _segment_frame(fold: MetricFold, jobs: JobRows, end_s: float) -> pl.DataFrame:
    found = fold.devices.segments(end_s) if fold.devices is not None else []
    schema = {"device": pl.Int64, "id": pl.Int64, "from_s": pl.Float64, "to_s": pl.Float64}
    frame = pl.DataFrame(found, schema=schema, orient="row")
    known = jobs.some(np.unique(frame["id"].to_numpy())).select("id", "name", "gpus", "model")
    return frame.join(known, on="id", how="left", maintain_order="left")
