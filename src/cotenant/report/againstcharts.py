"""What charts of a forecast against what happened share, whatever it is a forecast of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.report.chartparts import chart, finished, rounded

__all__ = ["DASHED", "FEW_POINTS", "MOST_POINTS", "held", "in_groups", "scatter"]

MOST_POINTS = 800
FEW_POINTS = 60
"""So few that their intervals can all be drawn."""
MOST_GROUPS = 10
LEAST_IN_GROUP = 5
PROMISED = 0.9
DASHED = f"Dashed: the {100 * PROMISED:.0f} % promised."

Ints = npt.NDArray[Any]
Floats = npt.NDArray[Any]


def scatter(
    points: list[dict[str, Any]],
    scale: Any,
    tooltip: list[Any],
    *,
    titles: tuple[str, str] = ("Foretold", "Happened"),
    axis: Any = None,
    size: Any = None,
    colour: Any = None,
) -> dict[str, Any] | None:
    """The forecast (up) against what happened (across), with the intervals and the diagonal.

    Parameters
    ----------
    points : list of dict
        Rows with ``mean``, ``low``, ``high``, ``happened``, ``type`` and what the tooltip shows.
    scale : altair.Scale
        Of both axes; its domain is where the diagonal ends.
    axis : dict, optional
        Of both axes.
    """
    import altair as alt

    hover = alt.selection_point(on="pointerover", empty=False)
    faint = 0.35 if len(points) <= FEW_POINTS else 0.0
    more = {} if axis is None else {"axis": axis}

    def level(field: str) -> Any:
        return alt.Y(f"{field}:Q", scale=scale, title=titles[0], **more)

    def across(field: str) -> Any:
        return alt.X(f"{field}:Q", scale=scale, title=titles[1], **more)

    if colour is None:
        colour = alt.Color("type:N", title=None, legend=alt.Legend(orient="top"))
    base = chart().encode(x=across("happened"), color=colour)
    spans = base.mark_rule(strokeWidth=1.5).encode(
        y=level("low"),
        y2="high:Q",
        opacity=alt.when(hover).then(alt.value(1.0)).otherwise(alt.value(faint)),
    )
    dots = base.mark_circle(opacity=0.6, stroke="transparent")
    dots = dots.encode(y=level("mean"), size=alt.value(24) if size is None else size, tooltip=tooltip)
    line = alt.Chart(alt.InlineData(values=[{"v": end} for end in scale.domain])).mark_line(
        strokeDash=[4, 4], strokeWidth=1, color="#8a94a3"
    )
    line = line.encode(x=across("v"), y=level("v"))
    return finished(line + spans + dots.add_params(hover), points, 300)


def held(rows: list[dict[str, Any]], across: str, tooltip: list[Any]) -> dict[str, Any] | None:
    """Share inside the interval in each group, against what was promised.

    Parameters
    ----------
    rows : list of dict
        As ``in_groups`` makes them.
    across : str
        Title of the axis that the groups stand on.
    """
    import altair as alt

    bars = (
        chart()
        .mark_bar(cornerRadiusEnd=2, opacity=0.75)
        .encode(
            x=alt.X(
                "group:N", sort=[row["group"] for row in rows], title=across, axis=alt.Axis(labelAngle=-40)
            ),
            y=alt.Y(
                "inside:Q",
                title="Inside the 90 % interval",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%"),
            ),
            color=alt.Color("what:N", legend=None),
            tooltip=tooltip,
        )
    )
    promised = (
        alt.Chart(alt.InlineData(values=[{"v": PROMISED}]))
        .mark_rule(strokeDash=[5, 4], strokeWidth=2, color="#e0751b")
        .encode(y="v:Q")
    )
    return finished(bars + promised, rows, 300)


def in_groups(
    by: Floats,
    inside: npt.NDArray[np.bool_],
    label: Callable[[float, float], str],
    tell: Callable[[Ints], dict[str, float]],
) -> list[dict[str, Any]]:
    """Groups of equal number, from small to large.

    Parameters
    ----------
    by : (n,) array
        What to group by.
    inside : (n,) array of bool
    label : callable
        Name of a group, of its least and largest value.
    tell : callable
        More numbers of the members at these positions.
    """
    order = np.argsort(by, kind="stable")
    count = max(1, min(MOST_GROUPS, by.size // LEAST_IN_GROUP))
    rows: list[dict[str, Any]] = []
    for part in np.array_split(order, count):
        name = label(float(by[part].min()), float(by[part].max()))
        while any(row["group"] == name for row in rows):
            name += " "  # many of one value
        row = {"what": "inside", "group": name, "inside": rounded(float(inside[part].mean()))}
        rows.append(row | {key: rounded(value) for key, value in tell(part).items()})
    return rows
