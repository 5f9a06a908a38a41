"""A host whose reports others hear, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cotenant.live.keepinghost import KeepingHost
from cotenant.model.liveports import Found, Launch, Report, StopMode
from cotenant.model.placement import Share

__all__ = ["TappedHost"]


class TappedHost:
    """``model.liveports.Host`` that passes calls on, and lets somebody hear what comes of them.

    Parameters
    ----------
    inner : KeepingHost
    heard : callable
        Given each report, in the loop's thread, before the loop has it.
    """

    def __init__(self, inner: KeepingHost, heard: Callable[[Report], None]) -> None:
        self.inner, self._heard = inner, heard
        self._first: list[Report] = []

    def first(self, reports: Sequence[Report]) -> None:
        """Reports that the next ``poll`` begins with."""
        self._first += reports

    def launch(self, launch: Launch) -> None:
        """Start an attempt."""
        self.inner.launch(launch)

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        """Stop an attempt."""
        self.inner.stop(job_id, attempt, serial, mode)

    def pause(self, job_id: int, attempt: int, serial: int, paused: bool) -> None:
        """Stop it by signal, or let it go on."""
        self.inner.pause(job_id, attempt, serial, paused)

    def reshare(self, job_id: int, attempt: int, serial: int, share: Share) -> None:
        """Change a share."""
        self.inner.reshare(job_id, attempt, serial, share)

    def resettle(self, job_id: int, attempt: int, serial: int, number: int, devices: tuple[int, ...]) -> None:
        """Have an elastic attempt's processes be on these devices."""
        self.inner.resettle(job_id, attempt, serial, number, devices)

    def poll(self, timeout_s: float) -> list[Report]:
        """What happened; waits at most so long for something."""
        first, self._first = self._first, []
        found = [*first, *self.inner.poll(0.0 if first else timeout_s)]
        for report in found:
            self._heard(report)
        return found

    def wake(self) -> None:
        """Make a waiting ``poll`` return."""
        self.inner.wake()

    def running(self) -> list[Found]:
        """What of ours really runs."""
        return self.inner.running()

    def forget(self, job_id: int) -> None:
        """The job ended for good."""
        self.inner.forget(job_id)

    def close(self) -> None:
        """Let go; the jobs run on."""
        self.inner.close()
