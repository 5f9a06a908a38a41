"""Errors of the interference predictor on pairs and models that it has not seen.

``python -m bench.interference_error [--zoo quick] [--seeds 3] [--only SOURCE:DEVICE] [FOLDER]``

Every figure comes from an outer split: the whole predictor, choice and intervals included, is
fitted on what is left. Splits are made inside the table of measured pairs:

- *pair*: a sixth of the pairs of architectures of a world (at least one), and 5% of the
  remaining pairs of configurations, are left out of every campaign and device type;
- *model*: an architecture is left out of every campaign on its device type, each in turn;
- *few-shot*: as *model*, then two co-runs of each of its configurations, chosen by ``suggest``
  (or at random, with ``--random``), are observed and the others predicted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cotenant.predictors.interference.evaluate import Report, judge
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.runs import CoRun, JobConfig, SoloRun
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

TARGETS = (
    ("lucid", "RTX3090"),
    ("gavel-2020", "V100"),
    ("gavel-2020", "P100"),
    ("gavel-2020", "K80"),
    ("blox-2023-12", "A100"),
)
Split = tuple[list[CoRun], list[CoRun]]


def block_of(run: CoRun) -> tuple[str, ...]:
    return tuple(sorted(side.job.group for side in run.sides))


def near(runs: Sequence[CoRun], world: tuple[str, str]) -> list[CoRun]:
    """What a world can learn from: its framework's campaigns that share models with it."""
    from cotenant.predictors.interference.worlds import linked_worlds

    linked = next(group for group in linked_worlds(runs) if world in group)
    return [run for run in runs if (run.source, run.device_type) in linked]


def unseen_pairs(runs: Sequence[CoRun], world: tuple[str, str], seed: int) -> Split:
    rng = np.random.default_rng(seed)
    own = [run for run in runs if (run.source, run.device_type) == world and run.status == "ok"]
    blocks = sorted({block_of(run) for run in own})
    out = set(map(tuple, rng.permutation(np.array(blocks, object))[: max(len(blocks) // 6, 1)].tolist()))
    keys = sorted({run.key for run in own if block_of(run) not in out})
    few = {keys[i] for i in np.flatnonzero(rng.random(len(keys)) < 0.05)}
    left = [run for run in runs if block_of(run) not in out and run.key not in few]
    asked = [r for r in runs if (r.source, r.device_type) == world and (block_of(r) in out or r.key in few)]
    return left, asked


def thinned(runs: list[CoRun], fraction: float, seed: int) -> list[CoRun]:
    rng = np.random.default_rng(1000 + seed)
    keys = sorted({run.key for run in runs})
    kept = {key for key, draw in zip(keys, rng.random(len(keys)), strict=True) if draw < fraction}
    return [run for run in runs if run.key in kept]


def unseen_models(runs: Sequence[CoRun], world: tuple[str, str]) -> Iterator[Split]:
    own = [run for run in runs if (run.source, run.device_type) == world]
    for family in sorted({side.job.group for run in own for side in run.sides if run.status == "ok"}):
        left = [r for r in runs if r.device_type != world[1] or family not in block_of(r)]
        if any((r.source, r.device_type) == world and r.status == "ok" for r in left):
            yield left, [r for r in own if family in block_of(r)]


def with_two(
    predictor: AdaptiveInterferencePredictor, world: tuple[str, str], asked: Sequence[CoRun], seed: int | None
) -> list[CoRun]:
    """Observe two co-runs of each configuration of the left-out model; what remains to predict."""
    rng = np.random.default_rng(seed)
    known = {job for run in predictor.runs if (run.source, run.device_type) == world for job in run.key}
    fresh = sorted({side.job for run in asked for side in run.sides} - known)
    taken: list[CoRun] = []
    planned: list[tuple[JobConfig, JobConfig]] = []
    for job in fresh:
        mine = [
            run for run in asked
            if run.status == "ok" and job in run.key and run not in taken and any(s.usable for s in run.sides)
        ]  # fmt: skip
        partner = {next((j for j in run.key if j != job), job): run for run in mine}
        order = sorted(partner)
        if seed is None:
            chosen = predictor.suggest(job, world, partners=order, planned=planned) if order else []
        else:
            chosen = [order[i] for i in rng.permutation(len(order))[:2]]
        taken.extend(partner[p] for p in chosen)
        planned.extend((job, p) for p in chosen)
    predictor.observe(taken)
    return [run for run in asked if run not in taken]


def show(kind: str, reports: Sequence[Report]) -> None:
    sides = np.array([r.sides for r in reports], np.float64)
    known = sides > 0
    mae = np.array([r.mae for r in reports])[known]
    pooled = float((sides[known] * mae).sum() / sides.sum())
    cover = float((sides[known] * np.array([r.coverage for r in reports])[known]).sum() / sides.sum())
    width = float(np.median([r.width for r in reports if r.sides]))
    print(
        f"  {kind:10s} MAE median {np.median(mae):.4f} pooled {pooled:.4f}  "
        f"coverage {cover:.2f} median width {width:.2f}  n={int(sides.sum())}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=Path("../shared/data/interference"))
    parser.add_argument("--zoo", default="quick")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--kinds", default="pair,model,few-shot")
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="of the pairs that are left, for learning curves"
    )
    options = parser.parse_args()
    every, solos = read_co_runs(options.folder), read_solo_runs(options.folder)
    for world in TARGETS:
        if options.only and options.only != ":".join(world):
            continue
        print(" ".join(world), flush=True)
        report(near([r for r in every if r.status != "unmeasured"], world), solos, world, options)


def report(
    runs: list[CoRun],
    solos: list[SoloRun],
    world: tuple[str, str],
    options: argparse.Namespace,
) -> None:
    kinds, zoo = options.kinds.split(","), options.zoo
    if "pair" in kinds:
        found = []
        for seed in range(options.seeds):
            left, asked = unseen_pairs(runs, world, seed)
            left = thinned(left, options.fraction, seed)
            predictor = AdaptiveInterferencePredictor(zoo=zoo).fit(left, solos)
            found.append(judge(str(seed), asked, predictor.predict(asked)))
        show("pair", found)
    first, later = [], []
    for left, asked in unseen_models(runs, world):
        if "model" not in kinds and "few-shot" not in kinds:
            break
        predictor = AdaptiveInterferencePredictor(zoo=zoo).fit(left, solos)
        first.append(judge("", asked, predictor.predict(asked)))
        if "few-shot" in kinds:
            rest = with_two(predictor, world, asked, 0 if options.random else None)
            later.append(judge("", rest, predictor.predict(rest)))
    if first:
        show("model", first)
    if later:
        show("few-shot", later)


if __name__ == "__main__":
    main()
