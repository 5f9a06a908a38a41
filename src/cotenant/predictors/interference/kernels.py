"""Covariances between rows (victim, neighbour), built from covariances between nodes.

Nodes are alike because they are the same configuration (C), of the same architecture (F), or
have like features (R, a squared exponential). From these come, with one variance each:

- what a job suffers, whoever is beside it (``victim ...``), and what it does to any other
  (``other ...``);
- ``difference ...``: a latent strength of jobs of which only the difference matters, as when
  time slices go to whoever has the longer kernels;
- interactions (``victim x other``), also those that both sides of a pair share (``shared ...``);
- ``same ...``: two of one architecture or configuration; ``linear``: all features;
- ``contention``: what both contend for (``usage.terms``), with coefficients of which nothing is
  known but that they are small.

Rows of different worlds are correlated less: by ``Kinship``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.jobs import NodeTable
from cotenant.predictors.interference.usage import terms

__all__ = ["COMPONENTS", "Kinship", "Likeness", "covariance", "prior", "variances"]

Matrix = NDArray[np.float64]
Nodes = NDArray[np.intp]
Pairs = tuple[Nodes, Nodes]

_BEYOND = 0.5
"""How far beyond measured pairs, in spreads, terms of contention are believed."""
_PRODUCTS = (("R", "R"), ("F", "R"), ("R", "F"), ("FR", "FR"), ("C", "C"))
_BLOCK = 512
"""Rows of a product of matrices of which only the diagonal is wanted."""

COMPONENTS = (
    "world",
    "victim F",
    "victim FR",
    "victim C",
    "victim R",
    "other F",
    "other FR",
    "other C",
    "other R",
    "difference FR",
    "difference C",
    "difference R",
    "R x R",
    "F x R",
    "R x F",
    "FR x FR",
    "C x C",
    "shared FR",
    "shared R",
    "shared C",
    "same F",
    "same C",
    "linear",
    "contention",
)


class Kinship(msgspec.Struct, frozen=True):
    """Correlation of rows of different worlds.

    Parameters
    ----------
    device, campaign, neither : float
        In [0, 1]: same device type in another campaign; same campaign on another device type;
        both different.
    """

    device: float = 0.4
    campaign: float = 0.6
    neither: float = 0.3

    def matrix(self, table: NodeTable) -> Matrix:
        """Correlation of each two worlds of the table."""
        n = len(table.worlds)
        found = np.eye(n)
        for i, (source, device) in enumerate(table.worlds):
            for j, (its_source, its_device) in enumerate(table.worlds):
                if i != j:
                    found[i, j] = (
                        self.device
                        if device == its_device
                        else self.campaign
                        if source == its_source
                        else self.neither
                    )
        return found


class Likeness:
    """How alike each two nodes of a table are.

    Parameters
    ----------
    table : NodeTable
    length : float
        Distance in standardised features, per feature, over which nodes stop being alike.
    """

    def __init__(self, table: NodeTable, length: float = 1.0) -> None:
        self.table = table
        self.length = length
        z = table.z
        self.z = z
        width = max(z.shape[1], 1)
        norm = (z * z).sum(axis=1)
        squared = np.maximum(norm[:, None] + norm[None, :] - 2.0 * (z @ z.T), 0.0) / width
        self.close = np.exp(-squared / (2.0 * length * length))
        self.family = (table.family[:, None] == table.family[None, :]).astype(np.float64)
        self.config = (table.config[:, None] == table.config[None, :]).astype(np.float64)
        self.family_close = self.family * self.close
        self.product = z @ z.T / width
        self._middle: Matrix = np.zeros(1)
        self._low: Matrix = np.full(1, -np.inf)
        self._high: Matrix = np.full(1, np.inf)

    def settle(self, pairs: Pairs) -> None:
        """Centre what is contended for over these pairs, which also bound it.

        A line through a few measured pairs says nothing of pairs far outside of them.
        """
        found = terms(self.table.usage, *pairs)
        self._middle = found.mean(axis=0)
        self._low, self._high = found.min(axis=0) - _BEYOND, found.max(axis=0) + _BEYOND

    def contended(self, pairs: Pairs) -> Matrix:
        """Centred terms of pairs, shape (n, terms)."""
        found = np.clip(terms(self.table.usage, *pairs), self._low, self._high)
        return np.asarray(found - self._middle)


def variances(base: Mapping[str, float]) -> NDArray[np.float64]:
    """Variances in the order of ``COMPONENTS``; what is not named is 0."""
    return np.array([base.get(name, 0.0) for name in COMPONENTS])


def covariance(
    like: Likeness, left: Pairs, right: Pairs, theta: NDArray[np.float64], worlds: Matrix
) -> Matrix:
    """Covariance of rows.

    Parameters
    ----------
    like : Likeness
    left, right : pairs of ndarrays of intp, shapes (n,) and (m,)
        Victims and their neighbours.
    theta : ndarray, shape (len(COMPONENTS),)
        Variances.
    worlds : ndarray, shape (worlds, worlds)
        Correlation between worlds.

    Returns
    -------
    ndarray, shape (n, m)
    """
    table = like.table
    total = np.zeros((len(left[0]), len(right[0])))
    scratch = np.empty_like(total)
    for variance, part in _parts(like, left, right, theta):
        total += np.multiply(part, variance, out=scratch)
    kin = worlds[np.ix_(table.world[left[0]], table.world[right[0]])]
    total *= kin
    return total


def prior(like: Likeness, pairs: Pairs, theta: NDArray[np.float64], worlds: Matrix) -> Matrix:
    """Variances of rows before anything is seen: the diagonal of ``covariance``, bit for bit, without the rest.

    Parameters
    ----------
    like, theta, worlds
        As of ``covariance``.
    pairs : pair of ndarrays of intp, shape (n,)
        Victims and their neighbours.

    Returns
    -------
    ndarray, shape (n,)
    """
    v, o = pairs
    total = np.zeros(len(v))
    t = dict(zip(COMPONENTS, theta.tolist(), strict=True))
    kinds = {"F": like.family, "FR": like.family_close, "C": like.config, "R": like.close}
    own = {name: matrix[v, v] for name, matrix in kinds.items()}
    beside = {name: matrix[o, o] for name, matrix in kinds.items()}
    # In the order of _parts, so that sums round alike.
    if t["world"]:
        total += t["world"]
    for name in kinds:
        total += t[f"victim {name}"] * own[name]
        total += t[f"other {name}"] * beside[name]
    for name in ("FR", "C", "R"):
        across, back = kinds[name][v, o], kinds[name][o, v]
        total += t[f"difference {name}"] * ((own[name] + beside[name] - across - back) / 2.0)
        total += t[f"shared {name}"] * ((own[name] * beside[name] + across * back) / 2.0)
    for first, second in _PRODUCTS:
        total += t[f"{first} x {second}"] * (own[first] * beside[second])
    total += t["same F"] * (like.family[v, o] * like.family[v, o])
    total += t["same C"] * (like.config[v, o] * like.config[v, o])
    total += t["linear"] * ((like.product[v, v] + like.product[o, o]) / 2.0)
    if t["contention"]:
        total += t["contention"] * _own_contention(like, pairs)
    total *= worlds[like.table.world[v], like.table.world[v]]
    return total


def _own_contention(like: Likeness, pairs: Pairs) -> Matrix:
    """What pairs contend for, with itself: products of matrices, as in ``covariance``, which round in their own way."""
    v, o = pairs
    found = np.empty(len(v))
    for start in range(0, len(v), _BLOCK):
        part = slice(start, start + _BLOCK)
        left, right = like.contended((v[part], o[part])), like.contended((v[part], o[part]))
        found[part] = np.diag(left @ right.T)
    return found


def _parts(
    like: Likeness, left: Pairs, right: Pairs, theta: NDArray[np.float64]
) -> Iterator[tuple[float, Matrix]]:
    t = dict(zip(COMPONENTS, theta.tolist(), strict=True))
    v, o = left
    w, p = right
    if t["world"]:
        yield t["world"], np.ones((len(v), len(w)))
    kinds = {"F": like.family, "FR": like.family_close, "C": like.config, "R": like.close}
    own = {name: matrix[np.ix_(v, w)] for name, matrix in kinds.items()}
    beside = {name: matrix[np.ix_(o, p)] for name, matrix in kinds.items()}
    for name in kinds:
        if t[f"victim {name}"]:
            yield t[f"victim {name}"], own[name]
        if t[f"other {name}"]:
            yield t[f"other {name}"], beside[name]
    for name in ("FR", "C", "R"):
        difference, shared = t[f"difference {name}"], t[f"shared {name}"]
        if difference or shared:
            across, back = kinds[name][np.ix_(v, p)], kinds[name][np.ix_(o, w)]
            yield difference, (own[name] + beside[name] - across - back) / 2.0
            yield shared, (own[name] * beside[name] + across * back) / 2.0
    for first, second in _PRODUCTS:
        if t[f"{first} x {second}"]:
            yield t[f"{first} x {second}"], own[first] * beside[second]
    if t["same F"]:
        yield t["same F"], np.outer(like.family[v, o], like.family[w, p])
    if t["same C"]:
        yield t["same C"], np.outer(like.config[v, o], like.config[w, p])
    if t["linear"]:
        yield t["linear"], (like.product[np.ix_(v, w)] + like.product[np.ix_(o, p)]) / 2.0
    if t["contention"]:
        yield t["contention"], like.contended(left) @ like.contended(right).T
