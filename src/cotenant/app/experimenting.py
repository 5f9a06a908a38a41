"""Commands that judge: reproduce and tournament."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import note, print_json, print_table, say, warn
from cotenant.errors import UsageError

if TYPE_CHECKING:
    from cotenant.experiments.reproduce import Done
    from cotenant.tournament.contest import Contest

__all__ = ["add_to"]

PANEL = "Judge"
TWIN = "twin"

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at once; default: all cores.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that holds other things.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel=PANEL)(reproduce)
    app.command(rich_help_panel=PANEL)(tournament)


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|all|list",
            help="Experiments; also mine.py:MyExperiment, or twin: real jobs on this machine, and their simulation.",
        ),
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
    if TWIN in names:
        _twin(names, seeds, quick=quick, output=output, as_json=as_json, quiet=quiet)
        return
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    check_folder(output, "reproduction.json", KIND, force=force)
    place = Place(size="quick" if quick else "full", data=data_folder())

    def told(cell: Any) -> None:
        if not quiet:
            note(f"{cell.name} seed {cell.seed}: done")

    done = run(chosen, place, seeds=seeds, workers=workers or default_workers(), ended=told)
    more = [*([f"--seeds {seeds}"] if seeds else []), *(["--quick"] if quick else [])]
    named = [f"{v}=FOLDER" for one in done for v in one.experiment.folders if os.environ.get(v)]
    command = " ".join([*named, "cotenant reproduce", *names, *more])
    result = result_json(done, place, command)
    _write(output, done, result)
    if as_json:
        print_json(result)
    else:
        _show(done)
    if not quiet:
        note(f"page: {output / 'reproduction.html'}")


def _twin(
    names: list[str], seeds: int | None, *, quick: bool, output: Path, as_json: bool, quiet: bool
) -> None:
    """It takes the whole machine for minutes, so it is no part of ``all`` and has no other beside it."""
    from cotenant.app.twinning import twin

    if len(set(names)) > 1:
        others = ", ".join(name for name in dict.fromkeys(names) if name != TWIN)
        raise UsageError(
            f"{TWIN} times real jobs and needs the machine for itself: run {others} apart from it"
        )
    twin(repeats=seeds, quick=quick, output=output, as_json=as_json, quiet=quiet)


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
    rows.append((TWIN, "The simulator against real jobs on this machine (not part of all)", "-", "3"))
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


def tournament(
    *,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policies", "-p", metavar="NAME,...", help="Policies, also mine.py:MyPolicy; default: all."
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="NAME,...", help="Policies beside all registered ones."),
    ] = None,
    workloads: Annotated[
        str, typer.Option("--workloads", metavar="NAME,...", help="Workloads; default: all.")
    ] = "all",
    loads: Annotated[str, typer.Option("--loads", help="Loads, separated by commas.")] = "0.5,1,2",
    conditions: Annotated[
        str, typer.Option("--conditions", metavar="NAME,...", help="Conditions; default: all.")
    ] = "all",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = 3,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=20, help="Jobs of each workload; default: 600, with --quick 240."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", min=32, help="Devices, in nodes of 8; default: 64, with --quick 32."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer jobs and devices.")] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for results; those in it are kept.")
    ] = Path("tournament"),
    workers: Workers = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Play all policies on many workloads, loads and conditions, and rank them."""
    from cotenant.experiments.reproduce import data_folder
    from cotenant.runs.many import default_workers
    from cotenant.tournament.contest import Plan, contest_json, default_policies, hold
    from cotenant.tournament.scenarios import CONDITIONS
    from cotenant.tournament.workloads import SOURCES

    plan = Plan(
        policies=(*(policies or (default_policies() if add else ())), *(add or ())),
        workloads=tuple(SOURCES) if workloads == "all" else _words("--workloads", workloads, SOURCES),
        conditions=CONDITIONS if conditions == "all" else _words("--conditions", conditions, CONDITIONS),
        loads=_numbers(loads),
        seeds=seeds,
        jobs=jobs or (240 if quick else 600),
        gpus=(gpus or (32 if quick else 64)) // 8 * 8,
        data=data_folder(),
    )
    told = _Told(quiet)
    try:
        contest = hold(plan, output, workers=workers or default_workers(), force=force, ended=told)
    except KeyboardInterrupt:
        note(f"{told.so_far} kept in {output}; the same command goes on from there")
        raise
    command = _command(plan, quick=quick, added=bool(policies or add))
    _write_contest(output, contest, command)
    if as_json:
        print_json(contest_json(contest, command))
    else:
        _show_contest(contest)
    if not quiet:
        note(
            f"page: {output / 'tournament.html'} ({contest.kept} of {len(contest.results)} results were there already)"
        )


class _Told:
    """Says every tenth of the way on standard error."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._next = quiet, 0.1
        self.so_far = "what was finished is"

    def __call__(self, there: int, total: int) -> None:
        self.so_far = f"{there:,} of {total:,} runs are"
        if not self._quiet and there >= self._next * total:
            note(f"{there:,} of {total:,} runs")
            self._next = there / total + 0.1


def _words(option: str, text: str, known: Any) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        raise UsageError(f"{option}: {', '.join(unknown) or 'nothing given'}; known: {', '.join(known)}")
    return words


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(dict.fromkeys(float(word) for word in text.split(",") if word.strip()))
    except ValueError:
        found = ()
    if not found:
        raise UsageError(f"--loads takes numbers separated by commas, such as 0.5,1,2, found {text!r}")
    return found


def _command(plan: Any, *, quick: bool, added: bool) -> str:
    from cotenant.tournament.contest import Plan

    usual = Plan()
    parts = ["cotenant tournament", *(["--quick"] if quick else [])]
    if added:
        parts.append(f"--policies {','.join(plan.policies)}")
    for name in ("workloads", "conditions"):
        if getattr(plan, name) != getattr(usual, name):
            parts.append(f"--{name} {','.join(getattr(plan, name))}")
    if plan.loads != usual.loads:
        parts.append(f"--loads {','.join(f'{load:g}' for load in plan.loads)}")
    for name, value in (("seeds", 3), ("jobs", 240 if quick else 600), ("gpus", 32 if quick else 64)):
        if getattr(plan, name) != value:
            parts.append(f"--{name} {getattr(plan, name)}")
    return " ".join(parts)


def _write_contest(folder: Path, contest: Contest, command: str) -> None:
    from cotenant.report.tables import plain_json, write_csv
    from cotenant.tournament.contest import contest_json, ranking_frame, results_frame
    from cotenant.tournament.pages import html_page, markdown_page

    _text(folder / "tournament.json", plain_json(contest_json(contest, command)))
    _text(folder / "tournament.html", html_page(contest, command))
    _text(folder / "tournament.md", markdown_page(contest, command))
    write_csv(results_frame(contest), folder / "results.csv")
    write_csv(ranking_frame(contest), folder / "ranking.csv")


def _show_contest(contest: Contest) -> None:
    from cotenant.tournament.pages import ranking_heads, ranking_rows

    heads = ranking_heads()
    print_table(heads, ranking_rows(contest.rows), right=heads[1:])
    for name, text in contest.notes.items():
        say(f"{name}: {text}")
    for row in contest.rows:
        if row.failed:
            warn(f"{row.policy} failed in {row.failed} worlds; see results.csv")
