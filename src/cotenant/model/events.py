"""Everything that can happen, as immutable values: the truth from which state is folded.

One event is one JSON line, tagged ``e``; ``t`` is seconds since the start of the run.
Events of one instant are logged in this order: changes of the cluster, commands,
submissions, what executors report (by job id), then decisions.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cotenant.model.cluster import Cluster
from cotenant.model.clusterevents import DeviceDown, DeviceUp, Drained, NodeDown, NodeUp, Undrained
from cotenant.model.jobs import Job
from cotenant.model.liveevents import (
    Awaited,
    ForeignUse,
    Launched,
    LiveEvent,
    Paused,
    ProcessKilled,
    Resettled,
    ResizeRequested,
    Restarted,
    ResumeRequested,
    SuspendRequested,
    TenantsChanged,
)
from cotenant.model.placement import Share
from cotenant.model.plan import NO_WHY, Reason, Why
from cotenant.model.poolevents import PoolEvent

__all__ = [
    "EVENT_KINDS",
    "SCHEMA",
    "Awaited",
    "CancelRequested",
    "Closed",
    "DeviceDown",
    "DeviceUp",
    "Drained",
    "Ended",
    "Event",
    "ForeignUse",
    "Foretold",
    "Held",
    "Launched",
    "LiveEvent",
    "MemoSaved",
    "Moved",
    "NodeDown",
    "NodeUp",
    "Opened",
    "Outcome",
    "Paused",
    "PriorityChanged",
    "ProcessKilled",
    "Rated",
    "Refused",
    "Rejected",
    "Released",
    "Reserved",
    "Resettled",
    "ResizeRequested",
    "Resized",
    "Restarted",
    "ResumeRequested",
    "Sampled",
    "Started",
    "Stopping",
    "Submitted",
    "SuspendRequested",
    "Suspended",
    "TenantLimitChanged",
    "TenantsChanged",
    "Undrained",
    "decode_event",
    "encode_event",
]

SCHEMA = 1
"""Version of the event schema, written in ``Opened``; raised on incompatible change."""

Outcome = Literal["done", "failed", "cancelled", "lost", "preempted"]


class Opened(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="opened"):
    """First line of a log: all that is needed to understand and to repeat the run."""

    t: float
    schema: int
    version: str
    seed: int
    policy: str
    params: dict[str, Any]
    settings: dict[str, Any]
    cluster: Cluster
    workload: dict[str, Any]
    forecast: dict[str, Any]
    truth: dict[str, Any]


class Submitted(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="submitted", omit_defaults=True):
    """A job entered the queue.

    ``expected_s``: predicted work in reference-device seconds (mean, low and high end of the 90%
    interval); None where nobody predicts, or the policy does not ask.
    """

    t: float
    job: Job
    expected_s: tuple[float, float, float] | None = None


class Rejected(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="rejected", omit_defaults=True):
    """A job ended without running: it never fits, left, or was cancelled while waiting. Terminal."""

    t: float
    id: int
    reason: str
    facts: dict[str, Any] = {}


class Started(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="started", omit_defaults=True):
    """An attempt began, or a suspended one went on (``resumed``).

    ``share`` None: whole devices. ``node`` only for CPU-only jobs. The job's speed is 1.0 from
    here on unless a ``Rated`` says otherwise.
    """

    t: float
    id: int
    attempt: int
    devices: tuple[int, ...]
    share: Share | None = None
    resumed: bool = False
    why: Why = NO_WHY
    node: int = -1


class Rated(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="rated", omit_defaults=True):
    """A running job's speed became ``rate`` (reference-device seconds of work per second).

    Not written when an attempt starts at speed 1.0. 0 while state is saved or loaded.
    """

    t: float
    id: int
    rate: float


class Sampled(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="sampled", omit_defaults=True):
    """A light sample of a running job was taken: what it tells is known from here on.

    ``work_s`` is the work of the whole attempt as it is now expected, in reference-device seconds,
    ``low_s`` to ``high_s`` its 90% range. ``co_speed`` is the speed measured beside its present
    neighbours over that alone; 0 if it is alone, or takes turns with them.
    """

    t: float
    id: int
    attempt: int
    work_s: float
    low_s: float
    high_s: float
    co_speed: float = 0.0


class Stopping(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="stopping", omit_defaults=True):
    """A job was told to leave its devices; it holds them until ``Suspended`` or ``Ended``."""

    t: float
    id: int
    attempt: int
    suspend: bool = True
    beneficiary: int = -1
    why: Why = NO_WHY


class Suspended(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="suspended", omit_defaults=True):
    """State is saved, devices are free, the job is in the queue again.

    ``own``: it was ended, and its checkpoints are its own affair: ``work_s`` is what it had done.
    """

    t: float
    id: int
    attempt: int
    work_s: float
    own: bool = False


class Ended(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="ended", omit_defaults=True):
    """An attempt ended.

    ``work_s`` is the useful work of the attempt in reference-device seconds; ``lost_s`` the
    work that must be done again. ``final`` is False when the job returns to the queue. Live:
    the exit code (negative: the signal that ended it), and in ``detail`` what else is known; ``ago_s`` is how
    long before ``t`` it had ended, if no scheduler ran to see it; ``own``: only the job knows what of ``lost_s`` it kept.
    """

    t: float
    id: int
    attempt: int
    outcome: Outcome
    work_s: float
    lost_s: float = 0.0
    final: bool = True
    code: int = 0
    detail: str = ""
    ago_s: float = 0.0
    own: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="moved", omit_defaults=True):
    """A running job migrates: it now holds ``devices`` and, until ``Released``, the old ones too."""

    t: float
    id: int
    attempt: int
    devices: tuple[int, ...]
    share: Share | None = None
    why: Why = NO_WHY


class Released(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="released", omit_defaults=True):
    """The devices a migrating job left are free."""

    t: float
    id: int
    devices: tuple[int, ...]


class Resized(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="resized", omit_defaults=True):
    """A running job's devices or share changed.

    ``in_place``: its processes go to these devices without a restart. They hold those they leave, too, until
    ``Resettled``.
    """

    t: float
    id: int
    attempt: int
    devices: tuple[int, ...]
    share: Share | None = None
    why: Why = NO_WHY
    in_place: bool = False


class Reserved(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="reserved", omit_defaults=True):
    """Devices are held for a pending job; an empty tuple drops the reservation."""

    t: float
    id: int
    devices: tuple[int, ...] = ()
    why: Why = NO_WHY


class Held(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="held", omit_defaults=True):
    """The reason why a job waits changed."""

    t: float
    id: int
    reason: Reason
    facts: dict[str, Any] = {}


class Refused(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="refused", omit_defaults=True):
    """The rules refused a decision of the policy."""

    t: float
    id: int
    decision: str
    reason: Reason
    facts: dict[str, Any] = {}


class CancelRequested(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="cancel", omit_defaults=True):
    """A user asked to end a job."""

    t: float
    id: int
    request: str = ""


class PriorityChanged(
    msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="priority", omit_defaults=True
):
    """A user changed a job's priority."""

    t: float
    id: int
    priority: int
    request: str = ""


class TenantLimitChanged(
    msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="tenant-limit", omit_defaults=True
):
    """A tenant's ceiling changed (some clusters change it by the day). None lifts it."""

    t: float
    tenant: str
    limit_gpus: int | None


class Foretold(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="foretold", omit_defaults=True):
    """What the forecast in use says of a set of jobs that now shares a device side by side.

    Written once for each set, device type and ``version`` of the forecast, at the end of the
    instant at which such a set first came together. ``mean``, ``low`` and ``high`` stand in the
    order of ``models`` (ascending): speed of a job of that model beside the others, divided by
    its speed alone on such a device. Nothing is told of jobs that take turns, nor of jobs that
    all hold the fraction of a device they declared.
    """

    t: float
    device_type: str
    models: tuple[str, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    version: int = 0


class MemoSaved(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="memo"):
    """What the policy wants to remember across a restart."""

    t: float
    memo: Any


class Closed(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="closed", omit_defaults=True):
    """Last line of a complete log."""

    t: float
    events: int
    submitted: int
    finished: int
    waiting: int = 0
    running: int = 0
    interrupted: bool = False


Event = (
    Opened
    | Submitted
    | Rejected
    | Started
    | Rated
    | Sampled
    | Stopping
    | Suspended
    | Ended
    | Moved
    | Released
    | Resized
    | Reserved
    | Held
    | Refused
    | NodeDown
    | NodeUp
    | DeviceDown
    | DeviceUp
    | Drained
    | Undrained
    | CancelRequested
    | PriorityChanged
    | TenantLimitChanged
    | Foretold
    | MemoSaved
    | PoolEvent
    | LiveEvent
    | Closed
)
EVENT_KINDS: tuple[type, ...] = Event.__args__

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """One event as one JSON line, without the line end."""
    return _encoder.encode(event)


def decode_event(line: bytes | str) -> Event:
    """Read one line.

    Raises
    ------
    msgspec.MsgspecError
        If the line is not an event of this schema.
    """
    return _decoder.decode(line)
