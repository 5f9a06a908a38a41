"""Commands that change what runs: suspend, resume, resize, cancel, priority, drain, undrain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import print_json, say
from cotenant.app.livebase import PANEL, JobArgument, JobsArgument, Json, Key, State, ask_each, asking
from cotenant.app.livetables import job_title

if TYPE_CHECKING:
    from pathlib import Path

    from cotenant.live.client import Client

__all__ = ["add_to", "new_share"]

All = Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")]
Node = Annotated[int, typer.Option("--node", min=0, help="Which node; this machine is 0.")]

Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="One device alone, by name, number or UUID."),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (suspend, resume, resize, cancel, priority, drain, undrain):
        app.command(rich_help_panel=PANEL)(command)


def suspend(
    jobs: JobsArgument = None,
    everything: All = False,
    key: Key = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Take jobs off their devices until they are resumed; those that can (--suspend runtime) save their state first."""
    ask_each(
        state, jobs, everything, "suspend", key=key, as_json=as_json,
        told=lambda job: f"{job_title(job)} is being suspended; cotenant resume {job.id} lets it go on",
    )  # fmt: skip


def resume(
    jobs: JobsArgument = None,
    everything: All = False,
    key: Key = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Let jobs that were suspended by hand go on as soon as there is room."""
    ask_each(
        state, jobs, everything, "resume", key=key, as_json=as_json,
        told=lambda job: f"{job_title(job)} {_resumed(job.status)}",
    )  # fmt: skip


def _resumed(status: str) -> str:
    """What it means to a job that it may go on, by how it stood.

    >>> _resumed("held"), _resumed("running"), _resumed("waiting")
    ('may go on', 'was not suspended by hand: it runs', 'was not suspended by hand: it waits for room')
    """
    stood = {"running": "it runs", "waiting": "it waits for room", "suspended": "it waits for room"}
    return f"was not suspended by hand: {stood[status]}" if status in stood else "may go on"


def cancel(
    jobs: JobsArgument = None,
    everything: All = False,
    key: Key = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """End jobs, whether they run or wait."""
    ask_each(
        state, jobs, everything, "cancel", key=key, as_json=as_json,
        told=lambda job: f"{job_title(job)} is being cancelled",
    )  # fmt: skip


def priority(
    job: JobArgument,
    value: Annotated[
        int,
        typer.Argument(min=-(10**6), max=10**6, help="Higher goes first; 0 is the default.", metavar="N"),
    ],
    key: Key = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Give a job another priority (write -- before a negative one)."""
    ask_each(
        state, [job], False, "priority", key=key, as_json=as_json, priority=value,
        told=lambda found: f"{job_title(found)} has priority {value} now",
    )  # fmt: skip


def resize(  # noqa: PLR0917 - one parameter for each option
    job: JobArgument,
    compute: Annotated[
        str | None, typer.Option("--compute", help="Share of each device that is guaranteed (40%).")
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", help="Ceiling for the use of idle compute (80%).")
    ] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Memory on each device (6GiB).")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Devices, of an elastic job.")] = None,
    key: Key = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Change the share of a job while it runs."""
    changes = new_share(compute, limit, memory, gpus)
    ask_each(
        state, [job], False, "resize", key=key, as_json=as_json, **changes,
        told=lambda found: f"{job_title(found)} is being resized",
    )  # fmt: skip


def new_share(compute: str | None, limit: str | None, memory: str | None, gpus: int | None) -> dict[str, Any]:
    """The body of a request to resize.

    Raises
    ------
    UsageError
        If nothing is to change.
    QuantityError
        For a share or size that cannot be read.
    """
    from cotenant.errors import QuantityError, UsageError
    from cotenant.model.quantities import parse_bytes, parse_milli

    found: dict[str, Any] = {}
    for name, text, field in (
        ("--compute", compute, "compute_milli"),
        ("--limit", limit, "compute_limit_milli"),
    ):
        if text is not None:
            milli = parse_milli(text)
            if milli > 1000:
                raise QuantityError(f"{name} {text}: a share of each device, at most 100%")
            found[field] = milli
    if memory is not None:
        found["memory_bytes"] = parse_bytes(memory)
    if gpus is not None:
        found["gpus"] = gpus
    if not found:
        raise UsageError("nothing to change; give --compute, --limit, --memory or --gpus")
    return found


def drain(
    node: Node = 0, device: Device = None, key: Key = None, state: State = None, as_json: Json = False
) -> None:
    """Start no new jobs on a node, or on one device; those that run go on."""
    _node(state, node, device, "drain", key=key, as_json=as_json)


def undrain(
    node: Node = 0, device: Device = None, key: Key = None, state: State = None, as_json: Json = False
) -> None:
    """Start jobs on a node, or on one device, again."""
    _node(state, node, device, "undrain", key=key, as_json=as_json)


def _node(
    state: Path | None, node: int, device: str | None, kind: str, *, key: str | None, as_json: bool
) -> None:
    from cotenant.live.client import new_key

    with asking(state) as client:
        number, name = (None, "") if device is None else _device(client, device)
        client.node(node, kind, key or new_key(), number)
    if as_json:
        print_json({"node": node} | ({} if number is None else {"device": number}) | {kind: True})
    elif kind == "undrain":
        say(f"jobs start on {name} again" if name else "jobs start again")
    else:
        where, which = (f" on {name}", f" --device {name}") if name else ("", "")
        say(f"no new jobs start{where} now; cotenant undrain{which} lets them")


def _device(client: Client, asked: str) -> tuple[int, str]:
    """Number and name of a device that was given by either."""
    from cotenant.errors import UsageError

    devices = client.devices()
    for one in devices:
        if asked in (one.name, one.uuid, str(one.device)):
            return one.device, one.name
    known = ", ".join(one.name for one in devices) or "none"
    raise UsageError(f"--device {asked}: there is no such device; known: {known}")
