"""A forecast that knows the truth: an upper bound, and labelled so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotenant.model.ports import UNKNOWN_SHARES, Interval, Truth
from cotenant.predictors.base import SpeedSetup
from cotenant.profiles.compose import Query

__all__ = ["PerfectForecast"]


class PerfectForecast:
    """Answers with the truth. No real scheduler can have this; it bounds what one could gain.

    Parameters
    ----------
    truth : Truth
    """

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._memo: dict[Query, Interval] = {}

    @classmethod
    def from_setup(cls, setup: SpeedSetup) -> PerfectForecast:
        """Build from the truth itself."""
        return cls(setup.truth)

    @property
    def version(self) -> int:
        """Never changes: neither does the truth."""
        return 1

    def solo_speed(self, model: str, device_type: str) -> float:
        """True speed alone on this type, relative to the reference device."""
        return self._truth.solo_speed(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """True speed beside these jobs, without any doubt."""
        key = (model, beside, device_type)
        found = self._memo.get(key)
        if found is None:
            speed = self._truth.co_speed(model, beside, device_type)
            found = self._memo[key] = Interval(speed, speed, speed)
        return found

    def co_speeds(self, queries: Sequence[Query]) -> list[Interval]:
        """``co_speed`` for many sets at once."""
        return [self.co_speed(*query) for query in queries]

    def usage(self, model: str, device_type: str) -> tuple[float, float, float]:
        """True shares of compute, bandwidth and host alone, if the truth knows any."""
        usage = getattr(self._truth, "usage", None)
        return usage(model, device_type) if usage else UNKNOWN_SHARES

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log; ``oracle`` is true."""
        return {
            "kind": "perfect",
            "oracle": True,
            "note": "knows the truth: an upper bound, not a result",
            "truth": self._truth.describe(),
        }
