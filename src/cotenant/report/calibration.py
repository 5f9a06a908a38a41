"""What was foretold of jobs beside others, against what happened: ``docs/metrics.md`` defines it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from cotenant.report.company import ALONE, CompanyWalk, Side

__all__ = ["DUST", "FORETOLD_SCHEMA", "Judged", "calibrated", "judge", "nothing_foretold"]

FORETOLD_SCHEMA: dict[str, Any] = {
    "device_type": pl.String,
    "model": pl.String,
    "beside": pl.List(pl.String),
    "version": pl.Int64,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "happened": pl.Float64,
    "job_hours": pl.Float64,
}
"""Columns of ``foretold.parquet``: one row for each model in each set."""
DUST = 1e-6
"""Speeds are quotients of logged ones: within this of an end of the interval is on it."""

_Seconds = Mapping[tuple[int, float], float]


class Judged:
    """One side with its foretold speed, and the seconds run at each speed relative to alone.

    Attributes
    ----------
    side : Side
    mean, low, high : float
        Foretold.
    ran : list of (float, float)
        Speeds that happened, and for how many seconds.
    """

    def __init__(self, side: Side) -> None:
        ends = [_of(side, i) for i in range(len(side.sets))]
        # The slowest of its devices decides how fast a gang is.
        self.side = side
        self.mean, self.low, self.high = (min(end[i] for end in ends) for i in range(3))
        self.ran: list[tuple[float, float]] = []


def _of(side: Side, i: int) -> tuple[float, float, float]:
    """Mean, low and high of what was foretold of a model in one of its sets."""
    told = side.told[i]
    if told is None:
        return 1.0, 1.0, 1.0  # alone, by definition
    at = told.models.index(side.model)
    return told.mean[at], told.low[at], told.high[at]


def _alone(sides: list[Side], seconds: _Seconds) -> dict[tuple[str, str], float]:
    """Speed of each model with a device of a type to itself, where the log shows it."""
    ran: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for (number, rate), spent in seconds.items():
        side = sides[number]
        if side.known and len(side.sets) == 1 and side.sets[0][1] == ALONE:
            ran[side.model, side.sets[0][0]].append((rate, spent))
    return {key: _mean(found) for key, found in ran.items()}


def _mean(ran: list[tuple[float, float]]) -> float:
    if len(ran) == 1:
        return ran[0][0]
    return sum(value * spent for value, spent in ran) / sum(spent for _, spent in ran)


def judge(walk: CompanyWalk, seconds: _Seconds, all_seconds: _Seconds) -> tuple[list[Judged], float]:
    """Sides that can be judged, and the seconds of all that ran beside others.

    Parameters
    ----------
    walk : CompanyWalk
    seconds : mapping
        By side and speed, of the jobs to be judged.
    all_seconds : mapping
        Of all jobs: they show how fast each model is alone.
    """
    alone = _alone(walk.sides, all_seconds)
    judged: dict[int, Judged] = {}
    beside_s = 0.0
    for (number, rate), spent in seconds.items():
        side = walk.sides[number]
        if all(models == ALONE for _, models in side.sets):
            continue
        beside_s += spent
        types = {name for name, _ in side.sets}
        base = alone.get((side.model, min(types)))
        told = all(t is not None or s[1] == ALONE for s, t in zip(side.sets, side.told, strict=True))
        if side.known and told and base and len(types) == 1:
            if number not in judged:
                judged[number] = Judged(side)
            judged[number].ran.append((rate / base, spent))
    return list(judged.values()), beside_s


def nothing_foretold() -> dict[str, Any]:
    """The numbers of a run in which nothing was foretold of anybody."""
    keys = (
        "forecast_sides",
        "forecast_error_mean",
        "forecast_error_hours_mean",
        "forecast_bias_mean",
        "forecast_inside_share",
        "forecast_inside_hours_share",
        "forecast_width_mean",
        "forecast_judged_share",
    )
    return {**dict.fromkeys(keys), "forecast_by_type": None}


def calibrated(walk: CompanyWalk | None, end_s: float) -> tuple[pl.DataFrame, dict[str, Any]]:
    """One row for each side that ran in one set and can be judged, and the numbers over all.

    Parameters
    ----------
    walk : CompanyWalk or None
        None where nobody ever shared.
    end_s : float
        End of the log so far.

    Returns
    -------
    polars.DataFrame, dict
    """
    if walk is None:
        return pl.DataFrame(schema=FORETOLD_SCHEMA), nothing_foretold()
    seconds = walk.until(end_s)
    judged, beside_s = judge(walk, seconds, seconds)
    frame = _frame([_row(j) for j in judged if len(j.side.sets) == 1])
    # A gang whose devices have different neighbours counts by its hours only: of no one set it shows the speed.
    ran = np.array([(j.mean, j.low, j.high, *r) for j in judged for r in j.ran]).reshape(-1, 5)
    mean, low, high, happened, spent = ran.T
    found = nothing_foretold()
    if beside_s > 0:
        found["forecast_judged_share"] = min(1.0, float(spent.sum()) / beside_s)
    if spent.sum() > 0:
        inside = (happened >= low - DUST) & (happened <= high + DUST)
        found["forecast_error_hours_mean"] = float((np.abs(mean - happened) * spent).sum() / spent.sum())
        found["forecast_inside_hours_share"] = float((inside * spent).sum() / spent.sum())
    if frame.height:
        found |= _numbers(frame)
        types = frame["device_type"].unique().sort().to_list()
        by_type = {name: _numbers(frame.filter(pl.col("device_type") == name)) for name in types}
        found["forecast_by_type"] = by_type
    return frame, found


def _row(judged: Judged) -> dict[str, Any]:
    side, told = judged.side, judged.side.told[0]
    (name, models), happened = side.sets[0], _mean(judged.ran)
    at = models.index(side.model)
    return {
        "device_type": name,
        "model": side.model,
        "beside": [*models[:at], *models[at + 1 :]],
        "version": 0 if told is None else told.version,
        "mean": judged.mean,
        "low": judged.low,
        "high": judged.high,
        "happened": happened,
        "job_hours": sum(spent for _, spent in judged.ran) / 3600.0,
    }


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows in one order, whatever the order they came in."""
    frame = pl.DataFrame(rows, schema=FORETOLD_SCHEMA)
    return frame.sort("device_type", "model", "version", pl.col("beside").list.join("\0"))


def _numbers(frame: pl.DataFrame) -> dict[str, Any]:
    """Every side counts once."""
    off = frame["mean"] - frame["happened"]
    inside = (frame["happened"] >= frame["low"] - DUST) & (frame["happened"] <= frame["high"] + DUST)
    return {
        "forecast_sides": frame.height,
        "forecast_error_mean": off.abs().mean(),
        "forecast_bias_mean": off.mean(),
        "forecast_inside_share": inside.mean(),
        "forecast_width_mean": (frame["high"] - frame["low"]).mean(),
    }
