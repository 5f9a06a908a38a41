"""What the live scheduler shows of itself: plain values, the same for the API, the command line and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from cotenant.model.liveports import Accepted, Request

__all__ = ["Caller", "DeviceView", "JobView", "Resident", "Service", "StatusView"]


class Caller(msgspec.Struct, frozen=True):
    """Who asks, as the token says. ``admin`` may see and change everything."""

    tenant: str
    admin: bool = False


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A job on a device. Speeds are relative to alone; None where nothing is known."""

    id: int
    name: str
    compute_milli: int
    compute_limit_milli: int
    memory_bytes: int
    mode: str
    predicted_speed: tuple[float, float, float] | None = None
    measured_speed: float | None = None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as people see it. Times in seconds since 1970; None: not yet, or unknown.

    ``status``: ``waiting`` (in the queue, or for other jobs), ``held`` (suspended by a user),
    ``running``, ``paused`` (stopped by signal, holding its memory), ``stopping`` (leaving its devices),
    ``suspended`` (left them for others, waits for room), ``done``, ``failed``, ``cancelled``, ``rejected``, ``lost``.
    ``reason`` is one sentence: why it waits, or how it ended. ``killed_processes``: of an elastic job, killed and replaced.
    """

    id: int
    name: str
    tenant: str
    user: str
    status: str
    reason: str
    gpus: int
    devices: tuple[str, ...]
    priority: int
    model: str
    command: tuple[str, ...]
    submitted: float
    started: float | None = None
    ended: float | None = None
    attempt: int = 0
    steps: int = 0
    total_steps: int = 0
    step_s: float | None = None
    predicted_s: tuple[float, float, float] | None = None
    ends_at: tuple[float, float, float] | None = None
    predicted_speed: tuple[float, float, float] | None = None
    measured_speed: float | None = None
    memory_bytes: int = 0
    memory_used_bytes: int = 0
    compute_milli: int = 1000
    compute_limit_milli: int = 1000
    suspensions: int = 0
    killed_processes: int = 0
    exit_code: int | None = None
    after: tuple[int, ...] = ()


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """One device. ``uuid`` is what identifies it; ``index`` may change at a restart of the machine."""

    device: int
    name: str
    uuid: str
    index: int
    kind: str
    device_type: str
    state: str
    memory_bytes: int
    memory_used_bytes: int
    memory_free_bytes: int
    foreign_bytes: int
    foreign_pids: tuple[int, ...]
    busy: float | None
    free_milli: int
    residents: tuple[Resident, ...]
    enforcement: Mapping[str, str]


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler as a whole. ``saved_bytes``: what saved states of waiting jobs take, by tier."""

    version: str
    policy: str
    forecast: str
    epoch: int
    pid: int
    started: float
    now: float
    events: int
    counts: Mapping[str, int]
    waiting: int
    running: int
    devices: int
    role: str
    warnings: tuple[str, ...]
    saved_bytes: Mapping[str, int] = {}


class Service(Protocol):
    """What the API may ask; every method is safe in any thread and shows only what is on disk.

    Raises ``DeniedError``, ``NotFoundError``, ``ConflictError``, ``InputError`` and ``InfeasibleError``.
    """

    def submit(self, caller: Caller, requests: list[Request]) -> list[Accepted | Exception]:
        """Check jobs and make them durable; waits for nothing else."""

    def command(self, caller: Caller, request: Request) -> Accepted:
        """Ask for anything else (``Request.kind``)."""

    def jobs(self, caller: Caller, *, live_only: bool = False, limit: int = 1000) -> list[JobView]:
        """Newest last."""

    def job(self, caller: Caller, job_id: int) -> JobView:
        """One job."""

    def find(self, caller: Caller, name: str) -> JobView:
        """By number or name; the newest of that name."""

    def explain(self, caller: Caller, job_id: int) -> dict[str, Any]:
        """The story of a job, as ``cotenant explain --json`` tells it."""

    def log_path(self, caller: Caller, job_id: int, stream: str) -> list[str]:
        """Files of a job's output in order, oldest first; ``stream`` is ``stdout`` or ``stderr``."""

    def devices(self, caller: Caller) -> list[DeviceView]:
        """All devices."""

    def status(self) -> StatusView:
        """The whole."""

    def doctor(self, caller: Caller) -> dict[str, Any]:
        """Books against reality, enforcement, what is unsafe."""

    def events(self, caller: Caller, after: int = 0) -> Iterator[bytes]:
        """The log as JSON lines (for reports, and to simulate from)."""

    def subscribe(self, told: Callable[[int, str, dict[str, Any]], None]) -> Callable[[], None]:
        """Be told (number, kind, facts) of every change; returns how to stop. Called in the loop's thread."""

    def metrics(self) -> str:
        """Prometheus text."""
