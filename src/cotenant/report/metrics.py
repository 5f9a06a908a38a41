"""What is computed from one run. ``docs/metrics.md`` defines every number, with its unit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cotenant.report.jobtable import SIZE_CLASSES, Outcomes, size_class
from cotenant.report.occupancy import Channel, Occupancy

if TYPE_CHECKING:
    from cotenant.report.fold import MetricFold

__all__ = ["REASON_PREFIX", "RunMetrics", "build_metrics", "jain", "spread"]

Floats = npt.NDArray[Any]

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
        One row for each job.
    timeline : polars.DataFrame
        Means over at most 2,000 bins of time.
    summary : dict
        Plain JSON values; None where a value does not apply or is not known.
    devices : polars.DataFrame
        Residents and busy share by group of devices and time.
    segments : polars.DataFrame
        Exact residents of the first few devices.
    """

    def __init__(
        self,
        jobs: pl.DataFrame,
        timeline: pl.DataFrame,
        summary: dict[str, Any],
        devices: pl.DataFrame,
        segments: pl.DataFrame,
    ) -> None:
        self.jobs, self.timeline, self.summary = jobs, timeline, summary
        self.devices, self.segments = devices, segments


def build_metrics(fold: MetricFold, evidence: dict[str, float]) -> RunMetrics:
    """Turn what a fold has accumulated into frames and numbers."""
    end_s = fold.last_s if math.isfinite(fold.last_s) else 0.0
    start_s = end_s if fold.start_s is None else fold.start_s
    capacity = fold.devices.count if fold.devices is not None else 0
    jobs = fold.jobs.frame(end_s, capacity)
    timeline = _timeline(fold, end_s)
    summary: dict[str, Any] = {
        "policy": fold.opened.policy if fold.opened else None,
        "seed": fold.opened.seed if fold.opened else None,
        "version": fold.opened.version if fold.opened else None,
        "log_complete": fold.closed,
        "events": fold.events,
        "gpus": capacity,
        "window_s": end_s - start_s,
        **_counts(jobs),
        **_times(jobs, start_s, end_s),
        **_capacity(fold, jobs, timeline, start_s, end_s),
        **_fairness(fold, jobs),
        "preemptions": int(jobs["preemptions"].sum()),
        "evictions": fold.evictions,
        "preemption_cycles": fold.cycles,
        "moves": int(jobs["moves"].sum()),
        "refused": sum(fold.refused.values()),
        "refused_by_reason": dict(sorted(fold.refused.items())),
        "speeds_by_source": _evidence(evidence),
        "by_size": by_group(jobs, _size_names(jobs), end_s, list(SIZE_CLASSES)),
        "by_tenant": by_group(jobs, jobs["tenant"], end_s, sorted(jobs["tenant"].unique().to_list())),
    }
    return RunMetrics(jobs, timeline, summary, _device_frame(fold, end_s), _segment_frame(fold, jobs, end_s))


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


def _values(jobs: pl.DataFrame, column: str) -> Floats:
    return jobs[column].drop_nulls().to_numpy()


def _counts(jobs: pl.DataFrame) -> dict[str, Any]:
    found = dict(jobs["outcome"].value_counts().iter_rows())
    names = {"done": "finished", **{n: n for n in Outcomes.NAMES if n != "done"}}
    counts = {f"jobs_{label}": int(found.get(name, 0)) for name, label in names.items()}
    return {"jobs_submitted": jobs.height, **counts}


def _times(jobs: pl.DataFrame, start_s: float, end_s: float) -> dict[str, Any]:
    # Only the columns needed: a filter copies, and names of a million jobs are large.
    over = jobs.select("slowdown", "jct_s", "work_s", "corun_slowdown").filter(
        pl.col("slowdown").is_not_null()
    )
    ended = jobs.select("jct_s", "end_s").filter(pl.col("jct_s").is_not_null())
    last = ended["end_s"].max()
    bounded = np.maximum(1.0, _values(over, "jct_s") / np.maximum(_values(over, "work_s"), 10.0))
    slow = spread(_values(over, "slowdown"), "slowdown")
    return {
        "makespan_s": None if last is None else float(last) - start_s,  # type: ignore[arg-type]
        **spread(_values(ended, "jct_s"), "jct_s"),
        **spread(_values(jobs, "wait_s"), "wait_s"),
        "longest_wait_s": _longest_wait(jobs, end_s),
        **slow,
        "bounded_slowdown_mean": float(bounded.mean()) if bounded.size else None,
        **spread(_values(over, "corun_slowdown"), "corun_slowdown"),
    }


def _longest_wait(jobs: pl.DataFrame, end_s: float) -> float | None:
    # A job that still waits counts with what it has waited so far: else starving it would look good.
    waits = jobs.select(
        pl.when(pl.col("outcome") == "waiting")
        .then(pl.max_horizontal(pl.col("wait_s").fill_null(0.0), end_s - pl.col("submit_s")))
        .otherwise(pl.col("wait_s"))
        .max()
    ).item()
    return None if waits is None else float(waits)


def _capacity(
    fold: MetricFold, jobs: pl.DataFrame, timeline: pl.DataFrame, start_s: float, end_s: float
) -> dict[str, Any]:
    names = ("available", "allocated", "busy", "shared", "goodput", "free", "stranded")
    widths = timeline["width_s"].to_numpy()
    total = {n: _integral(timeline, f"{n}_gpus", widths) for n in names}
    window, have = end_s - start_s, total["available"]
    useful = float((jobs["work_s"] * jobs["gpus"]).sum()) if jobs.height else 0.0
    lost = float((jobs["lost_s"] * jobs["gpus"]).sum()) if jobs.height else 0.0
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


def _fairness(fold: MetricFold, jobs: pl.DataFrame) -> dict[str, Any]:
    rho = _values(jobs, "rho")
    weights = {t.name: t.weight for t in fold.opened.cluster.tenants} if fold.opened else {}
    served = (
        jobs.group_by("tenant").agg((pl.col("work_s") * pl.col("gpus")).sum().alias("gpu_s")).sort("tenant")
    )
    shares = [amount / weights.get(tenant, 1.0) for tenant, amount in served.iter_rows()]
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


def _size_names(jobs: pl.DataFrame) -> pl.Series:
    return pl.Series(SIZE_CLASSES, dtype=pl.String).gather(size_class(jobs["gpus"].to_numpy()))


_GROUPED = (
    "wait_s",
    "jct_s",
    "corun_slowdown",
    "first_start_s",
    "submit_s",
    "outcome",
    "work_s",
    "gpus",
    "gpu_s",
)


def by_group(jobs: pl.DataFrame, key: pl.Series, end_s: float, names: list[str]) -> dict[str, Any]:
    """Counts, waits and completion times for each group that has a job."""
    out: dict[str, Any] = {}
    numbers = jobs.select(_GROUPED)
    for name in names:
        part = numbers.filter(key == name)
        if not part.height:
            continue
        wait, jct = spread(_values(part, "wait_s"), "wait_s"), spread(_values(part, "jct_s"), "jct_s")
        slow = spread(_values(part, "corun_slowdown"), "corun_slowdown")
        out[name] = {
            "jobs": part.height,
            "started": part["first_start_s"].count(),
            **{k: wait[k] for k in ("wait_s_mean", "wait_s_median", "wait_s_p95")},
            "longest_wait_s": _longest_wait(part, end_s),
            **{k: jct[k] for k in ("jct_s_mean", "jct_s_p95")},
            "corun_slowdown_mean": slow["corun_slowdown_mean"],
            "useful_gpu_hours": float((part["work_s"] * part["gpus"]).sum()) / 3600.0,
            "held_gpu_hours": float(part["gpu_s"].sum()) / 3600.0,
        }
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


def _segment_frame(fold: MetricFold, jobs: pl.DataFrame, end_s: float) -> pl.DataFrame:
    found = fold.devices.segments(end_s) if fold.devices is not None else []
    schema = {"device": pl.Int64, "id": pl.Int64, "from_s": pl.Float64, "to_s": pl.Float64}
    frame = pl.DataFrame(found, schema=schema, orient="row")
    return frame.join(jobs.select("id", "name", "gpus", "model"), on="id", how="left", maintain_order="left")
