"""Jobs that go on elsewhere: by saving here and loading there, or in place, if their processes can be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cotenant.live.attempts import Former, Run
from cotenant.model import events as ev
from cotenant.model.liveports import AttemptResettled
from cotenant.model.placement import Placement
from cotenant.model.quantities import format_duration

if TYPE_CHECKING:
    from cotenant.live.executor import LiveExecutor

__all__ = ["Settling", "elsewhere"]


def elsewhere(run: Run, place: Placement, serial: int, now: float, *, moves: bool) -> None:
    """A job saves where it is, and is launched as this serial where it goes."""
    run.settle(now)
    run.base_s = run.done_s(now)
    # The rules let nobody leave before its process is known, so there is one to leave.
    run.former = Former(run.serial, run.devices, moves)
    run.place, run.serial, run.shift, run.killed = place, serial, None, 0
    run.phase, run.resumed, run.left, run.measured = "wanted", True, False, 0.0


class Settling:
    """Resizes in place: asked of the host, until it says that processes are where they should be.

    A job whose host refuses, or does not answer in time, saves and starts again instead.

    Parameters
    ----------
    executor : LiveExecutor
        Whose runs these are.
    """

    def __init__(self, executor: LiveExecutor) -> None:
        self._executor = executor

    def can(self, run: Run | None, place: Placement) -> bool:
        """May this run be resized in place?"""
        executor = self._executor
        if run is None or run.phase != "up" or run.want or run.former or run.shift is not None:
            return False
        asked = executor.asked(run.id)
        whole = run.place.share.mode == place.share.mode == "exclusive"
        ready = asked.elastic is not None and asked.suspend == "runtime" and not run.halted
        return whole and ready and run.place.devices != place.devices and hasattr(executor.host, "resettle")

    def begin(self, run: Run, place: Placement) -> None:
        """It was decided, and the books have it so."""
        run.settle(self._executor.now())
        run.shift, run.place, run.shift_s = run.place.devices, place, -1.0

    def ask(self, run: Run, now: float) -> None:
        """Ask the host, if that has not been done and nobody is on the devices any more."""
        if run.shift is None or run.shift_s >= 0.0 or run.want or run.phase != "up":
            return
        run.shift_s = run.asked_s = now
        self.again(run)

    def again(self, run: Run) -> None:
        """Ask it."""
        number = self._executor.state.records[run.id].real.shifts
        self._executor.host.resettle(run.id, run.attempt, run.serial, number, run.place.devices)

    def watch(self, run: Run, now: float) -> None:
        """Give up what takes too long; a step or two is what it takes."""
        limit_s = self._executor.patience.settle_s + 3.0 * run.step_s
        if run.shift is not None and 0.0 <= run.shift_s <= now - limit_s and not run.want:
            self._restart(run, f"no answer within {format_duration(limit_s)}", now)

    def told(self, told: AttemptResettled) -> None:
        """The host has answered."""
        executor = self._executor
        now, run = executor.now(), executor.current(told)
        if run is None or run.shift is None or told.number != executor.state.records[run.id].real.shifts:
            return
        if told.done:
            executor.out.append(ev.Resettled(now, run.id, run.attempt, run.place.devices))
            left, run.shift = run.devices, None
            executor.out += executor.speeds.rerate(left, now)
        elif not run.want:
            self._restart(run, told.detail, now)

    def _restart(self, run: Run, why: str, now: float) -> None:
        place = run.place
        self._executor.out.append(
            ev.Resettled(now, run.id, run.attempt, place.devices, again=True, detail=why)
        )
        elsewhere(run, place, run.serial + 1, now, moves=False)
