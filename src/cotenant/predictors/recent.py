"""Forecast of running times from the most recent alike jobs: quantiles, and honest ranges.

Where ``HistoryRuntime`` fits a lognormal to everything it ever saw, this keeps the latest
durations of each group of alike jobs and answers with their quantiles, the newer ones
weighing more: users change what they run, and durations have two humps (crashes and full
runs) more often than one. Groups, finest first: (tenant, user, name without numbers,
devices, model), (tenant, user, devices), (devices, model), all; a finer group is believed by
its weight against two jobs' weight of the coarser ones.

The range is widened or narrowed while jobs end, so that nine in ten really fall inside: adaptive
conformal inference (Gibbs and Candès 2021, "Adaptive conformal inference under distribution
shift", NeurIPS 34, equation 2).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import accumulate
from operator import mul, sub
from typing import Any

from cotenant.errors import ConfigError
from cotenant.model.jobs import Job
from cotenant.model.ports import Interval
from cotenant.model.workload import Workload

__all__ = ["RecentRuntime", "name_stem"]

_KEPT = 32
_SHRINK = 2.0
_MAX_GROUPS = 50_000
_SHORTEST_S = 1e-3
_NEGLIGIBLE = 0.03
"""Coarser groups that would weigh less than this are not looked at."""
_PRIOR_LOG, _PRIOR_SPREAD = math.log(3600.0), 1.5
_PRIOR = tuple(_PRIOR_LOG + _PRIOR_SPREAD * z for z in (-1.64, -0.84, -0.25, 0.25, 0.84, 1.64))
_TARGET, _STEP = 0.1, 0.005
_NUMBERS = re.compile(r"[0-9]+|[0-9a-f]{8,}")


@lru_cache(maxsize=65536)
def name_stem(name: str) -> str:
    """A job's name without its numbers, so that runs of one script fall together.

    >>> name_stem("train-resnet_lr0.1-run17"), name_stem("train-resnet_lr0.01-run3")
    ('train-resnet_lr.-run', 'train-resnet_lr.-run')
    """
    return _NUMBERS.sub("", name)


class _Ring:
    """The latest logarithms of durations, oldest first."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, value: float) -> None:
        self.values.append(value)
        if len(self.values) > _KEPT:
            del self.values[0]


def _quantile(values: list[float], cumulated: list[float], q: float) -> float:
    place = bisect_left(cumulated, q * cumulated[-1])
    return math.exp(values[min(place, len(values) - 1)])


class RecentRuntime:
    """Quantiles of the latest alike jobs.

    Parameters
    ----------
    half_life_jobs : float
        After how many newer jobs of its group a duration counts half.

    Raises
    ------
    ConfigError
        If the half life is not positive.
    """

    def __init__(self, *, half_life_jobs: float = 8.0) -> None:
        if not half_life_jobs > 0:
            raise ConfigError(f"recent: half_life_jobs must be positive, found {half_life_jobs}")
        self.half_life_jobs = half_life_jobs
        decay = 0.5 ** (1.0 / half_life_jobs)
        self._weights = [decay**age for age in range(_KEPT)][::-1]
        self._groups: dict[tuple[Any, ...], _Ring] = {}
        self._miss = _TARGET
        self._promised: dict[int, tuple[float, float]] = {}

    @classmethod
    def from_workload(cls, workload: Workload, seed: int = 0) -> RecentRuntime:
        """A forecast that knows nothing yet; neither argument is used."""
        return cls()

    def predict_s(self, job: Job) -> Interval:
        """Expected duration of alike jobs, and a range that held nine in ten of late.

        The mean, not the median: ordering by the expected value is what makes mean completion
        times small (Smith's rule) where durations are long-tailed.
        """
        values, cumulated = self._distribution(job)
        half = min(max(self._miss, 0.0), 1.0) / 2.0
        low, high = _quantile(values, cumulated, half), _quantile(values, cumulated, 1.0 - half)
        if half <= 0.0:
            # More doubt than the sample spans: as wide again on either side.
            low, high = low * low / high, high * high / low
        weights = map(sub, cumulated, (0.0, *cumulated))
        mean = sum(map(mul, map(math.exp, values), weights)) / cumulated[-1]
        self._promised[job.id] = (low, high)
        return Interval(mean, min(low, mean), max(high, mean))

    def quantile_s(self, job: Job, q: float, elapsed_s: float = 0.0) -> float:
        """Seconds within which a share ``q`` of the latest alike jobs ended.

        Of those that ran longer than ``elapsed_s``, so that a job under way is told apart from
        those that crashed at once. If none did, the tail is taken for a Pareto's of index one:
        half of what has run so long ends before twice as long.

        Raises
        ------
        ConfigError
            If q lies outside [0, 1] or the seconds elapsed are negative.
        """
        if not 0.0 <= q <= 1.0 or not elapsed_s >= 0.0:
            raise ConfigError(
                f"a quantile lies in [0, 1] and elapsed time is not negative, found {q}, {elapsed_s}"
            )
        values, cumulated = self._distribution(job)
        if elapsed_s > 0.0:
            first = bisect_right(values, math.log(elapsed_s))
            if first == len(values):
                return elapsed_s / max(1.0 - q, 1e-9)
            before = cumulated[first - 1] if first else 0.0
            values, cumulated = values[first:], [weight - before for weight in cumulated[first:]]
        return _quantile(values, cumulated, q)

    def alike(self, job: Job) -> tuple[int, tuple[str, ...]]:
        """How many kept durations the finest known group holds, and what its jobs share.

        Only what the job says is named: where no user is given, none is shared.
        """
        told: tuple[dict[str, str | int], ...] = (
            {
                "tenant": job.tenant,
                "user": job.user,
                "name": name_stem(job.name),
                "devices": 1,
                "model": job.model,
            },
            {"tenant": job.tenant, "user": job.user, "devices": 1},
            {"devices": 1, "model": job.model},
            {},
        )
        for key, what in zip(self._keys(job), told, strict=True):
            if (ring := self._groups.get(key)) is not None:
                return len(ring.values), tuple(name for name, value in what.items() if value)
        return 0, ()

    def longest_s(self, job: Job) -> float:
        """The longest kept duration of any group that this job belongs to; 0 if nothing ended yet."""
        rings = [self._groups[key] for key in self._keys(job) if key in self._groups]
        return max((math.exp(max(ring.values)) for ring in rings), default=0.0)

    def observe(self, job: Job, work_s: float) -> None:
        """Learn from a job that ended with this much work."""
        value = math.log(max(work_s, _SHORTEST_S))
        promised = self._promised.pop(job.id, None)
        if promised is not None:
            missed = not promised[0] <= work_s <= promised[1]
            self._miss += _STEP * (_TARGET - missed)
        for key in self._keys(job):
            ring = self._groups.get(key)
            if ring is None:
                if len(self._groups) >= _MAX_GROUPS:
                    continue
                ring = self._groups[key] = _Ring()
            ring.add(value)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {
            "kind": "recent",
            "oracle": False,
            "learns": "from jobs that ended",
            "half_life_jobs": self.half_life_jobs,
        }

    def _keys(self, job: Job) -> tuple[tuple[Any, ...], ...]:
        """Groups of a job, finest first."""
        return (
            (job.tenant, job.user, name_stem(job.name), job.gpus, job.model),
            (job.tenant, job.user, job.gpus),
            (job.gpus, job.model),
            (),
        )

    def _distribution(self, job: Job) -> tuple[list[float], list[float]]:
        """Values in order, and their cumulated weights."""
        points: list[tuple[float, float]] = []
        left = 1.0
        for key in self._keys(job):
            ring = self._groups.get(key)
            if ring is None:
                continue
            weights = self._weights[-len(ring.values) :]
            share = left / (sum(weights) + _SHRINK)
            points += [(value, weight * share) for value, weight in zip(ring.values, weights, strict=True)]
            left = share * _SHRINK
            if left < _NEGLIGIBLE:
                break
        else:
            shift = 0.0
            if job.estimate_s > 0.0 and not points:
                shift = math.log(max(job.estimate_s, _SHORTEST_S)) - _PRIOR_LOG
            points += [(value + shift, left / len(_PRIOR)) for value in _PRIOR]
        points.sort()
        return [value for value, _ in points], list(accumulate([weight for _, weight in points]))
