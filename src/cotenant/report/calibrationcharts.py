"""Charts that hold what was foretold of jobs beside others against what happened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from cotenant.report.againstcharts import DASHED, MOST_POINTS, held, in_groups, scatter
from cotenant.report.calibration import DUST
from cotenant.report.chartparts import Chart, rounded
from cotenant.report.headlines import foretold_in_words
from cotenant.report.rundir import Run
from cotenant.report.tables import show

__all__ = ["foretold", "inside"]


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
    return Chart(f"foretold-{name}", f"Foretold against happened: {show(name)}", text, _scatter(shown))


def _scatter(shown: pl.DataFrame) -> dict[str, Any] | None:
    import altair as alt

    values = np.concatenate([shown[column].to_numpy() for column in ("mean", "happened")])
    least, most = math.floor(min(float(values.min()), 0.9) * 10) / 10, max(1.0, float(values.max()))
    scale = alt.Scale(domain=[least, rounded(most)], clamp=True, nice=False)
    size = alt.Size("hours:Q", legend=None, scale=alt.Scale(type="sqrt", range=[18, 160]))
    return scatter(_points(shown), scale, _tooltip(), size=size)


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

    tooltip = [
        alt.Tooltip("group:N", title="foretold"),
        alt.Tooltip("sides:Q", title="speeds"),
        alt.Tooltip("inside:Q", title="inside", format=".0%"),
        alt.Tooltip("off:Q", title="foretold less happened, mean", format="+.3f"),
        alt.Tooltip("width:Q", title="interval width, mean", format=".3f"),
    ]
    frame = run.metrics.foretold
    mean, low, high, happened = (frame[c].to_numpy() for c in ("mean", "low", "high", "happened"))
    rows = in_groups(
        mean,
        (happened >= low - DUST) & (happened <= high + DUST),
        lambda least, most: f"{least:.2f}-{most:.2f}",
        lambda part: {
            "sides": part.size,
            "off": float((mean[part] - happened[part]).mean()),
            "width": float((high[part] - low[part]).mean()),
        },
    )
    text = (
        "Share of the speeds foretold that lay inside their interval, in groups of equal number from slow to fast."
        f" {DASHED} Seed {run.seed}."
    )
    title = f"Do the intervals hold: {show(name)}"
    return Chart(f"inside-{name}", title, text, held(rows, "Foretold speed", tooltip))
