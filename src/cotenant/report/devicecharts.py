"""Charts device by device: a picture of all of them, and the first few in detail."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from cotenant.report.chartparts import Chart, chart, finished, rounded, start_of, time_axis, time_unit
from cotenant.report.jobtable import SIZE_CLASSES, size_class
from cotenant.report.rundir import Run
from cotenant.report.tables import show

__all__ = ["gantt", "heat"]

HEAT_ROWS, HEAT_BINS = 40, 80
GANTT_SEGMENTS = 400


def heat(name: str, run: Run, span: float, most: float) -> Chart:
    """Residents by device and time; ``most`` is the darkest colour, common to all panels."""
    seconds, unit = time_unit(span)
    frame = run.metrics.devices
    groups = int(frame["group"].max() or 0) + 1 if frame.height else 0  # type: ignore[arg-type]
    start, per = start_of(run), max(1, math.ceil(groups / HEAT_ROWS))
    cells = _cells(frame, groups, per)
    width = int(frame["devices"][0]) * per if frame.height else 1
    rows = [
        {
            "a": rounded((a - start) / seconds),
            "b": rounded((b - start) / seconds),
            "d": row * width,
            "e": (row + 1) * width,
            "r": rounded(residents, 3),
            "u": rounded(busy, 3),
        }
        for row, _, a, b, residents, busy in cells.iter_rows()
    ]
    spec = _heat_marks(unit, span / seconds, most)
    text = (
        f"Mean number of jobs on each device{'' if width == 1 else f' (rows of {width})'}. Seed {run.seed}."
    )
    return Chart(
        f"heat-{name}",
        f"Residents by device and time: {show(name)}",
        text,
        finished(spec, rows, 260),
        empty="There are no devices, or the run has no duration.",
    )


def _heat_marks(unit: str, length: float, most: float) -> Any:
    import altair as alt

    return (
        chart()
        .mark_rect()
        .encode(
            x=time_axis(unit, length, "a"),
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
                scale=alt.Scale(domain=[0, most]),
            ),
            tooltip=[
                alt.Tooltip("d:Q", title="from device", format="d"),
                alt.Tooltip("a:Q", title=unit),
                alt.Tooltip("r:Q", title="residents per device", format=".2f"),
                alt.Tooltip("u:Q", title="busy", format=".0%"),
            ],
        )
    )


def _cells(frame: pl.DataFrame, groups: int, per: int) -> pl.DataFrame:
    """Means over ``per`` rows and as many bins as fit: row, bin, start, end, residents, busy."""
    step = max(1, math.ceil(frame.height / groups / HEAT_BINS)) if groups else 1
    weight = pl.col("w").sum()
    return (
        frame.with_columns(
            row=pl.col("group") // per,
            bin=(pl.int_range(pl.len()).over("group") // step),
            w=pl.col("devices") * pl.col("width_s"),
        )
        .group_by("row", "bin", maintain_order=True)
        .agg(
            pl.col("start_s").min(),
            (pl.col("start_s") + pl.col("width_s")).max().alias("end_s"),
            ((pl.col("residents") * pl.col("w")).sum() / weight).alias("residents"),
            ((pl.col("busy") * pl.col("w")).sum() / weight).alias("busy"),
        )
    )


def gantt(name: str, run: Run) -> Chart:
    """Stays on the first few devices, one bar each."""
    import altair as alt

    frame = _first_stays(run.metrics.segments)
    start = start_of(run)
    span = float(frame["to_s"].max()) - start if frame.height else 0.0  # type: ignore[arg-type]
    seconds, unit = time_unit(span)
    rows = _gantt_rows(frame, start, seconds)
    spec = (
        chart()
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
        f"Who was on the first devices, for as long as {GANTT_SEGMENTS} stays last; darker where jobs share. Seed {run.seed}.",
        finished(spec, rows, 260),
        empty="No job was on the first devices.",
    )


def _first_stays(segments: pl.DataFrame) -> pl.DataFrame:
    """The first stays, cut off where the next one would begin: an empty place in the picture was idle."""
    ordered = segments.sort("from_s", "device", "id")
    if ordered.height <= GANTT_SEGMENTS:
        return ordered
    edge = ordered["from_s"][GANTT_SEGMENTS]
    return ordered.head(GANTT_SEGMENTS).with_columns(pl.min_horizontal("to_s", pl.lit(edge)))


def _gantt_rows(frame: pl.DataFrame, start: float, seconds: float) -> list[dict[str, Any]]:
    return [
        {
            "a": rounded((row["from_s"] - start) / seconds, 6),
            "b": rounded((row["to_s"] - start) / seconds, 6),
            "d": row["device"],
            "job": show(row["name"] or "")[:60],
            "gpus": row["gpus"],
            "size": SIZE_CLASSES[int(size_class([row["gpus"] or 0])[0])],
        }
        for row in frame.iter_rows(named=True)
    ]
