"""What a forecast of running times would have said, had it been there: learning from a trace, and its errors.

Jobs are predicted when they were submitted and learnt from when they ended (submission plus
duration: waiting in the trace belongs to the cluster of the time), as a live system would.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator

import msgspec

from cotenant import registry
from cotenant.errors import ConfigError
from cotenant.model.jobs import Job
from cotenant.model.ports import RuntimeForecast
from cotenant.model.workload import Workload
from cotenant.predictors.recent import RecentRuntime

__all__ = ["FORECASTS", "Hindsight", "hindsight", "learnt"]

FORECASTS = ("history", "recent")
"""Those that learn from jobs that ended."""


class Hindsight(msgspec.Struct, frozen=True, kw_only=True):
    """Errors over a trace.

    Parameters
    ----------
    jobs : int
        Jobs that ended well, each predicted before it started.
    typical_factor : float
        Half of the medians predicted were off by less than this factor.
    mae_ln : float
        Mean absolute error of the natural logarithm.
    inside : float
        Share of true durations inside the range that should hold 0.9 of them.
    width : float
        Typical ratio of the range's upper to its lower end.
    """

    jobs: int
    typical_factor: float
    mae_ln: float
    inside: float
    width: float


def _moments(workload: Workload) -> Iterator[tuple[bool, Job, float]]:
    """(ended, job, duration) in the order of time; a job that did not end well is never seen to end."""
    jobs = list(workload.jobs())
    durations = workload.frame["duration_s"].to_list()
    known = "outcome" in workload.frame.columns
    outcome = workload.frame["outcome"].to_list() if known else ["done"] * len(jobs)
    order = [(job.submit_s, False, job.id) for job in jobs]
    order += [(job.submit_s + durations[job.id], True, job.id) for job in jobs if outcome[job.id] == "done"]
    for _, ended, number in sorted(order):
        yield ended, jobs[number], durations[number]


def hindsight(workload: Workload, name: str) -> Hindsight:
    """Errors of the runtime forecast of this name on a trace.

    Raises
    ------
    UnknownNameError
        If there is no such forecast.
    ConfigError
        If no job of the trace ended well.
    """
    forecast: RuntimeForecast = registry.load("runtime forecast", name).from_workload(workload, 0)
    # For quantiles the median is what compares with a median under a lognormal.
    middle: Callable[[Job, float], float] | None = getattr(forecast, "quantile_s", None)
    promised: dict[int, tuple[float, float, float]] = {}
    errors: list[float] = []
    widths: list[float] = []
    inside = 0
    for ended, job, duration in _moments(workload):
        if not ended:
            found = forecast.predict_s(job)
            promised[job.id] = (middle(job, 0.5) if middle else found.mean, found.low, found.high)
            continue
        mean, low, high = promised.pop(job.id)
        errors.append(abs(math.log(max(duration, 1e-3) / mean)))
        widths.append(high / low)
        inside += low <= duration <= high
        forecast.observe(job, duration)
    if not errors:
        raise ConfigError("no job of this trace ended well, so nothing can be compared")
    return Hindsight(
        jobs=len(errors),
        typical_factor=math.exp(statistics.median(errors)),
        mae_ln=statistics.fmean(errors),
        inside=inside / len(errors),
        width=statistics.median(widths),
    )


def learnt(workload: Workload) -> RecentRuntime:
    """A forecast that has seen every job of a trace that ended well, in the order of their ends."""
    forecast = RecentRuntime()
    for ended, job, duration in _moments(workload):
        if ended:
            forecast.observe(job, duration)
        else:
            forecast.predict_s(job)
    return forecast
