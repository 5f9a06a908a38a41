"""Regressions to choose from, all small: there are dozens of families, not thousands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.errors import MissingExtraError, UnknownNameError
from cotenant.predictors.resources.features import GRAPH_COLUMNS

__all__ = ["CANDIDATES", "SIMPLICITY", "Candidate", "make_learner"]

Array = NDArray[np.float64]


class Candidate:
    """A regression, of the roofline's errors or of the target itself.

    Parameters
    ----------
    name : str
        ``roofline`` alone, ``roofline+LEARNER`` or ``LEARNER`` alone, which knows the graph's
        features and the device's rates only, as Horus does.
    seed : int

    Attributes
    ----------
    model_ : object or None
        The fitted regression.
    """

    _LIMIT = 1.0
    """Rows where the roofline is off by more (a factor of 2.7) are not learnt from: such a job waits
    for something that is not in its graph."""

    _FEWEST = 4
    """Rows; from fewer nothing is learnt, and the roofline's answer stands."""

    def __init__(self, name: str, *, seed: int = 0) -> None:
        if name not in CANDIDATES:
            raise UnknownNameError("learner", name, CANDIDATES)
        self.name, self.seed = name, seed
        self.over = name.startswith("roofline")
        self.learner = name.removeprefix("roofline").removeprefix("+")
        self.model_: Any = None

    def fit(self, x: Array, base: Array, y: Array, weight: Array) -> Candidate:
        """Fit.

        Parameters
        ----------
        x : ndarray, shape (n, features)
        base, y : ndarray, shape (n,)
            The roofline's answer and the truth, both through the target's link.
        weight : ndarray, shape (n,)
        """
        if self.learner:
            used = np.abs(y - base) <= self._LIMIT
            used |= not self.over
            if used.sum() < self._FEWEST:
                return self
            target = y[used] - base[used] if self.over else y
            self.model_ = make_learner(self.learner, self.seed)
            self.model_.fit(self._columns(x)[used], target, sample_weight=weight[used])
        return self

    def predict(self, x: Array, base: Array) -> Array:
        """Answers through the link, shape (n,)."""
        if self.model_ is None or not len(base):
            return base.copy()
        found: Array = np.asarray(self.model_.predict(self._columns(x)), float)
        return base + found if self.over else found

    def _columns(self, x: Array) -> Array:
        return x if self.over else x[:, :GRAPH_COLUMNS]


class _Linear:
    """Ridge on standardised columns."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, x: Array, y: Array, sample_weight: Array) -> None:
        share = sample_weight / sample_weight.sum()
        self.mean = share @ x
        spread = np.sqrt(share @ (x - self.mean) ** 2)
        self.spread = np.where(spread > 1e-9, spread, 1.0)
        z = (x - self.mean) / self.spread
        self.offset = float(share @ y)
        ridge = (z * share[:, None]).T @ z + self.alpha * np.eye(x.shape[1])
        self.slope = np.linalg.solve(ridge, (z * share[:, None]).T @ (y - self.offset))

    def predict(self, x: Array) -> Array:
        # No further out than the rows it was fitted on reach, or nearly so.
        z = np.clip((x - self.mean) / self.spread, -3.0, 3.0)
        found: Array = self.offset + z @ self.slope
        return found


def _forest(seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(
        n_estimators=60, min_samples_leaf=2, max_features=0.5, random_state=seed, n_jobs=1
    )


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=100, learning_rate=0.07, max_depth=2, subsample=0.7, max_features=0.5, random_state=seed
    )


def _lightgbm(seed: int) -> Any:
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        raise MissingExtraError("the learner lightgbm", "boost") from None
    return LGBMRegressor(
        n_estimators=150,
        learning_rate=0.05,
        num_leaves=7,
        min_child_samples=3,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.5,
        random_state=seed,
        n_jobs=1,
        deterministic=True,
        verbose=-1,
    )


def _xgboost(seed: int) -> Any:
    try:
        from xgboost import XGBRegressor
    except ImportError:
        raise MissingExtraError("the learner xgboost", "boost") from None
    return XGBRegressor(
        n_estimators=150,
        learning_rate=0.05,
        max_depth=3,
        subsample=0.8,
        colsample_bytree=0.5,
        random_state=seed,
        n_jobs=1,
    )


_MAKERS: dict[str, Callable[[int], Any]] = {
    "linear": lambda seed: _Linear(0.3),
    "forest": _forest,
    "boosting": _boosting,
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
}
CANDIDATES = ("roofline", *(f"roofline+{name}" for name in _MAKERS), *_MAKERS)
"""Names of candidates, simplest first within each kind."""

SIMPLICITY = {name: place for place, name in enumerate(CANDIDATES)}


def make_learner(name: str, seed: int) -> Any:
    """An unfitted regression with ``fit(x, y, sample_weight)`` and ``predict(x)``.

    Raises
    ------
    MissingExtraError
        For lightgbm and xgboost without the extra ``boost``.
    """
    return _MAKERS[name](seed)
