"""The books of the state tiers: whose state lies where, and how much room is left.

The state folds them from the log; the simulated world keeps its own, which must come out the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cotenant.errors import IllegalEventError
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason, Refusal
from cotenant.model.pools import StateTier
from cotenant.model.settings import Settings

__all__ = ["Copy", "TierBooks"]


class Copy(msgspec.Struct, gc=False):
    """The saved state of one job: ``home`` is the tier with the whole of it, ``coming`` one it is being written to; -1 is none."""

    size_bytes: int
    home: int = -1
    coming: int = -1


class TierBooks:
    """Who holds what in which tier.

    Attributes
    ----------
    capacity : list of int or None
        As asked for; None is no bound.
    limit : list of int or None
        What is really there: a tier that is to shrink keeps the room that is held until it is free.
    held : list of int
        Bytes taken, including copies that are being written.
    copies : dict of int to Copy
        By job, in the order of saving. A job that runs has one only while it loads.
    taken : list of int
        How many states of suspended jobs each tier has taken so far.
    """

    def __init__(self, tiers: tuple[StateTier, ...], settings: Settings) -> None:
        self.tiers = tiers
        self._settings = settings
        self.capacity = [tier.capacity_bytes for tier in tiers]
        self.limit = [tier.capacity_bytes for tier in tiers]
        self.held = [0] * len(tiers)
        self.taken = [0] * len(tiers)
        self.copies: dict[int, Copy] = {}

    # -- questions -------------------------------------------------------------------

    def size_of(self, job: Job) -> int:
        """Bytes of a job's state, on all its devices together."""
        each = job.state_bytes or int(job.memory_bytes * self._settings.state_fraction)
        return each * max(job.gpus, 1)

    def room(self, tier: int) -> float:
        """Bytes that a tier can take; infinite without a bound."""
        capacity = self.capacity[tier]
        return float("inf") if capacity is None else capacity - self.held[tier]

    def find(self, size_bytes: int, first: int = 0) -> int:
        """The first tier, from ``first`` on, that has room; -1 if none has."""
        for tier in range(first, len(self.tiers)):
            if size_bytes <= self.room(tier):
                return tier
        return -1

    def refusal(self, job: Job) -> Refusal | None:
        """Why a job cannot be suspended now: its state would have nowhere to go."""
        if job.id in self.copies or self.find(size := self.size_of(job)) >= 0:
            return None
        free = {t.name: self.room(i) for i, t in enumerate(self.tiers)}
        return Refusal(Reason.STATE_ROOM, {"needs_bytes": size, "free_bytes": free})

    def fits(self, jobs: Iterable[Job]) -> bool:
        """Whether these jobs can all be suspended, one after the other."""
        rooms = [self.room(tier) for tier in range(len(self.tiers))]
        for job in jobs:
            if job.id in self.copies:
                continue
            size = self.size_of(job)
            tier = next((i for i, room in enumerate(rooms) if size <= room), -1)
            if tier < 0:
                return False
            rooms[tier] -= size
        return True

    def overflow(self, tier: int) -> list[int]:
        """Jobs whose whole state must leave a tier so that it may shrink, those stored longest ago first."""
        excess = -self.room(tier) - sum(
            c.size_bytes for c in self.copies.values() if c.home == tier and c.coming >= 0
        )
        jobs = []
        for job_id, copy in self.copies.items():
            if excess <= 0:
                break
            if copy.home == tier and copy.coming < 0:
                jobs.append(job_id)
                excess -= copy.size_bytes
        return jobs

    # -- changes ---------------------------------------------------------------------

    def stored(self, job_id: int, tier: int, size_bytes: int) -> None:
        """Room is taken.

        Raises
        ------
        IllegalEventError
            If there is none, or the job's state is on its way already.
        """
        copy = self.copies.get(job_id)
        if copy is None:
            copy = self.copies[job_id] = Copy(size_bytes)
            self.taken[tier] += 1
        if copy.coming >= 0 or size_bytes > self.room(tier):
            raise IllegalEventError(f"state of job {job_id}: no room in tier {tier}, or on its way already")
        copy.coming = tier
        self.held[tier] += size_bytes

    def complete(self, job_id: int) -> None:
        """A copy is whole: the job is suspended, or its state has changed tiers."""
        copy = self.copies.get(job_id)
        if copy is not None and copy.coming >= 0:
            old, copy.home, copy.coming = copy.home, copy.coming, -1
            self._give(old, copy.size_bytes)

    def starts(self, job_id: int) -> None:
        """A job goes on: it loads the whole copy, and one being made elsewhere is given up."""
        copy = self.copies.get(job_id)
        if copy is not None and copy.coming >= 0:
            left, copy.coming = copy.coming, -1
            self._give(left, copy.size_bytes)

    def drop(self, job_id: int) -> None:
        """A job's state is not needed any more: loaded, or the job has ended."""
        copy = self.copies.pop(job_id, None)
        if copy is not None:
            self._give(copy.home, copy.size_bytes)
            self._give(copy.coming, copy.size_bytes)

    def left(self, job_id: int, *, final: bool, work_s: float) -> None:
        """An attempt ended without being suspended: a whole copy stays, if the job goes on from it."""
        copy = self.copies.get(job_id)
        if copy is not None and (final or copy.home < 0 or work_s <= 0.0):
            self.drop(job_id)

    def resized(self, tier: int, capacity_bytes: int) -> None:
        """A tier is asked to have this capacity."""
        self.capacity[tier] = capacity_bytes
        self.limit[tier] = max(capacity_bytes, self.held[tier])

    def _give(self, tier: int, size_bytes: int) -> None:
        if tier >= 0:
            self.held[tier] -= size_bytes
            capacity, limit = self.capacity[tier], self.limit[tier]
            if capacity is not None and limit is not None and limit > capacity:
                self.limit[tier] = max(capacity, self.held[tier])

    # -- checks ----------------------------------------------------------------------

    def picture(self) -> dict[str, Any]:
        """All of it as plain values."""
        copies = {job_id: (c.size_bytes, c.home, c.coming) for job_id, c in self.copies.items()}
        return {
            "copies": copies,
            "held": list(self.held),
            "limit": list(self.limit),
            "capacity": list(self.capacity),
            "taken": list(self.taken),
        }

    def errors(self) -> list[str]:
        """What does not add up; empty if all is well. For tests."""
        wrong = []
        for tier, (held, limit) in enumerate(zip(self.held, self.limit, strict=True)):
            true = sum(c.size_bytes * ((c.home == tier) + (c.coming == tier)) for c in self.copies.values())
            if held != true:
                wrong.append(f"state tier {tier} holds {true}, the books say {held}")
            if limit is not None and held > limit:
                wrong.append(f"state tier {tier} is over-committed: {held} of {limit}")
        return wrong
