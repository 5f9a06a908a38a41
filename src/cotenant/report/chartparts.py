"""Parts that all charts of the report share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from cotenant.report.rundir import Run
from cotenant.report.tables import show

__all__ = [
    "TIME_AXIS",
    "Chart",
    "binned",
    "chart",
    "finished",
    "policy_colour",
    "rounded",
    "start_of",
    "time_axis",
    "time_unit",
]

TIME_AXIS = {
    "labelExpr": (
        "datum.value < 60 ? format(datum.value, '~g') + ' s' : datum.value < 3600 ? format(datum.value / 60, '.2~g')"
        " + ' min' : datum.value < 86400 ? format(datum.value / 3600, '.2~g') + ' h'"
        " : format(datum.value / 86400, '.2~g') + ' d'"
    ),
    "values": [1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000],
    "labelSeparation": 6,
}
"""Seconds on a logarithmic axis, as people say them."""


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


_ROWS = "rows"


def chart() -> Any:
    """An empty chart over rows of data, which ``finished`` adds."""
    import altair as alt

    return alt.Chart(alt.NamedData(name=_ROWS))


def finished(marks: Any, rows: list[dict[str, Any]], height: int = 260) -> dict[str, Any] | None:
    """The specification with its data, as wide as the page lets it be; None without data.

    The rows go in last: the schema check of the chart library would look at each of them.
    """
    if not rows:
        return None
    spec: dict[str, Any] = marks.properties(width="container", height=height).to_dict()
    spec.pop("config", None)  # colours come from the page, which knows light from dark
    return spec | {"datasets": spec.get("datasets", {}) | {_ROWS: rows}}


def rounded(value: float | None, digits: int = 4) -> float | None:
    """The value with that many significant digits; None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def policy_colour(policies: Sequence[str] | dict[str, Any]) -> Any:
    """Colour by policy, in the order of the policies."""
    import altair as alt

    names = [show(p) for p in policies]
    return alt.Color(
        "policy:N", sort=names, title=None, scale=alt.Scale(domain=names), legend=alt.Legend(orient="top")
    )


def time_axis(unit: str, length: float, field: str = "t") -> Any:
    """Time since the start, the same length in every panel."""
    import altair as alt

    scale = alt.Scale(domain=[0, rounded(length)], nice=False)
    return alt.X(f"{field}:Q", title=f"Time, {unit} since the start", scale=scale, axis=alt.Axis(grid=False))


def start_of(run: Run) -> float:
    """Start of the window of a run, in seconds."""
    timeline = run.metrics.timeline
    return float(timeline["start_s"][0]) if timeline.height else 0.0
