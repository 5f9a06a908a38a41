"""The command that waits for jobs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import note, print_json
from cotenant.app.livebase import PANEL, Json, State, asking
from cotenant.app.livetables import ENDED, job_title
from cotenant.model.quantities import format_duration

if TYPE_CHECKING:
    from cotenant.live.client import Client
    from cotenant.live.views import JobView

__all__ = ["add_to", "wait_for"]

_POLL_S = (0.1, 1.0)
_FEW = 8


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(rich_help_panel=PANEL)(wait)


def wait(
    jobs: Annotated[list[str], typer.Argument(help="Jobs, by number or name.", metavar="JOB...")],
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Give up after this time (10min); exit code 1.")
    ] = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Wait until jobs have ended. Exit code 0 if all are done, else 1."""
    from cotenant.model.quantities import parse_duration

    limit_s = None if timeout is None else parse_duration(timeout)
    with asking(state) as client:
        numbers = [client.find(name).id for name in jobs]
        ended = wait_for(client, numbers, quiet=as_json, limit_s=limit_s)
    if as_json:
        print_json(
            {"jobs": [ended.get(n, {"id": n, "status": "", "reason": "still going"}) for n in numbers]}
        )
    if len(ended) < len(set(numbers)) or any(one["status"] != "done" for one in ended.values()):
        raise typer.Exit(1)


def wait_for(
    client: Client, numbers: Sequence[int], *, quiet: bool, limit_s: float | None = None
) -> dict[int, dict[str, Any]]:
    """Wait until they have ended, or the time is over; those that have, by number."""
    left, found = list(dict.fromkeys(numbers)), {}
    pause, deadline = _POLL_S[0], None if limit_s is None else time.monotonic() + limit_s
    while left:
        for number in _perhaps_ended(client, left):
            job = client.job(number)
            if job.status in ENDED:
                left.remove(number)
                found[number] = _ended(job)
                if not quiet:
                    reason = f": {job.reason}" if job.reason and job.status != "done" else ""
                    note(f"{job_title(job)} {job.status}{reason}")
        if left:
            if deadline is not None and time.monotonic() >= deadline:
                if not quiet:
                    told = ", ".join(f"job {number}" for number in left)
                    note(f"not ended after {format_duration(limit_s or 0.0)}: {told}")
                break
            time.sleep(pause)
            pause = min(pause * 1.5, _POLL_S[1])
    return found


def _perhaps_ended(client: Client, numbers: Sequence[int]) -> list[int]:
    """Those worth asking for: of many, only those that are no more in the list of what goes on."""
    if len(numbers) <= _FEW:
        return list(numbers)
    live = {job.id for job in client.jobs(live=True, limit=100_000)}
    return [number for number in numbers if number not in live]


def _ended(job: JobView) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "status": job.status,
        "reason": job.reason,
        "exit_code": job.exit_code,
    }
