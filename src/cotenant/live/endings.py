"""What the end of a process means for its job."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.live.attempts import Patience, Run, goes_on_itself
from cotenant.model import events as ev
from cotenant.model.liveports import AttemptEnded
from cotenant.runs.jobfile import JobFile

__all__ = ["STALLED", "Endings"]

STALLED = "no progress"
_NEIGHBOUR = "failed by neighbour"
_UNSEEN_S = 2.0
"""An end that was seen later than this is told with its own time."""


class Endings:
    """Turns ends of processes into events, and knows what of a log must be known for that.

    Attributes
    ----------
    wants : dict of int to str
        What had been asked of running jobs when the log broke off.
    halts : dict of int to bool
        Whether their users wanted them stopped by signal.
    formers : dict of int to tuple of int
        The devices that a job had before those it has.
    base : dict of int to float
        Work in the saved state of each live job that has one.
    killed : dict of int to (int, int)
        Serial, and how many processes of it were killed and replaced, of live jobs.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.wants: dict[int, str] = {}
        self.halts: dict[int, bool] = {}
        self.formers: dict[int, tuple[int, ...]] = {}
        self.base: dict[int, float] = {}
        self._places: dict[int, tuple[int, ...]] = {}
        self._stalls: dict[int, int] = {}
        self.killed: dict[int, tuple[int, int]] = {}
        self._failures: list[tuple[float, tuple[int, ...], int]] = []

    # -- before a restart ------------------------------------------------------------------

    def recall(self, events: Iterable[ev.Event]) -> None:
        """Learn from the log."""
        for event in events:
            if isinstance(event, ev.Stopping):
                if self.wants.get(event.id) != "cancel":
                    self.wants[event.id] = "suspend" if event.suspend else "preempt"
            elif isinstance(event, ev.CancelRequested):
                self.wants[event.id] = "cancel"
            elif isinstance(event, (ev.SuspendRequested, ev.ResumeRequested)):
                self.halts[event.id] = isinstance(event, ev.SuspendRequested)
            elif isinstance(event, (ev.Started, ev.Moved, ev.Resized)):
                self.formers[event.id] = self._places.get(event.id, ())
                if isinstance(event, ev.Resized) and event.in_place:
                    # If it has to start again after all, its processes may be on either.
                    self.formers[event.id] = tuple(sorted({*self.formers[event.id], *event.devices}))
                self._places[event.id] = event.devices
            elif isinstance(event, (ev.Suspended, ev.Ended)):
                self._left(event)
            elif isinstance(event, ev.ProcessKilled):
                self.killed[event.id] = event.serial, event.count
            elif isinstance(event, ev.Rejected):
                self.forget(event.id)

    def _left(self, event: ev.Suspended | ev.Ended) -> None:
        self.wants.pop(event.id, None)
        self.halts.pop(event.id, None)
        self._places.pop(event.id, None)
        if isinstance(event, ev.Suspended) or not event.final:
            self.base[event.id] = 0.0 if getattr(event, "outcome", "") == "failed" else event.work_s
            if isinstance(event, ev.Ended) and event.detail.startswith(STALLED):
                self._stalls[event.id] = self._stalls.get(event.id, 0) + 1
        else:
            self.forget(event.id)

    def forget(self, job_id: int) -> None:
        """The job ended for good."""
        for kept in (
            self.wants,
            self.halts,
            self.formers,
            self.base,
            self.killed,
            self._places,
            self._stalls,
        ):
            kept.pop(job_id, None)

    # -- ends --------------------------------------------------------------------------------

    def of(self, run: Run, told: AttemptEnded, asked: JobFile, now: float, beside: list[Run]) -> ev.Event:
        """The event that an end is."""
        event = self._event(run, told, asked, now, beside)
        if not isinstance(event, ev.Ended):
            return event
        if told.ago_s >= _UNSEEN_S:
            event = msgspec.structs.replace(event, ago_s=round(told.ago_s, 3))
        if event.outcome not in ("done", "cancelled") and goes_on_itself(asked):
            event = msgspec.structs.replace(event, own=True)
        return event

    def _event(self, run: Run, told: AttemptEnded, asked: JobFile, now: float, beside: list[Run]) -> ev.Event:
        code = -told.signal if told.signal else told.code
        done_s = run.done_s(now)
        outcome, detail = self._outcome(run, told, asked, now, beside)
        saved = outcome == "suspended"
        if saved and run.want in ("", "suspend"):
            return ev.Suspended(now, run.id, run.attempt, done_s, own=told.outcome != "suspended")
        kept_s = done_s if saved else min(run.base_s, done_s)
        if saved:
            outcome = "lost" if run.want in ("lost", "stalled") else "preempted"
        if outcome in ("done", "cancelled"):
            kept_s = done_s
        elif outcome == "failed":
            return ev.Ended(now, run.id, run.attempt, "failed", done_s, done_s, code=code, detail=detail)
        lost_s = done_s - kept_s
        return ev.Ended(now, run.id, run.attempt, outcome, kept_s, lost_s, code=code, detail=detail)  # type: ignore[arg-type]

    def _outcome(
        self, run: Run, told: AttemptEnded, asked: JobFile, now: float, beside: list[Run]
    ) -> tuple[str, str]:
        outcome, want, detail = told.outcome, run.want, run.cause or told.detail
        if outcome == "done":
            return "done", told.detail
        if want == "cancel":
            return "cancelled", ""
        if want == "stalled":
            return self._stalled(run, detail)
        if want == "lost" or outcome == "lost":
            return "suspended" if outcome == "suspended" else "lost", detail or "its process vanished"
        if outcome == "suspended":
            return outcome, ""
        leaves = want in ("suspend", "preempt") or run.former is not None
        if outcome == "killed" or (leaves and outcome != "out-of-memory"):
            if want != "preempt" and leaves and goes_on_itself(asked) and outcome == "killed":
                return "suspended", ""
            return ("preempted", detail) if leaves else ("lost", detail or "ended from outside")
        neighbour = self._neighbour(run, told, now, beside)
        if neighbour >= 0:
            return "lost", f"{_NEIGHBOUR}: job {neighbour} on the same device failed just before"
        return "failed", detail or ("out of memory" if outcome == "out-of-memory" else "")

    def _stalled(self, run: Run, detail: str) -> tuple[str, str]:
        """Tried again once, as it is not its user's fault; then it has failed."""
        self._stalls[run.id] = self._stalls.get(run.id, 0) + 1
        again = self._stalls[run.id] == 1
        return ("lost", detail) if again else ("failed", f"{detail}, for the second time")

    def _neighbour(self, run: Run, told: AttemptEnded, now: float, beside: list[Run]) -> int:
        """Who failed on one of its devices just before, if those who share one fail together; -1: nobody."""
        since, mine = now - self._patience.neighbour_s, set(run.place.devices)
        self._failures = [f for f in self._failures if f[0] >= since]
        if told.outcome != "failed" or run.place.share.mode != "spatial":
            return -1
        for _, devices, job_id in self._failures:
            if job_id != run.id and not mine.isdisjoint(devices):
                return job_id
        if beside:
            self._failures.append((now, run.place.devices, run.id))
        return -1
