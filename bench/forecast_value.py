"""What a better forecast of interference is worth: one policy, one world, six forecasts.

    python -m bench.forecast_value [--policy cotenant] [--gpus 320] [--seeds 3] [--jobs 6000]

The first half of Philly (``--jobs`` of it) under one policy; models drawn from the
measured ones, speeds true by one half of the measured pairs, forecasts made from the other half. Means over seeds, the
standard deviation between seeds, and in brackets the ratio to ``perfect``.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

import numpy as np
import polars as pl

import cotenant
from cotenant.model.workload import Workload
from cotenant.profiles.kinds import KINDS, kind_names
from cotenant.traces.load import read_trace

DATA = Path(os.environ.get("COTENANT_DATA", "../shared/data"))
FORECASTS = ("none", "utilisation-sum", "contention", "lookup", "adaptive", "perfect")
SHOWN = ("makespan_s", "jct_s_mean", "jct_s_p99", "corun_slowdown_mean", "corun_slowdown_p99")


def named(workload: Workload) -> Workload:
    """With models that the measured pairs know, drawn once (recommendation left out: disputed runs alone)."""
    kinds = [name for name in kind_names()[:26] if not name.startswith("Recommendation")]
    drawn = np.random.default_rng(7).integers(0, len(kinds), len(workload))
    memory = [KINDS[kinds[k]].memory_bytes for k in drawn]
    return workload.with_frame(
        workload.frame.with_columns(
            pl.Series("model", [kinds[k] for k in drawn]), pl.Series("memory_bytes", memory)
        ),
        "models drawn from the measured ones",
    )


def measured(workload: Workload, gpus: int, seed: int, forecast: str, policy: str) -> dict[str, float]:
    """Metrics of one run."""
    result = cotenant.simulate(
        workload,
        gpus,
        policy=policy,
        forecast=forecast,
        runtime="recent",
        profiles=DATA / "interference",
        seed=seed,
    )
    summary = result.summary
    return {name: float(summary[name]) for name in SHOWN}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=320)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=6_000)
    parser.add_argument("--policy", default="cotenant")
    args = parser.parse_args()
    whole = read_trace(str(DATA / "traces" / "philly" / "philly_first_half.csv.gz"))
    workload = named(whole.with_frame(whole.frame.head(args.jobs)))
    found = {
        forecast: [measured(workload, args.gpus, seed, forecast, args.policy) for seed in range(args.seeds)]
        for forecast in FORECASTS
    }
    means = {
        f: {name: statistics.fmean(run[name] for run in runs) for name in SHOWN} for f, runs in found.items()
    }
    spreads = {
        f: {name: statistics.pstdev([run[name] for run in runs]) for name in SHOWN}
        for f, runs in found.items()
    }
    print("forecast | " + " | ".join(SHOWN))
    for forecast, its in means.items():
        cells = [
            f"{its[name]:,.6g} +- {spreads[forecast][name]:,.2g} ({its[name] / means['perfect'][name]:.2f})"
            for name in SHOWN
        ]
        print(f"{forecast} | " + " | ".join(cells))


if __name__ == "__main__":
    main()
