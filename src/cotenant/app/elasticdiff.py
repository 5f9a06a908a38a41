"""Commands about elastic runs: where two of them part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.app.console import error, print_json, say
from cotenant.app.elasticcheck import check

if TYPE_CHECKING:
    from cotenant.elastic.diff import Difference

__all__ = ["add_to"]

_SHOWN = 5


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    group = typer.Typer(help="Look into elastic runs.", no_args_is_help=True)
    group.command("diff")(diff)
    group.command("check")(check)
    group.callback()(lambda: None)
    app.add_typer(group, name="elastic", rich_help_panel="Train")


def diff(
    run_a: Annotated[Path, typer.Argument(help="Folder of digests of one run.")],
    run_b: Annotated[Path, typer.Argument(help="Of the other.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """First step, module, tensor and logical worker at which two runs part, and the likely cause.

    Exit code 0: the same in all that both logged; 1: they differ; 2: they cannot be compared, or not be read.
    """
    from cotenant.elastic.diff import compare, incomparable, missing
    from cotenant.elastic.identity import grade
    from cotenant.elastic.logs import read
    from cotenant.errors import InputError

    try:
        a, b = read(run_a), read(run_b)
    except InputError as problem:
        error(str(problem))
        raise typer.Exit(2) from None
    identity, reasons = grade(a.identity, b.identity)[1], incomparable(a, b)
    wrong = [f"{path}: {text}" for path, log in ((run_a, a), (run_b, b)) for text in log.contradictions]
    if reasons:
        if json:
            print_json({"comparable": False, "reasons": reasons, "identity": identity})
        error(f"{run_a} and {run_b} cannot be compared: {'; '.join(reasons)}")
        raise typer.Exit(2)
    found, lacking = compare(a, b), missing(a, b)
    steps = sorted(set(a.steps) & set(b.steps))
    if json:
        place = None if found is None else found._asdict()
        print_json(
            {
                "comparable": True,
                "same": found is None,
                "steps": steps,
                "difference": place,
                "identity": identity,
                "contradictions": wrong,
                "missing": lacking,
            }
        )
    else:
        for one in identity:
            say(f"asked for differently: {one}")
        say(f"the same in {_counted(steps)}" if found is None else _told(found))
        _list("contradiction", wrong)
        _list("not compared", lacking)
    raise typer.Exit(int(found is not None or bool(wrong)))


def _list(title: str, texts: list[str]) -> None:
    for text in texts[:_SHOWN]:
        say(f"{title}: {text}")
    if len(texts) > _SHOWN:
        say(f"{title}: {len(texts) - _SHOWN} more")


def _counted(steps: list[int]) -> str:
    return (
        f"all {len(steps)} steps that both logged, {steps[0]} to {steps[-1]}"
        if len(steps) > 1
        else f"step {steps[0]}"
    )


def _told(found: Difference) -> str:
    from cotenant.elastic.diff import ADVICE

    worker = "all logical workers" if found.worker is None else f"logical worker {found.worker}"
    more = f" and {len(found.tensors) - 1} more" if len(found.tensors) > 1 else ""
    lines = [
        f"step {found.step}, {worker}: {found.cause}",
        f"  module: {found.module or 'none'}",
        f"  first:  {found.tensors[0]}{more}",
        f"  why:    {found.evidence}",
        f"  look:   {ADVICE[found.cause]}",
    ]
    return "\n".join(lines)
