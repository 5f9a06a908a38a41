"""Errors of the forecasts of co-run speeds on measured pairs that they never saw.

::

    python bench/forecast_error.py ../shared/data/interference

prints the tables of ``docs/interference.md``. The folder holds ``pairs.csv`` and
``solo_counters_nvprof.csv``. Rows under a non-commercial licence are read for this evaluation
alone; nothing of them goes into the package.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from cotenant.predictors.base import PairForecast
from cotenant.predictors.contention import ContentionForecast
from cotenant.predictors.lookup import LookupForecast
from cotenant.profiles.pairfit import PairFit, fitted_speed
from cotenant.profiles.physics import MIN_SPEED, Contention
from cotenant.profiles.table import CoRunTable, Side

SEEDS = 8
V100_BANDWIDTH_GBS = 900.0
Array = NDArray[np.float64]


def halves(table: CoRunTable) -> None:
    """Errors on the truth's half, device by device, over several seeds."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(SEEDS):
        fit, held = table.split(seed)
        lookup, plain, exact = LookupForecast(fit, seed=seed), ContentionForecast(seed), PairFit(())
        typical: dict[str, list[float]] = {}
        for side in fit.sides():
            typical.setdefault(side.device_type, []).append(side.speed)
        for side in held.sides():
            if side.device_type not in typical:
                continue
            guess = lookup.co_speed(side.model, (side.other,), side.device_type)
            found.setdefault(side.device_type, []).append(
                (
                    abs(float(np.median(typical[side.device_type])) - side.speed),
                    abs(fitted_speed(exact, side) - side.speed),
                    _error(plain, side),
                    abs(guess.mean - side.speed),
                    float(guess.low <= side.speed <= guess.high),
                    guess.high - guess.low,
                )
            )
    print(
        "| device type | speeds held out (8 splits) | constant | contention, exact | contention | lookup | inside 90% | width |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    found["all"] = [row for rows in found.values() for row in rows]
    for name, rows in found.items():
        mean = np.mean(rows, axis=0)
        print(f"| {name} | {len(rows)} | " + " | ".join(f"{x:.3f}" for x in mean) + " |")


def campaigns(table: CoRunTable, fit: str, truth: str) -> None:
    """Errors on another campaign than the one that was fitted."""
    known, real = table.by_campaign(fit, truth)
    lookup, plain = LookupForecast(known), ContentionForecast(0)
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for side in real.sides():
        guess = lookup.co_speed(side.model, (side.other,), side.device_type)
        seen = known.lookup(side.model, side.other, side.device_type) is not None
        found.setdefault((side.device_type, "same pair" if seen else "other pair"), []).append(
            (_error(plain, side), abs(guess.mean - side.speed), float(guess.low <= side.speed <= guess.high))
        )
    print("| device type | pair in the other campaign | speeds | contention | lookup | inside 90% |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for (name, which), rows in sorted(found.items()):
        mean = np.mean(rows, axis=0)
        print(f"| {name} | {which} | {len(rows)} | " + " | ".join(f"{x:.3f}" for x in mean) + " |")


def _error(forecast: PairForecast, side: Side) -> float:
    return abs(forecast.co_speed(side.model, (side.other,), side.device_type).mean - side.speed)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def counters(folder: Path) -> tuple[Array, list[tuple[str, str]]]:
    """Shares of victim and neighbour, and speed, of TensorFlow pairs with hardware counters."""
    usage: dict[tuple[str, str, str], tuple[float, float]] = {}
    for row in _rows(folder / "solo_counters_nvprof.csv"):
        if row["gpu_type"] == "V100":
            traffic = float(row["dram_read_throughput_tw"]) + float(row["dram_write_throughput_tw"])
            usage[row["matches_source"], row["model"], row["batch"]] = (
                float(row["sm_efficiency_tw"]) / 100.0,
                traffic / V100_BANDWIDTH_GBS,
            )
    data, models = [], []
    for row in _rows(folder / "pairs.csv"):
        if row["source"] not in ("gavel-2019-02", "gavel-2018-12") or row["gpu_type"] != "V100":
            continue
        keys = {side: (row["source"], row[f"{side}_model"], row[f"{side}_batch"]) for side in "ab"}
        # The campaign of December 2018 ran one batch size each; its counters do not name it.
        keys = {side: key if key in usage else (*key[:2], "") for side, key in keys.items()}
        for mine, other in (("a", "b"), ("b", "a")):
            if row[f"{mine}_label_ok"] == "1" and row[f"flag_gt105_{mine}"] == "0" and row["status"] == "ok":
                speed = min(float(row[f"{mine}_norm"]), 1.0)
                data.append((*usage[keys[mine]], *usage[keys[other]], speed))
                models.append((keys[mine][1], keys[other][1]))
    return np.array(data), models


def lucid(folder: Path) -> Array:
    """The same of the RTX 3090 pairs that publish utilisations; for evaluation only."""
    data = []
    for row in _rows(folder / "pairs.csv"):
        if row["source"] != "lucid":
            continue
        for mine, other in (("a", "b"), ("b", "a")):
            flags = ("flag_placeholder", "flag_solo_suspect", "flag_gt105")
            if row[f"{mine}_label_ok"] == "1" and all(row[f"{flag}_{mine}"] == "0" for flag in flags):
                shares = [
                    float(row[f"{s}_{u}_util_solo"]) / 100 for s in (mine, other) for u in ("gpu", "mem")
                ]
                data.append((*shares, min(float(row[f"{mine}_norm"]), 1.0)))
    return np.array(data)


def predicted(model: Contention, data: Array) -> Array:
    """Speeds of pairs from their compute and bandwidth shares; host shares are not known."""
    none = np.zeros(len(data))
    return np.array(
        [
            max(1.0 / (1.0 + model.excess((c, b, z), [(oc, ob, z)])), MIN_SPEED)
            for (c, b, oc, ob), z in zip(data[:, :4].tolist(), none.tolist(), strict=True)
        ]
    )


def fit_contention(data: Array) -> Contention:
    """Parameters of least mean absolute error."""

    def loss(values: Array) -> float:
        a, b = np.abs(values)
        over = np.maximum(data[:, 0] + data[:, 2] - 1.0, 0.0)
        speed = 1.0 / (1.0 + a * over + b * np.sqrt(data[:, 0]) * data[:, 3])
        return float(np.abs(speed - data[:, 4]).mean())

    best = min(
        (
            minimize(loss, start, method="Nelder-Mead", options={"maxiter": 2000})
            for start in ([0.5, 0.1], [0.1, 0.8])
        ),
        key=lambda result: float(result.fun),
    )
    a, b = np.abs(best.x)
    return Contention(compute=float(a), bandwidth=float(b))


def contention(folder: Path) -> None:
    """Repeat the fit of the contention model, and judge it where it was not fitted."""
    data, models = counters(folder)
    fitted = fit_contention(data)
    print(f"fitted on {len(data)} speeds: compute {fitted.compute:.3f}, bandwidth {fitted.bandwidth:.3f}")
    errors = []
    for left_out in sorted({name for pair in models for name in pair}):
        touched = np.array([left_out in pair for pair in models])
        its = np.array([left_out == pair[0] for pair in models])
        errors += np.abs(predicted(fit_contention(data[~touched]), data[its]) - data[its, 4]).tolist()
    print("| pairs | speeds | constant | additive utilisation | contention model |")
    print("| --- | ---: | ---: | ---: | ---: |")
    shipped, additive = Contention(), Contention(compute=1.0, bandwidth=0.0)
    for name, rows in (("V100, TensorFlow (fitted here)", data), ("RTX 3090 (held out)", lucid(folder))):
        speed = rows[:, 4]
        figures = (
            np.abs(speed - np.median(speed)).mean(),
            np.abs(predicted(additive, rows) - speed).mean(),
            np.abs(predicted(shipped, rows) - speed).mean(),
        )
        print(f"| {name} | {len(rows)} | " + " | ".join(f"{x:.3f}" for x in figures) + " |")
    print(f"| V100, TensorFlow, one model left out | {len(errors)} | | | {np.mean(errors):.3f} |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="folder with pairs.csv and solo_counters_nvprof.csv")
    folder = parser.parse_args().folder
    table = CoRunTable.load(folder / "pairs.csv")
    print(f"\nSides of pairs in {table.name}:\n")
    for reason, count in sorted(table.sides_read.items()):
        print(f"- {count:,} {reason}")
    print("\nHalves by pair, one campaign for each device type:\n")
    halves(table.one_campaign_each())
    print("\nFitted on gavel-2019-08, judged on gavel-2020:\n")
    campaigns(table, "gavel-2019-08", "gavel-2020")
    print("\nThe contention model from measured utilisations:\n")
    contention(folder)


if __name__ == "__main__":
    main()
