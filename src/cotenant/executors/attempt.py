"""One attempt of one job in the simulated world."""

from __future__ import annotations

import math

import msgspec

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.workload import Behaviour

__all__ = ["Attempt"]

_INF = math.inf


class Attempt(msgspec.Struct, gc=False, eq=False):
    """An attempt in the world.

    ``epoch`` dates its entry in the heap of things to come: a later one voids it. That of
    its end lies at ``due_s`` (infinite: not noted), and ``end_s`` may have moved past it since.
    ``plain`` is a run whose speed beside others depends on their models alone.
    """

    job: Job
    behaviour: Behaviour
    place: Placement
    attempt: int
    total_s: float
    left_s: float
    saved_s: float
    since_s: float
    alone: float
    rate: float = 0.0
    epoch: int = 0
    shared: bool = False
    paused: bool = False
    source: str = "alone"
    due_s: float = _INF
    end_s: float = 0.0
    plain: bool = False

    def kept_s(self, checkpoint_s: float) -> float:
        """Work that survives losing the devices: up to the last checkpoint, or the last resume."""
        if checkpoint_s <= 0 or not self.job.suspendable:
            return self.saved_s
        done = self.total_s - self.left_s
        return max(self.saved_s, math.floor(done / checkpoint_s) * checkpoint_s)
