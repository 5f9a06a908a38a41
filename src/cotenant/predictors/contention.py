"""Forecast from utilisations alone: the contention model, without the truth's noise.

What it knows of each kind differs from the simulated world's figures by a seeded measurement
error, as a profile taken in real life would.
"""

from __future__ import annotations

import math
from typing import Any

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster
from cotenant.predictors.base import PairForecast, SpeedSetup
from cotenant.profiles.compose import Composer
from cotenant.profiles.draws import normal
from cotenant.profiles.kinds import canonical_model, find_kind, usage_of
from cotenant.profiles.pairfit import ANALYTIC, UNKNOWN
from cotenant.profiles.physics import Contention, Usage, on_device
from cotenant.profiles.solo import SoloSpeeds

__all__ = ["ContentionForecast"]


class ContentionForecast(PairForecast):
    """Speeds from solo utilisations.

    Parameters
    ----------
    seed : int
        Of the measurement error.
    error : float
        Standard deviation of the logarithm of each utilisation. An assumption.
    half_width : float
        Of the interval around a prediction for known kinds; that for unknown ones is twice as
        wide. The default is the 90% quantile of the model's error on the Gavel tables (see
        ``docs/interference.md``), rounded up.
    cluster : Cluster, optional
    contention : Contention, optional

    Raises
    ------
    ConfigError
        If the error or the width is out of range.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        error: float = 0.15,
        half_width: float = 0.35,
        cluster: Cluster | None = None,
        contention: Contention | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= error < 2 or not 0 < half_width <= 1:
            raise ConfigError(
                f"contention forecast: error must lie in [0, 2) and half_width in (0, 1], "
                f"found {error} and {half_width}"
            )
        self._seed, self._error, self._width = seed, error, half_width
        self._contention = contention or Contention()
        self._solo = SoloSpeeds(cluster, "gavel-2019-08")
        self._seen: dict[str, Usage] = {}
        self._composer = Composer(self._pair, self.usage, self._contention)

    @classmethod
    def from_setup(cls, setup: SpeedSetup) -> ContentionForecast:
        """Build from what may be known."""
        return cls(setup.seed, cluster=setup.cluster)

    def usage(self, model: str, device_type: str) -> Usage:
        """Shares of a model on a device type, as this forecast measured them."""
        seen = self._seen.get(model)
        if seen is None:
            seen = self._seen[model] = self._measured(model)
        return on_device(seen, device_type)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {
            "kind": "contention",
            "oracle": False,
            "seed": self._seed,
            "error_of_utilisations": self._error,
            "half_width": self._width,
            "solo_speeds": self._solo.campaign,
        }

    def _measured(self, model: str) -> Usage:
        name = canonical_model(model)
        shares = []
        for what, share in zip(("compute", "bandwidth", "host"), usage_of(name), strict=True):
            factor = math.exp(self._error * normal(self._seed, "profile", name, what))
            shares.append(min(share * factor, 1.0))
        return shares[0], shares[1], shares[2]

    def _pair(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        excess = self._contention.excess(self.usage(model, device_type), (self.usage(other, device_type),))
        known = find_kind(model) is not None and find_kind(other) is not None
        return excess, ANALYTIC if known else UNKNOWN

    def _half_width(self, device_type: str, level: int) -> float:
        return min(self._width if level <= ANALYTIC else 2.0 * self._width, 1.0)
