"""Commands that judge: reproduce and tournament."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import note, print_json, print_table, say

if TYPE_CHECKING:
    from cotenant.experiments.reproduce import Done

__all__ = ["add_to"]

PANEL = "Judge"

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at once; default: all cores.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that holds other things.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel=PANEL)(reproduce)


def reproduce(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME|all|list", help="Experiments; also mine.py:MyExperiment.")
    ],
    *,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="How many seeds; default: the experiment's own number."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything, for a first look.")] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the page, tables and JSON.")
    ] = Path("reproduction"),
    workers: Workers = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Re-create published experiments: the paper's numbers, ours, and why they differ."""
    from cotenant.experiments.base import Place
    from cotenant.experiments.catalogue import EXPERIMENTS
    from cotenant.experiments.reproduce import KIND, check_folder, data_folder, result_json
    from cotenant.experiments.reproduce import reproduce as run
    from cotenant.runs.many import default_workers

    if "list" in names:
        _list(as_json)
        return
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    check_folder(output, "reproduction.json", KIND, force=force)
    place = Place(size="quick" if quick else "full", data=data_folder())

    def told(cell: Any) -> None:
        if not quiet:
            note(f"{cell.name} seed {cell.seed}: done")

    done = run(chosen, place, seeds=seeds, workers=workers or default_workers(), ended=told)
    more = [f"--seeds {seeds}"] if seeds else []
    command = " ".join(["cotenant reproduce", *names, *more, *(["--quick"] if quick else [])])
    result = result_json(done, place, command)
    _write(output, done, result)
    if as_json:
        print_json(result)
    else:
        _show(done)
    if not quiet:
        note(f"page: {output / 'reproduction.html'}")


def _list(as_json: bool) -> None:
    from cotenant.experiments.catalogue import EXPERIMENTS, find

    found = {name: find(name) for name in EXPERIMENTS}
    if as_json:
        print_json(
            [
                {"name": n, "title": e.title, "claims": len(e.claims), "seeds": e.seeds}
                for n, e in found.items()
            ]
        )
        return
    rows = [(name, e.title, str(len(e.claims)), str(e.seeds)) for name, e in found.items()]
    print_table(("experiment", "title", "claims", "seeds"), rows, right=("claims", "seeds"))


def _write(folder: Path, done: list[Done], result: dict[str, Any]) -> None:
    from cotenant.experiments.pages import claims_frame, html_page, markdown_page
    from cotenant.report.tables import plain_json, write_csv

    folder.mkdir(parents=True, exist_ok=True)
    command, size = result["command"], result["size"]
    _text(folder / "reproduction.json", plain_json(result))
    _text(folder / "reproduction.html", html_page(done, command, size))
    _text(folder / "reproduction.md", markdown_page(done, command, size))
    write_csv(claims_frame(done), folder / "claims.csv")


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _show(done: list[Done]) -> None:
    from cotenant.experiments.words import difference, ours, verdict

    for one in done:
        if one.missing:
            say(f"{one.experiment.title}: not run: {one.missing}")
            continue
        seeds = "one seed" if len(one.seeds) == 1 else f"{len(one.seeds)} seeds"
        rows = [(s.claim.what, s.claim.paper, ours(s), difference(s), verdict(s)) for s in one.standings]
        columns = ("claim", "paper", "ours", "difference", "verdict")
        print_table(
            columns, rows, title=f"{one.experiment.title} ({seeds})", right=("paper", "ours", "difference")
        )
        for s in one.standings:
            if s.reason:
                say(f"  {s.claim.what}: {s.reason}")
        say("")
