"""The charts of the report, as Vega-Lite specifications with their data inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from cotenant.report.jobtable import SIZE_CLASSES, size_class
from cotenant.report.metrics import REASON_PREFIX
from cotenant.report.rundir import Run
from cotenant.report.tables import show

__all__ = ["Chart", "all_charts", "binned", "time_unit"]

QUANTILES = 160
BINS = 240
HEAT_ROWS, HEAT_BINS = 48, 96
MOST_REASONS = 7
MOST_PANELS = 6
GANTT_SEGMENTS = 400


class Chart:
    """One figure: an id, a title, a sentence on how to read it, and its specification.

    ``spec`` is None where there is nothing to show; ``empty`` then says why.
    """

    def __init__(
        self,
        key: str,
        title: str,
        text: str,
        spec: dict[str, Any] | None,
        *,
        empty: str = "",
        wide: bool = False,
    ) -> None:
        self.key, self.title, self.text, self.spec = key, title, text, spec
        self.empty, self.wide = empty, wide


def time_unit(span_s: float) -> tuple[float, str]:
    """Seconds in the unit that suits a span, and its name.

    >>> time_unit(90000.0)
    (3600.0, 'hours')
    """
    for seconds, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if span_s > 3 * seconds:
            return seconds, name
    return 1.0, "seconds"


def binned(timeline: pl.DataFrame, columns: Sequence[str], bins: int) -> pl.DataFrame:
    """Time-weighted means over at most ``bins`` groups of neighbouring bins; absent columns are 0."""
    per = max(1, math.ceil(timeline.height / bins))
    have = [c for c in columns if c in timeline.columns]
    grouped = (
        timeline.with_row_index("row")
        .group_by(pl.col("row") // per, maintain_order=True)
        .agg(
            pl.col("start_s").first(),
            *(((pl.col(c) * pl.col("width_s")).sum() / pl.col("width_s").sum()).alias(c) for c in have),
        )
    )
    return grouped.drop("row").with_columns(pl.lit(0.0).alias(c) for c in columns if c not in have)


def all_charts(policies: dict[str, list[Run]]) -> list[Chart]:
    """Every chart of the report, in order."""
    firsts = {name: runs[0] for name, runs in list(policies.items())[:MOST_PANELS]}
    span = max((r.metrics.summary.get("window_s") or 0.0 for r in firsts.values()), default=0.0)
    reasons = _main_reasons(list(firsts.values()))
    return [
        _distribution(policies, "jct_s", "Completion time", "from submission to end"),
        _distribution(policies, "wait_s", "Wait", "from submission to first start"),
        _waits_by_size(policies),
        _queue(firsts, span),
        *(_capacity(name, run, span) for name, run in firsts.items()),
        *(_limits(name, run, span, reasons) for name, run in firsts.items()),
        *(_heat(name, run, span) for name, run in firsts.items()),
        *(_gantt(name, run) for name, run in firsts.items()),
    ]


def _chart(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Chart(alt.Data(values=rows))


def _spec(chart: Any, height: int = 260) -> dict[str, Any]:
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    spec.pop("config", None)  # colours come from the page, which knows light from dark
    return spec


def _round(value: float | None, digits: int = 4) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


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
                {"policy": show(name), "x": _round(max(float(value), 1.0)), "share": _round(float(share))}
            )
    text = f"Share of jobs whose {title.lower()} ({what}) is at most x, all seeds together. Further left is better."
    if column == "wait_s":
        at_once = "; ".join(f"{show(n)} {100 * z:.0f} %" for n, z in zero.items())
        text += f" Started within a second (drawn at 1 s): {at_once}."
    spec = (
        _chart(rows)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(type="log"), title=f"{title} (log scale)", axis=_TIME_AXIS),
            y=alt.Y("share:Q", title="Share of jobs", axis=alt.Axis(format="%")),
            color=_policy_colour(policies),
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
        _spec(spec) if rows else None,
        empty="No job has such a time yet.",
    )


_TIME_AXIS = {
    "labelExpr": (
        "datum.value < 60 ? format(datum.value, '~g') + ' s' : datum.value < 3600 ? format(datum.value / 60, '.2~g')"
        " + ' min' : datum.value < 86400 ? format(datum.value / 3600, '.2~g') + ' h'"
        " : format(datum.value / 86400, '.2~g') + ' d'"
    ),
    "values": [1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000],
}


def _policy_colour(policies: Sequence[str] | dict[str, Any]) -> Any:
    import altair as alt

    names = [show(p) for p in policies]
    return alt.Color(
        "policy:N", sort=names, title=None, scale=alt.Scale(domain=names), legend=alt.Legend(orient="top")
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
                    "mean": _round(mean / 60),
                    "p95": _round(high / 60),
                }
                rows.append(row | {"jobs": int(waits.size)})
    names = [show(p) for p in policies]
    base = _chart(rows).encode(
        x=alt.X("size:N", sort=list(SIZE_CLASSES), title="GPUs asked for", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("policy:N", sort=names),
        color=_policy_colour(policies),
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
        _spec(bars + ticks) if rows else None,
        empty="No job started.",
    )


def _time(unit: str) -> Any:
    import altair as alt

    return alt.X("t:Q", title=f"Time, {unit} since the start", axis=alt.Axis(grid=False))


def _queue(firsts: dict[str, Run], span: float) -> Chart:
    import altair as alt

    seconds, unit = time_unit(span)
    rows = []
    for name, run in firsts.items():
        start = _start(run)
        for t, jobs, gpus in binned(run.metrics.timeline, ["queue_jobs", "queue_gpus"], BINS).iter_rows():
            at = _round((t - start) / seconds)
            rows.append({"policy": show(name), "t": at, "jobs": _round(jobs), "gpus": _round(gpus)})
    spec = (
        _chart(rows)
        .mark_line(strokeWidth=1.5)
        .encode(
            x=_time(unit),
            y=alt.Y("jobs:Q", title="Jobs waiting"),
            color=_policy_colour(firsts),
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
        _spec(spec) if rows else None,
        empty="The run has no duration.",
        wide=True,
    )


def _which(firsts: dict[str, Run]) -> str:
    seeds = sorted({run.seed for run in firsts.values()})
    return f"seed {seeds[0]}" if len(seeds) == 1 else "first seed of each policy"


def _start(run: Run) -> float:
    timeline = run.metrics.timeline
    return float(timeline["start_s"][0]) if timeline.height else 0.0


_CAPACITY = {
    "allocated_gpus": "allocated",
    "busy_gpus": "busy",
    "goodput_gpus": "goodput",
    "available_gpus": "available",
}


def _capacity(name: str, run: Run, span: float) -> Chart:
    import altair as alt

    seconds, unit = time_unit(span)
    frame = binned(run.metrics.timeline, list(_CAPACITY), BINS)
    start, rows = _start(run), []
    for column, label in _CAPACITY.items():
        for t, value in frame.select("start_s", column).iter_rows():
            if value is not None:
                rows.append({"t": _round((t - start) / seconds), "what": label, "v": _round(value)})
    labels = list(_CAPACITY.values())
    base = _chart(rows).encode(
        x=_time(unit),
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
        _spec(spec, 220) if rows else None,
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
    frame = binned(timeline, [*reasons, *(c for c in kept if c not in reasons)], BINS // 2)
    labels = {c: show(c.removeprefix(REASON_PREFIX)) for c in kept}
    others = [c for c in reasons if c not in kept]
    domain = [*labels.values(), *(["other"] if others else [])]
    rows, start = [], _start(run)
    for row in frame.iter_rows(named=True):
        at = _round((row["start_s"] - start) / seconds)
        rows += [{"t": at, "why": labels[c], "v": _round(row[c])} for c in kept]
        if others:
            rows.append({"t": at, "why": "other", "v": _round(sum(row[c] for c in others))})
    if not reasons:
        rows = []
    spec = (
        _chart(rows)
        .mark_area(interpolate="step-after", opacity=0.85)
        .encode(
            x=_time(unit),
            y=alt.Y("v:Q", title="Jobs waiting", stack="zero"),
            color=alt.Color(
                "why:N",
                sort=domain,
                scale=alt.Scale(domain=domain),
                title=None,
                legend=alt.Legend(orient="top", columns=3),
            ),
            tooltip=[alt.Tooltip("why:N", title="reason"), "t:Q", alt.Tooltip("v:Q", title="jobs waiting")],
        )
    )
    return Chart(
        f"limits-{name}",
        f"What the waiting jobs wait for: {show(name)}",
        f"Waiting jobs by the reason the scheduler gave. Seed {run.seed}.",
        _spec(spec, 220) if rows else None,
        empty="No job had to wait.",
    )


def _heat(name: str, run: Run, span: float) -> Chart:
    import altair as alt

    seconds, unit = time_unit(span)
    frame = run.metrics.devices
    groups = int(frame["group"].max() or 0) + 1 if frame.height else 0  # type: ignore[arg-type]
    per, step = max(1, math.ceil(groups / HEAT_ROWS)), 1
    start = _start(run)
    if groups:
        step = max(1, math.ceil(frame.height / groups / HEAT_BINS))
    cells = (
        frame.with_columns(
            row=pl.col("group") // per,
            bin=(pl.int_range(pl.len()).over("group") // step),
            w=pl.col("devices") * pl.col("width_s"),
        )
        .group_by("row", "bin", maintain_order=True)
        .agg(
            pl.col("start_s").min(),
            (pl.col("start_s") + pl.col("width_s")).max().alias("end_s"),
            ((pl.col("residents") * pl.col("w")).sum() / pl.col("w").sum()).alias("residents"),
            ((pl.col("busy") * pl.col("w")).sum() / pl.col("w").sum()).alias("busy"),
        )
    )
    width = int(frame["devices"][0]) * per if frame.height else 1
    rows = [
        {
            "a": _round((a - start) / seconds),
            "b": _round((b - start) / seconds),
            "d": row * width,
            "e": (row + 1) * width,
            "r": _round(residents, 3),
            "u": _round(busy, 3),
        }
        for row, _, a, b, residents, busy in cells.iter_rows()
    ]
    spec = (
        _chart(rows)
        .mark_rect()
        .encode(
            x=alt.X(
                "a:Q",
                title=f"Time, {unit} since the start",
                scale=alt.Scale(nice=False),
                axis=alt.Axis(grid=False),
            ),
            x2="b:Q",
            y=alt.Y(
                "d:Q",
                title="Device",
                scale=alt.Scale(nice=False, reverse=True),
                axis=alt.Axis(grid=False, format="d"),
            ),
            y2="e:Q",
            color=alt.Color(
                "r:Q",
                title="Residents per device",
                legend=alt.Legend(orient="top", gradientLength=140),
                scale=alt.Scale(domainMin=0),
            ),
            tooltip=[
                alt.Tooltip("d:Q", title="from device", format="d"),
                alt.Tooltip("a:Q", title=unit),
                alt.Tooltip("r:Q", title="residents per device", format=".2f"),
                alt.Tooltip("u:Q", title="busy", format=".0%"),
            ],
        )
    )
    text = (
        f"Mean number of jobs on each device{'' if width == 1 else f' (rows of {width})'}. Seed {run.seed}."
    )
    return Chart(
        f"heat-{name}",
        f"Residents by device and time: {show(name)}",
        text,
        _spec(spec, 260) if rows else None,
        empty="There are no devices, or the run has no duration.",
    )


def _gantt(name: str, run: Run) -> Chart:
    import altair as alt

    frame = run.metrics.segments.sort("from_s", "device", "id").head(GANTT_SEGMENTS)
    start = _start(run)
    span = float(frame["to_s"].max()) - start if frame.height else 0.0  # type: ignore[arg-type]
    seconds, unit = time_unit(span)
    rows = [
        {
            "a": _round((row["from_s"] - start) / seconds, 6),
            "b": _round((row["to_s"] - start) / seconds, 6),
            "d": row["device"],
            "job": show(row["name"] or "")[:60],
            "gpus": row["gpus"],
            "size": SIZE_CLASSES[int(size_class([row["gpus"] or 0])[0])],
        }
        for row in frame.iter_rows(named=True)
    ]
    spec = (
        _chart(rows)
        .mark_bar(opacity=0.7, strokeWidth=0.5, stroke="currentColor")
        .encode(
            x=alt.X("a:Q", title=f"Time, {unit} since the start", axis=alt.Axis(grid=False)),
            x2="b:Q",
            y=alt.Y("d:O", title="Device", axis=alt.Axis(grid=False)),
            color=alt.Color("size:N", sort=list(SIZE_CLASSES), title="GPUs", legend=alt.Legend(orient="top")),
            tooltip=[
                alt.Tooltip("job:N", title="job"),
                alt.Tooltip("gpus:Q", title="GPUs"),
                alt.Tooltip("d:O", title="device"),
                alt.Tooltip("a:Q", title=f"from, {unit}"),
                alt.Tooltip("b:Q", title=f"to, {unit}"),
            ],
        )
    )
    return Chart(
        f"gantt-{name}",
        f"First devices in detail: {show(name)}",
        f"Who was on the first devices, the first {GANTT_SEGMENTS} stays at most; darker where jobs share. Seed {run.seed}.",
        _spec(spec, 260) if rows else None,
        empty="No job was on the first devices.",
    )
