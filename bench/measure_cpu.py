"""The measured CPU device from start to end: measure, fit, predict pairs that the fit never saw.

::

    python -m bench.measure_cpu --out measured            # nine minutes on a quiet machine
    python -m bench.measure_cpu --out measured --ship     # and copy the tables into the package

Everything is judged on pairs left out whole (five groups of pairs, several seeds), and on triples
predicted from pairs. The noise floor is the difference between the first and the second half of
each set's repeats, over the square root of two.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

import msgspec
import numpy as np

from bench.measure import ROOT
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.measure.campaign import JOURNAL, MANIFEST, Campaign, Progress
from cotenant.profiles.measure.estimate import estimate
from cotenant.profiles.measure.jobsfile import override, read_jobs
from cotenant.profiles.measure.records import JournalStart, Repeat, Session
from cotenant.profiles.measure.tables import INTERVALS, PAIRS, SOLOS
from cotenant.profiles.measure.target import parse_target
from cotenant.profiles.runs import CoRun, JobConfig, SoloRun
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

__all__ = ["main"]

JOBS = ROOT / "examples" / "measure_cpu.toml"
SHIPPED = ROOT / "src" / "cotenant" / "data" / "measured_cpu"
FOLDS = 5
Predict = Callable[[Sequence[CoRun]], list[list[float]]]
"""Speeds of each side of each run."""


def measure(out: Path, jobs: Path, budget: str) -> None:
    """Run the campaign, or go on with it."""
    file = override(read_jobs(jobs), budget=budget)

    def tell(progress: Progress) -> None:
        print(f"{progress.used_s:6.0f} s {progress.done:4d}  {progress.reason}", flush=True)

    command = ["cotenant", "measure", f"examples/{jobs.name}", "-o", out.name]
    if budget:
        command += ["--budget", budget]
    Campaign(file, parse_target(file.settings.device), out, command=command, tell=tell).run()


def split_half_noise(out: Path, disturbed_pct: float) -> float:
    """Median relative difference of two halves of the repeats, for one half's worth of noise."""
    lines = (out / JOURNAL).read_bytes().splitlines()
    every = [msgspec.json.decode(line, type=Repeat | Session | JournalStart) for line in lines]
    repeats = [r for r in every if isinstance(r, Repeat)]
    halves: list[list[Repeat]] = [[], []]
    seen: dict[tuple[str, ...], int] = {}
    for repeat in repeats:
        if len(repeat.jobs) == 1:
            for half in halves:
                half.append(repeat)
        else:
            halves[seen.get(repeat.jobs, 0) % 2].append(repeat)
            seen[repeat.jobs] = seen.get(repeat.jobs, 0) + 1
    one, other = (estimate(half, disturbed_pct=disturbed_pct) for half in halves)
    differences = [
        abs(math.log(a.norm / b.norm)) / math.sqrt(2)
        for jobs in one.keys() & other.keys()
        for a, b in zip(one[jobs].sides, other[jobs].sides, strict=False)
    ]
    return median(differences) if differences else math.nan


def halves_rule(train: Sequence[CoRun], solos: Sequence[SoloRun]) -> Predict:
    """Each of n jobs has the n-th part of the device: the rule that needs no measurement."""
    del train, solos
    return lambda runs: [[1.0 / len(run.sides)] * len(run.sides) for run in runs]


def additive(train: Sequence[CoRun], solos: Sequence[SoloRun]) -> Predict:
    """Victim plus aggressor effects on the log scale, by least squares with a little ridge."""
    del solos
    rows = [
        (side.job, [other.job for other in run.others(i)], math.log(side.speed))
        for run in train
        for i, side in enumerate(run.sides)
        if side.usable and side.speed is not None and len(run.sides) == 2
    ]
    jobs = sorted({job for victim, others, _ in rows for job in (victim, *others)})
    place = {job: i for i, job in enumerate(jobs)}
    middle = fmean(value for *_, value in rows)

    def row(victim: JobConfig, others: Sequence[JobConfig]) -> np.ndarray:  # type: ignore[type-arg]
        found = np.zeros(2 * len(jobs))
        if victim in place:
            found[place[victim]] = len(others)
        for other in others:
            if other in place:
                found[len(jobs) + place[other]] += 1.0
        return found

    design = np.array([row(victim, others) for victim, others, _ in rows])
    target = np.array([value - middle for *_, value in rows])
    ridge = 0.1 * np.eye(design.shape[1])
    effects = np.linalg.solve(design.T @ design + ridge, design.T @ target)

    def predict(runs: Sequence[CoRun]) -> list[list[float]]:
        return [
            [
                math.exp(middle * len(run.others(i)) + row(s.job, [o.job for o in run.others(i)]) @ effects)
                for i, s in enumerate(run.sides)
            ]
            for run in runs
        ]

    return predict


def adaptive(train: Sequence[CoRun], solos: Sequence[SoloRun]) -> Predict:
    """The predictor of the package."""
    fitted = AdaptiveInterferencePredictor().fit(train, solos)
    return lambda runs: [[side.mean for side in sides] for sides in fitted.predict(runs)]


MODELS: dict[str, Callable[[Sequence[CoRun], Sequence[SoloRun]], Predict]] = {
    "equal parts": halves_rule,
    "additive": additive,
    "adaptive": adaptive,
}


def errors(runs: Sequence[CoRun], said: Sequence[Sequence[float]]) -> list[float]:
    """Relative errors of all usable sides."""
    return [
        abs(mean - side.speed) / side.speed
        for run, sides in zip(runs, said, strict=True)
        for side, mean in zip(run.sides, sides, strict=True)
        if side.usable and side.speed is not None
    ]


def unseen_pairs(pairs: Sequence[CoRun], solos: Sequence[SoloRun], model: str, seed: int) -> list[float]:
    """Errors on pairs left out whole."""
    order = list(pairs)
    random.Random(f"folds {seed}").shuffle(order)
    found: list[float] = []
    for fold in range(FOLDS):
        test = order[fold::FOLDS]
        train = [run for run in order if run not in test]
        found += errors(test, MODELS[model](train, solos)(test))
    return found


def evaluate(out: Path, seeds: int) -> dict[str, object]:
    """Print the tables, and return their numbers."""
    runs, solos = read_co_runs(out), read_solo_runs(out)
    ok = [run for run in runs if run.status == "ok"]
    pairs = [run for run in ok if len(run.sides) == 2]
    triples = [run for run in ok if len(run.sides) == 3]
    noise = split_half_noise(out, read_settings(out).get("disturbed_pct", 5.0))
    print(
        f"{len(pairs)} pairs, {len(triples)} triples, {len(solos)} jobs; noise of half the repeats {noise:.2%}"
    )
    print(
        f"{'model':<12} {'unseen pair: median':>20} {'p90':>8} {'MAE':>8} {'triples: median':>16} {'seconds':>8}"
    )
    result: dict[str, object] = {"noise_of_half": round(noise, 5)}
    for model, build in MODELS.items():
        began = time.perf_counter()
        by_seed = [unseen_pairs(pairs, solos, model, seed) for seed in range(seeds)]
        middle = median(median(found) for found in by_seed)
        p90 = median(float(np.quantile(found, 0.9)) for found in by_seed)
        mean = median(fmean(found) for found in by_seed)
        threes = errors(triples, build(pairs, solos)(triples)) if triples else []
        three = median(threes) if threes else math.nan
        took = time.perf_counter() - began
        print(f"{model:<12} {middle:>20.2%} {p90:>8.2%} {mean:>8.2%} {three:>16.2%} {took:>8.1f}")
        result[model] = {"median": round(middle, 5), "p90": round(p90, 5), "triples": round(three, 5)}
    return result


def read_settings(out: Path) -> dict[str, float]:
    """Settings that the campaign was run with."""
    found: dict[str, float] = json.loads((out / MANIFEST).read_text())["settings"]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, evaluate, and on request copy the tables into the package."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure_cpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--jobs", type=Path, default=JOBS)
    parser.add_argument("--budget", default="", help="as in the file of jobs, if left out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only-evaluate", action="store_true", help="measure nothing")
    parser.add_argument("--ship", action="store_true", help="copy the tables into the package")
    given = parser.parse_args(arguments)
    if not given.only_evaluate:
        measure(given.out, given.jobs, given.budget)
    evaluate(given.out, given.seeds)
    if given.ship:
        SHIPPED.mkdir(parents=True, exist_ok=True)
        for name in (PAIRS, SOLOS, INTERVALS, MANIFEST):
            shutil.copyfile(given.out / name, SHIPPED / name)
        print(f"copied to {SHIPPED.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
