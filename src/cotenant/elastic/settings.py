"""How an elastic run was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cotenant.elastic import identity
from cotenant.elastic.gradients import Order

__all__ = ["Settings"]


class Settings(NamedTuple):
    """How a run was asked for; see ``Run``.

    Attributes
    ----------
    leaves : int
        Units that processes share out: blocks, or workers.
    """

    workers: int
    leaves: int
    most: int
    seed: int
    order: Order
    folder: Path | None
    every_steps: int
    keep: int
    least: identity.Grade
    adopt_threads: bool
