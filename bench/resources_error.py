"""How well a job's own use of a device is known before it runs: the tables of docs/prediction/resources.md.

    python -m bench.resources_error [factors] [utilisation] [trusted] [times] [memory] [importance] [intervals]

Reads the measured tables under ``$COTENANT_DATA`` (default ``../shared/data``); every family of
models is judged by what never saw it. About ten minutes for everything on one core.
"""

from __future__ import annotations

import csv
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from cotenant.predictors.resources.calibration import calibrate
from cotenant.predictors.resources.folds import family_quantile, rms
from cotenant.predictors.resources.learners import CANDIDATES
from cotenant.predictors.resources.observations import Observation, WorkIndex, doubted, observed
from cotenant.predictors.resources.predictor import (
    UNFITTED_DOUBT,
    ResourcePredictor,
    out_of_fold,
    training_sets,
)
from cotenant.predictors.resources.roofline import DEFAULT, Efficiency, rates_of
from cotenant.predictors.resources.targets import TARGETS
from cotenant.predictors.resources.validation import importance
from cotenant.predictors.resources.work import zoo_works
from cotenant.profiles.runs import JobConfig
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

DATA = Path(os.environ.get("COTENANT_DATA", "../shared/data")) / "interference"
NO_STEPS = ("PPO", "TD3")
"""Lucid counts something else than steps of these."""
WAITS = ("PointNet",)
"""Reads its points from text files: 138 samples/s on an RTX 3090 whatever the batch and precision."""
SUSPECT = ("VGG", "MobileNetV3")
"""Whose runs alone the data's README calls suspect."""


def rows_of(prefix: str, *, trusted: bool = False) -> list[Observation]:
    """Observations of the campaigns whose names begin so; those of suspect runs without times, if asked."""
    runs = [run for run in read_solo_runs(DATA) if run.source.startswith(prefix)]
    rows, _ = observed(runs, zoo_works(), doubted=doubted(read_co_runs(DATA)) if trusted else ())
    return [msgspec.structs.replace(r, iteration_s=None) if r.family in NO_STEPS else r for r in rows]


def gavel() -> list[Observation]:
    """The fastest campaign of each configuration and device type; not A3C, which waits for its game."""
    best: dict[tuple[str, int, str], Observation] = {}
    for row in rows_of("gavel"):
        key = (row.work.name, row.work.batch, row.rates.name)
        if row.iteration_s is None or row.family == "A3C":
            continue
        if key not in best or row.iteration_s < (best[key].iteration_s or 0):
            best[key] = row
    return list(best.values())


def traffic() -> list[Observation]:
    """Bytes through a V100's memory, for jobs that keep its processors busy."""
    works = WorkIndex(zoo_works())
    times: dict[str, dict[int, float | None]] = {r.work.name: {} for r in rows_of("gavel-2019-02")}
    for row in rows_of("gavel-2019-02"):
        times[row.work.name][row.work.batch] = row.iteration_s
    found = []
    with (DATA / "solo_counters_nvprof.csv").open() as file:
        for line in csv.DictReader(file):
            if line["matches_source"] != "gavel-2019-02" or float(line["sm_efficiency_tw"] or 0) < 75:
                continue
            job = JobConfig(model=line["model"], dataset="ImageNet", batch=int(line["batch"] or 0))
            work = works.find(job)
            seconds = times.get(work.name, {}).get(work.batch) if work and job.batch else None
            if work is None or seconds is None:
                continue
            rate = (float(line["dram_read_throughput_tw"]) + float(line["dram_write_throughput_tw"])) * 1e9
            found.append(
                Observation(work=work, rates=rates_of("V100"), family=job.model, moved_bytes=rate * seconds)
            )
    return found


def factors() -> None:
    """The default factors, from MIT-licensed rows alone."""
    print("== factors fitted on gavel")
    for name, value in msgspec.structs.asdict(calibrate([*gavel(), *traffic()], Efficiency())).items():
        print(f"{name} | {value:.3g} | shipped {getattr(DEFAULT, name):.3g}")


def _errors(name: str, answers: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    target = TARGETS[name]
    said, true = target.back(target.link(target.back(answers))), target.back(y)
    return {
        "linked": target.link(said) - y,
        "fraction": np.log1p(said / 100) - np.log1p(true / 100),
        "points": np.abs(said - true),
    }


def _line(label: str, found: dict[str, np.ndarray], keep: np.ndarray) -> str:
    linked = found["linked"][keep]
    return (
        f"{label} | {keep.sum()} | {rms(linked):.3f} | {np.median(np.abs(linked)):.3f} | "
        f"{rms(found['fraction'][keep]):.3f} | {found['points'][keep].mean():.1f}"
    )


def _groups(families: Sequence[str]) -> dict[str, np.ndarray]:
    names = np.array(families)
    return {
        "all": np.ones(len(names), bool),
        "without one that waits for input": ~np.isin(names, WAITS),
        "and without suspect runs": ~np.isin(names, WAITS + SUSPECT),
    }


def utilisation() -> None:
    """Utilisation on Lucid's RTX 3090: by graph alone, by graph and iteration time, not grouped."""
    rows = rows_of("lucid")
    print("== GPU utilisation, RTX 3090 (Lucid), every family judged by what never saw it")
    print("learner, rows | n | RMSLE | median | RMSLE of fractions | MAE, points")
    shipped = training_sets(rows, DEFAULT)["gpu_util"]
    for label, keep in _groups(shipped.families).items():
        print(_line(f"roofline as shipped, {label}", _errors("gpu_util", shipped.base, shipped.y), keep))
    out = out_of_fold(rows, CANDIDATES, folds=len(rows))
    for learner, answers in out["gpu_util"].items():
        for label, keep in _groups(shipped.families).items():
            print(_line(f"{learner}, {label}", _errors("gpu_util", answers, shipped.y), keep))
    print("-- by family, roofline")
    found = _errors("gpu_util", out["gpu_util"]["roofline"], shipped.y)["linked"]
    for family in sorted(set(shipped.families)):
        keep = np.array(shipped.families) == family
        print(f"{family} | {keep.sum()} | {rms(found[keep]):.3f} | bias {found[keep].mean():+.3f}")
    _known_iteration(rows, out["busy_s"])
    print("-- random folds, families split (what an optimistic study reports)")
    mixed = [msgspec.structs.replace(row, family=str(i % 10)) for i, row in enumerate(_shuffled(rows))]
    random = out_of_fold(mixed, CANDIDATES, folds=10)["gpu_util"]
    y = training_sets(mixed, DEFAULT)["gpu_util"].y
    for learner, answers in random.items():
        print(_line(learner, _errors("gpu_util", answers, y), np.ones(len(y), bool)))
    _floor()


def trusted() -> None:
    """Utilisation on Lucid's RTX 3090 with suspect runs neither learnt from nor judged by, as the command does."""
    rows = rows_of("lucid", trusted=True)
    print("== GPU utilisation, RTX 3090 (Lucid), suspect runs left out of fitting, too")
    print("learner, rows | n | RMSLE | median | RMSLE of fractions | MAE, points")
    data = training_sets(rows, DEFAULT)["gpu_util"]
    out = out_of_fold(rows, CANDIDATES, folds=len(rows))["gpu_util"]
    for learner, answers in out.items():
        for label, keep in list(_groups(data.families).items())[1:]:
            print(_line(f"{learner}, {label}", _errors("gpu_util", answers, data.y), keep))
    print("-- by family, roofline: rows | RMSLE | bias | RMS about it")
    off = _errors("gpu_util", out["roofline"], data.y)["linked"]
    names, rest = np.array(data.families), off.copy()
    for family in sorted(set(data.families)):
        keep = names == family
        rest[keep] -= off[keep].mean()
        print(
            f"{family} | {keep.sum()} | {rms(off[keep]):.3f} | {off[keep].mean():+.3f} | {rms(rest[keep]):.3f}"
        )
    keep = _groups(data.families)["and without suspect runs"]
    freedom = keep.sum() - len(set(names[keep]))
    print(f"RMS about the families' own means: {np.sqrt((rest[keep] ** 2).sum() / freedom):.3f}")
    _nested("lucid, without suspect runs", rows)


def _known_iteration(rows: list[Observation], out: dict[str, np.ndarray]) -> None:
    print("-- with the iteration time of a light sample")
    data = training_sets(rows, DEFAULT)["busy_s"]
    seconds = np.array([rows[int(i)].iteration_s for i in data.where], float)
    y = np.log1p(np.array([rows[int(i)].gpu_util for i in data.where], float))
    for learner in ("roofline", "roofline+forest", "roofline+boosting", "roofline+lightgbm"):
        said = np.log1p(100 * np.minimum(np.exp(out[learner]) / seconds, 1.0))
        for label, keep in _groups(data.families).items():
            print(_line(f"{learner}, {label}", _errors("gpu_util", said, y), keep))


def _shuffled(rows: list[Observation]) -> list[Observation]:
    order = np.random.default_rng(0).permutation(len(rows))
    return [rows[int(i)] for i in order]


def _floor() -> None:
    """How far measurements of one job differ: beside nearly idle partners that differ in batch alone."""
    idle = ("PPO", "TD3", "NeuMF")
    seen: dict[tuple[object, ...], list[float]] = {}
    for run in read_co_runs(DATA):
        if run.source != "lucid" or run.total_gpu_util is None:
            continue
        for i, side in enumerate(run.sides):
            other = run.sides[1 - i].job
            if other.model in idle and side.job.model not in idle and other.amp == 0:
                seen.setdefault((side.job, other.model), []).append(np.log1p(run.total_gpu_util))
    off = [
        (value - np.mean(values)) / np.sqrt(1 - 1 / len(values))
        for values in seen.values()
        if len(values) > 1
        for value in values
    ]
    print("-- noise floor: a job beside a nearly idle partner, again with the partner at another batch")
    print(f"{len(off)} measurements | RMS {rms(np.array(off)):.3f} | median {np.median(np.abs(off)):.3f}")


def times() -> None:
    """Iteration time by device type, with the factors of the other device types."""
    print("== iteration time: natural logarithm of predicted over measured, by device type")
    print("factors from | judged on | n | RMS | median")
    rows = gavel()
    for device in ("K80", "P100", "V100"):
        here = [row for row in rows if row.rates.name == device]
        others = [row for row in rows if row.rates.name != device]
        _times_line("other types", device, here, calibrate([*others, *traffic()], Efficiency()))
        out = out_of_fold(here, ("roofline", "roofline+forest", "roofline+boosting"), folds=20)
        y = training_sets(here, DEFAULT)["iteration_s"].y
        for learner, answers in out["iteration_s"].items():
            off = answers - y
            label = f"{device}, unseen families, {learner}"
            print(f"{label} | {device} | {len(off)} | {rms(off):.3f} | {np.median(np.abs(off)):.3f}")
    _times_line("gavel", "RTX3090", [r for r in rows_of("lucid") if r.family not in WAITS], DEFAULT)
    _times_line("gavel", "A100 (miso; shapes assumed)", rows_of("miso"), DEFAULT)
    print("-- campaigns against each other, same job and device type")
    _campaigns()


def _times_line(factors: str, where: str, rows: list[Observation], efficiency: Efficiency) -> None:
    data = training_sets(rows, efficiency)["iteration_s"]
    off = data.base - data.y
    print(f"{factors} | {where} | {len(off)} | {rms(off):.3f} | {np.median(np.abs(off)):.3f}")


def _campaigns() -> None:
    old = {(r.work.name, r.work.batch, r.rates.name): r.iteration_s for r in rows_of("gavel-2019-08")}
    new = {(r.work.name, r.work.batch, r.rates.name): r.iteration_s for r in rows_of("gavel-2020-physical")}
    for device in ("K80", "P100", "V100"):
        both = [k for k in old if k in new and k[2] == device and old[k] and new[k] and "Recoder" not in k[0]]
        off = np.log([old[k] / new[k] for k in both])  # type: ignore[operator]
        print(f"gavel-2019-08 | {device} | {len(off)} | {rms(off):.3f} | {np.median(np.abs(off)):.3f}")


def memory() -> None:
    """Memory in use, as nvidia-smi reports it."""
    print("== memory: natural logarithm of predicted over measured")
    print("source | learner | n | RMS | median")
    for source in ("lucid", "miso", "salus"):
        rows = rows_of(source)
        data = training_sets(rows, DEFAULT)["mem_mib"]
        off = data.base - data.y
        print(f"{source} | model as shipped | {len(off)} | {rms(off):.3f} | {np.median(np.abs(off)):.3f}")
        for learner, answers in out_of_fold(rows, ("roofline", "roofline+forest"), folds=20)[
            "mem_mib"
        ].items():
            off = answers - data.y
            label = learner.replace("roofline", "model with fitted context")
            print(f"{source} | {label} | {len(off)} | {rms(off):.3f} | {np.median(np.abs(off)):.3f}")


def importances() -> None:
    """Which features matter for utilisation: error with a column permuted between families."""
    print("== permutation importance for GPU utilisation: growth of RMSLE on unseen families")
    rows = [row for row in rows_of("lucid") if row.family not in WAITS]
    for learner in ("lightgbm", "forest"):
        found = importance(rows, "gpu_util", learner, seed=0)
        shown = ", ".join(f"{name} {growth:+.3f}" for name, growth in found[:10])
        print(f"{learner} alone (Horus' kind) | {shown}")
    found = importance(rows, "gpu_util", "roofline+forest", seed=0)
    print("roofline+forest |", ", ".join(f"{name} {growth:+.3f}" for name, growth in found[:10]))


def intervals() -> None:
    """How often 90% intervals hold on families that nothing of them had seen, and how wide they are."""
    print("== 90% intervals: share that held, median width")
    for source, rows in (("lucid", rows_of("lucid")), ("gavel, V100", _device("V100"))):
        sets = training_sets(rows, DEFAULT)
        for name in ("gpu_util", "mem_util", "iteration_s", "mem_mib"):
            if name not in sets or len(sets[name].y) < 5:
                continue
            _held(
                f"{source} | {name} | as shipped",
                name,
                sets[name].base,
                sets[name].y,
                None,
                sets[name].families,
            )
        _nested(source, rows)


def _device(name: str) -> list[Observation]:
    return [row for row in gavel() if row.rates.name == name]


def _held(
    label: str, name: str, middle: np.ndarray, y: np.ndarray, doubt: np.ndarray | None, families: list[str]
) -> None:
    target = TARGETS[name]
    if doubt is None:
        if name == "mem_mib":
            return
        doubt = np.full(len(y), UNFITTED_DOUBT[name])
    low, high = target.back(middle - doubt), target.back(middle + doubt)
    true = target.back(y)
    inside = (low <= true + 1e-9) & (true <= high + 1e-9)
    each = [inside[np.array(families) == f].mean() for f in sorted(set(families))]
    width = np.median(high - low) if target.percent else np.median(high / low)
    unit = "points" if target.percent else "times"
    print(f"{label} | rows {inside.mean():.0%} | families {np.mean(each):.0%} | {width:.3g} {unit}")


def _nested(source: str, rows: list[Observation]) -> None:
    """Fit without one family, predict it, for each family."""
    held: dict[str, list[tuple[float, float, float, str]]] = {}
    for family in sorted({row.family for row in rows}):
        inside = [row for row in rows if row.family != family]
        outside = [row for row in rows if row.family == family]
        learners = ("roofline", "roofline+linear", "roofline+forest")
        predictor = ResourcePredictor(learners=learners, folds=6).fit(inside)
        for name, data in training_sets(outside, predictor.efficiency_).items():
            if name not in predictor.fits_:
                continue
            said = predictor.models_[name].predict(data.x, data.base)
            fit = predictor.fits_[name]
            held.setdefault(name, []).extend(
                (float(a), float(b), fit.doubt, family) for a, b in zip(said, data.y, strict=True)
            )
    for name in ("gpu_util", "mem_util", "iteration_s", "mem_mib"):
        if name in held:
            said, y, doubt = np.array([entry[:3] for entry in held[name]]).T
            families = [entry[3] for entry in held[name]]
            _held(f"{source} | {name} | fitted on other families", name, said, y, doubt, families)
            off = np.abs(TARGETS[name].link(TARGETS[name].back(said)) - y)
            each = ", ".join(f"{label} {rms(off[keep]):.3f}" for label, keep in _groups(families).items())
            print(
                f"   chosen by itself: RMSLE {each}; 90% of families' {family_quantile(off, families, 0.9):.3f}"
            )


SECTIONS: dict[str, Callable[[], None]] = {
    "factors": factors,
    "utilisation": utilisation,
    "trusted": trusted,
    "times": times,
    "memory": memory,
    "importance": importances,
    "intervals": intervals,
}


def main(names: Iterable[str]) -> None:
    """Print the sections asked for."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    for name in names or SECTIONS:
        SECTIONS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
