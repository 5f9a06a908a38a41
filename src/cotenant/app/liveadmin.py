"""Commands for whoever runs the scheduler: down, token, tenants."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import note, print_json, print_table, say
from cotenant.app.livebase import PANEL, Json, State, asking
from cotenant.app.livetables import ENDED

if TYPE_CHECKING:
    from cotenant.live.client import Client
    from cotenant.live.statedir import DaemonFile
    from cotenant.live.tenants import TenantRow

__all__ = ["add_to"]

_CHOICES = ("keep", "suspend", "cancel")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel=PANEL)(down)
    app.command(rich_help_panel=PANEL)(token)
    tenants = typer.Typer(
        name="tenants", no_args_is_help=True, help="Who may submit besides you: add, list, remove."
    )
    tenants.command("add")(add)
    tenants.command("list")(listing)
    tenants.command("remove")(remove)
    app.add_typer(tenants, rich_help_panel=PANEL)


def down(
    jobs: Annotated[
        str, typer.Option("--jobs", help="What becomes of jobs: keep (they run on), suspend, cancel.")
    ] = "keep",
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long jobs and scheduler may take (5min).")
    ] = "5min",
    state: State = None,
    as_json: Json = False,
) -> None:
    """End the scheduler. Jobs run on without it, unless they are to be suspended or cancelled."""
    from cotenant.errors import UnknownNameError, UnreachableError
    from cotenant.model.quantities import parse_duration

    if jobs not in _CHOICES:
        raise UnknownNameError("way to leave jobs", jobs, _CHOICES)
    until = time.monotonic() + parse_duration(timeout)
    folder, found = _meant(state)
    stopped = 0
    if jobs != "keep":
        with asking(folder) as client:
            stopped = _off_devices(client, jobs, until)
    os.kill(found.pid, signal.SIGTERM)
    while found.alive:
        if time.monotonic() > until:
            raise UnreachableError(
                f"the scheduler (process {found.pid}) has not ended in time; see {folder / 'daemon.log'}"
            )
        time.sleep(0.02)
    if as_json:
        print_json({"pid": found.pid, "jobs": jobs, jobs: stopped})
        return
    count = "1 job was" if stopped == 1 else f"{stopped} jobs were"
    left = {
        "keep": "jobs run on; cotenant up takes them over",
        "suspend": f"{count} suspended; after cotenant up, cotenant resume --all lets them go on",
        "cancel": f"{count} cancelled",
    }
    say(f"the scheduler has ended (process {found.pid}); {left[jobs]}")


def _meant(state: Path | None) -> tuple[Path, DaemonFile]:
    """The scheduler to which all other commands would speak, if it is one of a state folder here.

    Raises
    ------
    DeniedError
        If ``COTENANT_URL`` names another one than runs on the folder: neither is ended. If ``COTENANT_TOKEN``
        is not its owner's, and no folder was named.
    UnreachableError
        If none runs.
    """
    from cotenant.errors import DeniedError, UnreachableError
    from cotenant.live.statedir import read_daemon, state_path

    folder = state_path(state)
    found = read_daemon(folder)
    runs = found is not None and found.alive
    url = os.environ.get("COTENANT_URL", "")
    if url and state is None and not (found is not None and runs and _address(url) == _address(found.url)):
        here = (
            f"that of {folder} is another one, at {found.url}" if found and runs else f"none runs on {folder}"
        )
        raise DeniedError(
            f"down ends a scheduler on its own machine, by its state folder; COTENANT_URL names {url}, and {here}. "
            "Nothing was ended. Name the folder of the one that is to end: cotenant down --state DIR"
        )
    if found is None or not runs:
        raise UnreachableError(f"no scheduler runs on {folder}; there is nothing to end")
    token = os.environ.get("COTENANT_TOKEN", "")
    if token and state is None and token != _owners_token(folder):
        raise DeniedError(
            "down is for whoever runs the scheduler; COTENANT_TOKEN is not the token of its owner. Nothing was ended. "
            "If it is yours, unset COTENANT_TOKEN or name its state folder (--state DIR)"
        )
    return folder, found


def _owners_token(folder: Path) -> str:
    """Empty if it cannot be read: who has one all the same is not its owner."""
    from cotenant.errors import DeniedError
    from cotenant.live.client import token_of

    try:
        return token_of(folder)
    except (DeniedError, ValueError):
        return ""


def _address(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; all names of the loopback are one."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url, "", None
    return parts.scheme, "loopback" if host in ("localhost", "127.0.0.1", "::1") else host, port


def _off_devices(client: Client, kind: str, until: float) -> int:
    """Ask all that have not ended, and wait until none of them is on a device; how many were asked."""
    from cotenant.errors import ConflictError, UnreachableError
    from cotenant.live.client import new_key

    key, asked = new_key(), set()
    for job in client.jobs(live=True, limit=100_000):
        if kind == "suspend" and job.status == "held":
            continue
        try:
            client.command(job.id, kind, f"{key}.{job.id}")
            asked.add(job.id)
        except ConflictError as error:
            if client.job(job.id).status not in ENDED:
                raise ConflictError(f"{error}; the scheduler goes on") from None
    while True:
        jobs = [job for job in client.jobs(live=True, limit=100_000) if job.id in asked]
        # One that was paused stays where it is, and stands still.
        left = [job.id for job in jobs if kind == "cancel" or job.status in ("running", "stopping")]
        if not left:
            return len(asked)
        if time.monotonic() > until:
            raise UnreachableError(
                f"not in time: jobs {', '.join(map(str, left))} are on their devices still; the scheduler goes on"
            )
        time.sleep(0.1)


def token(
    path: Annotated[bool, typer.Option("--path", help="The file that holds it, in place of it.")] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Print your own token: with it, everything may be done. For others make tenants."""
    from cotenant.errors import UnreachableError
    from cotenant.live.statedir import open_state
    from cotenant.live.tenants import admin_token

    folder = _own_folder(state, "token")
    if not _used(folder):
        raise UnreachableError(
            f"no scheduler has run on {folder}: there is no token yet; start one: cotenant up"
        )
    secret = admin_token(open_state(folder))
    file = str(folder / "token")
    if as_json:
        print_json({"path": file} if path else {"path": file, "token": secret})
    else:
        say(file if path else secret)


Name = Annotated[str, typer.Argument(help="Letters, digits, dots, dashes and underscores.", metavar="NAME")]


def add(  # noqa: PLR0917 - one parameter for each option
    name: Name,
    quota: Annotated[
        int | None,
        typer.Option(
            "--quota",
            min=0,
            help="Devices that are its own, where the policy knows quotas (fair-share); of a new one: 0.",
        ),
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", help="Devices at most, or none: no limit; of a new one: none.")
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option("--weight", help="Weight among tenants where a policy shares; of a new one: 1."),
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            "--isolation", help="The widest sharing: exclusive, same-owner, trusted, any; of a new one: any."
        ),
    ] = None,
    max_priority: Annotated[
        int | None,
        typer.Option(
            "--max-priority", min=0, max=10**6, help="The highest priority it may ask for; of a new one: 0."
        ),
    ] = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Add a tenant, or change what is named of one, and print its new token: it is shown this once and kept nowhere."""
    import msgspec

    from cotenant.errors import UsageError
    from cotenant.live.tenants import TenantRow

    changes = _changes(quota, limit, weight, isolation, max_priority)
    tenants = _tenants(state, "tenants add", make=True)
    former = tenants.row(name)
    row = msgspec.structs.replace(former or TenantRow(name=name), **changes)
    if row.limit_gpus is not None and row.quota_gpus > row.limit_gpus:
        raise UsageError(f"--quota {row.quota_gpus} is more than --limit {row.limit_gpus}{_kept(changes)}")
    secret = tenants.add(row)
    if as_json:
        print_json({**_told(row), "token": secret})
        return
    if former is not None:
        note(f"tenant {name} was there: what was not named stays, and its former token is good for nothing")
    holds = ", ".join(f"{field} {_cell(value)}" for field, value in _told(row).items() if field != "name")
    note(f"tenant {name}: {holds}; its token, shown this once (for COTENANT_TOKEN):")
    say(secret)


def _changes(
    quota: int | None,
    limit: str | None,
    weight: float | None,
    isolation: str | None,
    max_priority: int | None,
) -> dict[str, Any]:
    """What was named, as fields of a row."""
    from cotenant.errors import UnknownNameError, UsageError
    from cotenant.live.tenants import TIERS

    if isolation is not None and isolation not in TIERS:
        raise UnknownNameError("isolation", isolation, TIERS)
    if weight is not None and not 0.0 < weight < 1e6:
        raise UsageError(f"--weight {weight:g}: more than 0, and less than a million")
    named = {"quota_gpus": quota, "weight": weight, "isolation": isolation, "max_priority": max_priority}
    changes: dict[str, Any] = {field: value for field, value in named.items() if value is not None}
    if limit is not None:
        if limit != "none" and not (limit.isascii() and limit.isdecimal() and len(limit) < 10):
            raise UsageError(f"--limit {limit}: a number of devices, or none")
        changes["limit_gpus"] = None if limit == "none" else int(limit)
    return changes


def _kept(changes: dict[str, Any]) -> str:
    """Which of the two was not named now."""
    for field, option in (("quota_gpus", "--quota"), ("limit_gpus", "--limit")):
        if field not in changes:
            return f", and {option} was so before; name both"
    return ""


def listing(state: State = None, as_json: Json = False) -> None:
    """List tenants and what they may have."""
    tenants = _tenants(state, "tenants list")
    rows = [_told(row) for row in tenants.rows()] if tenants else []
    if as_json:
        print_json(rows)
    elif rows:
        heads = ("name", "quota_gpus", "limit_gpus", "weight", "isolation", "max_priority")
        print_table(heads, [tuple(_cell(row[head]) for head in heads) for row in rows], right=heads[1:4])
    else:
        say("no tenants: only your own token is known; cotenant tenants add NAME makes one")


def remove(name: Name, state: State = None, as_json: Json = False) -> None:
    """Remove a tenant: its token is good for nothing any more, its jobs go on."""
    from cotenant.errors import InputError

    tenants = _tenants(state, "tenants remove")
    if tenants is None:
        raise InputError(f'no tenant "{name}"; known: none')
    tenants.remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        say(f"tenant {name} is removed; its jobs go on")


def _own_folder(state: Path | None, what: str) -> Path:
    """The state folder, unless a scheduler elsewhere is meant: whose folder that is, only its owner can say.

    Raises
    ------
    DeniedError
        If ``COTENANT_URL`` is set, and no folder was named.
    """
    from cotenant.errors import DeniedError
    from cotenant.live.statedir import state_path

    url = os.environ.get("COTENANT_URL", "")
    if url and state is None and not os.environ.get("COTENANT_STATE_DIR"):
        raise DeniedError(
            f"{what} is for whoever runs the scheduler, on its machine; COTENANT_URL names {url}. "
            "If that is yours, name its state folder (--state DIR)"
        )
    return state_path(state)


def _used(folder: Path) -> bool:
    """Whether it is a state folder already; what may not be looked into is for ``open_state`` to tell of."""
    try:
        return any((folder / name).exists() for name in ("token", "tenants.toml"))
    except OSError:
        return True


def _tenants(state: Path | None, what: str, *, make: bool = False) -> Any:
    """The tenants of the folder; None if it holds nothing yet, and is not to be made."""
    from cotenant.live.statedir import open_state
    from cotenant.live.tenants import Tenants

    folder = _own_folder(state, what)
    return Tenants(open_state(folder)) if make or _used(folder) else None


def _told(row: TenantRow) -> dict[str, Any]:
    fields = ("name", "quota_gpus", "limit_gpus", "weight", "isolation", "max_priority")
    return {field: getattr(row, field) for field in fields}


def _cell(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
