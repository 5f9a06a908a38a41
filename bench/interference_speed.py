"""Seconds to choose, fit and validate; sets predicted in a second.

``python -m bench.interference_speed [FOLDER]``

CPU time of one core. The whole collection has some 3,300 labelled sides; sets have one to three
neighbours, drawn from the jobs of one campaign.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from cotenant.predictors.adaptive import AdaptiveForecast
from cotenant.predictors.interference.compiled import CompiledWorld
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

SETS = 400_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=Path("../shared/data/interference"))
    options = parser.parse_args()
    runs, solos = read_co_runs(options.folder), read_solo_runs(options.folder)
    start = time.process_time()
    predictor = AdaptiveInterferencePredictor().fit(runs, solos)
    sides = sum(side.usable for run in predictor.runs if run.status == "ok" for side in run.sides)
    print(f"select + fit + validate, {sides:,} labelled sides: {time.process_time() - start:.1f} s")
    world = ("gavel-2020", "V100")
    jobs = sorted({job for job, its in predictor.group_of(world)[0].table.names if its == world})
    start = time.process_time()
    compiled = CompiledWorld(predictor, world, jobs)
    print(f"tables of {len(jobs)} jobs: {time.process_time() - start:.2f} s")
    rng = np.random.default_rng(0)
    victim = rng.integers(0, len(jobs), SETS)
    others = rng.integers(0, len(jobs), (SETS, 3))
    others[rng.random((SETS, 3)) < 0.3] = -1
    others = np.sort(others, axis=1)[:, ::-1].copy()
    start = time.process_time()
    compiled.predict(victim, others)
    print(f"sets a second, by number: {SETS / (time.process_time() - start):,.0f}")
    forecast = AdaptiveForecast(predictor)
    names = [job.label for job in jobs]
    queries = [
        (names[v], tuple(names[o] for o in beside if o >= 0), "V100")
        for v, beside in zip(victim[: SETS // 4].tolist(), others[: SETS // 4].tolist(), strict=True)
    ]
    forecast.co_speeds(queries[:1])
    start = time.process_time()
    forecast.co_speeds(queries)
    print(f"sets a second, by name, each once: {len(queries) / (time.process_time() - start):,.0f}")
    start = time.process_time()
    forecast.co_speeds(queries)
    print(f"sets a second, by name, asked before: {len(queries) / (time.process_time() - start):,.0f}")


if __name__ == "__main__":
    main()
