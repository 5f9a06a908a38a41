"""Carries out what was decided, once it is written down; repeats what stays unanswered; watches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cotenant.live.attempts import Run, launch_of, stop_mode
from cotenant.live.endings import STALLED
from cotenant.model.liveports import AttemptEnded
from cotenant.model.quantities import format_duration

if TYPE_CHECKING:
    from cotenant.live.executor import LiveExecutor

__all__ = ["Acting"]

_log = logging.getLogger("cotenant.live")

_KILL_AFTER = 6
"""So many repeats of a stop are answered by nothing before the process is killed."""


class Acting:
    """The hands of an executor.

    Parameters
    ----------
    executor : LiveExecutor
        Whose runs these are.
    """

    def __init__(self, executor: LiveExecutor) -> None:
        self._executor, self._host = executor, executor.host
        self._audited_s = 0.0
        self._left: set[int] = set()

    # -- what was decided ----------------------------------------------------------------------

    def act(self, now: float) -> None:
        """Carry out what is not carried out yet."""
        executor = self._executor
        runs = list(executor.runs.values())
        for run in runs:
            if run.reshare and run.phase == "up" and run.former is None:
                run.reshare = False
                self._host.reshare(run.id, run.attempt, run.serial, run.place.share)
            if run.want:
                if not run.told:
                    self._end(run, now)
            elif run.former is not None and not run.left:
                self._leave(run, now)
            elif run.halt is not None and run.asked_s < now and run.phase == "up":
                run.asked_s = now
                self._host.pause(run.id, run.attempt, run.serial, run.halt)
        self._left = {d for run in runs if run.former is not None for d in run.former.devices}
        for run in runs:
            if run.phase in ("wanted", "unsure") and run.former is None and not run.want:
                self._launch(run, now)
            elif run.shift is not None and not self._waits(run):
                executor.settling.ask(run, now)

    def _launch(self, run: Run, now: float) -> None:
        executor = self._executor
        if not executor.down.isdisjoint(run.place.devices):
            run.want, run.cause = "lost", "a device is gone"
            self._end(run, now)
            return
        if self._waits(run):
            return
        if run.phase in ("wanted", "unsure"):
            run.since_s = now
        run.phase, run.asked_s = "asked", now
        self._host.launch(launch_of(run, executor.asked(run.id), executor.epoch))

    def _waits(self, run: Run) -> bool:
        """Is somebody still on its devices, whom the books have elsewhere, or who is to be nowhere?"""
        return bool(self._executor.strays) or not self._left.isdisjoint(run.place.devices)

    def _leave(self, run: Run, now: float) -> None:
        """It goes on elsewhere: first it saves its state where it is."""
        assert run.former is not None  # noqa: S101 - asked before
        run.left, run.asked_s, run.missed = True, now, 0
        self._executor.out += self._executor.speeds.still(run, now)
        self._awake(run, run.former.serial)
        mode = stop_mode("elsewhere", self._executor.asked(run.id))
        self._host.stop(run.id, run.attempt, run.former.serial, mode)

    def _end(self, run: Run, now: float) -> None:
        if run.phase == "wanted" and run.former is None:
            # It was never launched, so there is nothing to end.
            gone = AttemptEnded(id=run.id, attempt=run.attempt, serial=run.serial, outcome=self._unborn(run))
            self._executor.ended(run, gone)
            return
        if run.phase == "unsure" and run.former is None:
            if self._waits(run):
                return
            # Was it ever launched? Only who launches it can tell how it ended.
            self._host.launch(launch_of(run, self._executor.asked(run.id), self._executor.epoch))
            run.phase = "asked"
        run.told, run.asked_s, run.missed = True, now, 0
        self._stop(run)

    @staticmethod
    def _unborn(run: Run) -> str:
        """Of a run that goes on with saved state, that state is all there is."""
        return "suspended" if run.want == "suspend" and run.resumed else "killed"

    def _stop(self, run: Run, *, kill: bool = False) -> None:
        serial = run.serial if run.former is None else run.former.serial
        self._awake(run, serial)
        mode = "kill" if kill else stop_mode(run.want, self._executor.asked(run.id))
        self._host.stop(run.id, run.attempt, serial, mode)

    def _awake(self, run: Run, serial: int) -> None:
        """Who stands still cannot save its state."""
        if run.turned or run.halted:
            run.turned = False
            self._host.pause(run.id, run.attempt, serial, False)

    # -- what stays unanswered -----------------------------------------------------------------

    def watch(self, now: float) -> None:
        """Repeat what nobody answered; give up what does not start; find who makes no steps."""
        executor = self._executor
        patience = executor.patience
        for run in list(executor.runs.values()):
            asked = run.phase == "asked" and not run.want and run.former is None
            if asked and now - run.since_s >= patience.startup_s:
                run.want, run.told = "lost", False
                run.cause = f"it did not start within {format_duration(patience.startup_s)}"
                continue
            self._stalls(run, now)
            executor.settling.watch(run, now)
            waits = (
                run.phase == "asked" or run.told or run.left or (run.shift is not None and run.shift_s >= 0)
            )
            if waits and now - run.asked_s >= patience.again_s:
                run.asked_s = now
                self._again(run)
        if now - self._audited_s >= patience.audit_s:
            self._audited_s = now
            self.audit()

    def _again(self, run: Run) -> None:
        executor = self._executor
        if run.want and run.told:
            run.missed += 1
            if run.former is None:
                # A process that never was has no end; launched, and stopped at once, it has.
                self._host.launch(launch_of(run, executor.asked(run.id), executor.epoch))
            self._stop(run, kill=run.missed >= _KILL_AFTER)
        elif run.former is not None:
            run.missed += 1
            mode = "kill" if run.missed >= _KILL_AFTER else stop_mode("elsewhere", executor.asked(run.id))
            self._host.stop(run.id, run.attempt, run.former.serial, mode)
        elif run.phase == "asked":
            self._host.launch(launch_of(run, executor.asked(run.id), executor.epoch))
        elif run.shift is not None:
            executor.settling.again(run)

    def postponed(self, run: Run, why: str, now: float) -> None:
        """The machine could not start it, for want of what comes back: it is asked again, and loses nothing by it."""
        if run.missed == 0:
            again_s = format_duration(self._executor.patience.again_s)
            _log.warning("job %d cannot be started for now (%s); tried again every %s", run.id, why, again_s)
        run.phase, run.asked_s, run.since_s = "asked", now, now
        run.missed += 1

    def _stalls(self, run: Run, now: float) -> None:
        """Alive, but it makes no steps, although it made some: it may have lost its device."""
        stall_s = self._executor.patience.stall_s
        idle = run.phase == "up" and not (
            run.want or run.turned or run.halted or run.former or run.moved_s < 0
        )
        if idle and now - run.moved_s >= stall_s:
            where = "" if run.memory_bytes else ", and not on its device"
            run.want, run.told = "stalled", False
            run.cause = f"{STALLED} for {format_duration(stall_s)}{where}"

    def audit(self) -> None:
        """Compare what really runs with what should."""
        executor = self._executor
        found = {(f.id, f.serial): f for f in self._host.running()}
        for key in [key for key in executor.strays if key not in found]:
            del executor.strays[key]
        ours = set()
        for run in executor.runs.values():
            ours.add((run.id, run.serial))
            here = found.get((run.id, run.serial))
            stands = run.turned or run.halted
            settled = not run.want and run.phase == "up" and run.halt is None
            if here is not None and settled and here.paused != stands:
                self._host.pause(run.id, run.attempt, run.serial, stands)
            if run.former is not None:
                ours.add((run.id, run.former.serial))
            elif run.phase == "up":
                run.missed = 0 if (run.id, run.serial) in found else run.missed + 1
                if run.missed >= 2 and not run.told:
                    # It ended, and nobody said how: who is asked to launch it again does.
                    self._host.launch(launch_of(run, executor.asked(run.id), executor.epoch))
        for key in sorted(found.keys() - ours):
            self.expel(*key, found[key].attempt)

    def expel(self, job_id: int, serial: int, attempt: int) -> None:
        """Something runs that should not."""
        self._executor.strays[job_id, serial] = attempt
        self._host.stop(job_id, attempt, serial, "kill")
