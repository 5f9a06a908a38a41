"""A small estimator of pair effects: the contention model, corrected by what was measured.

On each device type, the logarithm of a measured slowdown minus that of the contention model is
fitted as ``mean + sensitivity(model) + aggressiveness(neighbour)``, each of the two being the
sum of an effect of the architecture and one of the exact kind, all shrunk towards zero (ridge).
A model that was never measured thus falls back to its architecture, and that to the contention
model times the device's mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cotenant.profiles.catalogue import filed_as, measured_as
from cotenant.profiles.compose import speed_of
from cotenant.profiles.kinds import canonical_model, find_kind, usage_of
from cotenant.profiles.physics import Contention, Usage, on_device
from cotenant.profiles.table import Side

__all__ = ["ANALYTIC", "FITTED", "MEASURED", "UNKNOWN", "PairFit", "fitted_speed"]

MEASURED, FITTED, ANALYTIC, UNKNOWN = 0, 1, 2, 3
"""Where an effect comes from, least certain last."""

_RIDGE = 1.0


class _Effects:
    """What was fitted on one device type."""

    def __init__(self, mean: float, victim: dict[str, float], other: dict[str, float]) -> None:
        self.mean, self.victim, self.other = mean, victim, other


class PairFit:
    """Pair effects from measured speeds.

    Parameters
    ----------
    sides : iterable of Side
        Measured speeds; may be empty.
    contention : Contention
    seed : int, optional
        Of the shares of models that are in no catalogue; without one they are typical.
    ridge : float
        How strongly effects are shrunk, in units of observations.
    """

    def __init__(
        self,
        sides: Iterable[Side],
        *,
        contention: Contention | None = None,
        seed: int | None = None,
        ridge: float = _RIDGE,
    ) -> None:
        self.contention = contention or Contention()
        self.seed = seed
        self._usage: dict[tuple[str, str], Usage] = {}
        grouped: dict[str, list[Side]] = {}
        for side in sides:
            grouped.setdefault(filed_as(side.device_type), []).append(side)
        self._effects = {name: self._fitted(name, found, ridge) for name, found in sorted(grouped.items())}

    def usage(self, model: str, device_type: str) -> Usage:
        """Shares of a model on a device type."""
        key = (model, device_type)
        found = self._usage.get(key)
        if found is None:
            found = self._usage[key] = on_device(usage_of(model, self.seed), device_type)
        return found

    def pair(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        """Slowdown minus one of a model beside another, and its level."""
        base = self.contention.excess(self.usage(model, device_type), (self.usage(other, device_type),))
        effects = self._effects.get(filed_as(device_type)) or self._effects.get(measured_as(device_type))
        known = find_kind(model) is not None and find_kind(other) is not None
        if effects is None:
            return base, ANALYTIC if known else UNKNOWN
        change, level = effects.mean, FITTED
        for name, table in ((model, effects.victim), (other, effects.other)):
            parts = [table[key] for key in _keys(name) if key in table]
            for part in parts:
                change += part
            if not parts:
                level = max(level, ANALYTIC if find_kind(name) is not None else UNKNOWN)
        return max((1.0 + base) * math.exp(change) - 1.0, 0.0), level

    def _fitted(self, device_type: str, sides: list[Side], ridge: float) -> _Effects:
        columns: dict[tuple[str, str], int] = {}
        rows: list[list[int]] = []
        gap: list[float] = []
        for side in sides:
            base = self.contention.excess(
                self.usage(side.model, device_type), (self.usage(side.other, device_type),)
            )
            gap.append(-math.log(side.speed) - math.log1p(base))
            keys = [("v", k) for k in _keys(side.model)] + [("o", k) for k in _keys(side.other)]
            rows.append([columns.setdefault(key, len(columns)) for key in keys])
        mean, values = _solve(rows, np.array(gap), len(columns), ridge)
        split: dict[str, dict[str, float]] = {"v": {}, "o": {}}
        for (role, key), value in zip(columns, values.tolist(), strict=True):
            split[role][key] = value
        return _Effects(mean, split["v"], split["o"])


def _keys(model: str) -> tuple[str, str]:
    name = canonical_model(model)
    return f"family {name.partition('/')[0]}", f"kind {name}"


def _solve(
    rows: list[list[int]], gap: NDArray[np.float64], n_columns: int, ridge: float
) -> tuple[float, NDArray[np.float64]]:
    design = np.zeros((len(rows), n_columns))
    for i, row in enumerate(rows):
        design[i, row] = 1.0
    mean = float(gap.mean())
    normal = design.T @ design + ridge * np.eye(n_columns)
    values = np.asarray(np.linalg.solve(normal, design.T @ (gap - mean)), dtype=np.float64)
    return mean, values


def fitted_speed(fit: PairFit, side: Side) -> float:
    """What a fit says of a measured side; for judging fits."""
    return speed_of(fit.pair(side.model, side.other, side.device_type)[0])
