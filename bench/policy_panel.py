"""Policies side by side on public and synthetic workloads at several loads, in one table.

    python -m bench.policy_panel --policies cotenant,srtf,colocate [--loads 0.5,1,2] [--jobs 3000]
    python -m bench.policy_panel --held-out --loads 0.7,1.3 --seeds 11,12,13 --jobs 600

Arrivals are stretched so that the jobs ask for ``load`` times what the devices hold while jobs
arrive. Jobs without a model get one that was measured (seeded). One line for each workload, load
and policy: means over the seeds, and how they compare with the best of all. Nothing was tuned on the
workloads of ``--held-out``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

import cotenant
from bench.forecast_value import named
from cotenant.model.workload import Workload
from cotenant.traces.load import read_trace
from cotenant.traces.synthetic import generate

DATA = Path(os.environ.get("COTENANT_DATA", "../shared/data"))
SHOWN = ("jct_s_mean", "wait_s_p99", "makespan_s", "queued_s_p99", "corun_slowdown_p99")
JUDGED = SHOWN[:3]
TRACES = DATA / "traces"

Source = tuple[Callable[[], Workload], int]


def _trace(path: str) -> Callable[[], Workload]:
    return lambda: read_trace(str(TRACES / path))


def _preset(name: str, seed: int = 0) -> Callable[[], Workload]:
    return lambda: generate(name, seed=seed)


WORKLOADS: dict[str, Source] = {
    "philly": (_trace("philly/philly_first_half.csv.gz"), 128),
    "gavel": (_trace("gavel/msr_seed0/103959.trace.gz"), 64),
    "muri": (_trace("muri/trace1.csv.gz"), 64),
    "tiresias": (_trace("tiresias/60_job.csv"), 16),
    "openb": (_trace("openb2023/openb_pod_list_default.csv"), 64),
    "common": (_trace("common/common-n8000-g64.csv.gz"), 64),
    "steady": (_preset("steady"), 64),
    "bursty": (_preset("bursty"), 64),
}

HELD_OUT: dict[str, Source] = {
    "gavel-28": (_trace("gavel/msr_seed0/2869ce.trace.gz"), 64),
    "common-2k": (_trace("common/common-n2000-g64.csv.gz"), 64),
    "muri-3": (_trace("muri/trace3.csv.gz"), 64),
    "openb-40": (_trace("openb2023/openb_pod_list_gpushare40.csv.gz"), 64),
    "pollux-2": (_trace("pollux/workload-2.csv"), 32),
    "steady-7": (_preset("steady", 7), 64),
    "bursty-7": (_preset("bursty", 7), 64),
}


def prepared(name: str, jobs: int, load: float) -> tuple[Workload, int]:
    """A workload of at most so many jobs at this load, and its devices."""
    make, gpus = (WORKLOADS | HELD_OUT)[name]
    workload = make()
    frame = workload.frame.filter((pl.col("gpus") > 0) & (pl.col("gpus") <= gpus)).head(jobs)
    submit = frame["submit_s"]
    span = max(*submit.to_list(), 1.0) - min(submit.to_list())
    work = float((frame["gpus"] * frame["duration_s"]).sum())
    stretch = work / (gpus * load) / span
    frame = frame.with_columns(((submit - submit.min()) * stretch).alias("submit_s"))
    workload = workload.with_frame(frame)
    if "model" not in frame.columns or not (frame["model"] != "").any():
        workload = named(workload)
    return workload, gpus


def main() -> None:
    """Run the panel and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default="cotenant,colocate,srtf,las")
    parser.add_argument("--workloads", default="")
    parser.add_argument("--held-out", action="store_true", help="workloads that nothing was tuned on")
    parser.add_argument("--loads", default="0.5,1,2")
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--runtime", default="history")
    parser.add_argument("--forecast", default="lookup")
    args = parser.parse_args()
    policies = args.policies.split(";") if ";" in args.policies else args.policies.split(",")
    seeds = [int(seed) for seed in args.seeds.split(",")]
    names = args.workloads.split(",") if args.workloads else [*(HELD_OUT if args.held_out else WORKLOADS)]
    for name in names:
        for load in map(float, args.loads.split(",")):
            workload, gpus = prepared(name, args.jobs, load)
            rows = []
            for policy in policies:
                begun = time.process_time()
                summaries = [
                    cotenant.simulate(
                        workload, gpus, policy=policy, forecast=args.forecast, runtime=args.runtime,
                        profiles=DATA / "interference", seed=seed,
                    ).summary
                    for seed in seeds
                ]  # fmt: skip
                rate = len(workload) * len(seeds) / (time.process_time() - begun)
                means = {m: sum(float(s[m]) for s in summaries) / len(seeds) for m in SHOWN}
                rows.append((policy, means, rate))
            best = {m: min(values[m] for _, values, _ in rows) for m in JUDGED}
            for policy, values, rate in rows:
                ratios = " ".join(f"{values[m] / max(best[m], 1.0):8.2f}" for m in JUDGED)
                cells = " ".join(f"{values[m]:12,.4g}" for m in SHOWN)
                print(f"{name:9} {load:4} {policy:28.28} {cells} | {ratios} | {rate:7,.0f}/s", flush=True)


if __name__ == "__main__":
    main()
