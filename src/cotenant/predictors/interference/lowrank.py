"""Low-rank completion across jobs and worlds by alternating least squares.

Rows are configurations as victims; columns are a neighbour in a world. A speed is the sum of
both sides' effects and an inner product of latent vectors (Koren, Bell and Volinsky 2009,
"Matrix factorization techniques for recommender systems"), all shrunk. A job with no speed
anywhere gets the average of its column, and the other way round.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.jobs import NodeTable
from cotenant.predictors.interference.links import MAX_SPEED, MIN_SPEED

__all__ = ["LowRank"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class LowRank:
    """Completion of the table of speeds.

    Parameters
    ----------
    table : NodeTable
    rank : int
    ridge : float
        In units of observations.
    sweeps : int
    """

    def __init__(self, table: NodeTable, *, rank: int = 2, ridge: float = 2.0, sweeps: int = 6) -> None:
        self.table, self.rank, self.ridge, self.sweeps = table, rank, ridge, sweeps

    def fit(self, victim: Index, other: Index, speed: Array) -> LowRank:
        """Learn from pairs of nodes."""
        table = self.table
        self._n = len(table.names)
        rows, columns = table.config[victim], other
        width = self.rank + 1
        rng = np.random.default_rng(0)
        self._mean = float(speed.mean())
        left = rng.normal(0.0, 0.1, (int(table.config.max()) + 1, width))
        right = rng.normal(0.0, 0.1, (self._n, width))
        # One more entry each, fixed at 1 on the other side, carries the effect by itself.
        for _ in range(self.sweeps):
            left = self._solve(rows, columns, right, speed, len(left))
            right = self._solve(columns, rows, left, speed, self._n)
        self._left, self._right = left, right
        return self

    def _solve(self, rows: Index, columns: Index, fixed: Array, speed: Array, n: int) -> Array:
        factors = np.hstack([fixed[:, :-1], np.ones((len(fixed), 1))])[columns]
        target = speed - self._mean - fixed[columns, -1]
        k = factors.shape[1]
        normal = np.zeros((n, k, k))
        moment = np.zeros((n, k))
        np.add.at(normal, rows, factors[:, :, None] * factors[:, None, :])
        np.add.at(moment, rows, factors * target[:, None])
        found = np.linalg.solve(normal + self.ridge * np.eye(k), moment[:, :, None])[:, :, 0]
        return np.asarray(found, np.float64)

    def predict(self, victim: Index, other: Index) -> Array:
        """Speeds of pairs of nodes."""
        rows = self.table.config[victim]
        left = np.where(
            (rows < len(self._left))[:, None], self._left[np.minimum(rows, len(self._left) - 1)], 0.0
        )
        known = other < len(self._right)
        right = np.where(known[:, None], self._right[np.minimum(other, len(self._right) - 1)], 0.0)
        latent = (left[:, :-1] * right[:, :-1]).sum(axis=1)
        speed = self._mean + left[:, -1] + right[:, -1] + latent
        return np.asarray(np.clip(speed, MIN_SPEED, MAX_SPEED))
