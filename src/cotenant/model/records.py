"""What the scheduler knows about one live job. Owned by the state; policies only read it."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from cotenant.model.events import Launched, Sampled
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.plan import Reason
from cotenant.model.shape import Shape

__all__ = ["PLAIN", "JobRecord", "Real", "Status", "order_key"]

_PRIORITY_STEP = 1 << 44


class Status(enum.IntEnum):
    """Where a live job stands. Ended jobs have no record; held ones take no part, nor do policies see them."""

    PENDING = 0
    RUNNING = 1
    STOPPING = 2
    ENDED = 3
    HELD = 4


def order_key(job_id: int, priority: int) -> int:
    """Place in the default order as one integer: higher priority first, then submission order.

    For jobs without a priority it is the id itself, so it costs no memory.

    >>> order_key(9, 1) < order_key(3, 0) < order_key(4, 0) < order_key(1, -1)
    True
    """
    return job_id - priority * _PRIORITY_STEP if priority else job_id


class Real(msgspec.Struct, gc=False, frozen=True):
    """What a record knows only where jobs are real processes.

    Attributes
    ----------
    process : Launched or None
        The latest process of the place the job has, or of the one it leaves.
    held, paused : bool
        Its user asked it to leave and to stay away; it is stopped by signal where it runs.
    awaits : tuple of int
        Jobs that must end well before it takes part.
    reshaped : bool
        It asks for something else than when it was last in the queue.
    settling : tuple of int
        The devices it had when it was resized in place, until its processes are where they should be.
    shifts : int
        Resizes in place so far.
    """

    process: Launched | None = None
    held: bool = False
    paused: bool = False
    awaits: tuple[int, ...] = ()
    reshaped: bool = False
    settling: tuple[int, ...] = ()
    shifts: int = 0


PLAIN = Real()
"""Of a job of which nothing of the kind is known: one for all, as memory counts."""


class JobRecord(msgspec.Struct, gc=False, eq=False):
    """One live job.

    Attributes
    ----------
    job : Job
    id : int
    shape : Shape
    status : Status
    priority : int
        Now; the owner may change it.
    key : int
        Default order, see ``order_key``.
    attempt : int
        Number of attempts begun.
    failures, losses : int
        Attempts that failed by themselves, and that lost their devices.
    place : Placement or None
        What it holds.
    queued_s : float
        Since when it waits, if pending.
    started_s : float
        When it last got devices; -1.0 before the first time.
    ran_s : float
        Seconds it held devices before ``started_s``.
    work_s, rate, rated_s : float
        Useful work of this attempt up to ``rated_s``, and the speed since then. ``rated_s`` lies
        ahead while a job loads whose speeds are not told: until then it does not work.
    predicted_s : float
        Predicted work of the whole attempt, in reference-device seconds; 0 if unknown.
    hold : Reason or None
        Why it waits, as last logged.
    reserved : tuple of int
        Devices kept for it.
    suspended : bool
        Pending with saved state: its next start resumes.
    sample : Sampled or None
        The latest light sample: since then it is what ``predicted_s`` says.
    serial : int
        Places it was given so far: starts, moves, resizes to other devices.
    real : Real
        What is known only where jobs are real processes; its fields can be read here, too.
    """

    job: Job
    shape: Shape
    queued_s: float
    predicted_s: float
    id: int
    priority: int
    key: int
    rated_s: float
    status: Status = Status.PENDING
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    place: Placement | None = None
    started_s: float = -1.0
    ran_s: float = 0.0
    work_s: float = 0.0
    rate: float = 0.0
    hold: Reason | None = None
    reserved: tuple[int, ...] = ()
    suspended: bool = False
    sample: Sampled | None = None
    serial: int = 0
    real: Real = PLAIN

    @classmethod
    def of(cls, job: Job, shape: Shape, now: float, predicted_s: float) -> JobRecord:
        """The record of a job that has just been submitted."""
        priority = job.priority
        return cls(job, shape, now, predicted_s, job.id, priority, order_key(job.id, priority), now)

    def __lt__(self, other: JobRecord) -> bool:
        """So that queues may hold two records of one job: an old one, and that of what it asks for now."""
        return self.id < other.id

    @property
    def process(self) -> Launched | None:
        """See ``Real``."""
        return self.real.process

    @property
    def held(self) -> bool:
        """See ``Real``."""
        return self.real.held

    @property
    def paused(self) -> bool:
        """See ``Real``."""
        return self.real.paused

    @property
    def awaits(self) -> tuple[int, ...]:
        """See ``Real``."""
        return self.real.awaits

    @property
    def settling(self) -> tuple[int, ...]:
        """See ``Real``."""
        return self.real.settling

    def note(self, **changes: Any) -> None:
        """Change what is known of the real process."""
        self.real = msgspec.structs.replace(self.real, **changes)

    def work_at(self, now: float) -> float:
        """Useful work of this attempt so far, in reference-device seconds."""
        elapsed = now - self.rated_s
        return self.work_s + self.rate * elapsed if elapsed > 0.0 else self.work_s

    def remaining_at(self, now: float) -> float:
        """Predicted work left; a job that outlives its prediction is given twice as much again.

        Infinite if nothing is predicted.
        """
        predicted = self.predicted_s
        if predicted <= 0.0:
            return float("inf")
        done, elapsed = self.work_s, now - self.rated_s
        if elapsed > 0.0:
            done += self.rate * elapsed
        while predicted <= done:
            predicted *= 2.0
        return predicted - done

    def remaining_range_at(self, now: float) -> tuple[float, float]:
        """The 90% range of the work left: as sampled, else unknown, from nothing to infinite."""
        sample = self.sample
        if sample is None:
            return 0.0, float("inf")
        done, left = self.work_at(now), self.remaining_at(now)
        return min(max(sample.low_s - done, 0.0), left), max(sample.high_s - done, left)

    def pause(self, now: float, seconds: float) -> None:
        """It saves or loads from now on, and works again after so many seconds."""
        self.work_s, self.rated_s = self.work_at(now), now + seconds

    def attained_at(self, now: float) -> float:
        """Device-seconds held so far: attained service (Tiresias, NSDI'19, section 3)."""
        held = self.ran_s
        if self.place is not None:
            held += now - self.started_s
        return held * max(self.job.gpus, 1)
