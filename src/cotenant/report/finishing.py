"""When one job will finish, as it was known while it ran: from its samples, carried over to new company."""

from __future__ import annotations

from typing import Any

from cotenant.model import events as ev
from cotenant.model.ports import Interval
from cotenant.model.quantities import format_duration
from cotenant.predictors.completion import Completion, FinishAt
from cotenant.predictors.sampling import StepSample
from cotenant.report.phrases import at
from cotenant.report.stage import Stage

__all__ = ["Finishing", "Foreseen"]

_STEPS = 1_000_000
"""What is left at a sample is taken as so many iterations; the log counts work, not iterations."""
_SLOWEST = 1e-6
_ALONE = Interval(1.0, 1.0, 1.0)


class Finishing:
    """Follows the events of one job.

    Attributes
    ----------
    started_s : float
        When it last got devices.
    """

    def __init__(self) -> None:
        self.started_s = 0.0
        self._work_s = self._since_s = self._rate = 0.0
        self._completion: Completion | None = None
        self._sampled_s = self._left_s = 0.0

    def see(self, event: Any) -> None:
        """Fold an event of the job."""
        if isinstance(event, ev.Started):
            self.started_s = self._since_s = event.t
            self._work_s, self._rate = self._work_s if event.resumed else 0.0, 1.0
        elif isinstance(event, ev.Rated):
            self._work_s, self._since_s, self._rate = self.work_at(event.t), event.t, event.rate
        elif isinstance(event, (ev.Suspended, ev.Ended)):
            self._work_s, self._rate, self._completion = event.work_s, 0.0, None

    def work_at(self, t: float) -> float:
        """Useful work so far, in reference-device seconds."""
        return self._work_s + self._rate * (t - self._since_s)

    def sampled(self, event: ev.Sampled) -> FinishAt | None:
        """When it will finish if its company stays; None while it makes no progress."""
        done, rate = self.work_at(event.t), self._rate
        left, low, high = (max(w - done, _SLOWEST) for w in (event.work_s, event.low_s, event.high_s))
        if rate <= 0.0:
            return None
        beside = Interval(*[min(event.co_speed, 1.0)] * 3) if event.co_speed else _ALONE
        each = StepSample(left / rate / _STEPS, low / rate / _STEPS, high / rate / _STEPS, _STEPS)
        self._completion = Completion(_STEPS, Interval(each.iteration_s, each.low_s, each.high_s), beside)
        self._completion.sampled(each)
        self._sampled_s, self._left_s = done, left
        return self._completion.finish(event.t)

    def carried(self, t: float, beside: Interval | None) -> FinishAt | None:
        """When it will finish beside new company, of which a forecast says this (None: it is alone now).

        None if it was not sampled before, or is done by what was told then.
        """
        completion = self._completion
        part = (self.work_at(t) - self._sampled_s) / self._left_s if completion else 1.0
        if completion is None or part >= 1.0:
            return None
        completion.progress(max(int(part * _STEPS), completion.done))
        completion.neighbours(beside or _ALONE)
        return completion.finish(t)


class Foreseen:
    """The same in sentences, for one job: at its samples, and when others come to it or leave.

    Parameters
    ----------
    job : int
    """

    def __init__(self, job: int) -> None:
        self._job = job
        self._finishing = Finishing()
        self._said: dict[tuple[str, tuple[str, ...]], ev.Foretold] = {}
        self._changed_s: float | None = None
        self._turns = False

    def see(self, event: Any) -> None:
        """Fold any event."""
        if isinstance(event, ev.Foretold):
            self._said[event.device_type, event.models] = event
        elif getattr(event, "id", -1) == self._job:
            self._finishing.see(event)
            if isinstance(event, (ev.Started, ev.Moved, ev.Resized)):
                self._turns = event.share is not None and event.share.mode == "time-sliced"
            if isinstance(event, (ev.Started, ev.Suspended, ev.Ended)):
                self._changed_s = None

    def changed(self, t: float) -> None:
        """Others came to its devices or left them."""
        self._changed_s = t

    def sampled(self, event: ev.Sampled) -> str:
        """What a sample told."""
        ran_s = format_duration(event.t - self._finishing.started_s)
        done_s, found = self._finishing.work_at(event.t), self._finishing.sampled(event)
        self._changed_s = None
        beside = ""
        if event.co_speed:
            beside = f" Beside its neighbours it runs at {event.co_speed:.2f} of its speed alone."
        when = f"will finish at {_range(found)} if its company stays." if found else "makes no progress now."
        if found and done_s >= event.work_s:
            when = (
                f"has done {format_duration(done_s)} of work, more than the {format_duration(event.work_s)} that "
                "were foreseen, so when it finishes is not known from this."
            )
        return f"Sampled after {ran_s}: {when}{beside}"

    def carried(self, t: float, stage: Stage, model: str) -> tuple[float, str] | None:
        """What is foreseen once an instant is over at which its company changed; before time ``t``."""
        since = self._changed_s
        if since is None or t <= since:
            return None
        self._changed_s = None
        company = stage.company(self._job)
        if company is None or self._turns:
            return None
        beside = None
        if len(company[1]) > 1:
            said = self._said.get(company)
            if said is None:
                return None
            which = said.models.index(model)
            beside = Interval(said.mean[which], said.low[which], said.high[which])
        found = self._finishing.carried(since, beside)
        if found is None:
            return None
        now = "Alone on its devices now"
        if beside is not None:
            now = (
                f"New company, beside which {beside.mean:.2f} ({beside.low:.2f} to {beside.high:.2f}) of its "
                "speed alone is foretold"
            )
        return since, f"{now}: will finish at {_range(found)}, the last sample carried over."


def _range(found: FinishAt) -> str:
    return f"{at(found.at_s)} (between {at(found.earliest_s)} and {at(found.latest_s)})"
