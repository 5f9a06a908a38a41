"""The charts of the report, as Vega-Lite specifications with their data inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from cotenant.report.calibrationcharts import foretold, inside
from cotenant.report.chartparts import (
    TIME_AXIS,
    Chart,
    binned,
    chart,
    finished,
    policy_colour,
    rounded,
    start_of,
    time_axis,
    time_unit,
)
from cotenant.report.devicecharts import gantt, heat
from cotenant.report.jobtable import SIZE_CLASSES, size_class
from cotenant.report.metrics import REASON_PREFIX
from cotenant.report.rundir import Run
from cotenant.report.runtimecharts import expected, lengths
from cotenant.report.tables import show

__all__ = ["all_charts"]

QUANTILES = 160
BINS = 240
MOST_REASONS = 7
MOST_PANELS = 5


def all_charts(policies: dict[str, list[Run]]) -> list[Chart]:
    """Every chart of the report, in order."""
    firsts = {name: runs[0] for name, runs in list(policies.items())[:MOST_PANELS]}
    span = max((r.metrics.summary.get("window_s") or 0.0 for r in firsts.values()), default=0.0)
    most = max([1.0, *(float(r.metrics.devices["residents"].max() or 0) for r in firsts.values())])  # type: ignore[arg-type]
    reasons = _main_reasons(list(firsts.values()))
    return [
        _distribution(policies, "jct_s", "Completion time", "from submission to end"),
        _distribution(policies, "wait_s", "Wait", "from submission to first start"),
        _waits_by_size(policies),
        _queue(firsts, span),
        *(_capacity(name, run, span) for name, run in firsts.items()),
        *(_limits(name, run, span, reasons) for name, run in firsts.items()),
        *(
            draw(name, run)
            for name, run in firsts.items()
            for draw in (foretold, inside)
            if run.metrics.foretold.height
        ),
        *(
            draw(name, run)
            for name, run in firsts.items()
            for draw in (expected, lengths)
            if run.metrics.summary.get("runtime_jobs")
        ),
        *(heat(name, run, span, most) for name, run in firsts.items()),
        *(gantt(name, run) for name, run in firsts.items()),
    ]


def _distribution(policies: dict[str, list[Run]], column: str, title: str, what: str) -> Chart:
    import altair as alt

    rows, zero = [], {}
    for name, runs in policies.items():
        values = np.concatenate([r.metrics.jobs[column].drop_nulls().to_numpy() for r in runs])
        if not values.size:
            continue
        zero[name] = float((values < 1.0).mean())
        shares = np.linspace(0.0, 1.0, QUANTILES)
        for share, value in zip(shares, np.quantile(values, shares), strict=True):
            rows.append(
                {"policy": show(name), "x": rounded(max(float(value), 1.0)), "share": rounded(float(share))}
            )
    text = f"Share of jobs whose {title.lower()} ({what}) is at most x, all seeds together. Further left is better."
    if column == "wait_s":
        at_once = "; ".join(f"{show(n)} {100 * z:.0f} %" for n, z in zero.items())
        text += f" Started within a second (drawn at 1 s): {at_once}."
    spec = (
        chart()
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(type="log"), title=f"{title} (log scale)", axis=TIME_AXIS),
            y=alt.Y("share:Q", title="Share of jobs", axis=alt.Axis(format="%")),
            color=policy_colour(policies),
            tooltip=[
                alt.Tooltip("policy:N", title="policy"),
                alt.Tooltip("x:Q", title="seconds", format=",.0f"),
                alt.Tooltip("share:Q", title="share of jobs", format=".1%"),
            ],
        )
    )
    return Chart(
        f"cdf-{column}",
        f"{title}, distribution",
        text,
        finished(spec, rows),
        empty="No job has such a time yet.",
    )


def _waits_by_size(policies: dict[str, list[Run]]) -> Chart:
    import altair as alt

    rows = []
    for name, runs in policies.items():
        jobs = pl.concat([r.metrics.jobs.select("gpus", "wait_s") for r in runs])
        index = size_class(jobs["gpus"].to_numpy())
        for i, label in enumerate(SIZE_CLASSES):
            waits = jobs.filter(pl.Series(index == i))["wait_s"].drop_nulls().to_numpy()
            if waits.size:
                mean, high = float(waits.mean()), float(np.percentile(waits, 95))
                row = {
                    "policy": show(name),
                    "size": label,
                    "mean": rounded(mean / 60),
                    "p95": rounded(high / 60),
                }
                rows.append(row | {"jobs": int(waits.size)})
    names = [show(p) for p in policies]
    base = chart().encode(
        x=alt.X("size:N", sort=list(SIZE_CLASSES), title="GPUs asked for", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("policy:N", sort=names),
        color=policy_colour(policies),
        tooltip=[
            alt.Tooltip("policy:N", title="policy"),
            alt.Tooltip("size:N", title="GPUs asked for"),
            alt.Tooltip("mean:Q", title="mean, min", format=",.1f"),
            alt.Tooltip("p95:Q", title="95th percentile, min", format=",.1f"),
            alt.Tooltip("jobs:Q", title="jobs", format=",d"),
        ],
    )
    bars = base.mark_bar(cornerRadiusEnd=2).encode(y=alt.Y("mean:Q", title="Wait, minutes"))
    ticks = base.mark_tick(thickness=2, orient="horizontal").encode(y="p95:Q")
    return Chart(
        "wait-size",
        "Wait by size of job",
        "Bars: mean wait of started jobs. Ticks: 95th percentile.",
        finished(bars + ticks, rows),
        empty="No job started.",
    )


def _queue(firsts: dict[str, Run], span: float) -> Chart:
    import altair as alt

    seconds, unit = time_unit(span)
    rows = []
    for name, run in firsts.items():
        start = start_of(run)
        for t, jobs, gpus in binned(run.metrics.timeline, ["queue_jobs", "queue_gpus"], BINS).iter_rows():
            at = rounded((t - start) / seconds)
            rows.append({"policy": show(name), "t": at, "jobs": rounded(jobs), "gpus": rounded(gpus)})
    spec = (
        chart()
        .mark_line(strokeWidth=1.5)
        .encode(
            x=time_axis(unit, span / seconds),
            y=alt.Y("jobs:Q", title="Jobs waiting"),
            color=policy_colour(firsts),
            tooltip=[
                "policy:N",
                "t:Q",
                alt.Tooltip("jobs:Q", title="jobs waiting"),
                alt.Tooltip("gpus:Q", title="GPUs asked for"),
            ],
        )
    )
    return Chart(
        "queue",
        "Queue over time",
        f"Waiting jobs, suspended ones included; {_which(firsts)}.",
        finished(spec, rows),
        empty="The run has no duration.",
        wide=True,
    )


def _which(firsts: dict[str, Run]) -> str:
    seeds = sorted({run.seed for run in firsts.values()})
    return f"seed {seeds[0]}" if len(seeds) == 1 else "first seed of each policy"


_CAPACITY = {
    "allocated_gpus": "allocated",
    "busy_gpus": "busy",
    "goodput_gpus": "goodput (ref. devices)",
    "available_gpus": "available",
}


def _capacity(name: str, run: Run, span: float) -> Chart:
    import altair as alt

    seconds, unit = time_unit(span)
    frame = binned(run.metrics.timeline, list(_CAPACITY), BINS)
    start, rows = start_of(run), []
    for column, label in _CAPACITY.items():
        for t, value in frame.select("start_s", column).iter_rows():
            if value is not None:
                rows.append({"t": rounded((t - start) / seconds), "what": label, "v": rounded(value)})
    labels = list(_CAPACITY.values())
    base = chart().encode(
        x=time_axis(unit, span / seconds),
        y=alt.Y("v:Q", title="Devices", stack=None),
        color=alt.Color(
            "what:N", sort=labels, scale=alt.Scale(domain=labels), title=None, legend=alt.Legend(orient="top")
        ),
        tooltip=["what:N", "t:Q", alt.Tooltip("v:Q", title="devices")],
    )
    held = base.mark_area(interpolate="step-after", opacity=0.35).transform_filter(
        "datum.what == 'allocated'"
    )
    rest = base.mark_line(interpolate="step-after", strokeWidth=1.4).transform_filter(
        "datum.what != 'allocated'"
    )
    spec = held + rest
    return Chart(
        f"capacity-{name}",
        f"Devices over time: {show(name)}",
        "Allocated: has a resident. Busy: a resident makes progress. Goodput: speed of all residents, in reference"
        f" devices. Seed {run.seed}.",
        finished(spec, rows, 220),
        empty="The run has no duration.",
    )


def _main_reasons(runs: Sequence[Run]) -> list[str]:
    """Columns of the reasons that keep most jobs waiting, in all runs together: same colours everywhere."""
    totals: dict[str, float] = {}
    for run in runs:
        timeline = run.metrics.timeline
        for column in timeline.columns:
            if column.startswith(REASON_PREFIX):
                spent = float((timeline[column] * timeline["width_s"]).sum())
                totals[column] = totals.get(column, 0.0) + spent
    return sorted(totals, key=lambda c: (-totals[c], c))[:MOST_REASONS]


def _limits(name: str, run: Run, span: float, kept: Sequence[str]) -> Chart:
    import altair as alt

    seconds, unit = time_unit(span)
    timeline = run.metrics.timeline
    reasons = [c for c in timeline.columns if c.startswith(REASON_PREFIX)]
    others = [c for c in reasons if c not in kept]
    domain = [*(_label(c) for c in kept), *(["other"] if others else [])]
    rows = _limit_rows(run, reasons, kept, seconds) if reasons else []
    spec = (
        chart()
        .mark_area(interpolate="step-after", opacity=0.85)
        .encode(
            x=time_axis(unit, span / seconds),
            y=alt.Y("v:Q", title="Jobs waiting", stack="zero"),
            color=alt.Color(
                "why:N",
                sort=domain,
                scale=alt.Scale(domain=domain),
                title=None,
                legend=alt.Legend(orient="top", columns=2),
            ),
            tooltip=[alt.Tooltip("why:N", title="reason"), "t:Q", alt.Tooltip("v:Q", title="jobs waiting")],
        )
    )
    return Chart(
        f"limits-{name}",
        f"What the waiting jobs wait for: {show(name)}",
        f"Waiting jobs by the reason the scheduler gave. Seed {run.seed}.",
        finished(spec, rows, 220),
        empty="No job had to wait.",
    )


def _label(column: str) -> str:
    return show(column.removeprefix(REASON_PREFIX))


def _limit_rows(
    run: Run, reasons: Sequence[str], kept: Sequence[str], seconds: float
) -> list[dict[str, Any]]:
    columns = [*reasons, *(c for c in kept if c not in reasons)]
    others = [c for c in reasons if c not in kept]
    rows: list[dict[str, Any]] = []
    for row in binned(run.metrics.timeline, columns, BINS // 2).iter_rows(named=True):
        at = rounded((row["start_s"] - start_of(run)) / seconds)
        rows += [{"t": at, "why": _label(c), "v": rounded(row[c])} for c in kept]
        if others:
            rows.append({"t": at, "why": "other", "v": rounded(sum(row[c] for c in others))})
    return rows
