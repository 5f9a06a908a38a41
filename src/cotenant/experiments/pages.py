"""What experiments gave, as a page that opens offline, as Markdown, and as a flat table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from cotenant import __version__
from cotenant.experiments.base import Curve, Table
from cotenant.experiments.reproduce import Done
from cotenant.experiments.standing import combine
from cotenant.experiments.words import difference, label, mean_spread, ours, verdict
from cotenant.report.chartparts import Chart, chart, finished, rounded
from cotenant.report.page import Html, document, el, figure, join, tabular
from cotenant.report.phrases import plural

__all__ = ["claims_frame", "html_page", "markdown_page"]

_HEADS = ("Claim", "Paper", "Ours", "Difference", "Verdict")
_WHY = (*_HEADS, "Why")
_INTRO = (
    "Each experiment is a re-creation: set-up and workload follow the publication as far as it says, and what it leaves "
    "open is named. Nothing is tuned until the published number comes out; where ours is lower or higher, the reason stands "
    "beside it. Ours: mean ± standard deviation over seeds. Difference: from ours to the nearest bound of the paper's."
)
_VERDICTS = (
    "Reproduced: the mean lies within the paper's range (for some widened by a few per cent, which is said below where ours is explained). Exceeded: beyond it on the side that is better. "
    "Differs: beyond it on the other side, or where neither side is better. What a publication gives no number for is measured all the same, and stands with its experiment."
)


def html_page(done: Sequence[Done], command: str, size: str) -> str:
    """One file with its data inside; nothing is loaded from elsewhere."""
    charts: list[Chart] = []
    parts: list[Html] = [el("h2", "Published numbers"), el("p", _tally(done)), _overview(done)]
    for one in done:
        parts += _section(one, charts)
    header = join(
        [
            el("h1", "Published experiments, re-created"),
            el("p", f"{plural(len(done), 'experiment')} · {command} · size {size}", class_="facts"),
            el("p", _INTRO, class_="note"),
            el("p", _VERDICTS, class_="note"),
        ]
    )
    footer = el(
        "p", f"cotenant {__version__}. This file holds all its data and loads nothing from elsewhere."
    )
    specs = {c.key: c.spec for c in charts if c.spec is not None}
    return document("Published experiments, re-created", header, join(parts), footer, specs)


def _overview(done: Sequence[Done]) -> Html:
    return tabular("Published numbers", _HEADS, _overview_rows(done), text_columns=2, class_="lead")


_MANY = {"differs": "differ"}


def _tally(done: Sequence[Done]) -> str:
    """How many of each verdict."""
    found: dict[str, int] = {}
    for one in done:
        for s in one.standings:
            found[verdict(s)] = found.get(verdict(s), 0) + 1
    order = ("reproduced", "exceeded", "differs", "not measured here")
    parts = [f"{n} {word if n == 1 else _MANY.get(word, word)}" for word in order if (n := found.get(word))]
    rest = sum(count for word, count in found.items() if word not in order)
    told = "; ".join(parts) or "None"
    return f"{told}. {rest} more have no published number." if rest else f"{told}."


def _section(one: Done, charts: list[Chart]) -> list[Html]:
    experiment = one.experiment
    parts = [
        el("h2", experiment.title),
        el("p", experiment.paper),
        el("p", f"Source: {experiment.source}", class_="note"),
    ]
    if experiment.reconstruction:
        inner = el("ul", *(el("li", line) for line in experiment.reconstruction), class_="plain")
        parts.append(el("details", el("summary", "What we had to choose (RECONSTRUCTION)"), inner))
    if one.missing:
        return [*parts, el("p", one.missing, class_="warn")]
    parts += [el("p", line, class_="note") for line in _notes(one)]
    parts.append(_claims(f"Claims of {experiment.name}", _WHY, _claim_rows(one)))
    hows = el(
        "ul",
        *(el("li", f"{what}: {how}") for what, how in _hows(one)),
        class_="plain",
    )
    parts.append(el("details", el("summary", "How ours is computed"), hows))
    for title, columns, body, texts in _tables(one):
        parts += [
            el("div", "", class_="gap"),
            el("h3", title),
            tabular(f"{experiment.name}: {title}", columns, body, text_columns=texts, class_="lead"),
        ]
    curves = one.measured[0].curves if one.measured else []
    if curves:
        drawn = [_drawn(curve, f"chart-curve-{len(charts) + i}") for i, curve in enumerate(curves)]
        charts += drawn
        parts += [el("div", "", class_="gap"), el("div", *map(figure, drawn), class_="grid")]
    return parts


def _claims(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """As ``tabular``, but the last column is text that may wrap."""
    head = el(
        "tr", *(el("th", h, scope="col", class_="" if i in (2, 3) else "text") for i, h in enumerate(heads))
    )
    body = [
        el(
            "tr",
            el("th", row[0], scope="row"),
            *(el("td", v, class_="" if i in (1, 2) else "text") for i, v in enumerate(row[1:])),
        )
        for row in rows
    ]
    table = el(
        "table", el("caption", el("span", caption, class_="unseen")), el("thead", head), el("tbody", *body)
    )
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _notes(one: Done) -> list[str]:
    return list(dict.fromkeys(line for m in one.measured for line in m.notes))


def _tables(one: Done) -> list[tuple[str, list[str], list[list[str]], int]]:
    """Title, heads, cells, and how many columns at the left are text."""
    by_title: dict[str, list[Table]] = {}
    for measured in one.measured:
        for table in measured.tables:
            by_title.setdefault(table.title, []).append(table)
    out = []
    for title, tables in by_title.items():
        rows = combine(tables)
        columns = list(rows[0]) if rows else []
        texts = next((i for i, c in enumerate(columns) if not isinstance(rows[0][c], str)), len(columns))
        body = [[mean_spread(r[c], c) for c in columns] for r in rows]
        out.append((title, [label(c) for c in columns], body, texts))
    return out


def _drawn(curve: Curve, key: str) -> Chart:
    import altair as alt

    rows = [
        {"line": name, "x": rounded(x, 6), "y": rounded(y)}
        for name, points in curve.lines.items()
        for x, y in points
    ]
    names = list(curve.lines)
    x_scale = alt.Scale(type="log") if curve.log_x else alt.Scale(nice=False, zero=False)
    colour = alt.Color(
        "line:N",
        sort=names,
        title=None,
        scale=alt.Scale(domain=names),
        legend=alt.Legend(orient="top", columns=3),
    )
    spec = (
        chart()
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("x:Q", title=curve.x, scale=x_scale, axis=alt.Axis(grid=False)),
            y=alt.Y("y:Q", title=curve.y),
            color=colour,
            tooltip=["line:N", alt.Tooltip("x:Q", title=curve.x), alt.Tooltip("y:Q", title=curve.y)],
        )
    )
    return Chart(key, curve.title, curve.text, finished(spec, rows), empty="Nothing to draw.")


def markdown_page(done: Sequence[Done], command: str, size: str) -> str:
    """The same for the documentation; charts are left out."""
    lines = [
        "# Published experiments, re-created",
        "",
        f"Made by `{command}` (size: {size}); do not edit by hand.",
        "",
    ]
    lines += [_INTRO, "", _VERDICTS, "", "## Published numbers", "", _tally(done), ""]
    lines += [*_markdown_table(_HEADS, _overview_rows(done)), ""]
    for one in done:
        lines += _markdown_section(one)
    return "\n".join(lines).rstrip() + "\n"


def _overview_rows(done: Sequence[Done]) -> list[tuple[str, ...]]:
    """Claims with a published number."""
    return [
        (f"{one.experiment.name}: {s.claim.what}", s.claim.paper, ours(s), difference(s), verdict(s))
        for one in done
        for s in one.standings
        if s.verdict != "measured"
    ]


def _claim_rows(one: Done) -> list[tuple[str, ...]]:
    """Every claim of an experiment; a reason that follows itself is not repeated."""
    rows, last = list[tuple[str, ...]](), ""
    for s in one.standings:
        why = "as above" if s.reason and s.reason == last else s.reason
        rows.append((s.claim.what, s.claim.paper, ours(s), difference(s), verdict(s), why))
        last = s.reason
    return rows


def _hows(one: Done) -> list[tuple[str, str]]:
    """How claims are computed, and where the paper has them; those that are alike together."""
    found: dict[str, list[str]] = {}
    for s in one.standings:
        within = (
            f" Up to {100 * s.claim.tolerance:g} % beside it counts as reproduced."
            if s.claim.tolerance
            else ""
        )
        how = f"{s.claim.how or 'not measured here'}.{within} Paper: {s.claim.source}."
        found.setdefault(how, []).append(s.claim.what)
    return [("; ".join(whats), how) for how, whats in found.items()]


def _markdown_section(one: Done) -> list[str]:
    experiment = one.experiment
    lines = [
        f"## {experiment.name}: {experiment.title.partition(': ')[2] or experiment.title}",
        "",
        experiment.paper,
        "",
    ]
    lines += [f"Source: {experiment.source}.", ""]
    if experiment.reconstruction:
        lines += [
            "What we had to choose (RECONSTRUCTION):",
            "",
            *(f"- {text}" for text in experiment.reconstruction),
            "",
        ]
    if one.missing:
        return [*lines, f"Not run: {one.missing}", ""]
    seeds = f"{len(one.seeds)} seeds" if len(one.seeds) != 1 else "one seed"
    for line in _notes(one):
        lines += [line, ""]
    lines += [f"Over {seeds}:", ""]
    lines += [*_markdown_table(_WHY, _claim_rows(one)), "", "How ours is computed:", ""]
    lines += [*(f"- *{what}.* {how[:1].upper()}{how[1:]}" for what, how in _hows(one)), ""]
    for title, columns, body, _ in _tables(one):
        lines += [f"### {title}", "", *_markdown_table(columns, body), ""]
    return lines


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"

    return [line(heads), "|" + " --- |" * len(heads), *(line(row) for row in rows)]


def claims_frame(done: Sequence[Done]) -> pl.DataFrame:
    """One row for each claim."""
    rows: list[dict[str, Any]] = [
        {
            "experiment": one.experiment.name,
            "claim": s.claim.key,
            "what": s.claim.what,
            "paper": s.claim.paper,
            "paper_low": s.claim.low,
            "paper_high": s.claim.high,
            "unit": s.claim.unit,
            "ours_mean": s.mean,
            "ours_spread": s.spread,
            "seeds": len(s.values),
            "difference": s.difference,
            "verdict": s.verdict,
            "reason": s.reason,
            "source": s.claim.source,
        }
        for one in done
        for s in one.standings
    ]
    numbers = ("paper_low", "paper_high", "ours_mean", "ours_spread", "difference")
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(numbers, pl.Float64), infer_schema_length=None)
