"""Write results into the page ``docs/performance.md``, between its two marks.

::

    python -m bench.render results.jsonl

``--stdout`` prints the tables instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.budgets import verdicts
from bench.common_trace import PUBLISHED
from bench.measure import ROOT, read
from bench.speed import key_of

__all__ = ["BEGIN", "END", "main", "put", "tables"]

Row = dict[str, Any]

BEGIN, END = "<!-- results: begin (written by bench.render) -->", "<!-- results: end -->"
MIB = 2**20
_SHAPES = {
    "poisson": "Jobs arrive one by one",
    "zero": "All jobs arrive at time 0",
    "blocked": "Nine jobs in ten wait for a device type that is taken",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1) -> list[str]:
    """Lines of a table in Markdown; the first ``text`` columns are words, the rest numbers."""
    marks = ["---"] * text + ["---:"] * (len(head) - text)
    lines = [head, marks, *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def tables(rows: Sequence[Row]) -> str:
    """All tables of these results; where a cell was measured twice, the later one counts."""
    latest: dict[tuple[Any, ...], Row] = {}
    others: list[Row] = []
    for row in rows:
        if "kind" in row:
            others.append(row)
        else:
            latest[key_of(row)] = row
    cells = list(latest.values())
    lines = [*_machines(rows), *_budgets([*cells, *others])]
    for shape, title in _SHAPES.items():
        lines += _grid([row for row in cells if row["shape"] == shape], title)
    lines += [*_details(cells), *_decide(others), *_common(others)]
    return "\n".join(lines).rstrip() + "\n"


def _machines(rows: Sequence[Row]) -> Iterator[str]:
    seen: list[Row] = []
    for row in rows:
        if "machine" in row and row["machine"] not in seen:
            seen.append(row["machine"])
    loops = [value for row in rows for value in row.get("calibration_s", ())]
    for facts in seen:
        yield (
            f"Measured on {facts['cpus']} CPUs ({facts['architecture']}), {facts['system']}, "
            f"{facts['implementation']} {facts['python']}, one thread."
        )
    if loops:
        yield (
            f"The calibration loop took {min(loops):.3f} to {max(loops):.3f} s beside the cells: differences "
            f"smaller than {max(loops) / min(loops) - 1.0:.0%} mean nothing."
        )
    spreads = [row["spread"] for row in rows if row.get("spread") is not None]
    if spreads:
        most = max(len(row["repeats"]) for row in rows if row.get("spread") is not None)
        yield f"Best of {most} runs; the slowest was up to {max(spreads):.0%} slower."
    yield ""


def _budgets(rows: Sequence[Row]) -> list[str]:
    words = {True: "yes", False: "**no**", None: "-"}
    body = [(v.what, v.bound, v.measured, words[v.met]) for v in verdicts(rows)]
    return ["### Budgets", "", *table(("what", "budget", "measured", "met"), body, text=4)]


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row["status"] != "ok":
        return f"over {row['budget_s']:g} s" if row["status"] == "over-budget" else str(row["status"])
    return f"{row['jobs'] / row['cpu_s']:,.0f} ({row['peak_bytes'] / MIB:,.0f} MiB)"


def _name(row: Row) -> tuple[str, str]:
    return row["policy"], f"{row['load']:g}" if row["shape"] == "poisson" else "-"


def _grid(cells: Sequence[Row], title: str) -> Iterator[str]:
    if not cells:
        return
    devices = sorted({row["devices"] for row in cells})
    for jobs in sorted({row["jobs"] for row in cells}):
        found: dict[tuple[str, str], dict[int, Row]] = {}
        for row in cells:
            if row["jobs"] == jobs:
                found.setdefault(_name(row), {})[row["devices"]] = row
        yield f"### {title}: {jobs:,} jobs"
        yield ""
        yield "Jobs per CPU-second (peak memory of the process), by number of devices."
        yield ""
        head = ("policy", "load", *(f"{size:,}" for size in devices))
        body = [(*name, *(_cell(line.get(size)) for size in devices)) for name, line in sorted(found.items())]
        yield from table(head, body)


def _details(cells: Sequence[Row]) -> list[str]:
    good = [row for row in cells if row["status"] == "ok"]
    if not good:
        return []
    widest = max(row["devices"] for row in good)
    body = []
    for row in sorted((r for r in good if r["devices"] == widest), key=lambda r: (r["jobs"], *_name(r))):
        loops = row["calibration_s"]
        spread = row.get("spread")
        body.append(
            (
                *_name(row),
                f"{row['jobs']:,}" + ("" if row["shape"] == "poisson" else f", {row['shape']}"),
                f"{row['jobs'] / row['cpu_s']:,.0f}",
                f"{row['jobs'] / (row['cpu_s'] + row['start_cpu_s']):,.0f}",
                _against_yardstick(row, good),
                f"{row['events'] / row['jobs']:.2f}",
                f"{row['most_pending']:,}",
                f"{1e6 * row['loop_cpu_s'] / row['jobs']:.1f}",
                f"{row['summary_cpu_s']:.2f}",
                f"{loops[0]:.3f}, {loops[1]:.3f}",
                "" if spread is None else f"{spread:.0%}",
            )
        )
    head = "policy,load,jobs,jobs/s,with start-up,cost in FIFOs,events per job,most pending,loop us per job,summary s,calibration s,spread"
    return [f"### More about the cells with {widest:,} devices", "", *table(head.split(","), body)]


def _against_yardstick(row: Row, rows: Sequence[Row]) -> str:
    """CPU time in units of FIFO's for the same jobs and devices, of the same run if there is one."""
    same = [
        other
        for other in rows
        if other["policy"] == "fifo"
        and all(other[name] == row[name] for name in ("jobs", "devices", "shape", "seed"))
    ]
    if not same:
        return ""
    best = min(same, key=lambda other: (other.get("run") != row.get("run"), other["load"]))
    return f"{row['cpu_s'] / best['cpu_s']:.1f}"


def _decide(rows: Sequence[Row]) -> list[str]:
    latest = {
        (row["policy"], row["pending"], row["devices"]): row
        for row in rows
        if row.get("kind") == "decide" and row.get("p99_ms") is not None
    }
    if not latest:
        return []
    body = [
        (
            policy,
            f"{pending:,}",
            f"{devices:,}",
            f"{row['calls']:,}",
            f"{row['p50_ms'] * 1e3:.1f}",
            f"{row['p99_ms'] * 1e3:.1f}",
            f"{row['worst_ms']:.2f}",
            f"{row['first_instant_ms']:,.0f}",
        )
        for (policy, pending, devices), row in sorted(latest.items())
    ]
    head = "policy,waiting at least,devices,decisions,median us,p99 us,worst ms,first instant ms"
    return ["### One decision", "", *table(head.split(","), body)]


def _common(rows: Sequence[Row]) -> list[str]:
    latest = {
        (row["trace"], row["policy"]): row
        for row in rows
        if row.get("kind") == "common" and row["status"] == "ok"
    }
    if not latest:
        return []
    body = []
    for (trace, policy), row in sorted(
        latest.items(), key=lambda item: (item[1]["jobs"], item[1]["devices"], item[0][1])
    ):
        ratios = {name: _range(*pair) for name, pair in row["ratios"].items()}
        name = trace.removesuffix(".csv.gz")
        against = [ratios.get(name, "") for name in PUBLISHED]
        body.append((name, policy, f"{row['jobs_per_cpu_s']:,.0f}", *against))
    head = ("trace", "policy", "jobs per CPU-second", *(f"against {name}" for name in PUBLISHED))
    return ["### The common traces", "", *table(head, body, text=2)]


def _range(low: float, high: float) -> str:
    texts = [f"{value:.1f}" if value < 10 else f"{value:,.0f}" for value in (low, high)]
    return f"{texts[0]}x" if texts[0] == texts[1] else f"{texts[0]}x to {texts[1]}x"


def put(page: str, text: str) -> str:
    """The page with its results replaced.

    Raises
    ------
    ValueError
        If the page does not have both marks, in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs a line {BEGIN!r} and after it a line {END!r}")
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Render a file of results."""
    parser = argparse.ArgumentParser(prog="python -m bench.render", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument("--stdout", action="store_true")
    given = parser.parse_args(arguments)
    rows = read(given.results)
    if not rows:
        parser.exit(2, f"{given.results}: no results in it; make some with python -m bench.speed\n")
    text = tables(rows)
    if given.stdout:
        print(text, end="")
    else:
        given.page.write_text(put(given.page.read_text(encoding="utf-8"), text), encoding="utf-8")
        print(f"{len(rows)} results written into {given.page}")


if __name__ == "__main__":
    main()
