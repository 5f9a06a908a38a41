"""Hyper-parameter searches: configurations of one search are compared at rungs, and the worse are ended.

It stands between the loop and any executor, sees the progress that is reported, and asks to cancel
as a user would; no policy knows of it. The idea is Gandiva's multi-jobs (OSDI'18, section 3.3) and
successive halving (Jamieson and Talwalkar, AISTATS'16).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

from cotenant.errors import ConfigError
from cotenant.model.events import CancelRequested, Ended, Event, Submitted
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.ports import Executor
from cotenant.model.progress import Progress

__all__ = ["Rule", "Sweep"]

Rule = Literal["half", "median", "none"]
_NEARLY = 1e-6


class Sweep:
    """An executor that watches searches while another one acts.

    A job belongs to the search whose name stands before the last ``/`` of its own.

    Parameters
    ----------
    inner : Executor
        Acts. Changes of speed must be told (setting ``rate_events``).
    score : callable of (str, float) to float
        What a configuration, by name, is worth after so much work: higher is better.
    rung_s : float
        Work between two comparisons, in reference-device seconds.
    rule : {"half", "median", "none"}
        ``half``: once all living configurations of a search have reached a rung, the lower half of them ends.
        ``median``: a configuration that reaches a rung ends if it is worse there than the median of those who
        came there so far. ``none``: nobody is ended.
    good : float
        Score from which on a configuration is good.
    keep : int
        ``half`` leaves at least so many configurations of a search.

    Attributes
    ----------
    first_good_s : dict of str to (float, str)
        By search: when its first good configuration was found, and which.
    stopped : list of (float, str, int)
        When which configuration was ended, and at which rung.

    Raises
    ------
    ConfigError
        If ``rung_s`` is not positive.
    """

    def __init__(
        self,
        inner: Executor,
        score: Callable[[str, float], float],
        *,
        rung_s: float,
        rule: Rule = "half",
        good: float = math.inf,
        keep: int = 1,
    ) -> None:
        if not 0.0 < rung_s < math.inf:
            raise ConfigError(f"rung_s of a sweep must be positive and finite, found {rung_s}")
        self.inner, self._score = inner, score
        self._rung_s, self._rule, self._good = rung_s, rule, good
        self._keep = keep
        self._progress = Progress()
        self._searches: dict[str, dict[int, int]] = {}  # living configurations, and rungs they have reached
        self._halved: dict[str, int] = {}
        self._scores: dict[tuple[str, int], list[float]] = {}
        self.first_good_s: dict[str, tuple[float, str]] = {}
        self.stopped: list[tuple[float, str, int]] = []

    # -- the executor ------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self.inner.now()

    def start(self, job: Job, place: Placement, attempt: int, resumed: bool) -> bool:
        """Begin an attempt, or go on."""
        self._progress.started(self.inner.now(), job.id, resumed)
        return self.inner.start(job, place, attempt, resumed)

    def stop(self, job_id: int, suspend: bool) -> None:
        """Take a job off its devices."""
        self.inner.stop(job_id, suspend)

    def cancel(self, job_id: int) -> None:
        """End a running job for good."""
        self.inner.cancel(job_id)

    def forget(self, job_id: int) -> None:
        """A waiting job will never start."""
        self._left(job_id)
        self.inner.forget(job_id)

    def move(self, job_id: int, place: Placement) -> None:
        """Migrate a running job."""
        self.inner.move(job_id, place)

    def resize(self, job_id: int, place: Placement) -> None:
        """Change a running job's devices or share."""
        self.inner.resize(job_id, place)

    def drain(self) -> list[Event]:
        """Events of this instant."""
        return self._seen(self.inner.drain())

    def idle(self) -> bool:
        """True if nothing is to come by itself."""
        return self.inner.idle()

    def running(self) -> Mapping[int, Placement]:
        """What really runs."""
        return self.inner.running()

    def wait(self, until: float) -> list[Event]:
        """What happened next; requests to cancel come when a rung is reached."""
        while True:
            due_s, job_id = self._next_rung()
            events = self._seen(self.inner.wait(min(until, due_s)))
            if events:
                return events
            if due_s > until or due_s == math.inf:
                return []
            asked = self._reached(job_id)
            if asked:
                return asked

    # -- the search --------------------------------------------------------------------

    def _seen(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, Submitted) and "/" in event.job.name:
                self._searches.setdefault(event.job.name.rpartition("/")[0], {})[event.job.id] = 0
            elif isinstance(event, Ended) and event.final:
                if event.outcome == "done":
                    self._looked_at(event.id, event.work_s)
                self._left(event.id)
            self._progress.see(event)
        return events

    def _looked_at(self, job_id: int, work_s: float) -> float:
        """The score of a configuration now; the first good one of its search is noted."""
        name = self._progress.names[job_id]
        score, search = self._score(name, work_s), name.rpartition("/")[0]
        if search and score >= self._good and search not in self.first_good_s:
            self.first_good_s[search] = (self.inner.now(), name)
        return score

    def _left(self, job_id: int) -> None:
        for living in self._searches.values():
            living.pop(job_id, None)

    def _next_rung(self) -> tuple[float, int]:
        """When the next configuration reaches its next rung, and which one."""
        best = (math.inf, -1)
        for living in self._searches.values():
            for job_id, rung in living.items():
                best = min(best, (self._progress.due_s(job_id, (rung + 1) * self._rung_s), job_id))
        return best

    def _reached(self, job_id: int) -> list[Event]:
        """A configuration has reached its next rung: who is to end?"""
        now, name = self.inner.now(), self._progress.names[job_id]
        search = name.rpartition("/")[0]
        living = self._searches[search]
        rung = living[job_id] = living[job_id] + 1
        score = self._looked_at(job_id, rung * self._rung_s)
        ends: list[int] = []
        if self._rule == "median":
            scores = self._scores.setdefault((search, rung), [])
            scores.append(score)
            if score < sorted(scores)[len(scores) // 2] - _NEARLY:
                ends = [job_id]
        elif self._rule == "half" and min(living.values()) > self._halved.get(search, 0):
            self._halved[search] = rung = min(living.values())
            names = self._progress.names
            ranked = sorted(living, key=lambda j: (self._score(names[j], rung * self._rung_s), -j))
            ends = ranked[: max(0, min(len(ranked) // 2, len(ranked) - self._keep))]
        for loser in ends:
            self.stopped.append((now, self._progress.names[loser], rung))
            del living[loser]
        return [CancelRequested(now, loser, "sweep") for loser in sorted(ends)]
