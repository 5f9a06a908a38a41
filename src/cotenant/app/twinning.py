"""The command that runs a mix of jobs for real and in the simulator: twin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.app.console import note, print_json, print_table

if TYPE_CHECKING:
    from cotenant.twin.mix import Mix
    from cotenant.twin.study import Study

__all__ = ["add_to"]

PANEL = "Judge"
_SHARING = "colocate:guest_s=0:doubt=0"
_POLICIES = f"fifo,{_SHARING},cotenant:doubt=0"
# The forecast looks up what was measured here, so its doubt is not counted; guests are other kinds of jobs.


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(rich_help_panel=PANEL)(twin)


def twin(
    *,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured", help="Folder of a campaign of these kinds on this machine; left out: measure first."
        ),
    ] = None,
    policies: Annotated[
        str,
        typer.Option("--policies", "-p", metavar="NAME,...", help="fifo is the baseline and always runs."),
    ] = _POLICIES,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Live runs of each policy; default: 3.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=2, help="Jobs of the mix; default: 20.")] = None,
    sharers: Annotated[int, typer.Option("--sharers", min=1, max=4, help="Most jobs on one core set.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Eight short jobs, two policies, once.")] = False,
    light: Annotated[
        bool, typer.Option("--light", help="Jobs of NumPy alone, which start at once and need no PyTorch.")
    ] = False,
    gang: Annotated[
        bool, typer.Option("--gang/--no-gang", help="One job of the mix takes both cores at once.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", help="Of the mix.")] = 1,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the page and the numbers.")
    ] = Path("twin"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")] = False,
) -> None:
    """Run a mix of training jobs on this machine's cores for real, and in the simulator, and compare."""
    from cotenant.twin.page import plain

    mix = _mix(jobs or (8 if quick else 20), seed, quick=quick, light=light, gang=gang)
    words = _command(
        policies=policies,
        repeats=repeats,
        jobs=jobs,
        sharers=sharers,
        quick=quick,
        light=light,
        seed=seed,
        no_gang=not gang,
    )
    found = _study(
        mix,
        _chosen(f"fifo,{_SHARING}" if quick and policies == _POLICIES else policies),
        (measured or output / "measured").absolute(),
        quick=quick,
        repeats=repeats or (1 if quick else 3),
        sharers=sharers,
        tell=(lambda text: None) if quiet else note,
        keep=lambda so_far: _write(output, so_far, words),
    )
    if as_json:
        print_json(plain(found, words))
    else:
        _show(found)
    if not quiet:
        note(f"page: {output / 'twin.html'}")


def _study(
    mix: Mix,
    policies: dict[str, str],
    folder: Path,
    *,
    quick: bool,
    repeats: int,
    sharers: int,
    tell: Callable[[str], None],
    keep: Callable[[Study], None],
) -> Study:
    from cotenant.twin.study import device_names, known_of, study

    known, table = known_of(
        mix,
        folder,
        device_names()[0],
        budget_s=60.0 if quick else 150.0,
        window_s=0.8 if quick else 1.2,
        tell=tell,
    )
    return study(
        mix,
        policies,
        folder,
        repeats=repeats,
        settings={"max_sharers": sharers},
        known=known,
        table=table,
        tell=tell,
        keep=keep,
    )


def _mix(count: int, seed: int, *, quick: bool, light: bool, gang: bool = True) -> Mix:
    from cotenant.profiles.jobs.included import need_torch
    from cotenant.twin.mix import PLAIN, TORCH, draw
    from cotenant.twin.study import device_names

    if not light:
        need_torch()
    work_s = (1.5, 3.0) if quick else (3.5, 7.5)
    return draw(
        PLAIN if light else TORCH[:2] if quick else TORCH,
        count,
        seed=seed,
        work_s=work_s,
        gap_s=0.2 * work_s[0] + 0.4,
        gang=gang and not quick and not light and len(device_names()) > 1,
    )


def _chosen(policies: str) -> dict[str, str]:
    from cotenant.runs.spec import build_policy, parse_policies
    from cotenant.twin.study import BASELINE

    texts = [BASELINE, *(text for text in policies.split(",") if text.strip() not in ("", BASELINE))]
    for spec in parse_policies(texts):
        build_policy(spec)  # whatever is wrong with it is told before anything runs
    return {text.partition(":")[0]: text.strip() for text in texts}


def _command(**given: object) -> str:
    usual = {"policies": _POLICIES, "sharers": 2, "seed": 1}
    words = ["cotenant twin"]
    for name, value in given.items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value not in (None, False, usual.get(name)):
            words.append(f"--{name} {value}")
    return " ".join(words)


def _write(folder: Path, found: Study, command: str) -> None:
    from cotenant.report.tables import plain_json
    from cotenant.twin.page import html_page, plain

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("twin.json", plain_json(plain(found, command))),
        ("twin.html", html_page(found, command)),
    ):
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _show(found: Study) -> None:
    from cotenant.twin.page import GAIN_HEADS, LIKE_HEADS, SIDE_HEADS, gain_cells, like_cells, side_cells

    print_table(SIDE_HEADS, side_cells(found), right=("live", "simulated", "difference"))
    print_table(GAIN_HEADS, gain_cells(found), right=("live", "simulated"))
    print_table(LIKE_HEADS, like_cells(found), right=LIKE_HEADS[1:])
