"""Speeds of sets from effects of pairs: one rule for the world and for forecasts.

``excess(A beside S) = sum over B in S of excess(A beside B) + joint(A, S)``, where excess is
slowdown minus one and ``joint`` is what the contention model says the whole set adds to its
pairs. No public data set holds three training jobs on one device, so this rule is reasoned,
not measured: for time slicing it gives the exact 1/3 for three jobs that each take a half in
pairs. It knows no order, and a further neighbour never speeds a job up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.profiles.physics import MIN_SPEED, Contention, Usage

__all__ = ["Composer", "Query", "speed_of"]

Query = tuple[str, tuple[str, ...], str]
"""Model, the models beside it (sorted), device type."""


def speed_of(excess: float) -> float:
    """Normalised speed of a slowdown minus one, never below the floor.

    >>> speed_of(0.0), speed_of(1.0), speed_of(1e9)
    (1.0, 0.5, 0.02)
    """
    return max(1.0 / (1.0 + excess), MIN_SPEED)


class _Device:
    """Pair effects on one device type, as matrices over interned models that grow as needed."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.names: list[str] = []
        self.compute = np.zeros(0)
        self.excess = np.full((0, 0), np.nan)
        self.level = np.zeros((0, 0), np.int8)


class Composer:
    """Speeds of sets of jobs, from pairs.

    Parameters
    ----------
    pair : callable
        (model, neighbour, device type) to (excess, level): slowdown minus one, not negative,
        and a small integer that says where it comes from (larger: less certain).
    usage : callable
        (model, device type) to its shares on that device.
    contention : Contention
    """

    def __init__(
        self,
        pair: Callable[[str, str, str], tuple[float, int]],
        usage: Callable[[str, str], Usage],
        contention: Contention,
    ) -> None:
        self._pair = pair
        self._usage = usage
        self._contention = contention
        self._devices: dict[str, _Device] = {}
        self._pairs: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._shares: dict[tuple[str, str], float] = {}

    def excess(self, model: str, beside: tuple[str, ...], device_type: str) -> tuple[float, int]:
        """Slowdown minus one of a model beside others, and the least certain level among its pairs."""
        known, pairs = self._pairs, []
        for other in beside:
            pair = known.get((model, other, device_type))
            pairs.append(self._known_pair(model, other, device_type) if pair is None else pair)
        worst = max([level for _, level in pairs]) if pairs else 0
        total = 0.0
        # Ascending, here and in batches, so that neither the order of neighbours nor the way of
        # asking changes even the last bit. Not ``sum``: its rounding differs between Pythons.
        for part in sorted([excess for excess, _ in pairs]):
            total += part
        if len(pairs) > 1:
            shares = sorted([self._compute(other, device_type) for other in beside])
            total += self._contention.joint(self._compute(model, device_type), shares)
        return total, worst

    def _known_pair(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        key = (model, other, device_type)
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = self._pair(model, other, device_type)
        return found

    def _compute(self, model: str, device_type: str) -> float:
        key = (model, device_type)
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = self._usage(model, device_type)[0]
        return found

    def speeds(self, queries: Sequence[Query]) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        """Speeds and levels of many sets at once.

        Returns
        -------
        speeds : ndarray of float64, shape (len(queries),)
        levels : ndarray of int8, shape (len(queries),)
        """
        speeds = np.ones(len(queries))
        levels = np.zeros(len(queries), np.int8)
        where: dict[str, list[int]] = {}
        for i, query in enumerate(queries):
            where.setdefault(query[2], []).append(i)
        for device_type, rows in where.items():
            if len(rows) == len(queries):
                return self._on(device_type, queries)
            speeds[rows], levels[rows] = self._on(device_type, [queries[i] for i in rows])
        return speeds, levels

    def _on(self, device_type: str, queries: Sequence[Query]) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        device = self._devices.setdefault(device_type, _Device())
        self._intern(device, device_type, queries)
        ids, n = device.ids, len(queries)
        width = max(len(beside) for _, beside, _ in queries)
        victim = np.fromiter((ids[q[0]] for q in queries), np.intp, n)
        other = np.full((n, max(width, 1)), -1, np.intp)
        counts = np.fromiter((len(q[1]) for q in queries), np.intp, n)
        filled = np.arange(other.shape[1]) < counts[:, None]
        other[filled] = [ids[name] for q in queries for name in q[1]]
        self._fill(device, device_type, victim, other, filled)
        excess = np.where(filled, device.excess[victim[:, None], other], 0.0)
        level = np.where(filled, device.level[victim[:, None], other], 0).max(axis=1)
        compute = np.where(filled, device.compute[other], 0.0)
        # Ascending, so that the sum does not depend on the order of neighbours.
        excess.sort(axis=1)
        compute.sort(axis=1)
        total = excess.sum(axis=1) + self._contention.joints(device.compute[victim], compute)
        return np.maximum(1.0 / (1.0 + total), MIN_SPEED), level.astype(np.int8)

    def _intern(self, device: _Device, device_type: str, queries: Sequence[Query]) -> None:
        seen = {q[0] for q in queries}.union(*{q[1] for q in queries})
        fresh = sorted(seen - device.ids.keys())
        if not fresh:
            return
        for name in fresh:
            device.ids[name] = len(device.names)
            device.names.append(name)
        size = len(device.names)
        known = size - len(fresh)
        extra = [self._compute(name, device_type) for name in fresh]
        device.compute = np.concatenate([device.compute, extra])
        excess, level = np.full((size, size), np.nan), np.zeros((size, size), np.int8)
        excess[:known, :known], level[:known, :known] = device.excess, device.level
        device.excess, device.level = excess, level

    def _fill(
        self,
        device: _Device,
        device_type: str,
        victim: NDArray[np.intp],
        other: NDArray[np.intp],
        filled: NDArray[np.bool_],
    ) -> None:
        size = len(device.names)
        wanted = np.unique((victim[:, None] * size + other)[filled])
        missing = wanted[np.isnan(device.excess.ravel()[wanted])]
        for code in missing.tolist():
            v, o = divmod(code, size)
            device.excess[v, o], device.level[v, o] = self._pair(
                device.names[v], device.names[o], device_type
            )
