"""What the forecasts of speeds share: memory of answers, batches, intervals.

A forecast class that wants a name of its own in the registry (entry-point group
``cotenant.predictors``) has a class method ``from_setup(setup)`` taking a ``SpeedSetup``.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from cotenant.model.cluster import Cluster
from cotenant.model.ports import Interval, Truth
from cotenant.profiles.compose import Composer, Query, speed_of
from cotenant.profiles.physics import MIN_SPEED
from cotenant.profiles.solo import SoloSpeeds
from cotenant.profiles.table import CoRunTable

__all__ = ["ALONE", "PairForecast", "SpeedSetup"]

ALONE = Interval(1.0, 1.0, 1.0)
"""A job alone runs at its speed alone, by definition."""

_LARGER_SETS = 1.5


class SpeedSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a forecast may be built from.

    Parameters
    ----------
    seed : int
    fit : CoRunTable or None
        Measurements for fitting, disjoint from the truth's.
    cluster : Cluster or None
    truth : Truth
        Only for a forecast that is labelled an oracle.
    argument : str
        What followed the forecast's name, as in ``adaptive:fit.json``.
    """

    seed: int
    truth: Truth
    fit: CoRunTable | None = None
    cluster: Cluster | None = None
    argument: str = ""


class PairForecast(abc.ABC):
    """A forecast that composes sets from pairs (``profiles.compose``) and knows how sure it is.

    Subclasses set ``_composer`` and ``_solo`` and answer ``_half_width``.
    """

    _composer: Composer
    _solo: SoloSpeeds

    def __init__(self) -> None:
        self._memo: dict[Query, Interval] = {}

    @property
    def version(self) -> int:
        """Changes when predictions change; these learn nothing while they run."""
        return 1

    def solo_speed(self, model: str, device_type: str) -> float:
        """Predicted speed alone on this type, relative to the reference device."""
        return self._solo(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """Predicted speed beside these jobs, divided by speed alone.

        Parameters
        ----------
        model : str
        beside : tuple of str
            Models of the other jobs on the device, in any order.
        device_type : str

        Returns
        -------
        Interval
            In [0.02, 1]; 90% intervals.
        """
        key = (model, beside, device_type)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._single(key)
        return found

    def co_speeds(self, queries: Sequence[Query]) -> list[Interval]:
        """``co_speed`` for many sets at once: (model, beside, device type) each."""
        memo = self._memo
        found = [memo.get(query) for query in queries]
        missing = [query for query, known in zip(queries, found, strict=True) if known is None]
        if missing:
            fresh = list(dict.fromkeys(missing))
            memo.update(zip(fresh, self._computed(fresh), strict=True))
        return [known or memo[query] for query, known in zip(queries, found, strict=True)]

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""

    @abc.abstractmethod
    def _half_width(self, device_type: str, level: int) -> float:
        """What a subclass answers."""

    def _single(self, query: Query) -> Interval:
        # Some microseconds, where arrays of one row would take a hundred; bit for bit the same.
        if not query[1]:
            return ALONE
        excess, level = self._composer.excess(*query)
        mean = speed_of(excess)
        half = self._half_width(query[2], level)
        if len(query[1]) > 1:
            half *= _LARGER_SETS
        return Interval(mean, max(mean - half, MIN_SPEED), min(mean + half, 1.0))

    def _computed(self, queries: list[Query]) -> list[Interval]:
        means, levels = self._composer.speeds(queries)
        many = np.fromiter((len(query[1]) for query in queries), np.intp, len(queries)) > 1
        types: dict[str, int] = {}
        which = np.fromiter((types.setdefault(q[2], len(types)) for q in queries), np.intp, len(queries))
        half = np.empty(len(queries))
        for device_type, number in types.items():
            for level in np.unique(levels[which == number]).tolist():
                width = self._half_width(device_type, level)
                chosen = (which == number) & (levels == level)
                # Composition was never measured, so its error is only guessed at.
                half[chosen] = np.where(many[chosen], width * _LARGER_SETS, width)
        low = np.maximum(means - half, MIN_SPEED).tolist()
        high = np.minimum(means + half, 1.0).tolist()
        drawn = map(Interval, means.tolist(), low, high)
        return [found if query[1] else ALONE for query, found in zip(queries, drawn, strict=True)]
