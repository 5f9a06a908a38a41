"""Judging predictions by what was measured."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.predictor import SidePrediction
from cotenant.profiles.runs import CoRun

__all__ = ["Report", "judge", "judge_by", "write_predictions"]

Array = NDArray[np.float64]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of a set of predictions.

    Parameters
    ----------
    name : str
    sides : int
        Trustworthy speeds that were predicted.
    mae, p90 : float
        Mean absolute error of normalised speed, and its 90% quantile.
    mape : float
        Mean of absolute error over the measured speed.
    rmsle : float
        Root mean square of the error of log(1 + speed).
    spearman : float or None
        Rank correlation; None where all are equal.
    coverage : float
        Share of measured speeds inside their interval.
    width : float
        Median full width of the intervals.
    precision, recall : float or None
        Of "does not fit", over sets that ran or died; None where nothing is (said to be) so.
    """

    name: str
    sides: int
    mae: float
    mape: float
    p90: float
    rmsle: float
    spearman: float | None
    coverage: float
    width: float
    precision: float | None
    recall: float | None


def judge(name: str, runs: Sequence[CoRun], predictions: Sequence[Sequence[SidePrediction]]) -> Report:
    """Compare predictions with labels; both sides of each co-run count where trustworthy.

    A speed that is only known to be at least 1 is taken as 1.
    """
    pairs = [
        (side.speed, said)
        for run, found in zip(runs, predictions, strict=True)
        if run.status == "ok"
        for side, said in zip(run.sides, found, strict=True)
        if side.usable and side.speed is not None
    ]
    truth = np.array([speed for speed, _ in pairs], np.float64)
    mean = np.array([said.mean for _, said in pairs], np.float64)
    low = np.array([said.low for _, said in pairs], np.float64)
    high = np.array([said.high for _, said in pairs], np.float64)
    precision, recall = _feasibility(runs, predictions)
    if not len(truth):
        nothing = float("nan")
        return Report(
            name=name, sides=0, mae=nothing, mape=nothing, p90=nothing, rmsle=nothing, spearman=None,
            coverage=nothing, width=nothing, precision=precision, recall=recall,
        )  # fmt: skip
    error = np.abs(mean - truth)
    inside = (truth >= low - 1e-9) & (truth <= high + 1e-9)
    return Report(
        name=name,
        sides=len(truth),
        mae=float(error.mean()),
        mape=float((error / truth).mean()),
        p90=float(np.quantile(error, 0.9)),
        rmsle=float(np.sqrt(np.mean((np.log1p(mean) - np.log1p(truth)) ** 2))),
        spearman=_spearman(mean, truth),
        coverage=float(inside.mean()),
        width=float(np.median(high - low)),
        precision=precision,
        recall=recall,
    )


def judge_by(
    runs: Sequence[CoRun], predictions: Sequence[Sequence[SidePrediction]], by: Sequence[str]
) -> list[Report]:
    """One report for each value of the named fields, then one for all.

    Parameters
    ----------
    runs, predictions
        As ``judge``.
    by : sequence of str
        Of ``source`` and ``gpu_type``.
    """
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        value = {"source": run.source, "gpu_type": run.device_type}
        groups.setdefault(" ".join(value[field] for field in by), []).append(i)
    reports = [
        judge(name or "all", [runs[i] for i in rows], [predictions[i] for i in rows])
        for name, rows in sorted(groups.items())
    ]
    return [*reports, judge("all", runs, predictions)] if by else reports


def _feasibility(
    runs: Sequence[CoRun], predictions: Sequence[Sequence[SidePrediction]]
) -> tuple[float | None, float | None]:
    right = said = real = 0
    for run, found in zip(runs, predictions, strict=True):
        if run.fits is None or not found:
            continue
        died, foretold = not run.fits, found[0].fits is False
        right += died and foretold
        said += foretold
        real += died
    return (right / said if said else None), (right / real if real else None)


def _spearman(one: Array, other: Array) -> float | None:
    from scipy.stats import rankdata

    a, b = rankdata(one), rankdata(other)
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def write_predictions(
    path: Path | str, runs: Sequence[CoRun], predictions: Sequence[Sequence[SidePrediction]]
) -> None:
    """One line for each row and side: ``row_id,side,mean,low,high,fits``; empty where not known."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row_id", "side", "mean", "low", "high", "fits"))
        for run, found in zip(runs, predictions, strict=True):
            for letter, said in zip("abcdefghijklmnopqrstuvwxyz", found, strict=False):
                numbers = (f"{value:.6f}" for value in (said.mean, said.low, said.high))
                writer.writerow((run.row_id, letter, *numbers, "" if said.fits is None else int(said.fits)))
