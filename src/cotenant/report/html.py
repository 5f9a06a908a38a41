"""The report of a run directory: one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from cotenant import __version__
from cotenant.model.quantities import format_duration
from cotenant.report.chartparts import Chart
from cotenant.report.charts import all_charts
from cotenant.report.compare import (
    Estimate,
    GroupChange,
    Pairing,
    by_policy,
    estimates,
    in_effect,
    pair,
    summary_frame,
)
from cotenant.report.failures import failures
from cotenant.report.headlines import headline, nobody_waits, single, stuck
from cotenant.report.logstate import log_warnings
from cotenant.report.names import METRICS, Metric
from cotenant.report.page import Html, document, el, figure, join, tabular
from cotenant.report.provenance import provenance
from cotenant.report.rundir import Run, load_manifest, load_runs
from cotenant.report.tables import cell, percent, write_csv, write_parquet
from cotenant.report.unfinished import cut_short, outcome_lines, usable

__all__ = ["build_report"]

Policies = dict[str, list[Run]]
_NO_CHANGE = "±0.0"


def build_report(directory: Path) -> Path:
    """Write ``report.html``, ``summary.csv`` and ``summary.parquet`` of a run directory.

    Returns
    -------
    Path
        The HTML file.

    Raises
    ------
    InputError
        If the directory has no runs, or their files cannot be read or compared.
    """
    all_runs = load_runs(directory)
    chosen = usable(all_runs)
    runs = in_effect(chosen)
    manifest = load_manifest(directory)
    frame = summary_frame(runs)
    write_csv(frame, directory / "summary.csv")
    write_parquet(frame, directory / "summary.parquet")
    path = directory / "report.html"
    failed = [f"{line}." for line in failures(directory, manifest)]
    told = [f"{line}." for line in manifest.get("warnings") or []]
    doubts = [*told, *failed, *log_warnings(directory, manifest), *_unfinished(all_runs)]
    page = _page(by_policy(runs), manifest, copies=len(chosen) > len(runs), doubts=doubts)
    path.write_text(page, encoding="utf-8", newline="\n")
    return path


def _page(policies: Policies, manifest: dict[str, Any], *, copies: bool, doubts: Sequence[str]) -> str:
    first, *others = policies
    pairings = [pair(policies[first], policies[name]) for name in others]
    charts = all_charts(policies)
    for i, chart in enumerate(charts):
        chart.key = f"chart-{chart.key.split('-')[0]}-{i}"  # policy names are not fit for ids
    workload = manifest.get("workload")
    name = str(workload.get("name") or "") if isinstance(workload, dict) else ""
    title = f"Sharing report: {name}" if name else "Sharing report"
    told = [*(el("p", line, class_="warn") for line in doubts), *_warnings(policies, copies)]
    header = join([el("h1", title), el("p", _facts(policies), class_="facts"), *told])
    main = join(
        [
            el("h2", "In short"),
            _headlines(policies, pairings),
            el("h2", "Summary"),
            _summary(policies, pairings),
            *([el("h2", "Who wins, who loses"), *_winners(pairings)] if pairings else []),
            el("h2", "Times"),
            _figures(charts, ("cdf", "wait", "queue")),
            el("h2", "Devices"),
            _figures(charts, ("capacity",)),
            el("h2", "What limits the waiting jobs"),
            _figures(charts, ("limits",)),
            *_calibration(charts),
            el("h2", "Device by device"),
            _figures(charts, ("heat",)),
            el("div", "", class_="gap"),
            _figures(charts, ("gantt",)),
            el("h2", "Where these numbers come from"),
            provenance(manifest, policies),
            el("h2", "What the names mean"),
            _definitions(),
        ]
    )
    footer = el(
        "p", f"cotenant {__version__}. This file holds all its data and loads nothing from elsewhere."
    )
    specs = {chart.key: chart.spec for chart in charts if chart.spec is not None}
    return document(title, header, main, footer, specs)


def _unfinished(all_runs: Sequence[Run]) -> list[str]:
    every = by_policy(all_runs)
    torn = [cut_short(p, [(r.seed, r.complete, r.metrics.summary) for r in own]) for p, own in every.items()]
    return [f"{line}." for line in torn if line]


def _facts(policies: Policies) -> str:
    runs = [run for own in policies.values() for run in own]
    seeds = sorted({run.seed for run in runs})
    summary = runs[0].metrics.summary
    parts = [
        f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}",
        f"{len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'} ({', '.join(map(str, seeds[:8]))}"
        f"{', …' if len(seeds) > 8 else ''})",
        f"{summary.get('jobs_submitted', 0):,} jobs",
        f"{summary.get('gpus', 0):,} devices",
        f"{format_duration(summary.get('window_s') or 0.0)} of simulated time",
    ]
    return " · ".join(parts)


def _warnings(policies: Policies, copies: bool) -> list[Html]:
    runs = [run for own in policies.values() for run in own]
    out = []
    if copies:
        note = "Nothing here depends on the seed: all seeds gave the same result, which counts as one run."
        out.append(el("p", note, class_="note"))
    torn = [f"{r.policy} seed {r.seed}" for r in runs if not r.metrics.summary.get("log_complete")]
    if torn:
        out.append(
            el("p", f"Incomplete logs, numbers as of their last event: {', '.join(torn)}.", class_="warn")
        )
    for policy, own in policies.items():
        told_of = stuck(policy, [run.metrics.summary for run in own])
        if told_of:
            out.append(el("p", told_of, class_="warn"))
    for line, grave in outcome_lines({p: [r.metrics.summary for r in own] for p, own in policies.items()}):
        out.append(el("p", f"{line}.", class_="warn" if grave else "note"))
    idle = nobody_waits([r.metrics.summary for r in runs])
    if idle:
        out.append(el("p", idle, class_="note"))
    cycles = {
        r.policy: r.metrics.summary["preemption_cycles"]
        for r in runs
        if r.metrics.summary.get("preemption_cycles")
    }
    if cycles:
        told = ", ".join(f"{policy} ({count:,})" for policy, count in cycles.items())
        out.append(
            el(
                "p",
                f"Jobs evict each other in turn (preemption cycles, of the last seed): {told}.",
                class_="warn",
            )
        )
    return out


def _headlines(policies: Policies, pairings: Sequence[Pairing]) -> Html:
    first = next(iter(policies.values()))
    said = [headline(p, first, policies[p.other]) for p in pairings] or [single(first)]
    return el("ul", *(el("li", lead, el("small", more)) for lead, more in said), class_="headlines")


def _summary(policies: Policies, pairings: Sequence[Pairing]) -> Html:
    values = {name: estimates(runs) for name, runs in policies.items()}
    gaps = {p.other: p for p in pairings}
    first = next(iter(policies))
    heads = [el("th", "Metric", scope="col", class_="text")]
    for name in policies:
        note = "baseline" if name == first and pairings else ""
        heads.append(el("th", name, el("span", note, class_="sub"), scope="col"))
    body: list[Html] = []
    for group, metrics in groupby(METRICS, key=lambda m: m.group):
        body.append(el("tr", el("th", group, scope="rowgroup", colspan=str(len(policies) + 1))))
        for metric in metrics:
            cells = [
                el("td", _value(metric, values[n][metric.key], values[first][metric.key], gaps.get(n)))
                for n in policies
            ]
            body.append(el("tr", el("th", metric.label, scope="row", title=metric.note), *cells))
    caption = el("caption", el("span", "Summary of all metrics by policy", class_="unseen"))
    whole = el("table", caption, el("thead", el("tr", *heads)), el("tbody", *body), class_="lead")
    notes = (
        "Means over seeds; in brackets the 95 % interval from resampling the seeds (with few seeds it is too"
        " narrow). Green and red mark differences to the first policy whose interval excludes zero."
    )
    box = el("div", whole, class_="scroll", tabindex="0", role="region", aria_label="Summary table")
    return join([box, el("p", notes, class_="note")])


def _value(metric: Metric, own: Estimate, base: Estimate, gaps: Pairing | None) -> Html:
    parts: list[str | Html] = [_number(own.mean, metric.key)]
    if own.low is not None and own.low != own.high:
        parts.append(
            el("span", f"[{_number(own.low, metric.key)}, {_number(own.high, metric.key)}]", class_="sub")
        )
    if gaps is not None:
        parts.append(_mark(metric, gaps.differences[metric.key], gaps.changes[metric.key], base))
    return join(parts)


def _number(value: float | None, key: str) -> str:
    count = key.startswith("jobs_") or key in ("preemptions", "preemption_cycles", "moves", "refused")
    if count and value is not None:
        return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"
    return cell(value, key)


def _mark(metric: Metric, gap: Estimate, change: Estimate, base: Estimate) -> Html:
    if gap.mean is None or base.mean is None:
        return Html("")
    if gap.mean == 0 and (gap.low is None or gap.low == gap.high == 0):
        return el("span", "same", class_="mark")
    text = _change(metric, gap, change)
    if not metric.better or text.startswith(_NO_CHANGE):
        return el("span", text, class_="mark")  # what rounds to nothing is neither better nor worse
    if gap.n < 2:
        return el("span", text, ", n = 1", class_="mark")
    if not gap.excludes_zero:
        return el("span", text, el("span", " (not distinguishable)", class_="unseen"), class_="mark")
    good = (gap.mean < 0) == (metric.better == "low")
    word = "better" if good else "worse"
    return el(
        "span", "▲ " if good else "▼ ", text, el("span", f" ({word})", class_="unseen"), class_=f"mark {word}"
    )


def _change(metric: Metric, gap: Estimate, change: Estimate) -> str:
    if metric.key.endswith("_share") or metric.key == "fragmentation_mean":
        shown, scale, unit = gap, 100.0, " points"
    elif change.mean is not None and not metric.key.startswith("jobs_"):
        shown, scale, unit = change, 100.0, " %"
    else:
        shown, scale, unit = gap, 1.0, " s" if metric.key.endswith("_s") else ""

    def signed(value: float | None) -> str:
        return _signed((value or 0.0) * scale, hundred=scale == 100.0)

    text = f"{signed(shown.mean)}{unit}"
    return text if shown.low is None else f"{text} [{signed(shown.low)}, {signed(shown.high)}]"


def _signed(value: float, *, hundred: bool) -> str:
    """The number with its sign; where ``hundred`` is the whole, what is not all of it does not read so."""
    text = f"{value:+,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:+.1f}"
    if hundred and text in ("-100", "+100") and abs(abs(value) - 100) > 1e-7:
        below = math.trunc(value * 10) / 10  # towards zero: -99.97 is not all
        text = f"{below:+.1f}" if abs(value) < 100 else f"{value:+.1f}"
    if text in ("-0.0", "+0.0"):
        return _NO_CHANGE
    return text.replace("-", "−")  # noqa: RUF001 - a true minus sign, as wide as the plus


def _winners(pairings: Sequence[Pairing]) -> list[Html]:
    out: list[Html] = []
    for p in pairings:
        blocks = []
        for what, groups in (("GPUs asked for", p.by_size), ("tenant", p.by_tenant)):
            if len(groups) > 1 or what == "GPUs asked for":
                blocks.append(el("div", _group_table(what, groups, p), class_="wide"))
        lead = f"{p.other} against {p.base}: {p.jobs:,} jobs in {len(p.seeds)} {'seed' if len(p.seeds) == 1 else 'seeds'}"
        loss = (
            ""
            if p.longest_loss_s is None
            else f". The hardest hit waits {format_duration(p.longest_loss_s)} longer."
        )
        out.append(
            el(
                "details",
                el("summary", lead),
                el("p", f"Same jobs, same seeds{loss}", class_="note"),
                *blocks,
            )
        )
    out[0] = Html(out[0].replace("<details>", "<details open>", 1))
    return out


def _group_table(what: str, groups: Sequence[GroupChange], p: Pairing) -> Html:
    heads = (
        f"By {what}",
        "Jobs",
        "Sooner",
        "Later",
        f"Completion, {p.base}",
        f"{p.other}",
        f"Wait, {p.base}",
        f"{p.other}",
    )
    rows = [
        (
            g.group or "(none)",
            f"{g.jobs:,}",
            percent(g.better),
            percent(g.worse),
            *(format_duration(v) for v in (g.base_jct_s, g.jct_s, g.base_wait_s, g.wait_s)),
        )
        for g in groups
    ]
    return tabular(f"{p.other} against {p.base} by {what}", heads, rows)


def _figures(charts: Sequence[Chart], kinds: tuple[str, ...]) -> Html:
    chosen = [c for c in charts if c.key.split("-")[1] in kinds]
    return el("div", *map(figure, chosen), class_="grid")


def _calibration(charts: Sequence[Chart]) -> list[Html]:
    rows = []
    for kinds in (("foretold", "inside"), ("expected", "lengths")):
        pairs = zip(*([c for c in charts if c.key.split("-")[1] == kind] for kind in kinds), strict=True)
        rows += [_figures(of_one_policy, kinds) for of_one_policy in pairs]
    gaps = [part for row in rows for part in (el("div", "", class_="gap"), row)][1:]
    return [el("h2", "Foretold, and what happened"), *gaps] if rows else []


def _definitions() -> Html:
    rows = [(m.label, m.key, m.note) for m in METRICS]
    inner = tabular("Definitions of the metrics", ("Metric", "Key", "Meaning"), rows, text_columns=3)
    return el("details", el("summary", "Definitions"), inner)
