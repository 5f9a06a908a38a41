"""How well running times are known before a job starts: error and coverage on real traces.

    python -m bench.runtime_error [TRACE ...]

Jobs are predicted at submission and observed at submission + wait + duration of the trace
(where it has no wait: at submission + duration), as a live system would.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from pathlib import Path

from cotenant import registry
from cotenant.traces.load import read_trace

DATA = Path(os.environ.get("COTENANT_DATA", "../shared/data")) / "traces"
TRACES = (
    "philly/philly_first_half.csv.gz",
    "openb2023/openb_pod_list_default.csv",
)
FORECASTS = ("history", "recent")


def replayed(path: Path, name: str) -> tuple[float, float, float, int]:
    """Median factor by which a prediction is off, MAE of the logarithm, coverage, jobs."""
    workload = read_trace(str(path))
    forecast = registry.load("runtime forecast", name).from_workload(workload, 0)
    frame = workload.frame
    durations = frame["duration_s"].to_list()
    outcome = frame["outcome"].to_list() if "outcome" in frame.columns else ["done"] * len(durations)
    jobs = list(workload.jobs())
    moments = [(job.submit_s, 0, job.id) for job in jobs]
    moments += [(job.submit_s + durations[job.id], 1, job.id) for job in jobs if outcome[job.id] == "done"]
    promised: dict[int, tuple[float, float, float]] = {}
    errors: list[float] = []
    inside = 0
    for _, ends, k in sorted(moments):
        if not ends:
            found = forecast.predict_s(jobs[k])
            # The recent quantiles' median is what is comparable with a median under a lognormal.
            middle = getattr(forecast, "quantile_s", None)
            promised[k] = (middle(jobs[k], 0.5) if middle else found.mean, found.low, found.high)
            continue
        mean, low, high = promised.pop(k)
        errors.append(abs(math.log(max(durations[k], 1e-3) / mean)))
        inside += low <= durations[k] <= high
        forecast.observe(jobs[k], durations[k])
    return math.exp(statistics.median(errors)), statistics.fmean(errors), inside / len(errors), len(errors)


def main() -> None:
    """Print a table."""
    print("trace | forecast | jobs | median off by a typical factor of | MAE of ln | inside the 90% range")
    for given in sys.argv[1:] or [str(DATA / name) for name in TRACES]:
        for name in FORECASTS:
            factor, mae, inside, jobs = replayed(Path(given), name)
            print(f"{Path(given).name} | {name} | {jobs:,} | x{factor:.2f} | {mae:.3f} | {inside:.1%}")


if __name__ == "__main__":
    main()
