"""Commands about elastic runs: where two of them part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cotenant.app.console import print_json, say
from cotenant.app.elasticcheck import check

__all__ = ["add_to"]


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
    """First step, logical worker and tensor at which two runs part, and the likely cause."""
    from cotenant.elastic.diff import compare, read
    from cotenant.elastic.identity import grade

    a, b = read(run_a), read(run_b)
    found, other = compare(a, b), grade(a.identity, b.identity)[1]
    wrong = [f"{path}: {text}" for path, log in ((run_a, a), (run_b, b)) for text in log.contradictions]
    if json:
        place = None if found is None else found._asdict() | {"module": found.module}
        print_json({"same": found is None, "difference": place, "identity": other, "contradictions": wrong})
    else:
        say("the same in all steps that both know" if found is None else f"step {found.step}: {found.cause}")
        if found is not None:
            worker = "" if found.worker is None else f"logical worker {found.worker}, "
            say(f"  {worker}first of {len(found.tensors)}: {found.tensors[0]}")
            say(f"  {found.evidence}")
        for text in [*(f"  identity: {one}" for one in other), *wrong]:
            say(text)
    raise typer.Exit(int(found is not None or bool(wrong)))
