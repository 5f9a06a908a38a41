"""What the commands of the live scheduler share: its options, the connection, jobs by number or name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import error, print_json, say
from cotenant.app.livetables import ON_DEVICES

if TYPE_CHECKING:
    from cotenant.live.client import Client
    from cotenant.live.views import JobView

__all__ = ["PANEL", "JobArgument", "JobsArgument", "Json", "Key", "State", "ask_each", "asking", "each_job"]

PANEL = "Run jobs"

State = Annotated[
    Path | None,
    typer.Option("--state", help="The scheduler's state folder; default: COTENANT_STATE_DIR, else your own."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON value on standard output.")]
Key = Annotated[
    str | None,
    typer.Option("--key", help="Your own id of this request; asking again with it does nothing twice."),
]
JobArgument = Annotated[str, typer.Argument(help="The job: its number (7 or #7) or name.", metavar="JOB")]
JobsArgument = Annotated[
    list[str] | None, typer.Argument(help="Jobs, each by number (7 or #7) or name.", metavar="JOB...")
]


@contextmanager
def asking(state: Path | None) -> Iterator[Client]:
    """A client of the scheduler on that state folder."""
    from cotenant.live.client import Client, connect

    with Client(lambda: connect(state)) as client:
        yield client


def each_job(client: Client, names: Sequence[str] | None, everything: bool) -> list[JobView]:
    """The jobs that were named, or all that have not ended.

    Raises
    ------
    UsageError
        If neither was asked for, or both.
    """
    from cotenant.errors import UsageError

    if everything and names:
        raise UsageError("name jobs, or give --all, not both")
    if everything:
        # Those that wait first: else they would start for a moment where others leave.
        return sorted(client.jobs(live=True, limit=100_000), key=lambda job: job.status in ON_DEVICES)
    if not names:
        raise UsageError("name at least one job, or give --all; cotenant ps lists them")
    return [client.find(name) for name in names]


def ask_each(
    state: Path | None,
    names: Sequence[str] | None,
    everything: bool,
    kind: str,
    *,
    key: str | None,
    as_json: bool,
    told: Callable[[JobView], str],
    **arguments: Any,
) -> None:
    """Ask the same of several jobs; what fails for one is told, and the others are asked all the same."""
    from cotenant.errors import CotenantError
    from cotenant.live.client import new_key

    base, answers, worst = key or new_key(), [], 0
    with asking(state) as client:
        jobs = each_job(client, names, everything)
        for job in jobs:
            own = base if len(jobs) == 1 else f"{base}.{job.id}"
            answer: dict[str, Any] = {"id": job.id, "name": job.name}
            try:
                client.command(job.id, kind, own, **arguments)
            except CotenantError as problem:
                if len(jobs) == 1:
                    raise
                worst = max(worst, problem.exit_code)
                answer["error"] = str(problem)
                error(str(problem))
            else:
                if not as_json:
                    say(told(job))
            answers.append(answer)
    if as_json:
        print_json({kind: answers})
    if worst:
        raise typer.Exit(worst)
