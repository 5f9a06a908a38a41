"""Charts of a tournament."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cotenant.report.chartparts import Chart, chart, finished, rounded
from cotenant.tournament.contest import Contest
from cotenant.tournament.ranking import JUDGED, OVERALL, scores_by

__all__ = ["LABELS", "all_plots", "worth"]

LABELS = {
    OVERALL: "overall",
    "jct_s_mean": "mean completion time",
    "wait_s_p99": "99th pct. of waits",
    "makespan_s": "makespan",
    "queued_s_p99": "99th pct. of all waits",
    "slowdown_max": "largest slowdown",
}
_MOST_LINES = 7
_CHANGES = {"failures": "nodes fail", "bad-forecast": "bad forecast", "perfect-forecast": "perfect forecast"}

_HOW_TO_READ = (
    "Ratio to the best, {}; dark is far from it (light in dark mode). Point at a cell for its number."
)
_BASE_ONLY, _NEAREST = " Base condition, all loads.", " Load nearest to 1."


def all_plots(contest: Contest) -> list[Chart]:
    """Every chart, in order."""
    return [
        _places(contest),
        _heat(contest, "jct_s_mean", "workload", 0, "Mean completion time by workload"),
        _heat(contest, "wait_s_p99", "workload", 0, "99th percentile of waits by workload"),
        _heat(contest, "queued_s_p99", "workload", 0, "99th percentile of all waits by workload"),
        _heat(contest, OVERALL, "condition", 2, "Overall by condition"),
        _loads(contest),
        _against(contest),
        _worth(contest),
    ]


def _height(contest: Contest) -> int:
    return 60 + 22 * len(contest.rows)


def _order(contest: Contest) -> list[str]:
    return [row.policy for row in contest.rows]


def _policy_axis(contest: Contest) -> Any:
    import altair as alt

    return alt.Y(
        "policy:N", sort=_order(contest), title=None, axis=alt.Axis(labelOverlap=False, labelLimit=160)
    )


def _places(contest: Contest) -> Chart:
    import altair as alt

    names = [LABELS[m] for m in (OVERALL, *JUDGED)]
    base = chart().encode(
        y=_policy_axis(contest),
        yOffset=alt.YOffset("what:N", sort=names),
        color=alt.Color(
            "what:N",
            sort=names,
            title=None,
            scale=alt.Scale(domain=names),
            legend=alt.Legend(orient="top", columns=2),
        ),
        tooltip=["policy:N", "what:N", alt.Tooltip("x:Q", title="ratio"), "low:Q", "high:Q"],
    )
    x = alt.X(
        "x:Q", scale=alt.Scale(type="log", nice=False), title="Ratio to the best (log scale; 1 is best)"
    )
    spec = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q") + base.mark_point(
        filled=True, size=28
    ).encode(x=x)
    return Chart(
        "chart-places",
        "Places",
        "Geometric mean over scenarios of the ratio to the best policy in each; bars: 95 % interval from resampling "
        "seeds. Further left is better.",
        finished(spec, _place_rows(contest), 2 * _height(contest)),
        empty="No results.",
        wide=True,
    )


def _place_rows(contest: Contest) -> list[dict[str, Any]]:
    return [
        {
            "policy": row.policy,
            "what": LABELS[metric],
            "x": rounded(score.mean),
            "low": rounded(score.low),
            "high": rounded(score.high),
        }
        for row in contest.rows
        for metric, score in row.scores.items()
        if metric in (OVERALL, *JUDGED) and math.isfinite(score.mean)
    ]


def _heat(contest: Contest, metric: str, what: str, part: int, title: str) -> Chart:
    import altair as alt

    found = scores_by(contest.grid, metric, part)
    rows = [
        {"policy": policy, "column": column, "v": rounded(value), "log": rounded(math.log(max(value, 1.0)))}
        for policy, own in found.items()
        for column, value in own.items()
    ]
    columns = list(dict.fromkeys(r["column"] for r in rows))
    highest = max((r["log"] or 0.0 for r in rows), default=1.0)
    base = chart().encode(
        x=alt.X(
            "column:N",
            sort=columns,
            title=None,
            axis=alt.Axis(labelAngle=-30, orient="top", labelOverlap=False),
        ),
        y=_policy_axis(contest),
        tooltip=[
            "policy:N",
            alt.Tooltip("column:N", title=what),
            alt.Tooltip("v:Q", title="ratio to the best"),
        ],
    )
    cells = base.mark_rect().encode(
        color=alt.Color(
            "log:Q", legend=None, scale=alt.Scale(domain=[0, min(max(highest, 0.1), 2.5)], clamp=True)
        )
    )
    return Chart(
        f"chart-heat-{metric}-{part}",
        title,
        _HOW_TO_READ.format(LABELS[metric]) + (_BASE_ONLY if part == 0 else _NEAREST),
        finished(cells, rows, _height(contest)),
        empty="No results.",
    )


def _loads(contest: Contest) -> Chart:
    import altair as alt

    chosen = _order(contest)[:_MOST_LINES]
    found = scores_by(contest.grid, OVERALL, 1)
    rows = [
        {"policy": policy, "load": float(load), "v": rounded(value)}
        for policy in chosen
        for load, value in found[policy].items()
    ]
    spec = (
        chart()
        .mark_line(point=True, strokeWidth=1.6)
        .encode(
            x=alt.X("load:Q", title="Load"),
            y=alt.Y("v:Q", scale=alt.Scale(type="log", nice=False), title="Ratio to the best (log scale)"),
            color=alt.Color(
                "policy:N",
                sort=chosen,
                title=None,
                scale=alt.Scale(domain=chosen),
                legend=alt.Legend(orient="top", columns=3),
            ),
            tooltip=["policy:N", "load:Q", alt.Tooltip("v:Q", title="ratio")],
        )
    )
    return Chart(
        "chart-loads",
        "Overall by load",
        f"The first {len(chosen)} policies, base condition, all workloads.",
        finished(spec, rows),
        empty="No results.",
    )


def _against(contest: Contest) -> Chart:
    import altair as alt

    rows = [
        {
            "policy": row.policy,
            "jct": rounded(row.scores["jct_s_mean"].mean),
            "wait": rounded(row.scores["wait_s_p99"].mean),
        }
        for row in contest.rows
        if math.isfinite(row.scores["jct_s_mean"].mean) and math.isfinite(row.scores["wait_s_p99"].mean)
    ]
    scale = alt.Scale(type="log", nice=False, padding=12)
    base = chart().encode(
        x=alt.X("jct:Q", scale=scale, title="Mean completion time, ratio to the best"),
        y=alt.Y("wait:Q", scale=scale, title="99th pct. of waits, ratio"),
        tooltip=["policy:N", "jct:Q", "wait:Q"],
    )
    points = base.mark_point(filled=True, size=50)
    names = base.mark_text(align="left", dx=6, fontSize=10, fill="#8b95a5").encode(text="policy:N")
    return Chart(
        "chart-against",
        "Completion against waits",
        "Near the lower left corner is best in both.",
        finished(points + names, rows, 320),
        empty="No results.",
    )


def worth(contest: Contest) -> dict[str, dict[str, float]]:
    """By policy and condition: mean completion time over that of the base, same workload, load and seed."""
    at = {
        (r.policy, r.workload, r.load, r.seed, r.condition): r.values.get("jct_s_mean")
        for r in contest.results
    }
    found: dict[str, dict[str, float]] = {policy: {} for policy in contest.policies}
    for condition in _CHANGES:
        for policy in contest.policies:
            logs = [
                math.log(value / base)
                for (name, workload, load, seed, where), value in at.items()
                if (name, where) == (policy, condition)
                and value
                and (base := at.get((policy, workload, load, seed, "base")))
            ]
            if logs:
                found[policy][condition] = float(np.exp(np.mean(logs)))
    return found


def _worth(contest: Contest) -> Chart:
    import altair as alt

    found = worth(contest)
    rows = [
        {"policy": policy, "what": _CHANGES[condition], "v": rounded(100.0 * (value - 1.0), 3)}
        for policy, own in found.items()
        for condition, value in own.items()
    ]
    names = list(_CHANGES.values())
    spec = (
        chart()
        .mark_bar()
        .encode(
            x=alt.X("v:Q", title="Change of mean completion time, %"),
            y=_policy_axis(contest),
            yOffset=alt.YOffset("what:N", sort=names),
            color=alt.Color(
                "what:N",
                sort=names,
                title=None,
                scale=alt.Scale(domain=names),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=["policy:N", "what:N", alt.Tooltip("v:Q", title="%")],
        )
    )
    return Chart(
        "chart-worth",
        "What failures and forecasts change",
        "Against the base condition (good forecast, no failures), same workload, load and seed.",
        finished(spec, rows, 2 * _height(contest)),
        empty="Only the base condition was played.",
        wide=True,
    )
