"""How long jobs were expected to run, against how long they did: ``docs/metrics.md`` defines it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.model.events import Ended
from cotenant.model.quantities import format_duration
from cotenant.report.jobrows import JobRows
from cotenant.report.jobtable import Outcomes
from cotenant.report.telling import now_telling

__all__ = ["Expected", "expectation", "run_against", "runtimes", "within"]

Floats = npt.NDArray[Any]
Expected = tuple[float, float, float] | None
"""Mean, low and high end of a predicted running time, as in the log; None where nobody predicts."""

_DUST = 1e-9
"""Work is a sum of parts: within this share of an end of the interval is on it."""
_KEYS = (
    "runtime_jobs",
    "runtime_jobs_not_done",
    "runtime_factor_median",
    "runtime_bias_factor",
    "runtime_inside_share",
    "runtime_factor_width_median",
)


def within(happened: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which running times lie inside their interval, its ends included.

    >>> within([5.0, 5.0], [5.0, 6.0], [9.0, 9.0]).tolist()
    [True, False]
    """
    work: Floats = np.asarray(happened, dtype=np.float64)
    return (work >= np.asarray(low) * (1 - _DUST)) & (work <= np.asarray(high) * (1 + _DUST))


def runtimes(jobs: JobRows) -> dict[str, Any]:
    """The numbers over all jobs that were done; None in a run in which no running time was expected."""
    found: dict[str, Any] = dict.fromkeys(_KEYS)
    if not jobs.foretold:
        return found
    outcome = jobs.column("outcome")
    expected, happened = jobs.column("expected_s"), jobs.column("happened_s")
    over = ~np.isin(outcome, (Outcomes.WAITING, Outcomes.RUNNING, Outcomes.DONE))
    found["runtime_jobs_not_done"] = int((over & ~np.isnan(expected)).sum())
    judged = np.flatnonzero(happened > 0)
    found["runtime_jobs"] = int(judged.size)
    if not judged.size:
        return found
    low, high = (jobs.column(f"expected_{end}_s")[judged] for end in ("low", "high"))
    factor = expected[judged] / happened[judged]
    found["runtime_factor_median"] = float(np.median(np.exp(np.abs(np.log(factor)))))
    found["runtime_bias_factor"] = float(np.median(factor))
    found["runtime_inside_share"] = float(within(happened[judged], low, high).mean())
    with np.errstate(divide="ignore"):
        width = float(np.median(high / low))
    found["runtime_factor_width_median"] = width if math.isfinite(width) else None
    return found


def expectation(expected: Expected) -> str:
    """What was expected of a job, as the end of a sentence; empty where nobody predicted.

    >>> expectation((4320.0, 1200.0, 10800.0))
    '; expected to run 1h 12m (between 20m and 3h) alone on the reference device'
    >>> expectation((60.0, 60.0, 60.0)), expectation(None)
    ('; expected to run 1m alone on the reference device', '')
    """
    alone = "alone on the reference device" if now_telling() is None else "alone"
    return f"; expected to run {_told(expected)} {alone}" if expected else ""


def _told(expected: tuple[float, float, float]) -> str:
    mean, low, high = expected
    ends = f" (between {format_duration(low)} and {format_duration(high)})" if low < high else ""
    return format_duration(mean) + ends


def run_against(event: Ended, expected: Expected) -> str:
    """How long a job that is done runs alone, which is its work, against what was expected; empty for all others.

    Beside others, held or paused it was longer on its devices, so nothing is said of that here.

    >>> run_against(Ended(9.0, 0, 1, "done", 400.0), (100.0, 50.0, 200.0))
    ' Alone it runs 6m 40s, expected were 1m 40s (between 50s and 3m 20s): x4 as long, longer than the interval.'
    >>> run_against(Ended(9.0, 0, 1, "done", 100.0), (100.0, 100.0, 100.0))
    ' Alone it runs 1m 40s, expected were 1m 40s: as expected.'
    """
    if not expected or event.outcome != "done" or expected[0] <= 0.0 or event.work_s <= 0.0:
        return ""
    work_s, (mean, low, high) = event.work_s, expected
    factor = f"{work_s / mean:.3g}"
    verdict = "as expected" if factor == "1" else f"x{factor} as long"
    if low < high:
        where = "shorter than" if work_s < low else "longer than"
        verdict += f", {'inside' if within(work_s, low, high) else where} the interval"
    return f" Alone it runs {format_duration(work_s)}, expected were {_told(expected)}: {verdict}."
