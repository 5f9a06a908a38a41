"""What can happen to state that is kept in tiers (``model.pools.StateTier``)."""

from __future__ import annotations

import msgspec

__all__ = ["Loaded", "PoolEvent", "Spilled", "Stored", "TierResized"]


class Stored(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="stored", omit_defaults=True):
    """Room in a tier is taken for a job's state, and a copy is on its way there.

    From its devices, complete with ``Suspended``; or from another tier that is to shrink, complete
    with ``Spilled``. ``tier`` counts the cluster's tiers from 0.
    """

    t: float
    id: int
    tier: int
    size_bytes: int


class Spilled(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="spilled", omit_defaults=True):
    """A job's state lies in this tier now, and its room in the tier before is free."""

    t: float
    id: int
    tier: int


class Loaded(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="loaded", omit_defaults=True):
    """A job's state is back on its devices, and its room in the tier is free."""

    t: float
    id: int
    tier: int


class TierResized(
    msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="tier-resized", omit_defaults=True
):
    """A tier is to have this capacity. What it holds beyond goes to later tiers with room, or stays until it is loaded."""

    t: float
    tier: int
    capacity_bytes: int
    cause: str = ""


PoolEvent = Stored | Spilled | Loaded | TierResized
