"""One seed's world: what is true in it, and what policies may know of it."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.model.workload import Workload
from cotenant.runs.prepare import Prepared

__all__ = ["World", "build_world"]


class World(msgspec.Struct, kw_only=True):
    """The workload with its models drawn, the truth, and the forecasts."""

    workload: Workload
    truth: Any = None
    forecast: Any = None
    runtime: Any = None
    seeds_vary: list[str] = []


def build_world(prepared: Prepared, seed: int) -> World:
    """Build it; equal arguments give equal worlds."""
    return World(workload=prepared.workload)
