"""What requests carry and what is answered, as values: read strictly, and described in ``/openapi.json``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cotenant.live.views import DeviceView, JobView

__all__ = [
    "COMMANDS",
    "Devices",
    "Done",
    "EventsQuery",
    "Item",
    "Jobs",
    "JobsQuery",
    "Key",
    "Keyed",
    "LogQuery",
    "Login",
    "LogsQuery",
    "NodeBody",
    "PriorityBody",
    "ResizeBody",
    "SubmitBody",
    "SubmitItem",
    "Submitted",
]

Key = Annotated[
    str,
    Meta(
        pattern="^[ -~]{1,128}$",
        min_length=1,
        max_length=128,
        description="Chosen by the client, new for each new request (a UUID, say): asking again with the same key is safe.",
    ),
]
Offset = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Number = Annotated[int, Meta(ge=0, le=2**53)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class SubmitItem(_Body, frozen=True):
    """One job to submit; ``job`` holds the fields of a job file."""

    key: Key
    job: dict[str, Any]


class SubmitBody(_Body, frozen=True):
    """Jobs to submit; each is answered by itself."""

    jobs: Annotated[list[SubmitItem], Meta(min_length=1, max_length=1000)]


class Keyed(_Body, frozen=True):
    """A request without arguments."""

    key: Key


class PriorityBody(_Body, frozen=True):
    """A new priority; higher goes first."""

    key: Key
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)]


class ResizeBody(_Body, frozen=True):
    """A new share; what is left out stays."""

    key: Key
    compute_milli: Annotated[int, Meta(ge=1, le=1000)] | None = None
    compute_limit_milli: Annotated[int, Meta(ge=1, le=1000)] | None = None
    memory_bytes: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    gpus: Annotated[int, Meta(ge=1, le=100_000)] | None = None


class NodeBody(_Body, frozen=True):
    """Which node (a single machine is node 0), or which device of it alone."""

    key: Key
    node: Annotated[int, Meta(ge=0, le=2**31)] = 0
    device: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class Login(_Body, frozen=True):
    """A token to sign in with."""

    token: Annotated[str, Meta(min_length=1, max_length=512)]


class JobsQuery(_Body, frozen=True):
    """Which jobs: ``live=1`` only those that have not ended; ``name`` the newest of that name or number."""

    live: Literal[0, 1] = 0
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    name: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


class LogsQuery(_Body, frozen=True):
    """Which output. ``offset`` in bytes; below zero: so many before the end. ``limit`` holds if not followed."""

    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=4, le=64 * 1024 * 1024)] = 1024 * 1024
    follow: Literal[0, 1] = 0


class LogQuery(_Body, frozen=True):
    """Events after that number."""

    after: Number = 0


class EventsQuery(_Body, frozen=True):
    """Changes after that number, as ``Last-Event-ID``; left out: from now on."""

    after: Number | None = None


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job's answer: its number, and whether the same request had been accepted before; or an error."""

    id: int | None = None
    again: bool | None = None
    error: str | None = None
    message: str | None = None
    detail: str | None = None
    hint: str | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """An answer for each job, in their order."""

    jobs: list[Item]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is on disk and will be carried out."""

    seq: int
    t: float
    again: bool


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest last."""

    jobs: list[JobView]


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """Devices, in the order of their numbers."""

    devices: list[DeviceView]


COMMANDS: dict[str, type[_Body]] = {
    "cancel": Keyed,
    "suspend": Keyed,
    "resume": Keyed,
    "priority": PriorityBody,
    "resize": ResizeBody,
}
"""What can be asked of a job, and with what."""
