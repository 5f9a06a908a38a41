"""Lines of waiting jobs: those that ask for the same free devices, those that are alike for sharing."""

from __future__ import annotations

from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.shape import Shape
from cotenant.policies.company.verdicts import Taste
from cotenant.policies.queues.circles import Circle, needed_gib
from cotenant.policies.queues.firsts import Firsts

__all__ = ["ClassLine", "DemandLine", "Key", "Where"]

Key = int
"""Of a job, in default order."""


class DemandLine(Firsts):
    """Waiting jobs that ask for the same free devices and host resources."""

    __slots__ = ("gpus", "number", "spans", "types")

    def __init__(self, number: int, shape: Shape) -> None:
        super().__init__()
        self.number = number
        self.gpus, self.types, self.spans = shape.gpus, shape.types, shape.spans


class ClassLine(Firsts):
    """Waiting jobs that are alike for sharing: same size, model, memory, circle, types."""

    __slots__ = (
        "bit",
        "circle",
        "cold",
        "gib",
        "gpus",
        "known",
        "mine",
        "number",
        "short",
        "taste",
        "types",
    )

    def __init__(self, number: int, job: Job, circle: Circle, shape: Shape, taste: Taste) -> None:
        super().__init__()
        self.number, self.bit = number, 1 << number
        self.gpus, self.gib = job.gpus, needed_gib(job)
        self.circle, self.types = circle, shape.types
        self.taste, self.short = taste, False
        # The key of the head that was tried in vain; None while the class is not cold.
        self.cold: Key | None = None
        # Slots of its circle and types, among the first ``known`` ones.
        self.mine = self.known = 0


Where = tuple[DemandLine, ClassLine | None, int, Share]
"""Where a job waits, the number of this, and what it holds on a device of known memory."""
