"""Forecast from measured pairs: what was measured, else what the measurements suggest.

A pair in the fitting half is answered by its measurement; another by ``PairFit`` on that half
(sensitivity of the job and aggressiveness of its neighbour, over the contention model).

Intervals are cross-conformal (Vovk 2015, "Cross-conformal predictors", Annals of Mathematics
and Artificial Intelligence 74): pairs are dealt into five folds, each fold is predicted by a fit
on the others, and the 90% quantile of the absolute errors, device type by device type where
there are at least 30 of them, is the half width. Directly measured pairs keep that width: to
measure a pair again in another campaign gives differences of that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster
from cotenant.model.ports import Interval
from cotenant.predictors.base import PairForecast, SpeedSetup
from cotenant.predictors.live import LiveSpeeds
from cotenant.profiles.catalogue import filed_as, measured_as
from cotenant.profiles.compose import Composer, Query
from cotenant.profiles.draws import uniform
from cotenant.profiles.kinds import canonical_model
from cotenant.profiles.pairfit import ANALYTIC, FITTED, MEASURED, PairFit, fitted_speed
from cotenant.profiles.physics import Usage
from cotenant.profiles.solo import SoloSpeeds
from cotenant.profiles.table import CoRunTable, Side

__all__ = ["LookupForecast"]

_FOLDS = 5
_ENOUGH = 30
_COVERAGE = 0.9
_WIDER = {ANALYTIC: 1.5}


class LookupForecast(PairForecast):
    """Speeds from the fitting half of a table of measured pairs.

    Parameters
    ----------
    table : CoRunTable
        The fitting half; the truth must hold another.
    seed : int
        Deals pairs into folds.
    cluster : Cluster, optional
    """

    def __init__(self, table: CoRunTable, *, seed: int = 0, cluster: Cluster | None = None) -> None:
        super().__init__()
        self._table, self._seed = table, seed
        sides = list(table.sides())
        self._fit = PairFit(sides)
        self._widths, self._pooled = _quantiles(sides, seed)
        self._solo = SoloSpeeds(cluster, "gavel-2019-08")
        self._live, self._version = LiveSpeeds(), 1
        self._compose()

    def _compose(self) -> None:
        self._memo.clear()
        self._composer = Composer(self._pair, self._fit.usage, self._fit.contention)

    @property
    def version(self) -> int:
        """Changes when predictions change."""
        return self._version

    def learn(self, model: str, beside: tuple[str, ...], device_type: str, speed: float) -> None:
        """Learn a speed that a light sample measured, in batches (``predictors.live``).

        What was known before counts as one more measurement. Pairs learnt are what larger sets
        are composed of; for a set that was measured itself the composition is what was known.
        """
        if self._live.add((model, beside, device_type), speed):
            self._live.take()
            self._version += 1
            self._compose()

    def _blended(self, query: Query, said: Interval) -> Interval:
        # Of pairs the measurements are in what is said already.
        return self._live.blended(query, said) if len(query[1]) > 1 else said

    def _single(self, query: Query) -> Interval:
        return self._blended(query, super()._single(query))

    def _computed(self, queries: list[Query]) -> list[Interval]:
        return [self._blended(q, said) for q, said in zip(queries, super()._computed(queries), strict=True)]

    @classmethod
    def from_setup(cls, setup: SpeedSetup) -> LookupForecast:
        """Build from what may be known; ``lookup:FOLDER`` reads that table, as the live scheduler has no other.

        Raises
        ------
        ConfigError
            If there are no measurements to look up.
        """
        if setup.argument:
            return cls(CoRunTable.load(setup.argument), seed=setup.seed, cluster=setup.cluster)
        if setup.fit is None:
            raise ConfigError(
                'forecast "lookup" needs a table of measured pairs (--profiles, or lookup:FOLDER); without one '
                'use "contention"'
            )
        return cls(setup.fit, seed=setup.seed, cluster=setup.cluster)

    def usage(self, model: str, device_type: str) -> Usage:
        """Shares of compute, bandwidth and host that a model uses alone, from the catalogue of kinds."""
        return self._fit.usage(model, device_type)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {
            "kind": "lookup",
            "oracle": False,
            "seed": self._seed,
            "table": self._table.describe(),
            "half_widths": {name: round(q, 4) for name, q in sorted(self._widths.items())},
            "half_width_elsewhere": round(self._pooled, 4),
            "coverage": _COVERAGE,
            "solo_speeds": self._solo.campaign,
        }

    def _pair(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        excess, level = self._known_pair(model, other, device_type)
        count, mean = self._live.learnt((model, (other,), device_type))
        if not count:
            return excess, level
        speed = (1.0 / (1.0 + excess) + count * mean) / (count + 1)
        return 1.0 / speed - 1.0, MEASURED

    def _known_pair(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        names = canonical_model(model), canonical_model(other)
        speed = self._table.lookup(*names, filed_as(device_type)) or self._table.lookup(
            *names, measured_as(device_type)
        )
        if speed is not None:
            return 1.0 / speed - 1.0, MEASURED
        return self._fit.pair(model, other, device_type)

    def _half_width(self, device_type: str, level: int) -> float:
        if level > ANALYTIC:
            return 1.0
        base = (
            self._widths.get(filed_as(device_type))
            or self._widths.get(measured_as(device_type))
            or self._pooled
        )
        return min(base * _WIDER.get(level, 1.0), 1.0)


def _quantiles(sides: Sequence[Side], seed: int) -> tuple[dict[str, float], float]:
    """Half widths by device type, and over all."""
    folds = [int(_FOLDS * uniform(seed, "fold", *sorted((s.model, s.other)))) for s in sides]
    errors: dict[str, list[float]] = {}
    for fold in range(_FOLDS):
        fit = PairFit((s for s, f in zip(sides, folds, strict=True) if f != fold))
        for side, its in zip(sides, folds, strict=True):
            if its == fold and fit.pair(side.model, side.other, side.device_type)[1] <= FITTED:
                name = filed_as(side.device_type)
                errors.setdefault(name, []).append(abs(fitted_speed(fit, side) - side.speed))
    pooled = _quantile([e for found in errors.values() for e in found])
    return {name: _quantile(found) for name, found in errors.items() if len(found) >= _ENOUGH}, pooled


def _quantile(errors: list[float]) -> float:
    rank = math.ceil((len(errors) + 1) * _COVERAGE)
    # With too few errors no finite width keeps the promise.
    return sorted(errors)[rank - 1] if rank <= len(errors) else 1.0
