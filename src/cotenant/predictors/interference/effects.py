"""Gaussian models of effects: what jobs suffer, do to others, and do to each other.

One model serves all worlds that share jobs. Fitting is one matrix inverse, and with it come the
predictions for any group of rows as if it had not been seen, in closed form (Rasmussen and
Williams 2006, "Gaussian Processes for Machine Learning", section 5.4.2, for groups):
``z_G - (K^-1)_GG^-1 (K^-1 z)_G`` with covariance ``(K^-1)_GG^-1``. So grouped cross-validation
of every model costs no further fits, and no variance ever sees the group that it predicts.

Speeds of worlds whose solo runs are in doubt are put on a scale on which campaigns agree
(``NodeTable.agreed``) while effects are learnt.

A right-censored speed (at least 1) is replaced by what the rest predicts where that is more,
twice over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.jobs import NodeTable
from cotenant.predictors.interference.kernels import Kinship, Likeness, covariance, prior, variances
from cotenant.predictors.interference.links import MAX_SPEED, Link
from cotenant.predictors.interference.rows import Rows

__all__ = ["MAX_ROWS", "EffectsModel", "EffectsSpec"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MAX_ROWS = 2000
"""Rows that one fit takes; of more, an even choice."""


class EffectsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is assumed of effects.

    Parameters
    ----------
    name : str
    variances : mapping of str to float
        Of ``kernels.COMPONENTS``, in units of the variance of labels of a world.
    noise : float
        Variance of one measurement, in the same unit.
    softness : float
        Of the link.
    kinship : Kinship or None
        None: each world by itself.
    length : float
        See ``Likeness``.
    """

    name: str
    variances: Mapping[str, float]
    noise: float = 0.02
    softness: float = 0.0
    kinship: Kinship | None = None
    length: float = 1.0


class EffectsModel:
    """A fitted model of effects.

    Parameters
    ----------
    spec : EffectsSpec
    table : NodeTable
    """

    def __init__(self, spec: EffectsSpec, table: NodeTable) -> None:
        self.spec, self.table = spec, table
        self._link = Link(spec.softness)
        self._theta = variances(spec.variances)
        self._kin = (spec.kinship or Kinship(0.0, 0.0, 0.0)).matrix(table)
        self._like = Likeness(table, spec.length)

    def fit(self, rows: Rows) -> EffectsModel:
        """Learn from pairs.

        Parameters
        ----------
        rows : Rows
            Of two jobs each; of worlds that share jobs.
        """
        self._rows = rows
        self._victim, self._other = rows.victim, rows.other
        pairs = (self._victim, self._other)
        self._refresh()
        self._like.settle(pairs)
        z = self._link.forward(rows.speed * self.table.agreed[self._victim])
        self._standardise(z)
        k = covariance(self._like, pairs, pairs, self._theta, self._kin)
        k[np.diag_indices(len(k))] += self.spec.noise + 1e-6
        self._inverse = _inverse(k)
        self._r = (z - self._mean) / self._spread[self.table.world[self._victim]]
        self._weights = self._inverse @ self._r
        self._uncensor()
        return self

    def _standardise(self, z: Array) -> None:
        worlds = self.table.world[self._victim]
        self._mean = float(np.mean([z[worlds == w].mean() for w in np.unique(worlds)]))
        overall = max(float(z.std()), 1e-3)
        self._spread = np.full(len(self.table.worlds), overall)
        for w in np.unique(worlds).tolist():
            own = z[worlds == w]
            share = len(own) / (len(own) + 10.0)
            self._spread[w] = max(share * float(own.std()) + (1.0 - share) * overall, 0.2 * overall)

    def _uncensor(self) -> None:
        censored = self._rows.censored
        if not censored.any():
            return
        observed = self._r.copy()
        diagonal = np.diag(self._inverse)
        for _ in range(2):
            without = self._r - self._weights / diagonal
            self._r = np.where(censored, np.maximum(observed, without), observed)
            self._weights = self._inverse @ self._r

    def _refresh(self) -> None:
        """Nodes that came since then are not in what was worked out before."""
        if self._like.z.shape[0] != len(self.table.names):
            self._like = Likeness(self.table, self.spec.length)
            self._like.settle((self._victim, self._other))
            self._kin = (self.spec.kinship or Kinship(0.0, 0.0, 0.0)).matrix(self.table)

    def predict(self, victim: Index, other: Index) -> Array:
        """Speeds of jobs beside one other each."""
        return self._speed(self._z(victim, other)[0], victim)

    def _speed(self, z: Array, victim: Index) -> Array:
        return np.minimum(self._link.backward(z) / self.table.agreed[victim], MAX_SPEED)

    def _slope(self, z: Array, victim: Index) -> Array:
        """Change of speed with standardised ``z``."""
        scale = self._spread[self.table.world[victim]]
        return np.asarray(scale * self._link.slope(z) / self.table.agreed[victim])

    def _z(self, victim: Index, other: Index) -> tuple[Array, Array]:
        self._refresh()
        missing = len(self.table.worlds) - len(self._spread)
        if missing:
            self._spread = np.concatenate([self._spread, np.full(missing, self._spread.mean())])
        cross = covariance(self._like, (victim, other), (self._victim, self._other), self._theta, self._kin)
        z = self._mean + self._spread[self.table.world[victim]] * (cross @ self._weights)
        return z, cross

    def predict_spread(self, victim: Index, other: Index) -> tuple[Array, Array]:
        """Speeds, and standard deviations of speeds as they would be measured."""
        z, cross = self._z(victim, other)
        before = prior(self._like, (victim, other), self._theta, self._kin)
        left = before - np.einsum("ij,jk,ik->i", cross, self._inverse, cross, optimize=True)
        sd = np.sqrt(np.maximum(left, 0.0) + self.spec.noise)
        return self._speed(z, victim), sd * self._slope(z, victim)

    def posterior(self, victim: Index, other: Index) -> Array:
        """Covariance of what is not known of these pairs, in standardised units."""
        cross = self._z(victim, other)[1]
        pairs = (victim, other)
        before = covariance(self._like, pairs, pairs, self._theta, self._kin)
        return before - cross @ self._inverse @ cross.T

    def leave_out(self, groups: Sequence[tuple[Index, Index]]) -> tuple[Array, Array]:
        """Predictions for rows as if their group had not been seen.

        Parameters
        ----------
        groups : sequence of (left out, wanted)
            Rows that are left out together, and which of them to predict.

        Returns
        -------
        speed, spread : ndarray, shape (rows,)
            NaN where a row is in no group's wanted rows.
        """
        n = len(self._rows)
        speed, spread = np.full(n, np.nan), np.full(n, np.nan)
        for out, wanted in groups:
            block = _inverse(self._inverse[np.ix_(out, out)])
            at = np.searchsorted(out, wanted)
            r = self._r[out] - block @ self._weights[out]
            victim = self._victim[wanted]
            z = self._mean + self._spread[self.table.world[victim]] * r[at]
            sd = np.sqrt(np.maximum(np.diag(block)[at], 1e-12))
            speed[wanted] = self._speed(z, victim)
            spread[wanted] = sd * self._slope(z, victim)
        return speed, spread


def _inverse(matrix: Array) -> Array:
    """Inverse of a symmetric positive definite matrix, at half the cost of the general one."""
    from scipy.linalg import lapack

    factor, failed = lapack.dpotrf(matrix, lower=1)
    if failed:
        return np.asarray(np.linalg.pinv(matrix, hermitian=True))
    found, _ = lapack.dpotri(factor, lower=1)
    lower = np.tril(found, -1)
    return np.asarray(lower + lower.T + np.diag(np.diag(found)))
