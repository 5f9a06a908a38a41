"""The host of the daemon: as of this machine, with saved states put away while their jobs wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotenant.executors.local.host import LocalHost
from cotenant.executors.local.layout import job_folder
from cotenant.live.keeping import SavedStates
from cotenant.model.liveports import AttemptEnded, Found, Launch, Report, StopMode

__all__ = ["KeepingHost"]

_SERIAL = re.compile(r"serial-(\d+)")


class KeepingHost(LocalHost):
    """A host that brings a job's state back before it is launched.

    Parameters
    ----------
    states : callable
        Makes ``SavedStates``, given how to wake this host; None: states stay in their jobs' folders.
    given, named
        As of ``LocalHost``.
    """

    def __init__(
        self, *given: Any, states: Callable[[Callable[[], None]], SavedStates] | None = None, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self.states = None if states is None else states(self.wake)
        self._awaiting: dict[tuple[int, int], Launch] = {}

    def launch(self, launch: Launch) -> None:
        """Start an attempt, once its state is back."""
        if self.states is None or not self.states.away(launch.id):
            super().launch(launch)
        elif (launch.id, launch.serial) not in self._awaiting:
            self._awaiting[launch.id, launch.serial] = launch
            self.states.fetch(launch.id)

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        """Stop an attempt; one that waits for its state is not begun at all."""
        if self._awaiting.pop((job_id, serial), None) is None:
            super().stop(job_id, attempt, serial, mode)
            return
        why = "stopped before it began"
        self._reports.append(
            AttemptEnded(id=job_id, attempt=attempt, serial=serial, outcome="killed", detail=why)
        )

    def poll(self, timeout_s: float) -> list[Report]:
        """What happened; states of jobs that left are put away."""
        if self.states is None:
            return super().poll(timeout_s)
        self._launch_those_back(self.states)
        found = super().poll(timeout_s)
        for report in found:
            if isinstance(report, AttemptEnded) and report.outcome == "suspended" and self._newest(report):
                self.states.put(report.id, report.steps)
        return found

    def running(self) -> list[Found]:
        """What runs or is about to."""
        about = [
            Found(id=launch.id, attempt=launch.attempt, serial=launch.serial, pid=0, start_ticks=0)
            for launch in self._awaiting.values()
        ]
        return [*super().running(), *about]

    def forget(self, job_id: int) -> None:
        """A job that has ended for good needs no state in the registry."""
        super().forget(job_id)
        if self.states is not None:
            self.states.drop(job_id)

    def close(self) -> None:
        """Let go; the jobs run on."""
        if self.states is not None:
            self.states.close()
        super().close()

    def _launch_those_back(self, states: SavedStates) -> None:
        for job_id, problem in states.take().items():
            for key in [key for key in self._awaiting if key[0] == job_id]:
                launch = self._awaiting.pop(key)
                if not problem:
                    super().launch(launch)
                    continue
                self._reports.append(
                    AttemptEnded(
                        id=job_id,
                        attempt=launch.attempt,
                        serial=launch.serial,
                        outcome="not-started",
                        detail=problem,
                    )
                )

    def _newest(self, ended: AttemptEnded) -> bool:
        """Whether nobody has launched the job since: an end may be told more than once."""
        if any(job_id == ended.id for job_id, _ in self._awaiting):
            return False
        found = [
            int(match[1])
            for path in Path(job_folder(self.state_dir, ended.id)).iterdir()
            if (match := _SERIAL.fullmatch(path.name))
        ]
        return ended.serial >= max(found, default=-1)
