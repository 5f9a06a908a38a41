"""Charts that hold what was foretold of jobs beside others against what happened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from cotenant.report.chartparts import Chart, chart, finished, rounded
from cotenant.report.headlines import foretold_in_words
from cotenant.report.rundir import Run
from cotenant.report.tables import show

__all__ = ["foretold", "inside"]

MOST_POINTS = 800
FEW_POINTS = 60
"""So few that their intervals can all be drawn."""
MOST_GROUPS = 10
LEAST_IN_GROUP = 5
PROMISED = 0.9


def foretold(name: str, run: Run) -> Chart:
    """Every speed foretold against the speed that happened, with its interval and the diagonal."""
    frame = run.metrics.foretold
    shown = frame.sort("job_hours", descending=True, maintain_order=True).head(MOST_POINTS)
    words = foretold_in_words([run.metrics.summary]) or ""
    text = (
        "Speed beside others over speed alone. Each point is a model in one set of jobs; on the line the forecast was"
        f" right, above it too optimistic; larger ones ran longer. The forecast was {words}. Seed {run.seed}."
    )
    if frame.height > shown.height:
        text += f" Drawn are the {shown.height:,} that ran longest."
    spec = finished(_scatter(shown), _points(shown), 300)
    return Chart(f"foretold-{name}", f"Foretold against happened: {show(name)}", text, spec)


def _scatter(shown: pl.DataFrame) -> Any:
    import altair as alt

    values = np.concatenate([shown[column].to_numpy() for column in ("mean", "happened")])
    least, most = math.floor(min(float(values.min()), 0.9) * 10) / 10, max(1.0, float(values.max()))
    ends = [least, rounded(most)]
    scale = alt.Scale(domain=ends, clamp=True, nice=False)
    hover = alt.selection_point(on="pointerover", empty=False)
    faint = 0.35 if shown.height <= FEW_POINTS else 0.0

    def level(field: str) -> Any:
        return alt.Y(f"{field}:Q", scale=scale, title="Foretold")

    base = chart().encode(
        x=alt.X("happened:Q", scale=scale, title="Happened"),
        color=alt.Color("type:N", title=None, legend=alt.Legend(orient="top")),
    )
    spans = base.mark_rule(strokeWidth=1.5).encode(
        y=level("low"),
        y2="high:Q",
        opacity=alt.when(hover).then(alt.value(1.0)).otherwise(alt.value(faint)),
    )
    size = alt.Size("hours:Q", legend=None, scale=alt.Scale(type="sqrt", range=[18, 160]))
    points = base.mark_circle(opacity=0.6, stroke="transparent")
    points = points.encode(y=level("mean"), size=size, tooltip=_tooltip())
    line = alt.Chart(alt.InlineData(values=[{"v": end} for end in ends])).mark_line(
        strokeDash=[4, 4], strokeWidth=1, color="#8a94a3"
    )
    line = line.encode(x=alt.X("v:Q", scale=scale, title="Happened"), y=level("v"))
    return line + spans + points.add_params(hover)


def _tooltip() -> list[Any]:
    import altair as alt

    return [
        alt.Tooltip("model:N", title="model"),
        alt.Tooltip("beside:N", title="beside"),
        alt.Tooltip("type:N", title="device type"),
        alt.Tooltip("mean:Q", title="foretold", format=".3f"),
        alt.Tooltip("interval:N", title="90 % interval"),
        alt.Tooltip("happened:Q", title="happened", format=".3f"),
        alt.Tooltip("hours:Q", title="job-hours", format=",.1f"),
    ]


def _points(frame: pl.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for row in frame.iter_rows(named=True):
        point = {key: rounded(row[key]) for key in ("mean", "low", "high", "happened")}
        point["hours"] = rounded(row["job_hours"])
        told = {"model": show(row["model"]) or "(unknown)", "type": show(row["device_type"])}
        told["beside"] = ", ".join(show(m) or "(unknown)" for m in row["beside"])
        rows.append(told | point | {"interval": f"{row['low']:.3f} to {row['high']:.3f}"})
    return rows


def inside(name: str, run: Run) -> Chart:
    """Share inside the interval by how fast jobs were foretold to be."""
    import altair as alt

    rows = _groups(run.metrics.foretold)
    labels = [row["group"] for row in rows]
    bars = (
        chart()
        .mark_bar(cornerRadiusEnd=2, opacity=0.75)
        .encode(
            x=alt.X("group:N", sort=labels, title="Foretold speed", axis=alt.Axis(labelAngle=-40)),
            y=alt.Y(
                "inside:Q",
                title="Inside the 90 % interval",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%"),
            ),
            color=alt.Color("what:N", legend=None),
            tooltip=[
                alt.Tooltip("group:N", title="foretold"),
                alt.Tooltip("sides:Q", title="speeds"),
                alt.Tooltip("inside:Q", title="inside", format=".0%"),
                alt.Tooltip("off:Q", title="foretold less happened, mean", format="+.3f"),
                alt.Tooltip("width:Q", title="interval width, mean", format=".3f"),
            ],
        )
    )
    promised = (
        alt.Chart(alt.InlineData(values=[{"v": PROMISED}]))
        .mark_rule(strokeDash=[5, 4], strokeWidth=2, color="#e0751b")
        .encode(y="v:Q")
    )
    text = (
        "Share of the speeds foretold that lay inside their interval, in groups of equal number from slow to fast."
        f" Dashed: the {PROMISED:.0%} promised. Seed {run.seed}."
    ).replace("90%", "90 %")
    return Chart(
        f"inside-{name}", f"Do the intervals hold: {show(name)}", text, finished(bars + promised, rows, 300)
    )


def _groups(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Groups of equal number by foretold speed."""
    mean, low, high, happened = (frame[c].to_numpy() for c in ("mean", "low", "high", "happened"))
    order = np.argsort(mean, kind="stable")
    count = max(1, min(MOST_GROUPS, frame.height // LEAST_IN_GROUP))
    rows: list[dict[str, Any]] = []
    for part in np.array_split(order, count):
        within = (happened[part] >= low[part] - 1e-6) & (happened[part] <= high[part] + 1e-6)
        label = f"{mean[part].min():.2f}-{mean[part].max():.2f}"
        while any(row["group"] == label for row in rows):
            label += " "  # many of one speed
        rows.append(
            {
                "what": "inside",
                "group": label,
                "sides": int(part.size),
                "inside": rounded(float(within.mean())),
                "off": rounded(float((mean[part] - happened[part]).mean())),
                "width": rounded(float((high[part] - low[part]).mean())),
            }
        )
    return rows
