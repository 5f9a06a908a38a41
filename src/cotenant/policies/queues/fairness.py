"""Tenants by what they used lately for their weight, in bands of a factor of two."""

from __future__ import annotations

import math

from cotenant.model.view import View

__all__ = ["BANDS", "band_of", "bands"]

BANDS = 8
"""Band 3 is from the mean to twice as much; the first and the last have no other end."""
_MEAN_AT = 3


def bands(view: View) -> dict[str, int]:
    """The band of each tenant that has jobs; those in band 0, who used least, are left out.

    Decayed devices over weight, relative to the mean of these tenants: each band is twice the one before.
    """
    weights = {t.name: t.weight for t in view.cluster.tenants}
    tenants = sorted({r.job.tenant for r in view.records.values()})
    used = {t: view.usage.decayed(t) / weights.get(t, 1.0) for t in tenants}
    mean = sum(used.values()) / max(len(used), 1)
    return {t: band for t, u in used.items() if (band := band_of(u, mean))}


def band_of(used: float, mean: float) -> int:
    """The band of one that used so much, where so much is usual.

    >>> [band_of(used, 8.0) for used in (0.0, 0.9, 1.0, 7.9, 8.0, 16.0, 1000.0)]
    [0, 0, 0, 2, 3, 4, 7]
    """
    if not used > 0.0 or not mean > 0.0:
        return 0
    return min(BANDS - 1, max(0, math.frexp(used / mean)[1] - 1 + _MEAN_AT))
