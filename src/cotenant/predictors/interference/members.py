"""Members of the zoo that are fitted on one world at a time, from features of both jobs.

Each is an estimator in scikit-learn's manner over a ``PairData``; all answer speeds. What needs
no more than numpy is written here, the rest wraps scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.jobs import FEATURES, NodeTable
from cotenant.predictors.interference.links import MAX_SPEED, MIN_SPEED
from cotenant.predictors.interference.usage import terms

__all__ = [
    "MEMBERS",
    "Additive",
    "Constant",
    "Contending",
    "Member",
    "PairData",
    "UtilisationSum",
    "pair_data",
]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_FEWEST = 8


class PairData(msgspec.Struct, frozen=True):
    """Rows of pairs in one world.

    Parameters
    ----------
    x : ndarray, shape (n, features)
        Standardised features of victim, neighbour, their differences and sums, and what both
        contend for (``usage.terms``).
    victim, other : ndarray of intp, shape (n,)
        Configurations.
    victim_family, other_family : ndarray of intp, shape (n,)
    usage : ndarray, shape (n, 2, 4)
        Of victim and neighbour: compute share, bandwidth share, host share, and logarithm of
        the iteration's length.
    width : int
        Columns of ``x`` that describe one job.
    """

    x: Array
    victim: Index
    other: Index
    victim_family: Index
    other_family: Index
    usage: Array
    width: int

    def take(self, where: Index) -> PairData:
        """Some of the rows."""
        return PairData(
            self.x[where],
            self.victim[where],
            self.other[where],
            self.victim_family[where],
            self.other_family[where],
            self.usage[where],
            self.width,
        )


def pair_data(table: NodeTable, victim: Index, other: Index) -> PairData:
    """Features of pairs of nodes."""
    v, o = table.z[victim], table.z[other]
    same = (table.family[victim] == table.family[other]).astype(np.float64)[:, None]
    usage = _usage(table)
    return PairData(
        np.hstack([v, o, v - o, (v + o) / 2.0, same, terms(table.usage, victim, other)]),
        table.config[victim],
        table.config[other],
        table.family[victim],
        table.family[other],
        np.stack([usage[victim], usage[other]], axis=1),
        table.z.shape[1],
    )


def _usage(table: NodeTable) -> Array:
    """Compute, bandwidth and host shares and log2 of iteration length, as far as known.

    Compute is the measured utilisation; else it is guessed from how iteration time grows with
    the batch; else 0.7. Bandwidth is the measured one, else 0.6 of compute. The host has the rest.
    """
    column = {name: i for i, name in enumerate(FEATURES)}
    raw = table.raw
    compute = raw[:, column["gpu_util"]]
    guess = np.clip(0.35 + 0.65 * raw[:, column["saturation"]], 0.05, 1.0)
    compute = np.where(np.isfinite(compute), compute, np.where(np.isfinite(guess), guess, 0.7))
    bandwidth = raw[:, column["mem_util"]]
    bandwidth = np.where(np.isfinite(bandwidth), bandwidth, 0.6 * compute)
    length = raw[:, column["log2_iteration_s"]]
    length = np.where(np.isfinite(length), length, 0.0)
    return np.stack([compute, bandwidth, 1.0 - compute, length], axis=1)


class Member(Protocol):
    """What a member of the zoo answers."""

    def fit(self, data: PairData, speed: Array) -> Member:
        """Learn from measured speeds."""

    def predict(self, data: PairData) -> Array:
        """Speeds, within the bounds."""


def _bounded(speed: Array) -> Array:
    return np.clip(speed, MIN_SPEED, MAX_SPEED)


class Constant:
    """The median of all speeds."""

    def fit(self, data: PairData, speed: Array) -> Constant:
        """Learn the median."""
        self._value = float(np.median(speed))
        return self

    def predict(self, data: PairData) -> Array:
        """The same for all."""
        return _bounded(np.full(len(data.x), self._value))


class UtilisationSum:
    """Slowdown beyond a full device: speed = 1 / max(1, sum of compute shares / c), c fitted."""

    def fit(self, data: PairData, speed: Array) -> UtilisationSum:
        """Choose the capacity with least mean absolute error."""
        total = data.usage[:, :, 0].sum(axis=1)
        grid = np.linspace(0.4, 2.0, 33)
        errors = [float(np.abs(self._speed(total, c) - speed).mean()) for c in grid]
        self._capacity = float(grid[int(np.argmin(errors))])
        return self

    @staticmethod
    def _speed(total: Array, capacity: float) -> Array:
        return 1.0 / np.maximum(1.0, total / capacity)

    def predict(self, data: PairData) -> Array:
        """From the sum of compute shares."""
        return _bounded(self._speed(data.usage[:, :, 0].sum(axis=1), self._capacity))


class Additive:
    """Effect of the victim plus effect of its neighbour, by architecture and configuration.

    Parameters
    ----------
    ridge : float
        In units of observations.
    """

    def __init__(self, *, ridge: float = 0.5) -> None:
        self.ridge = ridge

    def fit(self, data: PairData, speed: Array) -> Additive:
        """Solve for shrunk effects."""
        keys = self._keys(data)
        self._levels = [np.unique(key) for key in keys]
        design = self._design(keys)
        self._mean = float(speed.mean())
        normal = design.T @ design + self.ridge * np.eye(design.shape[1])
        self._effects = np.linalg.solve(normal, design.T @ (speed - self._mean))
        return self

    @staticmethod
    def _keys(data: PairData) -> list[Index]:
        return [data.victim, data.other, data.victim_family, data.other_family]

    def _design(self, keys: list[Index]) -> Array:
        parts = [
            (key[:, None] == levels[None, :]).astype(np.float64)
            for key, levels in zip(keys, self._levels, strict=True)
        ]
        return np.hstack(parts)

    def predict(self, data: PairData) -> Array:
        """Sum of the effects that are known."""
        return _bounded(self._mean + self._design(self._keys(data)) @ self._effects)


class Contending:
    """The contention model with fitted parameters, none negative.

    slowdown - 1 = sum over neighbours of what they take of compute beyond the whole, of bandwidth
    in so far as the victim is busy, of the host, and of time slices, which go to whoever has the
    longer iterations. As each term grows with each neighbour, a further one never speeds a
    job up.
    """

    powers = (0.0, 0.15, 0.3, 0.5)

    def fit(self, data: PairData, speed: Array) -> Contending:
        """Non-negative least squares on slowdowns, weighted so that errors are those of speeds."""
        from scipy.optimize import nnls

        target = 1.0 / np.maximum(speed, MIN_SPEED) - 1.0
        weight = np.maximum(speed, 0.1) ** 2
        best: tuple[float, float, Array] | None = None
        for power in self.powers:
            terms = self._terms(data, power)
            found, _ = nnls(terms * weight[:, None], np.maximum(target, 0.0) * weight)
            error = float(np.abs(1.0 / (1.0 + terms @ found) - speed).mean())
            if best is None or error < best[0] - 1e-12:
                best = (error, power, found)
        if best is not None:
            self._power, self._weights = best[1], best[2]
        return self

    @staticmethod
    def _terms(data: PairData, power: float) -> Array:
        v, o = data.usage[:, 0], data.usage[:, 1]
        longer = np.exp2(power * np.clip(o[:, 3] - v[:, 3], -8, 8))
        return np.stack(
            [
                np.maximum(v[:, 0] + o[:, 0] - 1.0, 0.0),
                np.sqrt(v[:, 0]) * o[:, 1],
                v[:, 2] * o[:, 2],
                v[:, 0] * o[:, 0] * longer,
            ],
            axis=1,
        )

    def excess(self, data: PairData) -> Array:
        """Slowdown minus one; of a set, the sum over its neighbours."""
        return np.asarray(self._terms(data, self._power) @ self._weights)

    def predict(self, data: PairData) -> Array:
        """From the solo profiles."""
        return _bounded(1.0 / (1.0 + self.excess(data)))


class Wrapped:
    """A scikit-learn regressor over the pair's features; below eight rows, the median.

    Parameters
    ----------
    build : callable
        To a fresh regressor.
    columns : {"all", "jobs"}
        ``jobs`` leaves out sums and differences.
    """

    def __init__(self, build: Callable[[], Any], *, columns: str = "all") -> None:
        self.build, self.columns = build, columns

    def _x(self, data: PairData) -> Array:
        x = data.x if self.columns == "all" else data.x[:, : 2 * data.width]
        return x if x.shape[1] else np.ones((len(data.x), 1))

    def fit(self, data: PairData, speed: Array) -> Wrapped:
        """Fit the regressor."""
        self._few = Constant().fit(data, speed) if len(speed) < _FEWEST else None
        if self._few is None:
            self._model = self.build()
            self._model.fit(self._x(data), speed)
        return self

    def predict(self, data: PairData) -> Array:
        """As the regressor says, within the bounds."""
        if self._few is not None:
            return self._few.predict(data)
        return _bounded(np.asarray(self._model.predict(self._x(data)), np.float64))


def _sklearn(name: str) -> Callable[[], Any]:
    def build() -> Any:
        from sklearn import ensemble, linear_model, neighbors, pipeline, preprocessing, svm

        if name == "ridge":
            squares = preprocessing.PolynomialFeatures(2, include_bias=False)
            return pipeline.make_pipeline(squares, linear_model.Ridge(alpha=30.0))
        if name == "knn":
            return neighbors.KNeighborsRegressor(5, weights="distance")
        if name == "svr":
            return svm.SVR(C=1.0, epsilon=0.02, gamma=0.01)
        if name == "forest":
            return ensemble.RandomForestRegressor(60, min_samples_leaf=3, max_features=0.4, random_state=0)
        if name == "boosting":
            return ensemble.GradientBoostingRegressor(
                n_estimators=80,
                max_depth=3,
                learning_rate=0.08,
                subsample=0.7,
                max_features=0.4,
                random_state=0,
            )
        return ensemble.ExtraTreesRegressor(30, min_samples_leaf=2, max_features=0.5, random_state=0)

    return build


def _set_net() -> Member:
    from cotenant.predictors.interference.setnet import SetNet

    return SetNet()


MEMBERS: Mapping[str, Callable[[], Member]] = {
    "constant": Constant,
    "utilisation-sum": UtilisationSum,
    "contention": Contending,
    "additive": Additive,
    "ridge": lambda: Wrapped(_sklearn("ridge"), columns="jobs"),
    "knn": lambda: Wrapped(_sklearn("knn"), columns="jobs"),
    "svr": lambda: Wrapped(_sklearn("svr")),
    "extra-trees": lambda: Wrapped(_sklearn("extra")),
    "forest": lambda: Wrapped(_sklearn("forest")),
    "boosting": lambda: Wrapped(_sklearn("boosting")),
    "set-net": _set_net,
}
"""Members by name, the simplest first."""
