"""What the forecast says of a set of jobs: may they share, and what is gained."""

from __future__ import annotations

from cotenant.model.view import View
from cotenant.policies.groups import SlotKey

__all__ = ["LEVELS", "Rank", "Verdicts"]

LEVELS = 64
"""Gains are sorted into this many levels, so that a search can skip to the best one occupied:
enough that few slots share one."""

Rank = tuple[float, SlotKey]
"""Gain, negated, and the slot: sorts the best first, ties by what the slot is."""


def _level(gain: float) -> int:
    """0 for the best gains, LEVELS - 1 for those near nothing or below."""
    return LEVELS - 1 - min(LEVELS - 1, max(0, int(gain * LEVELS)))


class Verdicts:
    """Verdicts on adding a model to a slot, each worked out once.

    Parameters
    ----------
    view : View
    min_speed : float
        Least speed, at the low end of its interval, of any member.
    min_gain : float
        Least gain of normalised throughput; short guests are excused.
    """

    def __init__(self, view: View, min_speed: float, min_gain: float) -> None:
        self._forecast = view.forecast
        self._types = [kind.name for kind in view.layout.types]
        self._min_speed, self._min_gain = min_speed, min_gain
        # One tuple for each model and slot, shared by all classes that judge it.
        self._known: dict[tuple[str, int], tuple[int, Rank] | None] = {}
        self._sets: dict[tuple[int, tuple[str, ...]], tuple[float, dict[str, float]]] = {}

    def of(self, model: str, short: bool, slot: int, key: SlotKey) -> tuple[int, Rank] | None:
        """Level and rank of a model in a slot; None if it is not acceptable."""
        memo = (model, slot)
        if memo in self._known:
            verdict = self._known[memo]
        else:
            gain = self._gain(model, key)
            verdict = self._known[memo] = None if gain is None else (_level(gain), (-gain, key))
        if verdict is None or (-verdict[1][0] < self._min_gain and not short):
            return None
        return verdict

    def _gain(self, model: str, key: SlotKey) -> float | None:
        """Normalised throughput gained, a gang's loss counted on all its devices; None below the floor."""
        kind, members, _ = key
        present = tuple([m for m, _ in members])
        low, after = self._speeds(kind, tuple(sorted((*present, model))))
        if low < self._min_speed:
            return None
        before = self._speeds(kind, present)[1]
        return after[model] - sum(weight * (before[m] - after[m]) for m, weight in members)

    def _speeds(self, kind: int, models: tuple[str, ...]) -> tuple[float, dict[str, float]]:
        """Least speed at the low end, and each model's mean speed, in a sorted set of models."""
        found = self._sets.get((kind, models))
        if found is None:
            if len(models) == 1:
                found = (1.0, {models[0]: 1.0})
            else:
                name, means, low = self._types[kind], {}, 1.0
                for model in dict.fromkeys(models):
                    at = models.index(model)
                    speed = self._forecast.co_speed(model, models[:at] + models[at + 1 :], name)
                    means[model] = speed.mean
                    low = min(low, speed.low)
                found = (low, means)
            self._sets[kind, models] = found
        return found
