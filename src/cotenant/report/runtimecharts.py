"""Charts that hold how long jobs were expected to run against how long they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from cotenant.model.quantities import format_duration
from cotenant.report.againstcharts import DASHED, MOST_POINTS, held, in_groups, scatter
from cotenant.report.chartparts import TIME_AXIS, Chart, rounded
from cotenant.report.headlines import expected_in_words
from cotenant.report.rundir import Run
from cotenant.report.runtimes import within
from cotenant.report.tables import show

__all__ = ["expected", "judged", "lengths"]

_LEAST_S = 0.1
"""What is shorter is drawn there: a logarithmic axis has no zero."""
_VERDICTS = ("inside its interval", "outside")


def judged(run: Run) -> pl.DataFrame:
    """Jobs that were done and of which something was expected; none in folders of earlier versions."""
    if not run.metrics.summary.get("runtime_jobs"):
        return pl.DataFrame()
    return run.metrics.jobs.filter(pl.col("happened_s") > 0)


def expected(name: str, run: Run) -> Chart:
    """Running times expected at submission against those that happened, and the diagonal."""
    frame = judged(run)
    # Evenly over the jobs in their order, the first and the last among them: always the same ones.
    places = np.linspace(0, frame.height - 1, min(frame.height, MOST_POINTS)).round().astype(np.int64)
    shown = frame[places]
    words = expected_in_words([run.metrics.summary]) or ""
    text = (
        "Running time alone on the reference device, as expected at submission; both axes are logarithmic. Each point is"
        " a job that was done; on the line the forecast was right, above it the job was expected to run longer than it"
        f" did. Running times were expected {words}. Seed {run.seed}."
    )
    if frame.height > shown.height:
        text += f" Drawn are {shown.height:,} of them, spread evenly over all in their order."
    title = f"Running times, expected against happened: {show(name)}"
    return Chart(f"expected-{name}", title, text, _scatter(shown))


def _scatter(shown: pl.DataFrame) -> dict[str, Any] | None:
    import altair as alt

    values = np.concatenate([shown[column].to_numpy() for column in ("expected_s", "happened_s")])
    ends = [rounded(max(float(end), _LEAST_S)) for end in (values.min() * 0.8, values.max() * 1.25)]
    scale = alt.Scale(type="log", domain=ends, clamp=True, nice=False)
    tooltip = [
        alt.Tooltip("job:N", title="job"),
        alt.Tooltip("expected:N", title="expected"),
        alt.Tooltip("interval:N", title="90 % interval"),
        alt.Tooltip("ran:N", title="happened"),
    ]
    colour = alt.Color(
        "type:N", title=None, scale=alt.Scale(domain=list(_VERDICTS)), legend=alt.Legend(orient="top")
    )
    titles = ("Expected", "Happened")
    return scatter(_points(shown), scale, tooltip, titles=titles, axis=TIME_AXIS, colour=colour)


def _points(frame: pl.DataFrame) -> list[dict[str, Any]]:
    columns = ("name", "expected_s", "expected_low_s", "expected_high_s", "happened_s")
    rows = []
    for name, mean, low, high, happened in frame.select(columns).iter_rows():
        point = {"job": show(name), "type": _VERDICTS[0 if within(happened, low, high) else 1]}
        told = {"expected": format_duration(mean), "ran": format_duration(happened)}
        told["interval"] = f"{format_duration(low)} to {format_duration(high)}"
        drawn = {"mean": mean, "low": low, "high": high, "happened": happened}
        rows.append(point | told | {key: rounded(max(value, _LEAST_S)) for key, value in drawn.items()})
    return rows


def lengths(name: str, run: Run) -> Chart:
    """Share inside the interval by how long jobs were expected to run."""
    import altair as alt

    tooltip = [
        alt.Tooltip("group:N", title="expected"),
        alt.Tooltip("jobs:Q", title="jobs", format=",d"),
        alt.Tooltip("inside:Q", title="inside", format=".0%"),
        alt.Tooltip("factor:Q", title="off by a factor of, median", format=".3~g"),
        alt.Tooltip("bias:Q", title="expected over happened, median", format=".3~g"),
    ]
    columns = ("expected_s", "expected_low_s", "expected_high_s", "happened_s")
    mean, low, high, happened = (judged(run)[column].to_numpy() for column in columns)
    factor = mean / happened
    rows = in_groups(
        mean,
        within(happened, low, high),
        lambda least, most: f"{_short(least)}-{_short(most)}",
        lambda part: {
            "jobs": part.size,
            "factor": float(np.median(np.exp(np.abs(np.log(factor[part]))))),
            "bias": float(np.median(factor[part])),
        },
    )
    text = (
        "Share of the jobs done whose running time lay inside its interval, in groups of equal number from short to"
        f" long. {DASHED} Seed {run.seed}."
    )
    title = f"Do the intervals of running times hold: {show(name)}"
    return Chart(f"lengths-{name}", title, text, held(rows, "Expected running time", tooltip))


def _short(seconds: float) -> str:
    """A length in one unit, for the few letters that fit under a bar.

    >>> _short(0.5), _short(1380.0), _short(4920.0), _short(900000.0)
    ('0.5s', '23m', '1.4h', '10d')
    """
    for unit_s, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.2g}{unit}"
    return f"{seconds:.2g}s"
