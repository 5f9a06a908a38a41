"""Measured co-runs against predictions by fits that had not seen them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.runs import CoRun, SoloRun

if TYPE_CHECKING:
    from cotenant.predictors.interference.predictor import SidePrediction

__all__ = ["LEAST_PAIRS", "Unseen", "median_error", "predict_unseen"]

LEAST_PAIRS = 6
"""With fewer pairs there is nothing to learn from once some are left out."""
_FOLDS = 5


class Unseen(msgspec.Struct, frozen=True):
    """One job of a co-run: measured, and predicted by a fit without that set of jobs.

    Parameters
    ----------
    row_id : str
    job : str
    jobs : int
        How many jobs the co-run had.
    measured, predicted, low, high : float
        Speed beside the others over speed alone; the last two are the 90% interval.
    """

    row_id: str
    job: str
    jobs: int
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative error."""
        return abs(self.predicted - self.measured) / self.measured


def predict_unseen(runs: Sequence[CoRun], solos: Sequence[SoloRun], *, seed: int = 0) -> list[Unseen]:
    """Predict every pair from the other pairs (five groups), and larger sets from all pairs.

    Raises
    ------
    ConfigError
        If there are too few pairs that ran.
    """
    from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor

    ran = [run for run in runs if run.status == "ok"]
    pairs = [run for run in ran if len(run.sides) == 2]
    if len(pairs) < LEAST_PAIRS:
        raise ConfigError(f"{len(pairs)} pairs ran; predicting unseen ones needs at least {LEAST_PAIRS}")
    order = list(pairs)
    random.Random(f"unseen {seed}").shuffle(order)
    found: dict[str, list[Unseen]] = {}
    for fold in range(_FOLDS):
        test = order[fold::_FOLDS]
        left = {run.key for run in test}
        predictor = AdaptiveInterferencePredictor().fit([r for r in pairs if r.key not in left], solos)
        for run, said in zip(test, predictor.predict(test), strict=True):
            found[run.row_id] = _compared(run, said)
    larger = [run for run in ran if len(run.sides) > 2]
    if larger:
        predictor = AdaptiveInterferencePredictor().fit(pairs, solos)
        for run, said in zip(larger, predictor.predict(larger), strict=True):
            found[run.row_id] = _compared(run, said)
    return [one for run in ran for one in found[run.row_id]]


def _compared(run: CoRun, said: Sequence[SidePrediction]) -> list[Unseen]:
    return [
        Unseen(run.row_id, side.job.label, len(run.sides), side.speed, one.mean, one.low, one.high)
        for side, one in zip(run.sides, said, strict=True)
        if side.usable and side.speed is not None
    ]


def median_error(found: Sequence[Unseen]) -> float | None:
    """Median relative error; None of nothing."""
    from statistics import median

    return median(one.error for one in found) if found else None
