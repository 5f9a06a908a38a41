"""The two forecasts that every better one must beat: adding utilisations up, and knowing nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotenant.model.ports import Interval
from cotenant.predictors.base import ALONE, SpeedSetup
from cotenant.predictors.contention import ContentionForecast
from cotenant.profiles.compose import Query
from cotenant.profiles.physics import Contention
from cotenant.profiles.solo import SoloSpeeds

__all__ = ["NoForecast", "UtilisationSumForecast"]


class UtilisationSumForecast(ContentionForecast):
    """Compute beyond the whole device is shared out, and nothing else happens.

    The rule by which Horus judges an overcommitted device (TPDS 2022, eq. 9): slowdown =
    max(1, sum of compute utilisations). Utilisations are known with the measurement error that
    ``contention`` has, too.
    """

    @classmethod
    def from_setup(cls, setup: SpeedSetup) -> UtilisationSumForecast:
        """Build from what may be known."""
        rule = Contention(compute=1.0, bandwidth=0.0, host=0.0)
        return cls(setup.seed, cluster=setup.cluster, contention=rule)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return super().describe() | {"kind": "utilisation-sum"}


class NoForecast:
    """Knows nothing of interference: everybody is expected to run as fast as alone.

    Parameters
    ----------
    solo : SoloSpeeds
        Speeds alone on each device type.
    """

    version = 1

    def __init__(self, solo: SoloSpeeds) -> None:
        self._solo = solo

    @classmethod
    def from_setup(cls, setup: SpeedSetup) -> NoForecast:
        """Build from what may be known; only the cluster is used."""
        return cls(SoloSpeeds(setup.cluster, "gavel-2019-08"))

    def solo_speed(self, model: str, device_type: str) -> float:
        """Speed alone on this type, relative to the reference device."""
        return self._solo(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """One, whoever is beside."""
        return ALONE

    def co_speeds(self, queries: Sequence[Query]) -> list[Interval]:
        """One each."""
        return [ALONE] * len(queries)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {"kind": "none", "oracle": False, "note": "expects no interference at all"}
