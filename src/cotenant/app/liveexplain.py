"""The story of a job of the scheduler that runs now."""

from __future__ import annotations

from pathlib import Path

from cotenant.app.console import print_json, say
from cotenant.app.livebase import asking

__all__ = ["explain_live"]


def explain_live(name: str, state: Path | None, *, as_json: bool, only_runs: bool) -> None:
    """Print what happened to a job so far, and why.

    Parameters
    ----------
    name : str
        Number or name.
    only_runs : bool
        Options were given that choose among the runs of a folder.

    Raises
    ------
    UsageError
        With such options.
    UnreachableError, NotFoundError
        Saying, too, how a job of a run folder is named, if the word names one.
    """
    from cotenant.errors import NotFoundError, UnreachableError, UsageError

    if only_runs:
        raise UsageError("--policy and --seed choose a run of a folder: cotenant explain RUN JOB")
    try:
        with asking(state) as client:
            found = client.explain(client.find(name).id)
    except (NotFoundError, UnreachableError) as error:
        if Path(name).exists():
            raise type(error)(
                f"{error}; for a job of the run in {name}: cotenant explain {name} JOB"
            ) from None
        raise
    if as_json:
        print_json({key: value for key, value in found.items() if key != "text"})
    else:
        say(str(found["text"]).rstrip("\n"))
