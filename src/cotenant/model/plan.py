"""What a policy may decide, and the typed answers it can get.

A decision is one of a closed set; each keeps its reason as a value. A refusal is a
value too: it says whether waiting or preemption could help, or nothing ever will.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from cotenant.model.placement import WHOLE, Share

__all__ = [
    "EMPTY",
    "NO_WHY",
    "Decision",
    "Hold",
    "Move",
    "Plan",
    "Reason",
    "Refusal",
    "Reject",
    "Reserve",
    "Resize",
    "Start",
    "Stop",
    "Why",
]


class Reason(enum.StrEnum):
    """Why a job waits or a decision is refused. The value is stable and machine-readable."""

    NEVER_FITS = "never-fits"
    NO_CAPACITY = "no-capacity"
    FRAGMENTED = "fragmented"
    MEMORY = "memory"
    COMPUTE = "compute"
    HOST = "host"
    TENANT_LIMIT = "tenant-limit"
    TENANT_CAPACITY_ZERO = "tenant-has-no-capacity"
    BEHIND_HEAD = "behind-head"
    BEHIND_RESERVATION = "behind-reservation"
    RESERVED = "reserved"
    ISOLATION = "isolation"
    SHARERS = "too-many-sharers"
    DEVICE_TYPE = "device-type"
    SPAN = "gang-may-not-span"
    DETERMINISM = "determinism"
    DEVICE_UNAVAILABLE = "device-unavailable"
    MALFORMED = "malformed"
    NOT_PENDING = "not-pending"
    NOT_RUNNING = "not-running"
    MIN_QUANTUM = "minimum-quantum"
    NOT_SUSPENDABLE = "not-suspendable"
    STATE_ROOM = "state-tiers-full"
    SLOWDOWN = "predicted-slowdown"
    NOT_WORTH_IT = "gain-below-price"
    WAITING_SLICE = "waiting-for-slice"
    LOWER_RANK = "lower-rank"
    FOREIGN_USE = "foreign-use"
    STILL_STARTING = "still-starting"
    STILL_RESIZING = "still-resizing"
    HELD_BY_USER = "held-by-user"
    AWAITS_JOBS = "awaits-jobs"
    DEPENDENCY_FAILED = "dependency-failed"

    @property
    def hopeless(self) -> bool:
        """True if no waiting and no preemption can help."""
        return self in _HOPELESS

    @property
    def preemption_helps(self) -> bool:
        """True if taking something away from others could help."""
        return self in _PREEMPTION_HELPS


_HOPELESS = frozenset({Reason.NEVER_FITS, Reason.MALFORMED, Reason.DEVICE_TYPE, Reason.SPAN})
_PREEMPTION_HELPS = frozenset(
    {Reason.NO_CAPACITY, Reason.FRAGMENTED, Reason.MEMORY, Reason.COMPUTE, Reason.HOST, Reason.SHARERS}
)


class Why(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason of a decision: the rule that decided, and the numbers it used."""

    rule: str = ""
    facts: dict[str, Any] = {}


NO_WHY = Why()


class Refusal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a decision was not accepted, with the numbers behind it."""

    reason: Reason
    facts: dict[str, Any] = {}


class Start(msgspec.Struct, frozen=True, gc=False, tag="start", omit_defaults=True):
    """Start (or resume) a pending job on these devices, holding this share of each.

    A CPU-only job has no devices and names its ``node`` instead.
    """

    id: int
    devices: tuple[int, ...]
    share: Share = WHOLE
    why: Why = NO_WHY
    node: int = -1


class Stop(msgspec.Struct, frozen=True, gc=False, tag="stop", omit_defaults=True):
    """Take a running job off its devices and put it back in the queue.

    ``suspend`` saves its state first (if the job can), otherwise work since its last
    checkpoint is lost. ``beneficiary`` is the job for which this is done, for the books.
    """

    id: int
    suspend: bool = True
    beneficiary: int = -1
    why: Why = NO_WHY


class Move(msgspec.Struct, frozen=True, gc=False, tag="move", omit_defaults=True):
    """Migrate a running job: save, leave, load elsewhere; both places are held meanwhile."""

    id: int
    devices: tuple[int, ...]
    share: Share = WHOLE
    why: Why = NO_WHY


class Resize(msgspec.Struct, frozen=True, gc=False, tag="resize", omit_defaults=True):
    """Change a running job's share, or, for an elastic job, its devices."""

    id: int
    devices: tuple[int, ...]
    share: Share = WHOLE
    why: Why = NO_WHY


class Reserve(msgspec.Struct, frozen=True, gc=False, tag="reserve", omit_defaults=True):
    """Hold these devices for one pending job: nobody else may start there.

    Devices still busy become the job's as their residents leave. An empty tuple drops
    the reservation; starting or ending the job drops it too.
    """

    id: int
    devices: tuple[int, ...]
    why: Why = NO_WHY


class Hold(msgspec.Struct, frozen=True, gc=False, tag="hold", omit_defaults=True):
    """Say why a pending job waits. Logged when the reason changes."""

    id: int
    reason: Reason
    facts: dict[str, Any] = {}


class Reject(msgspec.Struct, frozen=True, gc=False, tag="reject", omit_defaults=True):
    """Refuse a pending job for good."""

    id: int
    reason: Reason
    facts: dict[str, Any] = {}


Decision = Start | Stop | Move | Resize | Reserve | Hold | Reject


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A policy's answer.

    Parameters
    ----------
    decisions : tuple of Decision
        Checked and applied one by one, in order, against the current state.
    memo : object
        What the policy wants back at its next call: small, plain JSON, never mutated.
        None keeps the previous memo.
    wake_at_s : float or None
        Ask to be called at this time even if nothing happens.
    again : bool
        Ask to be called again at this instant, with the new state, if a decision was
        accepted.
    """

    decisions: tuple[Decision, ...] = ()
    memo: Any = None
    wake_at_s: float | None = None
    again: bool = False


EMPTY = Plan()
"""Nothing to do."""
