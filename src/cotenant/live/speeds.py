"""How fast real jobs are, relative to alone: as measured by their steps, else as forecast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotenant.live.attempts import Patience, Run
from cotenant.model import events as ev
from cotenant.model.layout import Layout
from cotenant.model.liveports import Progress
from cotenant.model.ports import Forecast
from cotenant.model.settings import Settings

__all__ = ["Speeds"]

_CHANGED = 0.05
"""A speed is told again once it differs by more than this part of what was told."""
_BLEND = 0.5
_DOUBT = 0.1
"""Half the range of a sample, as a part of it: steps of one job differ little."""


class Speeds:
    """Speeds and samples of the jobs that run.

    Parameters
    ----------
    layout : Layout
    forecast : Forecast or None
        Without one, jobs are taken to run at full speed until they are measured.
    settings : Settings
    patience : Patience
    runs : mapping of int to Run
        The executor's.
    """

    def __init__(
        self,
        layout: Layout,
        forecast: Forecast | None,
        settings: Settings,
        patience: Patience,
        runs: Mapping[int, Run],
    ) -> None:
        self._layout, self._forecast, self._settings = layout, forecast, settings
        self._patience, self._runs = patience, runs
        self._alone: dict[tuple[str, str], float] = {}

    def beside(self, run: Run) -> list[Run]:
        """Who is on any of its devices, too."""
        mine = set(run.place.devices)
        return [o for o in self._runs.values() if o is not run and not mine.isdisjoint(o.place.devices)]

    def rerate(self, devices: Iterable[int], now: float) -> list[ev.Event]:
        """The company on these devices changed: what was measured holds no more."""
        there, found = set(devices), list[ev.Event]()
        for run in list(self._runs.values()):
            if not there.isdisjoint(run.place.devices):
                run.measured = 0.0
                found += self.tell(run, now)
        return found

    def tell(self, run: Run, now: float) -> list[ev.Event]:
        """The run's speed as an event, if it is another than was told."""
        if run.phase != "up":
            return []
        rate = 0.0 if run.halted else self._rate(run)
        if abs(rate - run.rate) <= _CHANGED * run.rate:
            return []
        run.settle(now)
        run.rate = rate
        return [ev.Rated(now, run.id, rate)] if self._settings.rate_events else []

    def still(self, run: Run, now: float) -> list[ev.Event]:
        """The run does no work from now on, until it is launched where it goes."""
        run.settle(now)
        was, run.rate = run.rate, 0.0
        return [ev.Rated(now, run.id, 0.0)] if was and self._settings.rate_events else []

    def _rate(self, run: Run) -> float:
        if run.measured:
            return run.measured
        others = self.beside(run)
        rate, forecast, model = 1.0, self._forecast, run.job.model
        if run.place.share.mode == "time-sliced":
            turns = {o.turn for o in (run, *others) if o.place.share.mode == "time-sliced"}
            rate /= max(len(turns), 1)
        if forecast is None or not run.place.devices:
            return rate
        kinds = self._layout.types
        worst = 1.0
        for device in run.place.devices:
            kind = kinds[self._layout.device_type[device]].name
            speed = forecast.solo_speed(model, kind)
            if run.place.share.mode == "spatial":
                there = tuple(sorted(o.job.model for o in others if device in o.place.devices))
                speed *= forecast.co_speed(model, there, kind).mean if there else 1.0
            worst = speed if device == run.place.devices[0] else min(worst, speed)
        return rate * worst

    # -- what jobs tell of themselves ----------------------------------------------------

    def progress(self, run: Run, told: Progress, now: float) -> list[ev.Event]:
        """Note how far a job is; its speed and a sample as events, where they changed."""
        run.see(told, now)
        if run.want or run.turned or run.halted or run.phase != "up" or run.shift is not None:
            return []
        others, kind = self.beside(run), self._kind(run)
        if told.step_s > 0.0 and len(run.place.devices) != run.job.gpus > 0:
            self._resized(run, told.step_s)
        elif told.step_s > 0.0:
            if not others and run.place.share.mode != "time-sliced":
                old = run.step_alone_s
                run.step_alone_s = told.step_s if not old else old + _BLEND * (told.step_s - old)
                self._alone[run.job.model or run.job.name, kind] = run.step_alone_s
            elif run.step_alone_s and run.place.share.mode == "spatial":
                run.measured = min(run.step_alone_s / told.step_s, 1.0)
        found = self.tell(run, now)
        sample = self._sample(run, bool(others), now)
        return [*found, sample] if sample is not None else found

    @staticmethod
    def _resized(run: Run, step_s: float) -> None:
        """An elastic job on more or fewer devices than it asked for: its speed counts against those.

        Work is steps times what one takes on the devices asked for. If it never ran there, it is taken to
        scale evenly.
        """
        run.step_alone_s = run.step_alone_s or step_s * len(run.place.devices) / run.job.gpus
        run.measured = run.step_alone_s / step_s

    def begin(self, run: Run) -> None:
        """What an alike job's steps took alone on this type of device is a first guess."""
        if not run.step_alone_s:
            run.step_alone_s = self._alone.get((run.job.model or run.job.name, self._kind(run)), 0.0)

    def _kind(self, run: Run) -> str:
        devices = run.place.devices
        return self._layout.types[self._layout.device_type[devices[0]]].name if devices else ""

    def _sample(self, run: Run, beside: bool, now: float) -> ev.Sampled | None:
        step_s = run.step_alone_s or run.step_s * run.rate
        if not run.total or step_s <= 0.0:
            return None
        work_s = run.total * step_s
        co_speed = run.measured if beside else 0.0
        said_s, said_speed = run.sampled
        same = abs(work_s - said_s) <= _DOUBT * said_s and abs(co_speed - said_speed) <= _DOUBT * said_speed
        if same or now - run.sampled_s < (self._settings.sample_s or self._patience.sample_s):
            return None
        run.sampled, run.sampled_s = (work_s, co_speed), now
        return ev.Sampled(
            now, run.id, run.attempt, work_s, (1 - _DOUBT) * work_s, (1 + _DOUBT) * work_s, co_speed
        )
