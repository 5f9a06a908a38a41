"""What was foretold of one job beside others, and what happened to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.placement import DEVICE_MILLI
from cotenant.model.quantities import format_duration
from cotenant.report.calibration import DUST, Judged, judge
from cotenant.report.company import ALONE, CompanyWalk, Side
from cotenant.report.tables import show

__all__ = ["Promise", "Promises"]


class Promise(msgspec.Struct, frozen=True):
    """A speed relative to alone, beside the same others: foretold and happened.

    Parameters
    ----------
    beside : tuple of str
        Models of the others; of a gang, of all sets on its devices.
    mean, low, high : float
    happened : float
        Mean over ``seconds``.
    """

    device_type: str
    beside: tuple[str, ...]
    mean: float
    low: float
    high: float
    happened: float
    seconds: float

    @property
    def text(self) -> str:
        """One line."""
        others = ", ".join(show(model) or "(unknown)" for model in self.beside)
        if self.low - DUST <= self.happened <= self.high + DUST:
            verdict = "inside the interval"
        else:
            verdict = "slower than the interval" if self.happened < self.low else "faster than the interval"
        return (
            f"{format_duration(self.seconds)} beside {others} on {show(self.device_type)}: foretold {self.mean:.2f}"
            f" ({self.low:.2f} to {self.high:.2f}), happened {self.happened:.2f}: {verdict}"
        )


class Promises:
    """Follows a log for the sake of some jobs.

    Parameters
    ----------
    wanted : callable
        Which jobs, told when they are submitted.
    """

    def __init__(self, wanted: Callable[[Job], bool]) -> None:
        self._wanted = wanted
        self._walk: CompanyWalk | None = None
        self._fractions: set[int] = set()
        self._models: dict[int, str] = {}
        self._gpus: dict[int, int] = {}
        self._now = 0.0

    def see(self, event: Any) -> None:
        """Fold one event."""
        self._now = event.t
        if isinstance(event, ev.Opened):
            if event.settings.get("rate_events", True) is not False:
                self._walk = CompanyWalk(event, self._fractions, everything=True)
        elif self._walk is None:
            return
        elif isinstance(event, ev.Submitted):
            job = event.job
            self._models[job.id], self._gpus[job.id] = job.model, job.gpus
            if 0 < job.compute_milli < DEVICE_MILLI:
                self._fractions.add(job.id)
            if self._wanted(job):
                self._walk.watched[job.id] = defaultdict(float)
        else:
            self._walk.walk((event,), self._models.__getitem__, self._gpus.__getitem__)

    def of(self, job: int) -> tuple[Promise, ...]:
        """What can be judged of a job, in the order in which it happened."""
        walk = self._walk
        if walk is None or job not in walk.watched:
            return ()
        judged, _ = judge(walk, walk.until(self._now, job), walk.until(self._now))
        return tuple([_promise(found) for found in judged])


def _promise(judged: Judged) -> Promise:
    seconds = sum(spent for _, spent in judged.ran)
    happened = sum(speed * spent for speed, spent in judged.ran) / seconds
    name = judged.side.sets[0][0]
    return Promise(name, _others(judged.side), judged.mean, judged.low, judged.high, happened, seconds)


def _others(side: Side) -> tuple[str, ...]:
    sets = []
    for _, models in side.sets:
        if models != ALONE:
            at = models.index(side.model)
            sets.append((*models[:at], *models[at + 1 :]))
    return sets[0] if len(sets) == 1 else tuple(sorted({model for others in sets for model in others}))
