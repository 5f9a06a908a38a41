"""What kept a job in the queue: the reasons given, and the decisions refused."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.report.phrases import at, facts_in_words
from cotenant.report.reasons import meaning

__all__ = ["Cause", "Refusal", "Wait"]


class Cause(msgspec.Struct, frozen=True):
    """A reason the scheduler gave, with its numbers and what the cluster looked like then."""

    t: float
    reason: str
    facts: dict[str, Any]
    free_gpus: int
    largest_hole_gpus: int
    ahead_jobs: int
    ahead_gpus: int


class Refusal(msgspec.Struct):
    """A decision about the job that the rules refused, ``count`` times for one and the same reason."""

    t: float
    decision: str
    reason: str
    facts: dict[str, Any]
    count: int = 1
    last_t: float = 0.0

    @property
    def text(self) -> str:
        """One sentence."""
        numbers = f" ({facts_in_words(self.facts)})" if self.facts else ""
        again = f" Refused {self.count:,} times, last at {at(self.last_t)}." if self.count > 1 else ""
        return (
            f"REFUSED {self.reason}: the policy's decision to {self.decision} it breaks a rule: "
            f"{meaning(self.reason)}{numbers}.{again}"
        )


class Wait(msgspec.Struct):
    """One stay in the queue; ``end_s`` is None while it lasts, ``ahead_jobs`` waited before it."""

    start_s: float
    ahead_jobs: int = 0
    end_s: float | None = None
    causes: list[Cause] = []
    refusals: list[Refusal] = []
