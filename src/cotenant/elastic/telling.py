"""What an elastic run tells the scheduler that started it, and what it is told: by the job's status file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.elastic.identity import Grade
from cotenant.errors import InputError
from cotenant.runtime import statefiles
from cotenant.runtime.reporting import Reporter

if TYPE_CHECKING:
    from cotenant.elastic.process import Process

__all__ = ["Telling", "least_left", "state_folder"]

_LEAST = "COTENANT_ELASTIC_LEAST"


def least_left(asked: Grade) -> Grade:
    """What must be left of saved state at least: what the script says, or what its job is promised if that is more."""
    return max(asked, Grade.__members__.get(os.environ.get(_LEAST, "").upper(), asked))


def state_folder(given: str | Path | None) -> Path | None:
    """Where checkpoints go: what the script says, else where the scheduler keeps the job's state, if there is one.

    Raises
    ------
    InputError
        If no such folder can be made.
    """
    found = given or os.environ.get("COTENANT_STATE")
    if not found:
        return None
    try:
        Path(found).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"state folder {found}: {error.strerror}; give elastic.Run(state=...) a folder that can be made"
        ) from None
    return Path(found)


class Telling:
    """Progress of the run, told by whoever is its first process at the time.

    An order to save and leave is obeyed at the end of the step after the one in which it came, as all processes
    must agree on it.

    Parameters
    ----------
    process : Process
    total : int
        Steps of the whole run.
    """

    def __init__(self, process: Process, total: int) -> None:
        self._process, self._total = process, total
        self._reporter = Reporter.from_environment()
        self._told = self._kept = -1

    def opened(self) -> None:
        """The process has joined."""
        self._kept = self._process.saved
        self._begin()
        process = self._process
        if process.rank == 0 and process.place.step and process.saved == process.place.step < self._total:
            sys.stderr.write(
                f"cotenant: goes on from saved state, after {process.saved} of {self._total} steps\n"
            )
        if process.rank == 0 and process.place.step == 0 and process.all_killed():
            way = "elastic.Run(state=...) keeps checkpoints"
            if process.settings.folder is not None:
                way = "elastic.Run(every_steps=...) saves earlier"
            sys.stderr.write(
                f"cotenant: all processes were killed and nothing was saved: it begins again at step 0; {way}\n"
            )

    def _begin(self) -> None:
        process = self._process
        if process.rank == 0:
            able, saved = process.settings.folder is not None, process.saved >= 0
            self._reporter.begin(process.place.step, self._total, can_suspend=able, saved=saved)
            self._told = process.place.step

    def stepped(self) -> None:
        """A step is applied."""
        process = self._process
        if process.rank:
            self._told = -1
            return
        if self._told != process.place.step - 1:
            self._begin()  # the first process was another one
        else:
            self._reporter.step(process.place.step)
            self._told = process.place.step
        if self._reporter.to_suspend:
            process.stop()

    def saved(self) -> None:
        """A checkpoint may have been written."""
        process = self._process
        folder = process.settings.folder
        if process.saved == self._kept or folder is None or process.rank:
            return
        self._kept = process.saved
        states = [state for state in statefiles.list_states(folder) if state.step == self._kept]
        if states:
            self._reporter.saved(self._kept, states[0].path.stat().st_size)
