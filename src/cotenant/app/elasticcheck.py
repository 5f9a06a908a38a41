"""The command that says whether a training script is elastic: elastic check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import error, note, print_json, say
from cotenant.errors import CotenantError, InputError

if TYPE_CHECKING:
    from cotenant.elastic.checks.equal import Outcome
    from cotenant.elastic.checks.findings import Report

__all__ = ["check"]

CANNOT = 2
"""Exit code where nothing could be said."""


def check(
    script: Annotated[Path, typer.Argument(help="The training script; it is read, not run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Of the script, for --run; after --.")
    ] = None,
    *,
    run: Annotated[
        int | None,
        typer.Option(
            "--run",
            metavar="STEPS",
            min=1,
            help="Also run it for so many steps on 1, 2 and 3 processes, and compare.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Of each of these runs.")
    ] = 600.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What in a training script stops equality, with its place: exit code 1 if anything stops D1."""
    from cotenant.elastic.checks import check_script

    try:
        report = check_script(script)
        outcome = None if run is None else _run(report, arguments or [], run, timeout)
    except CotenantError as wrong:
        error(str(wrong))
        raise typer.Exit(CANNOT) from None
    if outcome is not None:
        report = report.joined(outcome.findings)
    if json:
        print_json(_values(report) | ({} if outcome is None else {"run": _seen(outcome)}))
    else:
        _show(report, ran=outcome is not None)
        for line in [] if outcome is None else _told(outcome, report):
            say(line)
    differs = outcome is not None and not outcome.equal
    raise typer.Exit(int(bool(report.stopping) or differs))


def _run(report: Report, arguments: list[str], steps: int, limit_s: float) -> Outcome:
    from cotenant.elastic.checks.equal import Trial, run_equal

    if not report.moved:
        raise InputError(
            f"{report.script} does not use cotenant.elastic, so --run has nothing to compare: move it over first"
            " (docs/elastic-check.md shows three), or leave --run out"
        )
    return run_equal(Trial(report.script, arguments, steps, limit_s=limit_s), tell=note)


def _seen(outcome: Outcome) -> dict[str, Any]:
    found = outcome.difference
    return outcome._asdict() | {
        "equal": outcome.equal,
        "difference": None if found is None else found._asdict(),
        "findings": [one._asdict() | {"file": str(one.file)} for one in outcome.findings],
    }


def _told(outcome: Outcome, report: Report) -> list[str]:
    from cotenant.elastic.checks.equal import CAUSES

    found = outcome.difference
    if found is None and outcome.contradictions:
        first = f"differs: processes of one run have not the same, {outcome.contradictions[0]}"
        return [
            first,
            "    likely: something that follows the number of the process (run.first, a rank) changes the model",
        ]
    if found is None:
        tried = ", ".join(map(str, outcome.processes))
        if len(outcome.processes) == 1:
            return [
                f"{outcome.steps} steps on one process: the run allows no more, so there is nothing to compare"
            ]
        return [f"equal: {outcome.steps} steps on {tried} processes, bit for bit"]
    worker = "" if found.worker is None else f", logical worker {found.worker}"
    lines = [
        f"differs: {outcome.processes[0]} and {outcome.other} processes part at step {found.step}{worker}:"
        f" {found.tensors[0]} is the first of {len(found.tensors)}"
        + (f", in {found.module}" if found.module else ""),
        f"    {found.cause}: {found.evidence}",
        f"    likely: {CAUSES[found.cause]}",
    ]
    if outcome.again:
        lines.append("    two runs on one process differ, too: it is not even D0")
    suspects = [f"line {one.line} [{one.rule}]" for one in report.stopping]
    if suspects:
        lines.append(f"    see above: {', '.join(suspects[:5])}")
    return [*lines, *(f"    identity: {one}" for one in outcome.identity)]


def _values(report: Report) -> dict[str, Any]:
    return {
        "script": str(report.script),
        "files": [str(path) for path in report.files],
        "moved": report.moved,
        "trains": report.trains,
        "left": report.left,
        "findings": [one._asdict() | {"file": str(one.file)} for one in report.findings],
        "accepted": report.accepted,
    }


def _show(report: Report, *, ran: bool) -> None:
    for one in report.findings:
        say(f"{one.file}:{one.line}:{one.column}: {one.grade()}: {one.what}  [{one.rule}]")
        say(f"    {one.why}")
        say(f"    instead: {one.instead}")
    say(_summary(report, ran=ran))


def _summary(report: Report, *, ran: bool) -> str:
    count, more = len(report.stopping), len(report.findings) - len(report.stopping)
    rest = f", {more} more to know" if more else ""
    rest += f", {report.accepted} accepted in the script" if report.accepted else ""
    if count:
        many = "1 thing stops" if count == 1 else f"{count} things stop"
        return f"{report.script}: {many} D1; with another number of processes it is {report.left}{rest}"
    text = f"{report.script}: nothing found that stops D1{rest}"
    if not report.trains:
        return f"{text}; there is no backward() in it or beside it: is this the training script?"
    if report.moved:
        return text if ran else f"{text}; to see it, add --run 3"
    return f"{text}; it runs on one process until a few lines are changed: docs/elastic.md"
