"""A tournament as a page that opens offline, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cotenant import __version__
from cotenant.report.page import Html, document, el, figure, join, tabular
from cotenant.tournament.contest import Contest
from cotenant.tournament.play import METRICS
from cotenant.tournament.plots import all_plots, worth
from cotenant.tournament.ranking import OVERALL, Row, Score, scores_by
from cotenant.tournament.workloads import SOURCES

__all__ = ["html_page", "markdown_page", "ranking_heads", "ranking_rows"]

_HOW = (
    "In each world (workload, load, condition, seed) all policies meet the same jobs, speeds and failures, and the ratio to the "
    "best is taken; a number here is the geometric mean over scenarios and seeds: 1 is best everywhere. In brackets: 95% "
    "interval from resampling seeds. Waits are compared with a minute added. Overall: geometric mean of mean completion time, 99th percentile of waits and "
    "makespan; p99 queued counts all waits of a job, those after suspensions included; the largest slowdown by neighbours (or by a slower device) stands beside it, since whoever never shares wins that. Won and lost: scenarios "
    "against the leader, by more than 1%. First: scenarios with the least mean completion time. Failed: worlds with an error or jobs left behind. p: Wilcoxon signed-rank over scenarios against the leader, after Holm."
)
_WHAT = {
    "base": "one device type (V100, 32 GB), no failures; speeds by the adaptive forecast where there are measured pairs to fit on (else looked up), "
    "running times by the history of like jobs",
    "heterogeneous": "half V100 with 32 GB, a quarter P100, a quarter K80",
    "failures": "each node fails every three days on average and is away for an hour on average; a copy of the state every hour",
    "bad-forecast": "speeds by adding utilisations up, running times wrong by a lognormal factor of sigma 2 (nine in ten within a factor of 27)",
    "perfect-forecast": "speeds and running times known; an upper bound, which counts for no rank",
}


def ranking_heads() -> tuple[str, ...]:
    """Heads of the ranking."""
    judged = ("Completion", "p99 wait", "Makespan", "p99 queued", "Slowdown")  # as METRICS
    return ("Policy", "Overall", *judged, "Won : lost", "p", "First", "Failed")


def ranking_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The ranking in words."""
    return [
        (
            f"{place}. {row.policy}",
            _interval(row.scores[OVERALL]),
            *(_ratio(row.scores[m].mean) for m in METRICS),
            f"{row.wins} : {row.losses}" if place > 1 else "-",
            "-" if row.p_value is None else f"{row.p_value:.3f}" if row.p_value >= 0.001 else "<0.001",
            str(row.firsts),
            str(row.failed) if row.failed else "",
        )
        for place, row in enumerate(rows, 1)
    ]


def _ratio(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "n/a"


def _interval(score: Score) -> str:
    if not math.isfinite(score.mean):
        return "n/a"
    return f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]"


def _facts(contest: Contest) -> str:
    plan = contest.plan
    return (
        f"{len(contest.policies)} policies · {len(contest.grid.scenarios)} scenarios · {plan.seeds} seeds · "
        f"up to {plan.jobs} jobs each · {plan.gpus} devices · {len(contest.results):,} runs"
    )


def html_page(contest: Contest, command: str) -> str:
    """One file with its data inside; nothing is loaded from elsewhere."""
    charts = all_plots(contest)
    header = join([el("h1", "Tournament"), el("p", f"{_facts(contest)} · {command}", class_="facts")])
    parts: list[Html] = [
        el("h2", "Ranking"),
        tabular("Ranking", ranking_heads(), ranking_rows(contest.rows), class_="lead"),
        el("p", _HOW, class_="note"),
        *(el("p", line, class_="warn") for line in _errors(contest)),
        el("h2", "Where each stands"),
        el("div", *map(figure, charts), class_="grid"),
        *_background(contest),
    ]
    footer = el(
        "p", f"cotenant {__version__}. This file holds all its data and loads nothing from elsewhere."
    )
    specs = {c.key: c.spec for c in charts if c.spec is not None}
    return document("Tournament", header, join(parts), footer, specs)


def _background(contest: Contest) -> list[Html]:
    best = ("Policy", "Nearest to the best in", "Farthest in")
    return [
        el("h2", "What each is good and bad at"),
        tabular("Best and worst scenarios", best, _best(contest), text_columns=3),
        el("h2", "What was played"),
        tabular("Workloads", ("Workload", "Source", "Remark"), _workloads(contest), text_columns=3),
        el("div", "", class_="gap"),
        tabular("Conditions", ("Condition", "Meaning"), _conditions(contest), text_columns=2),
        el("p", *_RULES, class_="note"),
    ]


def _errors(contest: Contest) -> list[str]:
    found: dict[tuple[str, str], int] = {}
    for result in contest.results:
        if result.error:
            key = (result.policy, result.error)
            found[key] = found.get(key, 0) + 1
    lines = [f"{policy} raised in {count} worlds: {error}" for (policy, error), count in found.items()]
    raised = {policy for policy, _ in found}
    return lines + [
        f"{row.policy} left jobs behind that others finished in {row.failed} worlds; these do not count in its score."
        for row in contest.rows
        if row.failed and row.policy not in raised
    ]


def _best(contest: Contest) -> list[tuple[str, str, str]]:
    return [(row.policy, row.best_in, row.worst_in) for row in contest.rows]


def _workloads(contest: Contest) -> list[tuple[str, str, str]]:
    return [(name, SOURCES[name].title, contest.notes.get(name, "")) for name in contest.plan.workloads]


def _conditions(contest: Contest) -> list[tuple[str, str]]:
    return [(name, _WHAT[name]) for name in contest.plan.conditions]


def markdown_page(contest: Contest, command: str) -> str:
    """The same for the documentation, with tables in place of charts."""
    lines = [
        "# Tournament of policies",
        "",
        f"Made by `{command}`; do not edit by hand.",
        "",
        _facts(contest) + ".",
        "",
    ]
    lines += [_HOW, "", *_table(ranking_heads(), ranking_rows(contest.rows)), ""]
    lines += [f"- {line}" for line in _errors(contest)]
    for title, metric, part in (
        ("Mean completion time by workload", "jct_s_mean", 0),
        ("99th percentile of waits by workload", "wait_s_p99", 0),
        ("99th percentile of all waits by workload", "queued_s_p99", 0),
        ("Overall by load", OVERALL, 1),
        ("Overall by condition", OVERALL, 2),
    ):
        lines += ["", f"## {title}", "", *_pivot(contest, metric, part)]
    for title, text, table in (
        (
            "What failures and forecasts change",
            "Mean completion time over that of the base condition:",
            _worth_table(contest),
        ),
        (
            "What each is good and bad at",
            "Scenarios (workload, load, condition) by overall score:",
            _best_table(contest),
        ),
        (
            "What was played",
            _facts(contest) + ".",
            _table(("workload", "source", "remark"), _workloads(contest)),
        ),
    ):
        lines += ["", f"## {title}", "", text, "", *table]
    lines += ["", *_table(("condition", "meaning"), _conditions(contest)), "", *_RULES]
    return "\n".join(lines).rstrip() + "\n"


_RULES = (
    "The load is set by stretching or squeezing submission times: device-seconds of work over the span of submissions, per "
    "reference device. Running times are cut at a day, gangs of more than half the devices and jobs without GPUs are left out; "
    "priorities, deadlines, device types asked for, host needs and failures of the jobs' own are, too. A seed draws the window of the "
    "trace (or the jobs), models where the trace names none, which half of the measured pairs is true and which is known, and the "
    "nodes' failures. Without measured data speeds are modelled. Conditions other than the base are played at the load nearest to 1.",
)


def _pivot(contest: Contest, metric: str, part: int) -> list[str]:
    found = scores_by(contest.grid, metric, part)
    columns = list(dict.fromkeys(c for own in found.values() for c in own))
    rows = [
        (row.policy, *(_ratio(found[row.policy].get(c, math.nan)) for c in columns)) for row in contest.rows
    ]
    return _table(("policy", *columns), rows)


def _best_table(contest: Contest) -> list[str]:
    return _table(("policy", "nearest to the best in", "farthest in"), _best(contest))


def _worth_table(contest: Contest) -> list[str]:
    found = worth(contest)
    columns = list(dict.fromkeys(c for own in found.values() for c in own))
    rows = [
        (row.policy, *(_ratio(found[row.policy].get(c, math.nan)) for c in columns)) for row in contest.rows
    ]
    return _table(("policy", *columns), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"

    return [line(heads), "|" + " --- |" * len(heads), *(line(row) for row in rows)]
