"""Progress on a terminal: one bar over all runs, with the time to go. Elsewhere, a line for each run."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from cotenant.app.console import note, stderr
from cotenant.runs.many import Task, Watcher
from cotenant.runs.single import Outcome

__all__ = ["Progress"]


class Progress(Watcher):
    """Shows how far the runs have come, on standard error.

    Parameters
    ----------
    jobs, runs : int
        Jobs of one run, and number of runs; 0 where that is not known beforehand.
    quiet : bool
        Say nothing but errors.
    """

    def __init__(self, jobs: int, runs: int, *, quiet: bool = False) -> None:
        self._runs, self._done, self._quiet = runs, 0, quiet
        self._bar: Any = None
        self._total = jobs * runs

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TextColumn("to go"),
                progress.TimeRemainingColumn(),
                console=stderr(),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(f"{self._runs or ''} runs".strip(), total=self._total or None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def jobs_ended(self, total: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=total)

    def run_ended(self, task: Task, outcome: Outcome) -> None:
        """Count a run; say what went wrong with it."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, description=f"{self._done} runs ended")
        elif not self._quiet:
            of = f" of {self._runs}" if self._runs else ""
            note(f"{task.policy} seed {task.seed}: {outcome.status} ({self._done}{of})")

    def stopping(self) -> None:
        """Say that the interrupt was heard."""
        note("stopping: logs are being closed; press Ctrl-C again to end at once")
