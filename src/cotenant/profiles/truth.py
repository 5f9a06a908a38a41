"""How fast things really are in the simulated world. Policies never see any of this.

``MeasuredTruth`` answers from a table of measured pairs; ``ModelledTruth`` from the contention
model with seeded noise. Every answer says where it comes from: ``measured`` (this pair was),
``composed`` (a larger set, all of whose pairs were), ``modelled`` (anything else).

Noise is a property of *pairs*: each neighbour's effect on each job is scaled by a lognormal
factor that belongs to the seed, the device type and the two models. Noise of whole sets could
let a job speed up when a neighbour comes; this cannot.
"""

from __future__ import annotations

import math
from typing import Any

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster
from cotenant.profiles.catalogue import filed_as, measured_as
from cotenant.profiles.compose import Composer, speed_of
from cotenant.profiles.draws import normal
from cotenant.profiles.kinds import canonical_model
from cotenant.profiles.pairfit import MEASURED, UNKNOWN, PairFit
from cotenant.profiles.physics import Contention, Usage
from cotenant.profiles.solo import SoloSpeeds
from cotenant.profiles.table import CoRunTable

__all__ = ["DEFAULT_NOISE", "MeasuredTruth", "ModelledTruth"]

DEFAULT_NOISE = 0.25
"""Standard deviation of the logarithm of a modelled pair effect. An assumption, of the size of
what the fitted estimator leaves unexplained in the Gavel tables."""


class _World:
    """What both truths share: composition, memory of answers, solo speeds."""

    kind = ""

    def __init__(self, fit: PairFit, seed: int, noise: float, cluster: Cluster | None) -> None:
        if not 0 <= noise < 2:
            raise ConfigError(f"noise of the truth must lie in [0, 2), found {noise}")
        self._fit, self._seed, self._noise = fit, seed, noise
        self._solo = SoloSpeeds(cluster, "gavel-2020")
        self._pairs: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._composer = Composer(self._pair, fit.usage, fit.contention)
        self._memo: dict[tuple[str, tuple[str, ...], str], tuple[float, str]] = {}

    def solo_speed(self, model: str, device_type: str) -> float:
        """Speed of a job alone on this type, relative to its reference device."""
        return self._solo(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> float:
        """Speed beside these jobs divided by speed alone; in [0.02, 1], 1.0 if there are none."""
        return self._answer(model, beside, device_type)[0]

    def usage(self, model: str, device_type: str) -> Usage:
        """Shares of compute, bandwidth and host that a job uses alone, as this world has them."""
        return self._fit.usage(model, device_type)

    def source(self, model: str, beside: tuple[str, ...], device_type: str) -> str:
        """``measured``, ``composed`` or ``modelled``; alone, 1.0 is so by definition: measured."""
        return self._answer(model, beside, device_type)[1]

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return {
            "kind": self.kind,
            "seed": self._seed,
            "noise": self._noise,
            "contention": {
                "compute": self._fit.contention.compute,
                "bandwidth": self._fit.contention.bandwidth,
                "host": self._fit.contention.host,
            },
            "solo_speeds": self._solo.campaign,
            "reference_type": self._solo.reference,
            "unknown_device_types": "taken for a V100 where sharing is concerned",
        }

    def _answer(self, model: str, beside: tuple[str, ...], device_type: str) -> tuple[float, str]:
        key = (model, beside, device_type)
        found = self._memo.get(key)
        if found is None:
            excess, level = self._composer.excess(model, beside, device_type)
            source = "modelled"
            if level == MEASURED:
                source = "measured" if len(beside) < 2 else "composed"
            found = self._memo[key] = (speed_of(excess), source)
        return found

    def _pair(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        key = (canonical_model(model), canonical_model(other), device_type)
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = self._known(*key) or self._modelled(*key)
        return found

    def _known(self, model: str, other: str, device_type: str) -> tuple[float, int] | None:
        return None

    def _modelled(self, model: str, other: str, device_type: str) -> tuple[float, int]:
        excess, _ = self._fit.pair(model, other, device_type)
        factor = math.exp(self._noise * normal(self._seed, "truth", device_type, model, other))
        return excess * factor, UNKNOWN


class MeasuredTruth(_World):
    """Measured pairs where there are any; the rest modelled after them.

    A pair that is not in the table is modelled by ``PairFit`` on this table alone, with noise;
    larger sets are composed from pairs (``profiles.compose``). Pairs that failed to run have
    no speed here: they are a matter of memory.

    Parameters
    ----------
    table : CoRunTable
        The truth's half, which no forecast may see.
    seed : int
    noise : float
        Of modelled pairs.
    cluster : Cluster, optional
        For solo speeds.

    Raises
    ------
    ConfigError
        If the noise is out of range.
    """

    kind = "measured"

    def __init__(
        self,
        table: CoRunTable,
        *,
        seed: int = 0,
        noise: float = DEFAULT_NOISE,
        cluster: Cluster | None = None,
    ) -> None:
        super().__init__(PairFit(table.sides(), seed=seed), seed, noise, cluster)
        self._table = table

    def _known(self, model: str, other: str, device_type: str) -> tuple[float, int] | None:
        speed = self._table.lookup(model, other, filed_as(device_type)) or self._table.lookup(
            model, other, measured_as(device_type)
        )
        return None if speed is None else (1.0 / speed - 1.0, MEASURED)

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        return super().describe() | {"table": self._table.describe()}


class ModelledTruth(_World):
    """The contention model with seeded noise, where nothing was measured.

    Parameters
    ----------
    seed : int
    noise : float
    cluster : Cluster, optional
        For solo speeds.
    contention : Contention, optional

    Raises
    ------
    ConfigError
        If the noise is out of range.
    """

    kind = "modelled"

    def __init__(
        self,
        seed: int = 0,
        noise: float = DEFAULT_NOISE,
        *,
        cluster: Cluster | None = None,
        contention: Contention | None = None,
    ) -> None:
        super().__init__(PairFit((), contention=contention, seed=seed), seed, noise, cluster)
