"""How many devices each tenant has held lately: an exponentially weighted mean, kept exactly.

With half-life H, a tenant that has held g devices for T seconds stands at ``g * (1 - 2**(-T/H))``
devices. Values are floats and never rounded: rounding to thousandths before adding is how small
uses vanish. Each change of holdings costs O(depth of the tenant in its hierarchy); time alone
costs nothing, as values are brought forward when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from cotenant.errors import ConfigError
from cotenant.model.cluster import Tenant
from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord

__all__ = ["Usage", "ancestry"]


def ancestry(tenants: Iterable[Tenant]) -> dict[str, tuple[str, ...]]:
    """For each tenant, the names from its root down to itself.

    Raises
    ------
    ConfigError
        If a tenant is among its own ancestors.
    """
    parent = {t.name: t.parent for t in tenants}
    paths = {}
    for name, above in parent.items():
        path, at = [name], above
        while at:
            if at in path:
                raise ConfigError(f'tenant "{name}" is among its own ancestors: {" < ".join([*path, at])}')
            path.append(at)
            at = parent.get(at, "")
        paths[name] = tuple(reversed(path))
    return paths


class Usage:
    """Decayed usage of each tenant, and of each tenant with all those below it.

    Parameters
    ----------
    half_life_s : float
        After this many seconds past use counts half. Infinite would never forget and is refused.
    paths : mapping of str to tuple of str
        See ``ancestry``; a tenant that is absent stands alone.
    clock : callable
        The present, in seconds.
    """

    def __init__(
        self, half_life_s: float, paths: Mapping[str, tuple[str, ...]], clock: Callable[[], float]
    ) -> None:
        if not 0.0 < half_life_s < math.inf:
            raise ConfigError(f"the half-life of usage must be positive and finite, found {half_life_s} s")
        self.half_life_s = half_life_s
        self._paths = paths
        self._clock = clock
        # For each tenant: decayed devices at a time, that time, and devices held since.
        self._kept: dict[str, tuple[float, float, int]] = {}

    def decayed(self, tenant: str) -> float:
        """Devices held lately by a tenant and those below it, as a decayed mean, in devices."""
        kept = self._kept.get(tenant)
        return 0.0 if kept is None else self._forward(kept)

    def _forward(self, kept: tuple[float, float, int]) -> float:
        value, at_s, held = kept
        fading = (at_s - self._clock()) / self.half_life_s
        return value * math.exp2(fading) - held * math.expm1(fading * math.log(2.0))

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        self._change(record.job.tenant, len(place.devices))

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        self._change(record.job.tenant, -len(place.devices))

    def _change(self, tenant: str, by: int) -> None:
        now = self._clock()
        for name in self._paths.get(tenant, (tenant,)):
            kept = self._kept.get(name, (0.0, now, 0))
            # Several changes at one instant need no bringing forward.
            value = kept[0] if kept[1] == now else self._forward(kept)
            self._kept[name] = (value, now, kept[2] + by)
