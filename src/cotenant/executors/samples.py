"""Light samples of runs in the simulated world: when they are taken, and what they tell.

The owner declares how many iterations a job makes; a sample measures the time of one, and so tells
the work that is still to do, with an error. The iterations done are counted, so what is done is
known exactly. The error is lognormal, belongs to the run's seed, the job, its attempt and the
number of the sample, and is smoothed over samples as ``predictors.completion`` does.

A window of ``Settings.sample_s`` begins when a run begins to work and, anew, when its company or
its speed changes: what it measures lies beside the present neighbours. A run that outlives what was
told is told anew at that moment: the iterations it still has to make are known.

What a job declared is known from a trace only if its last attempt was done: then it is the
length of that one (or of the longest), also during attempts that fail. For a job that ended early, by failing or by
being cancelled, nobody wrote down what it would have been: it is taken to have ended at a place
drawn evenly from what it declared, at least a twentieth. To tell its true length would be to
foresee its end; to tell nothing would give away that it has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from cotenant.executors.attempt import Attempt
from cotenant.executors.company import Companies
from cotenant.model.draws import normal, uniform
from cotenant.model.events import Sampled
from cotenant.model.settings import Settings

__all__ = ["Samples"]

_INF = math.inf
_SMOOTHING = 0.3
_Z90 = 1.6448536269514722
_SOONEST_S = 1.0
"""A run that outlives what was told of it is told anew no sooner than this after the last sample."""
_LEAST_PART = 0.05
_SLOWEST, _FASTEST = 0.02, 1.2


class _Sampling(msgspec.Struct, gc=False, eq=False):
    """Of one job: its samples so far, and the next.

    ``noted_s`` is when its entry among the things to come lies (infinite: there is none), which
    ``token`` dates; ``due_s`` may have moved past it since.
    """

    attempt: int
    taken: int = 0
    error: float = 0.0
    variance: float = 1.0
    due_s: float = _INF
    noted_s: float = _INF
    token: int = -1


class Samples:
    """Takes light samples.

    Parameters
    ----------
    settings : Settings
        ``sample_s`` positive.
    seed : int
    companies : Companies
    note : callable
        Notes that something is to come: when, for which job, and the token that dates it.
    """

    def __init__(
        self, settings: Settings, seed: int, companies: Companies, note: Callable[[float, int, int], None]
    ) -> None:
        self._window_s, self._noise = settings.sample_s, settings.sample_noise
        self._seed, self._companies, self._note = seed, companies, note
        self._of: dict[int, _Sampling] = {}
        self._token = 0

    def begin(self, run: Attempt, now_s: float) -> None:
        """The run works from now on beside its present company, at its present speed."""
        own = self._of.get(run.job.id)
        if own is None or own.attempt != run.attempt:
            own = self._of[run.job.id] = _Sampling(run.attempt)
        self._await(run, own, now_s + self._window_s)

    def _await(self, run: Attempt, own: _Sampling, due_s: float) -> None:
        own.due_s = due_s
        if due_s < own.noted_s:
            # One that lies earlier stays: whoever takes it out puts it where it belongs.
            own.noted_s = due_s
            self._token = own.token = self._token + 1
            self._note(due_s, run.job.id, own.token)

    def stop(self, job_id: int) -> None:
        """The job works no more; what it was told stays."""
        if (own := self._of.get(job_id)) is not None:
            own.due_s = own.noted_s = _INF
            own.token = -1

    def forget(self, job_id: int) -> None:
        """The attempt is over, for good or to be made again from its beginning."""
        self._of.pop(job_id, None)

    def valid(self, job_id: int, token: int) -> bool:
        """Is this entry still the one that counts?"""
        own = self._of.get(job_id)
        return own is not None and own.token == token

    def due(self, run: Attempt, now_s: float) -> Sampled | None:
        """The entry of a run was taken out: the sample, unless its window began anew meanwhile."""
        own = self._of[run.job.id]
        due_s, own.noted_s = own.due_s, _INF
        if run.paused:
            own.due_s = _INF  # saving or loading: a window begins when it works again
            return None
        if due_s > now_s:
            self._await(run, own, due_s)
            return None
        return self._take(run, own, now_s)

    def _take(self, run: Attempt, own: _Sampling, now_s: float) -> Sampled:
        job_id, names = run.job.id, (str(run.job.id), str(run.attempt), str(own.taken))
        drawn = self._noise * normal(self._seed, "sample", *names)
        if own.taken:
            own.error += _SMOOTHING * (drawn - own.error)
            own.variance = (1.0 - _SMOOTHING) ** 2 * own.variance + _SMOOTHING**2
        else:
            own.error = drawn
        own.taken += 1
        # Looked at, not touched: to sample a run must not change its course by a single bit.
        done_s = run.total_s - max(run.left_s - (now_s - run.since_s) * run.rate, 0.0)
        declared_s = self._declared_s(run)
        to_do_s = max(declared_s - done_s, 0.0)
        width = _Z90 * self._noise * math.sqrt(own.variance)
        work_s, low_s, high_s = (
            declared_s + to_do_s * (math.exp(e) - 1.0)
            for e in (own.error, own.error - width, own.error + width)
        )
        own.due_s = _INF
        if work_s < run.total_s:
            self._await(run, own, now_s + max((work_s - done_s) / run.rate, _SOONEST_S))
        return Sampled(now_s, job_id, run.attempt, work_s, low_s, high_s, self._co_speed(run, names))

    def _declared_s(self, run: Attempt) -> float:
        """Work of the whole job, had it run to the end that its owner declared."""
        # An attempt that failed later than the last one ended shows that there was more to do.
        length_s = max(run.behaviour.duration_s, *run.behaviour.failed_after_s, 0.0)
        if run.behaviour.outcome == "done":
            return length_s
        part = _LEAST_PART + (1.0 - _LEAST_PART) * uniform(self._seed, "declared", str(run.job.id))
        return length_s / part

    def _co_speed(self, run: Attempt, names: tuple[str, ...]) -> float:
        """Measured speed beside others over that alone, each of the two with its error; 0 if it has none."""
        if not (run.shared and run.plain):
            return 0.0
        on = self._companies.on
        beside = [on[device].members for device in run.place.devices]
        if all(len(members) == 1 for members in beside) or not all(m.plain for c in beside for m in c):
            return 0.0
        error = math.sqrt(2.0) * self._noise * normal(self._seed, "beside", *names)
        return min(max(self._companies.pace(run)[0] * math.exp(error), _SLOWEST), _FASTEST)
