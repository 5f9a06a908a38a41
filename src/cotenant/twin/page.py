"""The study as a page that opens offline, and as plain values."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant import __version__
from cotenant.report.chartparts import Chart, chart, finished, rounded
from cotenant.report.page import Html, document, el, figure, join, tabular
from cotenant.twin.rows import CLOSE_PCT, gains, likeness_rows, sides
from cotenant.twin.study import Study

__all__ = [
    "GAIN_HEADS",
    "LIKE_HEADS",
    "SIDE_HEADS",
    "gain_cells",
    "html_page",
    "like_cells",
    "plain",
    "side_cells",
]

SIDE_HEADS = ("policy", "what", "live", "simulated", "difference", "reason")
GAIN_HEADS = ("policy", "against fifo", "live", "simulated")
LIKE_HEADS = (
    "policy",
    "jobs",
    "same start order",
    "first other decision",
    "same device",
    "same neighbours",
    "job's own time off by",
    "began beside others",
    "others on the cores",
)
_INTRO = (
    "The same jobs, with the same arrivals, under the same policies, settings and forecast: for real, by the scheduler on "
    "this machine's cores, and in the simulator, whose truth are step times and co-run speeds that were measured here "
    "before. A job's work is its steps times the time of a step alone; starting its process is no work and was measured by itself."
)


def side_cells(study: Study) -> list[tuple[str, ...]]:
    """Live, simulated, difference and reason as text."""
    return [
        (
            s.policy,
            s.what,
            _spread(s.live, "s"),
            _spread(s.simulated, "s"),
            _spread(s.difference_pct, "%", signed=True),
            s.reason,
        )
        for s in sides(study)
    ]


def gain_cells(study: Study) -> list[tuple[str, ...]]:
    """Gains of sharing as text."""
    return [
        (g.policy, g.what, _spread(g.live_pct, "%", signed=True), _spread(g.simulated_pct, "%", signed=True))
        for g in gains(study)
    ]


def like_cells(study: Study) -> list[tuple[str, ...]]:
    """Whether the same was decided, as text."""
    rows: list[tuple[str, ...]] = []
    for row in likeness_rows(study):
        first = "none" if row["first_other"] == row["jobs"] else f"start {row['first_other'] + 1}"
        rows.append(
            (
                row["policy"],
                str(row["jobs"]),
                _share(row["order"]),
                first,
                _share(row["device"]),
                _share(row["beside"]),
                f"{row['jct_pct']:.1f} %",
                f"{row['shared_live']:.1f} live, {row['shared_simulated']:.1f} simulated",
                _share(row["others"]),
            )
        )
    return rows


def plain(study: Study, command: str) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "kind": "cotenant-twin",
        "version": __version__,
        "command": command,
        "devices": list(study.devices),
        "policies": study.policies,
        "settings": study.settings,
        "step_s": study.known.step_s,
        "starts_s": study.known.starts_s,
        "pairs": study.pairs,
        "sides": msgspec.to_builtins(sides(study)),
        "gains": msgspec.to_builtins(gains(study)),
        "likeness": likeness_rows(study),
        "runs": msgspec.to_builtins(study.played),
        "jobs": msgspec.to_builtins(study.mix.jobs),
        "seconds": round(study.seconds, 1),
    }


def html_page(study: Study, command: str) -> str:
    """One file with its data inside."""
    charts = [_scatter(study, policy) for policy in study.policies]
    header = join(
        [
            el("h1", "For real and simulated"),
            el("p", f"{len(study.mix.jobs)} jobs on {', '.join(study.devices)} · {command}", class_="facts"),
            el("p", _INTRO, class_="note"),
        ]
    )
    parts: list[Html] = [
        el("h2", "Live and simulated"),
        el("p", f"Mean ± standard deviation over the repeats; close means within {CLOSE_PCT:g} %.", class_="note"),
        tabular("Live and simulated", SIDE_HEADS, side_cells(study), text_columns=2, class_="lead"),
        el("h2", "What sharing gains"),
        tabular("What sharing gains", GAIN_HEADS, gain_cells(study), text_columns=2, class_="lead"),
        el("h2", "The same decisions?"),
        tabular("The same decisions?", LIKE_HEADS, like_cells(study), class_="lead"),
        el("h2", "Job by job"),
        el("div", *map(figure, charts), class_="grid"),
        el("h2", "What was measured before"),
        tabular("Steps alone and start-up", ("kind", "a step", "start and end"), _kinds(study), class_="lead"),
        tabular(
            "Speeds side by side, relative to alone", ("job", "beside", "its speed", "the other's"),
            [(a, b, _number(x), _number(y)) for a, b, x, y in study.pairs], text_columns=2, class_="lead",
        ),
    ]  # fmt: skip
    footer = el(
        "p", f"cotenant {__version__}. This file holds all its data and loads nothing from elsewhere."
    )
    specs = {c.key: c.spec for c in charts if c.spec is not None}
    return document("For real and simulated", header, join(parts), footer, specs)


def _scatter(study: Study, policy: str) -> Chart:
    import altair as alt

    rows = [
        {
            "live": rounded(fate.jct_s),
            "simulated": rounded(run.simulated.by_name[fate.name].jct_s),
            "job": fate.name,
        }
        for run in study.played
        if run.policy == policy
        for fate in run.live.fates
    ]
    most = max(max(row["live"] or 0.0, row["simulated"] or 0.0) for row in rows)
    scale = alt.Scale(domain=[0, most])
    marks = (
        chart()
        .mark_circle(size=45)
        .encode(
            x=alt.X("live:Q", title="Completion time live, s", scale=scale),
            y=alt.Y("simulated:Q", title="Simulated, s", scale=scale),
            tooltip=["job:N", "live:Q", "simulated:Q"],
        )
    )
    return Chart(
        f"scatter-{policy}",
        f"{policy}: completion times of the jobs",
        "Each circle is one job of one repeat; on the diagonal both are the same.",
        finished(marks, rows),
    )


def _kinds(study: Study) -> list[tuple[str, str, str]]:
    starts = study.known.starts_s
    label = {kind.name: kind.config.label for kind in study.mix.kinds}
    return [
        (name, f"{1000 * step:.2f} ms", f"{starts[label[name]]:.2f} s" if name in label else "")
        for name, step in study.known.step_s.items()
    ]


def _spread(pair: tuple[float, float], unit: str, *, signed: bool = False) -> str:
    mean, sd = pair
    text = f"{mean:{'+' if signed else ''}.1f}"
    return f"{text} ± {sd:.1f} {unit}" if sd else f"{text} {unit}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
