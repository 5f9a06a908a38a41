"""The executor of real jobs: the simulator's loop and policies, on processes.

::

    LiveExecutor(store, host, clock, lease, *, settings=None, forecast=None, patience=None)

What the loop decides is kept, and carried out at the next ``wait``: by then the loop has written it
down (``Loop(durable=True, log=StoreLog(store, lease, executor))``). Whatever the host leaves unanswered is
asked again, as its calls are idempotent; a job's end is told only once the host says that its processes are gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.engine.state import State
from cotenant.live.acting import Acting
from cotenant.live.attempts import Former, Patience, Run, goes_on_itself
from cotenant.live.endings import Endings
from cotenant.live.intake import Intake
from cotenant.live.outside import Outside
from cotenant.live.reconcile import reconcile
from cotenant.live.settling import Settling, elsewhere
from cotenant.live.speeds import Speeds
from cotenant.live.storelog import StoreLog
from cotenant.live.turns import Turns
from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.liveports import (
    AttemptEnded,
    AttemptPaused,
    AttemptResettled,
    AttemptStarted,
    Clock,
    DeviceGone,
    Foreign,
    Host,
    Lease,
    Progress,
    Store,
)
from cotenant.model.placement import Placement
from cotenant.model.ports import Forecast
from cotenant.model.settings import Settings
from cotenant.runs.jobfile import JobFile

__all__ = ["LiveExecutor", "StoreLog"]

_Told = AttemptStarted | AttemptEnded | AttemptPaused | AttemptResettled | Progress
_NOTHING = JobFile(name="unknown")


class LiveExecutor:
    """Starts, stops and watches real jobs.

    Parameters
    ----------
    store : Store
        Where requests wait.
    host : Host
    clock : Clock
    lease : Lease
        Its epoch goes with every launch.
    settings : Settings, optional
        Those of the loop.
    forecast : Forecast, optional
        Speeds of jobs that were not measured yet.
    patience : Patience, optional

    Attributes
    ----------
    live : bool
        Tells the loop that jobs are real.
    runs : dict of int to Run
        Jobs that have devices.
    strays : dict of (int, int) to int
        (job, serial) of what runs and should not, until it is gone: nothing is launched meanwhile.
    stale : int
        Reports about runs that are not, or no longer, ours.
    down : set of int
        Devices that are gone.
    """

    live = True

    def __init__(
        self,
        store: Store,
        host: Host,
        clock: Clock,
        lease: Lease,
        *,
        settings: Settings | None = None,
        forecast: Forecast | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.settings, self.patience = settings or Settings(), patience or Patience()
        self.host, self.epoch = host, lease.epoch
        self.runs: dict[int, Run] = {}
        self.strays: dict[tuple[int, int], int] = {}
        self.intake = Intake(store)
        self.endings = Endings(self.patience)
        self.stale = 0
        self.out: list[ev.Event] = []
        self.looks: list[Callable[[], None]] = []  # called between two instants, once a second at least
        self._clock, self._forecast = clock, forecast
        self._t = 0.0
        self._forget: list[int] = []
        self._interrupted = False
        self._outside = Outside(self)
        self.down = self._outside.down
        self._kept: dict[int, Run] = {}
        self._turns = Turns(self.settings.slice_s, self._turn)
        self.acting, self.settling = Acting(self), Settling(self)
        self._reports: dict[type, Callable[[Any], None]] = {
            AttemptStarted: self._on_started,
            AttemptEnded: self._on_ended,
            AttemptPaused: self._on_paused,
            AttemptResettled: self.settling.told,
            Progress: self._on_progress,
            Foreign: self._outside.foreign,
            DeviceGone: self._outside.device,
        }

    @property
    def done_seq(self) -> int:
        """The last request whose events were handed to the loop."""
        return self.intake.done_seq

    # -- before the loop begins ------------------------------------------------------------

    def recall(self, events: Sequence[ev.Event]) -> None:
        """Learn from the log what the state does not keep."""
        self.intake.recall(events)
        self.endings.recall(events)

    def attach(self, state: State) -> dict[str, Any]:
        """Take up what really runs; returns what the log says of it (``Restarted``)."""
        self.state = state
        self.speeds = Speeds(state.layout, self._forecast, self.settings, self.patience, self.runs)
        self._outside.attach(state)
        self._t = state.now
        now = self._tick()
        self._outside.doubt(now + self.patience.audit_s)
        return {"t": now, "epoch": self.epoch, **reconcile(self, now)}

    # -- called by the loop: kept until the next wait ----------------------------------------

    def now(self) -> float:
        """The present, as of the last event."""
        return self._t

    def start(self, job: Job, place: Placement, attempt: int, resumed: bool) -> bool:
        """Begin or go on; see ``model.ports.Executor``."""
        record = self.state.records[job.id]
        run = Run(job, place, attempt, record.serial, resumed, self._t, record.work_s, record.work_s)
        if (old := self._kept.pop(job.id, None)) is not None:
            run.step_alone_s, run.sampled = old.step_alone_s, old.sampled
        self.runs[job.id] = run
        return False

    def stop(self, job_id: int, suspend: bool) -> None:
        """Save and leave, or just leave."""
        self._wish(job_id, "suspend" if suspend else "preempt")

    def cancel(self, job_id: int) -> None:
        """End for good."""
        self._wish(job_id, "cancel")

    def _wish(self, job_id: int, want: str) -> None:
        run = self.runs.get(job_id)
        # It may have ended at this very instant.
        if run is not None and run.want != "cancel":
            run.want, run.told = want, False

    def forget(self, job_id: int) -> None:
        """It will never start again."""
        self.intake.ended(job_id, well=False)
        self.endings.forget(job_id)
        self._kept.pop(job_id, None)
        self._forget.append(job_id)

    def move(self, job_id: int, place: Placement) -> None:
        """Save here, load there."""
        if (run := self.runs.get(job_id)) is not None:
            elsewhere(run, place, self.state.records[job_id].serial, self._t, moves=True)

    def in_place(self, job_id: int, place: Placement) -> bool:
        """Whether a resize to there needs no restart."""
        return self.settling.can(self.runs.get(job_id), place)

    def resize(self, job_id: int, place: Placement) -> None:
        """Another share where it is, or other devices: in place, or at the price of a restart."""
        run, record = self.runs.get(job_id), self.state.records[job_id]
        if run is None:
            return
        run.job = record.job
        if place.devices == run.place.devices:
            run.place, run.reshare = place, True
        elif record.settling:
            self.settling.begin(run, place)
        else:
            elsewhere(run, place, record.serial, self._t, moves=False)

    def pause(self, job_id: int, paused: bool) -> bool:
        """Stop a process by signal because its user wants it to; False if that is not its way to make room.

        One that is still starting stands still as soon as it runs.
        """
        run = self.runs.get(job_id)
        if run is None or run.want or self.asked(job_id).suspend != "pause":
            return False
        if paused != (run.halted if run.halt is None else run.halt):
            run.halt, run.asked_s = paused, -math.inf
        return True

    def drain(self) -> list[ev.Event]:
        """Nothing happens at the instant of a call."""
        return []

    def idle(self) -> bool:
        """Somebody may always ask for something."""
        return False

    def running(self) -> Mapping[int, Placement]:
        """Who has devices."""
        return {job_id: run.place for job_id, run in self.runs.items()}

    def interrupt(self) -> None:
        """Make ``wait`` return, now and from now on; safe in a signal handler."""
        self._interrupted = True
        self.host.wake()

    def asked(self, job_id: int) -> JobFile:
        """What its request said beside the ``Job``."""
        return self.intake.asked(job_id) or _NOTHING

    # -- what happens --------------------------------------------------------------------------

    def wait(self, until: float) -> list[ev.Event]:
        """Carry out what was decided, then wait for the next instant at which something happens."""
        begun = self._t
        while True:
            self._tick()
            while self._forget:
                self.host.forget(self._forget.pop())
            self.acting.act(self._t)
            for look in self.looks:
                look()
            if self.out:
                return self._told()
            if self._interrupted:
                return []
            turn_s = self._turns.rotate(self.runs.values(), self._t)
            left_s = min(until, turn_s, self._t + self.patience.poll_s) - self._t
            reports = self.host.poll(max(left_s, 0.0))
            now = self._tick()
            for report in reports:
                self._reports[type(report)](report)
            self._outside.believe(now)
            self.acting.watch(now)
            self.out += self.intake.freed(now)
            self.out += self.intake.read(now)
            if self.out or now >= until:
                self._t = self._t if self.out else max(begun, until)  # rounds of policies begin on time
                return self._told()

    def _told(self) -> list[ev.Event]:
        out, self.out = self.out, []
        return out

    def _tick(self) -> float:
        self._t = max(self._t, self._clock.now())
        return self._t

    def _turn(self, run: Run, stands: bool) -> None:
        self.host.pause(run.id, run.attempt, run.serial, stands)

    def current(self, told: _Told) -> Run | None:
        """The run that a report is about; None if it is stale."""
        run = self.runs.get(told.id)
        if run is not None and told.serial == run.serial:
            if run.former is not None:
                self._gone(run, run.former, "asked")  # before that, an earlier scheduler has not launched it
            return run
        self.stale += not (run is not None and run.former is not None and told.serial == run.former.serial)
        return None

    def _on_started(self, told: AttemptStarted) -> None:
        run = self.current(told)
        if run is None:
            former = self.runs[told.id].former if told.id in self.runs else None
            if former is None or former.serial != told.serial:
                self.acting.expel(told.id, told.serial, told.attempt)
            return
        if run.phase == "up":
            return
        run.phase, run.missed = "up", 0
        pid, ticks = told.pid, told.start_ticks
        self.out.append(ev.Launched(self._t, run.id, run.attempt, run.serial, pid, ticks))
        self.speeds.begin(run)
        self.out += self.speeds.rerate(run.place.devices, self._t)

    def _on_ended(self, told: AttemptEnded) -> None:
        self.strays.pop((told.id, told.serial), None)
        run = self.runs.get(told.id)
        if run is not None and run.former is not None and told.serial == run.former.serial:
            self._left(run, run.former, told)
        elif (run := self.current(told)) is not None:
            self.ended(run, told)
        elif self.state.live(told.id) is None:
            self._forget.append(told.id)  # an earlier scheduler died before it could

    def _left(self, run: Run, former: Former, told: AttemptEnded) -> None:
        """The process that a job left is gone; with its state saved the job goes on elsewhere."""
        restarts = told.outcome == "killed" and goes_on_itself(self.asked(run.id))
        if run.want or not (told.outcome == "suspended" or restarts):
            self.ended(run, told)
            return
        self._gone(run, former, "unsure")

    def _gone(self, run: Run, former: Former, phase: str) -> None:
        """Nobody is any more where a job came from."""
        if former.moves:
            self.out.append(ev.Released(self._t, run.id, former.devices))
        run.former, run.left, run.phase = None, False, phase

    def ended(self, run: Run, told: AttemptEnded) -> None:
        """A job's process is gone: tell what that means."""
        if told.again and not run.want and run.former is None:
            self.acting.postponed(run, told.detail, self._t)
            return
        run.settle(self._t, told.ago_s)
        beside = self.speeds.beside(run)
        event = self.endings.of(run, told, self.asked(run.id), self._t, beside)
        if run.halt:
            self.out.append(ev.Paused(self._t, run.id, run.attempt))  # it was about to be, and stays away
        self.out.append(event)
        del self.runs[run.id]
        if isinstance(event, ev.Ended) and event.outcome == "done":
            self.intake.ended(run.id, well=True)
            # The loop tells only of other ends; once it is on disk, the host knows it no more.
            self.forget(run.id)
        else:
            self._kept[run.id] = run
        if isinstance(event, ev.Suspended):
            self.endings.base[run.id] = event.work_s
        self.out += self.speeds.rerate(run.place.devices, self._t)

    def _on_paused(self, told: AttemptPaused) -> None:
        run = self.current(told)
        if run is None or run.halt is None or run.halt != told.paused:
            return
        run.halt, run.halted = None, told.paused
        run.stand(told.paused, self._t)
        run.settle(self._t)
        run.rate = 0.0  # as the event says, or as it was
        self.out.append(ev.Paused(self._t, run.id, run.attempt, told.paused))
        self.out += self.speeds.tell(run, self._t)

    def _on_progress(self, told: Progress) -> None:
        run = self.current(told)
        if run is None:
            return
        if told.killed > run.killed and not run.want:  # else they may have been killed for that
            run.killed, ago_s = told.killed, round(told.killed_ago_s, 1)
            where = run.id, run.attempt, run.serial
            self.out.append(ev.ProcessKilled(self._t, *where, told.killed, told.killed_by, ago_s))
        self.out += self.speeds.progress(run, told, self._t)
