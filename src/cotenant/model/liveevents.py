"""What can happen only where jobs are real: processes, restarts of the scheduler, what their owners ask."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.model.cluster import Tenant

__all__ = [
    "Awaited",
    "ForeignUse",
    "Launched",
    "LiveEvent",
    "Paused",
    "ProcessKilled",
    "Resettled",
    "ResizeRequested",
    "Restarted",
    "ResumeRequested",
    "SuspendRequested",
    "TenantsChanged",
]


class Restarted(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="restarted", omit_defaults=True):
    """A scheduler took the log over, folded it and looked at what really runs.

    Parameters
    ----------
    t : float
    epoch : int
        Of its lease: higher than that of everybody before.
    version, policy, params
        As in ``Opened``; where the policy is another one, the memo of the old one is dropped.
    adopted : tuple of int
        Jobs found running as the log says: they go on.
    asked : tuple of int
        Jobs that the log has running and that were not found: their end is asked for, or they are
        launched, if they never were.
    killed : tuple of tuple of int
        (job, serial) that ran but by the log should not.
    """

    t: float
    epoch: int
    version: str
    policy: str
    params: dict[str, Any] = {}
    adopted: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    killed: tuple[tuple[int, int], ...] = ()


class Launched(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="launched", omit_defaults=True):
    """A process runs. It is known by its pid together with the kernel's time of its start.

    ``serial`` counts the places a job was given: each start, move, and resize to other devices.
    """

    t: float
    id: int
    attempt: int
    serial: int
    pid: int = 0
    start_ticks: int = 0


class SuspendRequested(
    msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="suspend", omit_defaults=True
):
    """A user asked that a job leave its devices, with its state saved, and stay away until told otherwise."""

    t: float
    id: int
    request: str = ""


class ResumeRequested(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="resume", omit_defaults=True):
    """A user asked that a job held by ``SuspendRequested`` take part again."""

    t: float
    id: int
    request: str = ""


class ResizeRequested(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="resize", omit_defaults=True):
    """A user asked for another share of each device, or another number of them. -1: as it is.

    Of a waiting job it changes what is asked for. Of a running one it is answered by ``Resized`` at
    the same instant, or by ``Refused`` with decision ``resize``.
    """

    t: float
    id: int
    compute_milli: int = -1
    compute_limit_milli: int = -1
    memory_bytes: int = -1
    gpus: int = -1
    request: str = ""


class Resettled(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="resettled", omit_defaults=True):
    """The processes of a job that was resized in place are where they should be: what they left is free.

    ``again``: they could not be moved (``detail`` says why), so the job saves its state and starts anew there.
    """

    t: float
    id: int
    attempt: int
    devices: tuple[int, ...]
    again: bool = False
    detail: str = ""


class ProcessKilled(
    msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="process-killed", omit_defaults=True
):
    """Processes of an elastic job were killed, and the job goes on with others in their place.

    Parameters
    ----------
    count : int
        So many since its start with this ``serial``.
    signal : int
        What killed the last of them.
    ago_s : float
        How long before ``t`` that one was found dead.
    """

    t: float
    id: int
    attempt: int
    serial: int
    count: int
    signal: int = 0
    ago_s: float = 0.0


class Paused(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="paused", omit_defaults=True):
    """A running job was stopped by signal as its user asked, or goes on.

    Stopped, it holds its memory and does no work; if it loses its devices meanwhile, it is held.
    """

    t: float
    id: int
    attempt: int
    paused: bool = True


class ForeignUse(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="foreign", omit_defaults=True):
    """Processes outside the scheduler hold this much of a device's memory; 0 once they are gone."""

    t: float
    device: int
    memory_bytes: int = 0
    pids: tuple[int, ...] = ()


class Awaited(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="awaited", omit_defaults=True):
    """A job takes no part until others have ended well; an empty tuple: they have.

    If one of them ends otherwise the job is ``Rejected`` with reason ``dependency-failed``.
    """

    t: float
    id: int
    after: tuple[int, ...] = ()


class TenantsChanged(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="tenants", omit_defaults=True):
    """Quotas, limits and weights of tenants are these from now on; who is not among them has none."""

    t: float
    tenants: tuple[Tenant, ...] = ()


LiveEvent = (
    Restarted
    | Launched
    | SuspendRequested
    | ResumeRequested
    | ResizeRequested
    | Paused
    | ProcessKilled
    | Resettled
    | ForeignUse
    | Awaited
    | TenantsChanged
)
