"""When a running job will finish, with bounds: sampled speed, history, and its neighbours.

One object for each running job. Before the first light sample (``predictors.sampling``) the
time of one iteration alone comes from history or from a resource predictor; the sample then
replaces it, and later ones are smoothed exponentially (Tong's reconstruction, systems page 3:
0.3). When neighbours change, the last measured iteration is carried over by the ratio of the
predicted slowdowns, and only then does the forecast of interference enter with its doubt:
while nothing changed the slowdown was measured, not predicted.

Independent doubts add in quadrature on the scale of logarithms.
"""

from __future__ import annotations

import math

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.ports import Interval
from cotenant.predictors.sampling import StepSample

__all__ = ["Completion", "FinishAt"]

_SMOOTHING = 0.3


class FinishAt(msgspec.Struct, frozen=True, gc=False):
    """A moment, between two others nine times in ten; in the clock of the caller, in seconds.

    Parameters
    ----------
    at_s, earliest_s, latest_s : float
    basis : {"history", "sample", "carried over"}
        Whether the speed was measured, under these neighbours or under others.
    """

    at_s: float
    earliest_s: float
    latest_s: float
    basis: str


class Completion:
    """Keeps the forecast of one job's completion true while things change.

    Parameters
    ----------
    iterations : int
        In all.
    prior : Interval
        Seconds of one iteration alone, before anything was measured.
    beside : Interval, optional
        Predicted speed beside the present neighbours, in (0, 1]; alone if not given.

    Raises
    ------
    ConfigError
        If a number makes no sense.

    Examples
    --------
    >>> job = Completion(1000, Interval(1.0, 0.5, 2.0))
    >>> job.finish(0.0).at_s
    1000.0
    >>> job.sampled(StepSample(0.8, 0.79, 0.82, 20))
    >>> job.progress(25)
    >>> job.finish(20.0).at_s
    800.0
    >>> job.neighbours(Interval(0.5, 0.4, 0.6))
    >>> job.finish(20.0).at_s
    1580.0
    """

    def __init__(self, iterations: int, prior: Interval, beside: Interval | None = None) -> None:
        if iterations < 1:
            raise ConfigError(f"a job has at least one iteration, found {iterations}")
        self.iterations = iterations
        self.done = 0
        self._alone = _checked(prior, "seconds of one iteration")
        self._beside = _checked(beside or Interval(1.0, 1.0, 1.0), "speed beside the neighbours")
        self._measured_beside: Interval | None = None
        self._measured: Interval | None = None

    def progress(self, done: int) -> None:
        """So many iterations are done.

        Raises
        ------
        ConfigError
            If there are not that many, or fewer than before.
        """
        if not self.done <= done <= self.iterations:
            raise ConfigError(f"progress {done} must lie in {self.done}..{self.iterations}")
        self.done = done

    def sampled(self, sample: StepSample) -> None:
        """The time of one iteration was measured under the present neighbours."""
        seen = Interval(sample.iteration_s, sample.low_s, sample.high_s)
        old = self._measured
        if old is not None and self._measured_beside == self._beside:
            seen = Interval(*(_smoothed(a, b) for a, b in zip(_parts(old), _parts(seen), strict=True)))
        self._measured, self._measured_beside = seen, self._beside

    def neighbours(self, beside: Interval) -> None:
        """Neighbours changed: predicted speed beside the new ones."""
        self._beside = _checked(beside, "speed beside the neighbours")

    def iteration_s(self) -> tuple[Interval, str]:
        """Seconds of one iteration now, and what it rests on."""
        if self._measured is None or self._measured_beside is None:
            return _divided(self._alone, self._beside), "history"
        if self._measured_beside == self._beside:
            return self._measured, "sample"
        return _divided(_scaled(self._measured, self._measured_beside), self._beside), "carried over"

    def finish(self, now_s: float) -> FinishAt:
        """When it will be done if the neighbours stay."""
        each, basis = self.iteration_s()
        left = self.iterations - self.done
        return FinishAt(now_s + left * each.mean, now_s + left * each.low, now_s + left * each.high, basis)

    def measured_speed(self, alone_s: float) -> float | None:
        """Measured speed beside the present neighbours; what an interference predictor learns from.

        Parameters
        ----------
        alone_s : float
            Seconds of one iteration alone.
        """
        if self._measured is None or self._measured_beside != self._beside:
            return None
        return alone_s / self._measured.mean


def _smoothed(old: float, new: float) -> float:
    return old + _SMOOTHING * (new - old)


def _parts(interval: Interval) -> tuple[float, float, float]:
    return interval.mean, interval.low, interval.high


def _checked(interval: Interval, what: str) -> Interval:
    if not 0.0 < interval.low <= interval.mean <= interval.high < math.inf:
        raise ConfigError(f"{what}: 0 < low <= mean <= high is needed, found {_parts(interval)}")
    return interval


def _divided(time_s: Interval, speed: Interval) -> Interval:
    """Seconds over speed: doubts in quadrature, each side on its own."""
    up = math.hypot(math.log(time_s.high / time_s.mean), math.log(speed.mean / speed.low))
    down = math.hypot(math.log(time_s.mean / time_s.low), math.log(speed.high / speed.mean))
    mean = time_s.mean / speed.mean
    return Interval(mean, mean * math.exp(-down), mean * math.exp(up))


def _scaled(time_s: Interval, speed: Interval) -> Interval:
    """Seconds times speed: what one iteration would take alone."""
    inverse = Interval(1.0 / speed.mean, 1.0 / speed.high, 1.0 / speed.low)
    return _divided(time_s, inverse)
