"""Forecasts of how long a job runs alone on its reference device.

``declared`` believes the owner, ``history`` learns from jobs that ended, ``noisy`` and
``perfect`` read the true durations and are labelled so: they are assumptions and bounds, not
results. Predicting and observing are on the simulator's hot path; each costs about a
microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from cotenant.errors import ConfigError
from cotenant.model.jobs import Job
from cotenant.model.ports import Interval
from cotenant.model.workload import Workload
from cotenant.profiles.draws import normals

__all__ = ["DeclaredRuntime", "HistoryRuntime", "NoisyRuntime", "PerfectRuntime"]

_Z90 = 1.6448536269514722
"""Half of a normal's central 90%, in standard deviations."""
_SHRINK = 2.0
"""Weight of the coarser group, in jobs."""
_MAX_GROUPS = 100_000
_PRIOR_S = 3600.0
_PRIOR_SPREAD = 1.5
"""Before anything is known: an hour, give or take a factor of twelve (90%). An assumption; 1.5
is about the spread of log durations in public GPU cluster traces."""
_PRIOR_LOG = math.log(_PRIOR_S)
_PRIOR_SQUARE = 2.0 * _PRIOR_SPREAD**2
_SHORTEST_S = 1e-3

_Stats = list[float]
"""Count, sum and sum of squares of log durations."""
_Key = TypeVar("_Key", tuple[int, str], tuple[str, str])


class HistoryRuntime:
    """Learns from jobs that ended: alike jobs of a user, backing off to coarser groups.

    Groups, finest first: (tenant, user, devices, model), (tenant, user), (devices, model), all.
    Each keeps count, mean and spread of the logarithm of durations, in constant space. The
    estimate is the median under a lognormal distribution, exp(mean log), each group's mean being
    shrunk towards that of the next coarser one by the weight of two jobs. At most 100,000 groups
    of a level are kept; later ones rely on coarser levels.
    """

    def __init__(self) -> None:
        self._all: _Stats = [0.0, 0.0, 0.0]
        self._shape: dict[tuple[int, str], _Stats] = {}
        self._user: dict[tuple[str, str], _Stats] = {}
        # The finest groups, each with its two coarser ones: one look-up instead of three.
        self._alike: dict[tuple[str, str, int, str], tuple[_Stats, _Stats, _Stats]] = {}

    @classmethod
    def from_workload(cls, workload: Workload, seed: int = 0) -> HistoryRuntime:
        """A forecast that knows nothing yet; neither argument is used."""
        return cls()

    def predict_s(self, job: Job) -> Interval:
        """Median of alike jobs, and the range of nine in ten of them."""
        key = (job.tenant, job.user, job.gpus, job.model)
        found = self._alike.get(key)
        alike, owner, shape = found or (None, self._user.get(key[:2]), self._shape.get(key[2:]))
        n, total, square = self._all
        mean = total / n if n else _PRIOR_LOG
        if not n and job.estimate_s > 0.0:
            mean = math.log(job.estimate_s)
        if shape is not None:
            mean = (shape[1] + _SHRINK * mean) / (shape[0] + _SHRINK)
        if owner is not None:
            mean = (owner[1] + _SHRINK * mean) / (owner[0] + _SHRINK)
            n, total, square = owner
        if alike is not None:
            mean = (alike[1] + _SHRINK * mean) / (alike[0] + _SHRINK)
            if alike[0] > 2.0:
                n, total, square = alike
        # Two assumed observations of the spread keep the range honest while data are few.
        spread = _PRIOR_SQUARE + (square - total * total / n if n else 0.0)
        ratio = math.exp(_Z90 * math.sqrt(max(spread, 0.0) / (n + 2.0)))
        median = math.exp(mean)
        return Interval(median, median / ratio, median * ratio)

    def observe(self, job: Job, work_s: float) -> None:
        """Learn from a job that ended with this much work; constant time."""
        value = math.log(work_s if work_s > _SHORTEST_S else _SHORTEST_S)
        square = value * value
        key = (job.tenant, job.user, job.gpus, job.model)
        for stats in (self._all, *(self._alike.get(key) or self._groups(key))):
            stats[0] += 1.0
            stats[1] += value
            stats[2] += square

    def _groups(self, key: tuple[str, str, int, str]) -> list[_Stats]:
        """The groups of jobs like this one, made if there is room for them."""
        owner = _group(self._user, key[:2])
        shape = _group(self._shape, key[2:])
        if owner is not None and shape is not None and len(self._alike) < _MAX_GROUPS:
            self._alike[key] = found = ([0.0, 0.0, 0.0], owner, shape)
            return list(found)
        return [group for group in (owner, shape) if group is not None]

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {"kind": "history", "oracle": False, "learns": "from jobs that ended"}


def _group(groups: dict[_Key, _Stats], key: _Key) -> _Stats | None:
    found = groups.get(key)
    if found is None and len(groups) < _MAX_GROUPS:
        found = groups[key] = [0.0, 0.0, 0.0]
    return found


class DeclaredRuntime:
    """Believes the owner's estimate; learns from history for jobs that come without one.

    Estimates are mostly limits, so the range goes from a twentieth of it up to it: an
    assumption.
    """

    def __init__(self) -> None:
        self._history = HistoryRuntime()

    @classmethod
    def from_workload(cls, workload: Workload, seed: int = 0) -> DeclaredRuntime:
        """Neither argument is used."""
        return cls()

    def predict_s(self, job: Job) -> Interval:
        """The declared seconds, or what history says."""
        declared = job.estimate_s
        if declared > 0.0:
            return Interval(declared, 0.05 * declared, declared)
        return self._history.predict_s(job)

    def observe(self, job: Job, work_s: float) -> None:
        """Learn from a job that ended with this much work."""
        self._history.observe(job, work_s)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {"kind": "declared", "oracle": False, "without_estimate": "history"}


class NoisyRuntime:
    """The true duration times a lognormal error that belongs to the job's name and the seed.

    Parameters
    ----------
    durations_s : sequence of float
        True seconds of work by job id.
    names : sequence of str
        Job names by id.
    sigma : float
        Standard deviation of the logarithm of the error. 0.5: nine in ten estimates are right
        within a factor of 2.3.
    seed : int

    Raises
    ------
    ConfigError
        If sigma is out of range or the sequences differ in length.
    """

    def __init__(
        self, durations_s: Sequence[float], names: Sequence[str], sigma: float = 0.5, seed: int = 0
    ) -> None:
        if not 0 <= sigma < 10:
            raise ConfigError(f"noise of runtime forecasts must lie in [0, 10), found {sigma}")
        if len(durations_s) != len(names):
            raise ConfigError(f"{len(durations_s)} durations for {len(names)} jobs")
        self._sigma, self._seed = sigma, seed
        factor = np.exp(sigma * normals(seed, "runtime", names))
        self._means: list[float] = (np.asarray(durations_s, dtype=np.float64) * factor).tolist()
        self._ratio = math.exp(_Z90 * sigma)

    @classmethod
    def from_workload(cls, workload: Workload, seed: int = 0) -> NoisyRuntime:
        """Reads the true durations, and blurs them."""
        frame = workload.frame
        return cls(frame["duration_s"].to_list(), frame["name"].to_list(), seed=seed)

    def predict_s(self, job: Job) -> Interval:
        """The blurred duration and its 90% range."""
        mean = self._means[job.id]
        return Interval(mean, mean / self._ratio, mean * self._ratio)

    def observe(self, job: Job, work_s: float) -> None:
        """Nothing to learn."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {
            "kind": "noisy",
            "oracle": False,
            "assumption": "true durations with lognormal errors: an assumed accuracy, not a predictor",
            "sigma": self._sigma,
            "seed": self._seed,
        }


class PerfectRuntime:
    """The true duration: an upper bound, labelled an oracle.

    Parameters
    ----------
    durations_s : sequence of float
        True seconds of work by job id.
    """

    def __init__(self, durations_s: Sequence[float]) -> None:
        self._durations_s = list(durations_s)

    @classmethod
    def from_workload(cls, workload: Workload, seed: int = 0) -> PerfectRuntime:
        """Reads the true durations; the seed is not used."""
        return cls(workload.frame["duration_s"].to_list())

    def predict_s(self, job: Job) -> Interval:
        """The true duration, without any doubt."""
        known = self._durations_s[job.id]
        return Interval(known, known, known)

    def observe(self, job: Job, work_s: float) -> None:
        """Nothing to learn."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log; ``oracle`` is true."""
        return {
            "kind": "perfect",
            "oracle": True,
            "note": "knows true durations: an upper bound, not a result",
        }
