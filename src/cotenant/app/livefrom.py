"""What ran live, for the commands that read or repeat what was simulated: report and simulate."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cotenant.app.console import note
from cotenant.app.livebase import asking

if TYPE_CHECKING:
    from cotenant.model.events import Event

__all__ = ["inputs_from_live", "live_events", "run_from_live"]

_SAYS_WHAT = {
    "trace",
    "cluster",
    "gpus",
    "gpus_per_node",
    "gpu_type",
    "form",
    "option",
    "run_file",
    "incidents",
}
"""Parameters of ``simulate`` that say what is simulated, which the live log says itself."""


@contextmanager
def live_events(state: Path | None) -> Iterator[tuple[Iterator[Event], float | None]]:
    """The log of a scheduler, whether it runs or not, and when it was begun (seconds since 1970; None: unknown).

    Raises
    ------
    UnreachableError
        If there is neither a log in the state folder nor a scheduler that answers.
    """
    from cotenant.live.export import events_of
    from cotenant.live.statedir import state_path
    from cotenant.live.store import open_store

    path = state_path(state) / "cotenant.db"
    elsewhere = state is None and bool(os.environ.get("COTENANT_URL"))
    if not elsewhere and path.is_file():
        store = open_store(path, create=False)
        try:
            if store.count():
                began = store.recall("began_wall_s")
                yield (event for _, event in store.read()), None if began is None else float(began)
                return
        finally:
            store.close()
    with asking(state) as client:
        yield events_of(client.log()), None


def run_from_live(state: Path | None, folder: Path, *, force: bool) -> Path:
    """Write the live log as a run folder, which ``report``, ``compare`` and ``explain`` read."""
    from cotenant.live.export import export_run

    with live_events(state) as (events, _):
        return export_run(events, folder, command=sys.argv[1:], force=force)


def inputs_from_live(
    context: typer.Context, state: Path | None, since: str | None, output: Path, *, wanted: bool, quiet: bool
) -> tuple[str, str, dict[str, Any]]:
    """Workload and cluster of what ran live, as files beside the output, and its settings.

    Parameters
    ----------
    since : str or None
        Only jobs submitted in the last so long.
    wanted : bool
        Whether ``--from-live`` was given.
    output : Path
        The folder that is to be written; the inputs lie in ``NAME-inputs`` beside it, so that ``replay`` has them.

    Raises
    ------
    ConfigError
        If something else was given that says what is simulated, or ``since`` without it.
    """
    from cotenant.app.runoptions import given_of
    from cotenant.errors import ConfigError
    from cotenant.live.export import workload_of, write_inputs
    from cotenant.model.quantities import parse_duration

    if not wanted:
        raise ConfigError("--since goes with --from-live")
    everything = {parameter.name or "" for parameter in context.command.params}
    if given := given_of(context, everything - _SAYS_WHAT):
        raise ConfigError(f"--from-live says what is simulated; leave out {', '.join(given)}")
    with live_events(state) as (events, began):
        since_s = 0.0
        if since is not None:
            if began is None:
                raise ConfigError(
                    "--since needs the log itself: give --state, on the machine of the scheduler"
                )
            since_s = max(time.time() - began - parse_duration(since), 0.0)
        found = workload_of(events, since_s=since_s)
    trace, cluster = write_inputs(found, output.with_name(f"{output.name}-inputs"))
    if not quiet:
        left = ", ".join(f"{count} {why}" for why, count in found.left_out.items())
        note(
            f"{len(found.workload)} jobs that ran live under {found.policy}"
            + (f"; left out: {left}" if left else "")
        )
    return str(trace), str(cluster), found.settings
