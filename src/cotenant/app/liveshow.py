"""Commands that show what the scheduler does: ps, top, history, and doctor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app import livetables
from cotenant.app.console import clean, print_json, print_table, say, stdout
from cotenant.app.livebase import PANEL, Json, State, asking

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from cotenant.live.client import Client

__all__ = ["add_to"]

_RIGHT = frozenset({"job", "MiB", "slowdown", "waited", "took", "exit", "priority", "waits", "busy", "since"})


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(rich_help_panel=PANEL)(ps)
    app.command(rich_help_panel=PANEL)(top)
    app.command(rich_help_panel=PANEL)(history)
    app.command(rich_help_panel=PANEL)(doctor)


def ps(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended, too.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 1000,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every second.")] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """List jobs: where they are, how fast, and why they wait."""
    _not_both(watch, as_json, "--watch")
    with asking(state) as client:
        if as_json:
            import msgspec

            print_json([msgspec.to_builtins(j) for j in client.jobs(live=not everything, limit=limit)])
            return

        def table() -> Table:
            rows = livetables.ps_rows(client.jobs(live=not everything, limit=limit), time.time())
            return _table(livetables.PS_COLUMNS, rows)

        if watch:
            _watch(table)
            return
        rows = livetables.ps_rows(client.jobs(live=not everything, limit=limit), time.time())
    print_table(*_without_empty(livetables.PS_COLUMNS, rows), right=_RIGHT)
    if not rows:
        say(
            "no jobs; cotenant submit -- python train.py"
            if everything
            else "no jobs; -a shows those that ended"
        )


def top(
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Watch devices: who shares them, how fast against what was predicted, who waits and why."""
    with asking(state) as client:
        if as_json:
            import msgspec

            print_json(
                {
                    "status": msgspec.to_builtins(client.status()),
                    "devices": [msgspec.to_builtins(device) for device in client.devices()],
                    "jobs": [msgspec.to_builtins(job) for job in client.jobs(live=True, limit=10_000)],
                }
            )
        elif once or not stdout().is_terminal:
            stdout().print(_screen(client))
        else:
            _watch(lambda: _screen(client))


def history(
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 50,
    state: State = None,
    as_json: Json = False,
) -> None:
    """List jobs that have ended: how, after what wait, and how long they took against what was expected."""
    with asking(state) as client:
        jobs = [job for job in client.jobs(limit=100_000) if job.status in livetables.ENDED]
    jobs = sorted(jobs, key=lambda job: (job.ended or job.submitted, job.id))[-limit:]
    if as_json:
        import msgspec

        print_json([msgspec.to_builtins(job) for job in jobs])
        return
    print_table(*_without_empty(livetables.HISTORY_COLUMNS, livetables.history_rows(jobs)), right=_RIGHT)
    if not jobs:
        say("no job has ended yet")


def doctor(state: State = None, as_json: Json = False) -> None:
    """Look for what is wrong: books against reality, the log, what is enforced, what is unsafe."""
    found = _examined(state)
    if as_json:
        print_json(found)
    else:
        _print_findings(found)
    if not found["healthy"]:
        raise typer.Exit(1)


def _examined(state: Path | None) -> dict[str, Any]:
    """What the scheduler says of itself, and what is found in its log; that alone where none runs."""
    from cotenant.errors import UnreachableError
    from cotenant.live.statedir import state_path

    try:
        with asking(state) as client:
            return client.doctor()
    except UnreachableError as error:
        folder = state_path(state)
        if not (folder / "cotenant.db").is_file():
            raise
        return _without_scheduler(folder / "cotenant.db", str(error))


def _without_scheduler(log: Path, told: str) -> dict[str, Any]:
    from cotenant.live.store import check, open_store

    store = open_store(log, create=False)
    try:
        wrong, count = check(store), store.count()
    finally:
        store.close()
    findings = [{"level": "error", "about": "log", "text": text, "do": "see docs/live.md"} for text in wrong]
    findings.append({"level": "error", "about": "lease", "text": told, "do": ""})
    if not wrong:
        findings.append(
            {"level": "ok", "about": "log", "text": f"the log is whole: {count} events", "do": ""}
        )
    return {"healthy": False, "findings": findings, "enforcement": {}}


def _print_findings(found: dict[str, Any]) -> None:
    rows = [(one["level"], one["about"], one["text"], one.get("do", "")) for one in found["findings"]]
    print_table(("", "about", "found", "what to do"), rows)
    table = [
        (name, what, how) for name, ways in found.get("enforcement", {}).items() for what, how in ways.items()
    ]
    if table:
        say("")
        print_table(("device", "what", "held by"), table)


# -- drawing -----------------------------------------------------------------------------


def _not_both(one: bool, other: bool, name: str) -> None:
    from cotenant.errors import UsageError

    if one and other:
        raise UsageError(f"{name} is for people and --json for programs; give one of them")


def _without_empty(
    columns: Sequence[str], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Without columns that are empty in every row; nothing is lost, and lines stay short."""
    kept = [n for n, _ in enumerate(columns) if not rows or any(row[n] for row in rows)]
    return tuple(columns[n] for n in kept), [tuple(row[n] for n in kept) for row in rows]


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]], title: str = "") -> Table:
    from rich.markup import escape
    from rich.table import Table

    heads, short = _without_empty(columns, rows)
    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in _RIGHT else "left", overflow="fold")
    for row in short:
        table.add_row(*(escape(clean(cell)) for cell in row))
    return table


def _screen(client: Client) -> Group:
    from rich.console import Group
    from rich.text import Text

    status, devices = client.status(), client.devices()
    jobs = client.jobs(live=True, limit=10_000)
    parts: list[Any] = [Text(clean(livetables.headline(status, jobs)), style="bold")]
    parts += [Text(clean(f"warning: {line}"), style="bold red") for line in status.warnings]
    parts += [Text(""), _table(livetables.DEVICE_COLUMNS, livetables.device_rows(devices))]
    waiting = livetables.waiting_rows(jobs, status.now)
    if waiting:
        parts += [Text(""), _table(livetables.WAITING_COLUMNS, waiting, "waiting")]
    return Group(*parts)


def _watch(draw: Callable[[], Any]) -> None:
    """Draw anew every second until interrupted; a scheduler that is away for a while is waited for."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from cotenant.errors import UnreachableError

    seen = draw()
    live = Live(seen, console=stdout(), screen=True, auto_refresh=False)
    try:
        live.start()
        while True:
            live.update(seen, refresh=True)
            time.sleep(1.0)
            try:
                seen = draw()
            except UnreachableError as error:
                seen = Group(Text(clean(str(error)), style="bold red"), Text("trying again; Ctrl-C ends"))
    finally:
        # Also where Ctrl-C hits the very start, which a with statement would leave open.
        live.stop()
