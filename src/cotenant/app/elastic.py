"""The command that runs a training on a changing number of processes: run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from cotenant.app.console import note
from cotenant.errors import InputError

__all__ = ["add_to"]

PANEL = "Train"
FEW = 64
"""So many processes are taken on any machine; above it, four for each core: a slip of the pen must not fork thousands."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    words = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(rich_help_panel=PANEL, context_settings=words)(run)


def run(
    command: Annotated[list[str], typer.Argument(help="The training script and its arguments, after --.")],
    *,
    elastic: Annotated[
        str, typer.Option("--elastic", metavar="MIN:MAX", help="Fewest and most processes; 3 is 3:3.")
    ],
    control: Annotated[
        Path | None,
        typer.Option(
            "--control",
            help="File with the number of processes that are wanted, or a line for each place; rewrite it at any"
            " time. A line 'checkpoint WORD' orders a checkpoint, once for each WORD.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="CPU threads of each process; default: cores / MAX."),
    ] = None,
    restarts: Annotated[
        int, typer.Option("--restarts", min=0, help="Processes that were killed are replaced so many times.")
    ] = 10,
    place: Annotated[
        list[str] | None,
        typer.Option(
            "--place",
            metavar="NAME=VALUE...",
            help="Where one process goes: variables and cores, 'CUDA_VISIBLE_DEVICES=0 cores=0-3'; once for each.",
        ),
    ] = None,
    hang_after: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            metavar="SECONDS",
            help="Kill and replace a process that is at one step for so long; default: wait for it.",
        ),
    ] = None,
    account: Annotated[
        Path | None,
        typer.Option(
            "--account",
            help="File that always tells where processes are, as JSON; written when that changes.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing of changes.")] = False,
) -> None:
    """Run a script that uses cotenant.elastic on several processes, which may come, go and be killed."""
    from cotenant.elastic.slots import Slot
    from cotenant.elastic.supervisor import Supervisor

    found = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", elastic)
    if found is None:
        raise InputError(f"--elastic {elastic!r}: it must be MIN:MAX, for example 1:4")
    least, most = int(found[1]), int(found[2] or found[1])
    limit = max(FEW, 4 * len(os.sched_getaffinity(0)))
    if most > limit:
        raise InputError(
            f"--elastic {elastic!r}: it starts with MAX processes, and this machine takes {limit} at most"
        )
    supervisor = Supervisor(
        command,
        least,
        most,
        control=control,
        threads=threads,
        restarts=restarts,
        tell=(lambda text: None) if quiet else note,
        slots=[Slot.parse(text) for text in place] if place else None,
        hang_after_s=hang_after,
        account=account,
    )
    raise typer.Exit(supervisor.run())
