"""What light samples inside the run are worth, to running times and to speeds beside others.

    python -m bench.sample_value [--gpus 384] [--seeds 3] [--jobs 6000]

The first half of Philly (``--jobs`` of it, more than the devices can take). First table: policies
that go by running times, with history alone, with samples of 30 s, and with perfect knowledge; the
trace does not say which jobs were cancelled, so once more with 30% that end early. Second:
``colocate`` with the adaptive forecast, which learns from samples or does not; its error at each
sample of a job beside others, early (first 100 samples) and late (last third of all), against
the truth. The world of the second table is that of ``bench.forecast_value``. Means over seeds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import polars as pl

import cotenant
from bench.forecast_value import DATA, named
from cotenant.model.ports import Forecast, Interval, LearnsSpeeds, Truth
from cotenant.model.workload import Workload
from cotenant.predictors.forecast import build_speeds
from cotenant.profiles.compose import Query
from cotenant.profiles.draws import uniforms
from cotenant.traces.load import read_trace

SAMPLE_S = 30.0
FORECASTS = (("adaptive", False), ("adaptive", True), ("lookup", False), ("lookup", True), ("perfect", False))
_EARLY = 100
EARLY_ENDS = 0.3
"""Of all jobs; in all of Philly 31% were killed or unsuccessful (Jeon et al., ATC'19, table 6)."""


class Watched:
    """A forecast whose error is noted at each sample, before it learns from it, if it may."""

    def __init__(self, inner: Forecast, truth: Truth, *, learns: bool) -> None:
        self.inner, self._truth, self._learns = inner, truth, learns
        self.errors: list[float] = []
        self.spent_s = 0.0

    @property
    def version(self) -> int:
        """As of the forecast inside."""
        return self.inner.version

    def solo_speed(self, model: str, device_type: str) -> float:
        """As of the forecast inside."""
        return self.inner.solo_speed(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """As of the forecast inside."""
        return self.inner.co_speed(model, beside, device_type)

    def co_speeds(self, queries: Sequence[Query]) -> list[Interval]:
        """As of the forecast inside."""
        return [self.inner.co_speed(*query) for query in queries]

    def describe(self) -> dict[str, Any]:
        """As of the forecast inside."""
        return self.inner.describe()

    def learn(self, model: str, beside: tuple[str, ...], device_type: str, speed: float) -> None:
        """Note the error, and pass the sample on."""
        said = self.inner.co_speed(model, beside, device_type).mean
        self.errors.append(abs(said - self._truth.co_speed(model, beside, device_type)))
        if self._learns and isinstance(self.inner, LearnsSpeeds):
            began = time.perf_counter()
            self.inner.learn(model, beside, device_type, speed)
            self.spent_s += time.perf_counter() - began


def ended_early(workload: Workload, seed: int) -> Workload:
    """The same jobs, of which some, drawn by name, are told to have been cancelled."""
    early = uniforms(seed, "ended early", workload.frame["name"].to_list()) < EARLY_ENDS
    outcomes = pl.Series("outcome", ["cancelled" if is_so else "done" for is_so in early.tolist()])
    return workload.with_frame(workload.frame.with_columns(outcomes))


def running_times(workload: Workload, gpus: int, seeds: int) -> None:
    """Print the first table."""
    print("policy | jobs | running times | mean JCT (s) | p99 JCT (s) | seconds")
    for policy in ("srtf", "backfill"):
        for told in ("as in the trace", f"{EARLY_ENDS:.0%} end early"):
            for runtime, sample_s in (("recent", 0.0), ("recent", SAMPLE_S), ("perfect", 0.0)):
                runs, began = [], time.perf_counter()
                for seed in range(seeds):
                    jobs = workload if told == "as in the trace" else ended_early(workload, seed)
                    result = cotenant.simulate(
                        jobs, gpus, policy, seed=seed, runtime=runtime, settings={"sample_s": sample_s}
                    )
                    runs.append(result.summary)
                mean, tail = (statistics.fmean(r[k] for r in runs) for k in ("jct_s_mean", "jct_s_p99"))
                took = (time.perf_counter() - began) / seeds
                name = f"{runtime} + samples" if sample_s else runtime
                print(f"{policy} | {told} | {name} | {mean:,.0f} | {tail:,.0f} | {took:.1f}", flush=True)


def speeds(workload: Workload, gpus: int, seeds: int) -> None:
    """Print the second table."""
    columns = ("jct_s_mean", "makespan_s", "corun_slowdown_mean", "corun_slowdown_p99")
    print("forecast | error early | error late | fits | s in fits | " + " | ".join(columns))
    for name, learns in FORECASTS:
        rows: list[list[float]] = []
        for seed in range(seeds):
            truth, inner = build_speeds(seed, DATA / "interference", name)
            watched = Watched(inner, truth, learns=learns)
            result = cotenant.simulate(
                workload,
                gpus,
                "colocate",
                seed=seed,
                forecast=watched,
                runtime="recent",
                profiles=DATA / "interference",
                settings={"sample_s": SAMPLE_S},
            )
            late = watched.errors[-(len(watched.errors) // 3) :]
            rows.append(
                [
                    statistics.fmean(watched.errors[:_EARLY]),
                    statistics.fmean(late),
                    inner.version - 1,
                    watched.spent_s,
                    *(float(result.summary[column]) for column in columns),
                ]
            )
        first, last, fits, spent_s, *numbers = (
            statistics.fmean(column) for column in zip(*rows, strict=True)
        )
        told = f"{name}, learns" if learns else name
        cells = " | ".join(f"{number:,.6g}" for number in numbers)
        print(f"{told} | {first:.3f} | {last:.3f} | {fits:.1f} | {spent_s:.1f} | {cells}", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=384)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=6000)
    parser.add_argument("--only", choices=("times", "speeds"))
    args = parser.parse_args()
    whole = read_trace(str(DATA / "traces" / "philly" / "philly_first_half.csv.gz"))
    workload = whole.with_frame(whole.frame.head(args.jobs))
    if args.only != "speeds":
        running_times(workload, args.gpus, args.seeds)
    if args.only != "times":
        speeds(named(workload), args.gpus, args.seeds)


if __name__ == "__main__":
    main()
