"""What the parts of the live scheduler ask of each other.

The loop decides and logs; a store keeps the log and what users asked for; a host starts and
stops processes. Each of the three can be replaced by a hostile one, which is how they are tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from cotenant.model.events import Event
from cotenant.model.placement import Share

__all__ = [
    "Accepted",
    "AttemptEnded",
    "AttemptPaused",
    "AttemptResettled",
    "AttemptStarted",
    "Clock",
    "DeviceGone",
    "Foreign",
    "Found",
    "Host",
    "Launch",
    "Lease",
    "Progress",
    "Report",
    "Request",
    "StopMode",
    "Store",
]

StopMode = Literal["suspend", "terminate", "kill"]


class Clock(Protocol):
    """Seconds since the log began; never goes back, whatever the machine's clock does."""

    def now(self) -> float:
        """The present."""

    def wall(self, t: float) -> float:
        """The same instant as seconds since 1970, for people."""


# -- the store ---------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something a user asked for, under an id that the client chose: asking twice is safe.

    Parameters
    ----------
    key : str
        Chosen by the client; unique within a tenant. Same key and content: the same answer. Same key,
        other content: refused (``ConflictError``).
    tenant : str
        Who asked, as the token says.
    kind : str
        ``submit``, ``cancel``, ``suspend``, ``resume``, ``resize``, ``priority``, ``drain``, ``undrain``.
    body : dict
        Plain JSON: for ``submit`` the job as in a job file, else the job's number and arguments.
    """

    key: str
    tenant: str
    kind: str
    body: dict[str, Any]


class Accepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that is on disk.

    Parameters
    ----------
    seq : int
        Place in the order of acceptance.
    t : float
        When, on the log's clock.
    request : Request
    job_id : int
        Number given to a submitted job (dense, from 0, in order of acceptance), else -1.
    again : bool
        The same request had been accepted before.
    """

    seq: int
    t: float
    request: Request
    job_id: int = -1
    again: bool = False


class Lease(msgspec.Struct, frozen=True):
    """The right to write the log; a later lease has a higher epoch and ends all earlier ones."""

    epoch: int
    owner: str
    ttl_s: float


class Store(Protocol):
    """The log, the requests and the lease, on SQLite or PostgreSQL.

    Raises ``StoreError`` (a ``CotenantError``) with what failed and what to do: disk full, locked,
    corrupt. ``FencedError`` where the lease is no longer ours. Nothing half-written is ever seen.
    """

    def acquire(self, owner: str, ttl_s: float) -> Lease | None:
        """Take the lease if nobody holds it or it has run out."""

    def renew(self, lease: Lease) -> None:
        """Prolong it; ``FencedError`` if lost."""

    def release(self, lease: Lease) -> None:
        """Give it up, so that a successor need not wait."""

    def append(self, lease: Lease, events: Sequence[Event], done_seq: int) -> int:
        """Write events, and that requests up to ``done_seq`` are in them, in one durable transaction.

        Returns the number of events in the log. ``FencedError`` if the lease is not the newest.
        """

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The log in order, numbered from 1, after that number."""

    def accept(self, requests: Sequence[Request], t: float) -> list[Accepted | Exception]:
        """Make requests durable in one transaction; from any thread, leader or not.

        An item that conflicts is answered by its error, the others are accepted.
        """

    def waiting(self, after_seq: int, limit: int = 1000) -> list[Accepted]:
        """Requests accepted after that one, in order."""

    def done_seq(self) -> int:
        """The last request whose events are in the log."""

    def job(self, job_id: int) -> Accepted | None:
        """The request that submitted a job."""

    def close(self) -> None:
        """Give back files and connections."""


# -- the host ----------------------------------------------------------------------------


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt to be started, complete: who is handed it needs to ask nobody.

    Parameters
    ----------
    id, attempt, epoch : int
        Which; at most one process tree ever runs for an (id, attempt, launch number).
    serial : int
        Counts starts of one job, resumed ones too: a resumed attempt keeps its ``attempt``.
    command : tuple of str
        Words; no shell reads them.
    env : dict
        The job's own variables, on top of those that the host sets.
    cwd : str
    devices : tuple of int
        Numbers as the cluster counts them; the host knows what they are (``DeviceInfo``).
    share : Share
    cpu_milli, host_memory_bytes : int
        0: not limited.
    resume : bool
        State was saved; the job is told where (``COTENANT_STATE``).
    gpus : int
        Gang size; more than one process each only if the command says so: the host sets
        torchrun-style rendezvous variables.
    processes : {"one", "per-device", "elastic"}
        ``per-device``: the command is started once for each device, with ``RANK`` and its kin; if one
        fails, all are ended.
        ``elastic``: a process for each device, as ``cotenant run --elastic`` starts them.
    least, most : int
        Devices that an elastic job may have; 0: as many as it has.
    determinism : str
        As in ``model.jobs.Job``: an elastic run is told, and refuses saved state of which less is left.
    """

    id: int
    attempt: int
    serial: int
    epoch: int
    command: tuple[str, ...]
    cwd: str = ""
    env: dict[str, str] = {}
    devices: tuple[int, ...] = ()
    share: Share = Share()
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    resume: bool = False
    gpus: int = 1
    tenant: str = ""
    processes: Literal["one", "per-device", "elastic"] = "one"
    least: int = 0
    most: int = 0
    determinism: str = "none"


class AttemptStarted(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The process runs; identity is pid and the kernel's start time, never the pid alone."""

    id: int
    attempt: int
    serial: int
    pid: int
    start_ticks: int


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended", omit_defaults=True):
    """The whole process tree is gone.

    ``outcome``: ``done`` (exit code 0), ``suspended`` (state saved as asked), ``failed``, ``killed``
    (as we asked), ``out-of-memory``, ``lost`` (gone with no word, a machine restart for example),
    ``not-started`` (could not be started; ``detail`` says why). ``steps`` done in this serial;
    ``ago_s`` seconds since it ended, where nobody looked for a while; 0 if that is not known. ``again``: it
    was not started for want of what comes back (space, memory, processes); the same launch tries anew.
    """

    id: int
    attempt: int
    serial: int
    outcome: str
    code: int = 0
    signal: int = 0
    detail: str = ""
    steps: int = 0
    ago_s: float = 0.0
    again: bool = False


class AttemptPaused(msgspec.Struct, frozen=True, kw_only=True, tag="paused"):
    """Stopped by signal (or going again): it holds its memory."""

    id: int
    attempt: int
    serial: int
    paused: bool


class AttemptResettled(msgspec.Struct, frozen=True, kw_only=True, tag="resettled", omit_defaults=True):
    """The processes of an elastic attempt are on the devices of order ``number`` and on no others.

    If not ``done``, they will not be, and ``detail`` says why.
    """

    id: int
    attempt: int
    serial: int
    number: int
    done: bool = True
    detail: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress", omit_defaults=True):
    """How far a job is, as it tells itself, and what it uses.

    ``steps`` since the attempt began (over suspensions), ``total`` steps in all if told, else 0;
    ``step_s`` mean seconds a step over the last window, 0 if none ended in it. ``killed``: processes of an elastic
    job that were killed and replaced since it was launched, the last one by ``killed_by``, ``killed_ago_s`` ago.
    """

    id: int
    attempt: int
    serial: int
    steps: int
    total: int = 0
    step_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    state_bytes: int = 0
    killed: int = 0
    killed_by: int = 0
    killed_ago_s: float = 0.0


class Foreign(msgspec.Struct, frozen=True, kw_only=True, tag="foreign"):
    """Memory of a device held by processes that are not ours; 0 and () once they are gone."""

    device: int
    memory_bytes: int
    pids: tuple[int, ...]


class DeviceGone(msgspec.Struct, frozen=True, kw_only=True, tag="device", omit_defaults=True):
    """A device cannot be used (``up`` False), or can again."""

    device: int
    up: bool
    cause: str = ""


Report = AttemptStarted | AttemptEnded | AttemptPaused | AttemptResettled | Progress | Foreign | DeviceGone


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of ours that really runs, as found after a restart."""

    id: int
    attempt: int
    serial: int
    pid: int
    start_ticks: int
    paused: bool = False


class Host(Protocol):
    """Starts, stops and watches processes. Nothing blocks for long; all calls are idempotent.

    Every call carries (id, attempt, serial) so that a late or repeated one cannot hit another run.
    What comes of a call is told by ``poll``, at least once.
    """

    def launch(self, launch: Launch) -> None:
        """Start an attempt; does nothing if this serial was started before. Answered by a report."""

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        """``suspend``: ask to save and leave, then as ``terminate`` after the grace; ``terminate``: TERM,
        grace, KILL; ``kill``: at once. The whole tree. Answered by ``AttemptEnded``."""

    def pause(self, job_id: int, attempt: int, serial: int, paused: bool) -> None:
        """Stop it by signal, or let it go on."""

    def reshare(self, job_id: int, attempt: int, serial: int, share: Share) -> None:
        """Change the share of a running attempt without stopping it."""

    def resettle(self, job_id: int, attempt: int, serial: int, number: int, devices: tuple[int, ...]) -> None:
        """Have the processes of an elastic attempt be on these devices, without a restart.

        Orders of one job are numbered: an earlier one changes nothing after a later one. Answered by
        ``AttemptResettled``; until then processes may be on the devices before and on these.
        """

    def poll(self, timeout_s: float) -> list[Report]:
        """What happened since the last call; waits at most so long for something."""

    def wake(self) -> None:
        """Make a waiting ``poll`` return; from any thread."""

    def running(self) -> list[Found]:
        """What of ours really runs."""

    def forget(self, job_id: int) -> None:
        """The job ended for good: what is kept for it alone may go (its output stays)."""

    def close(self) -> None:
        """Let go; the jobs run on."""
