"""What the forecast of running times says at submission, put into the log; and what it learns from."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from cotenant.model.events import Ended, Submitted
from cotenant.model.ports import RuntimeForecast
from cotenant.model.records import JobRecord

__all__ = ["foreseen"]


def foreseen(
    event: Submitted | Ended, runtime: RuntimeForecast, records: Mapping[int, JobRecord]
) -> Submitted | Ended:
    """A submission with what is expected of the job; jobs that are done teach the forecast.

    A prediction that is not finite says nothing, and is left out.
    """
    if type(event) is Submitted:
        found = runtime.predict_s(event.job)
        if isfinite(found.mean) and isfinite(found.high):
            return Submitted(event.t, event.job, (found.mean, found.low, found.high))
    elif event.outcome == "done" and event.id in records:  # type: ignore[union-attr]
        runtime.observe(records[event.id].job, event.work_s)  # type: ignore[union-attr]
    return event
