"""One job that has devices: its process, what is asked of it, and how far it is."""

from __future__ import annotations

import msgspec

from cotenant.model.jobs import Job
from cotenant.model.liveports import Launch, Progress, StopMode
from cotenant.model.placement import Placement
from cotenant.runs.jobfile import JobFile

__all__ = ["Former", "Patience", "Run", "Want", "goes_on_itself", "launch_of", "stop_mode"]

Want = str
"""What is to become of a run: ``""`` nothing, ``suspend``, ``preempt``, ``cancel``, ``lost`` or ``stalled``."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is awaited, in seconds.

    Parameters
    ----------
    again_s : float
        A call that nobody answers is repeated.
    startup_s : float
        A process that does not start is given up.
    audit_s : float
        What really runs is compared with what should.
    stall_s : float
        A job that told of steps and makes none is taken to have lost its device.
    neighbour_s : float
        Who fails so soon after a neighbour on the same device failed with it.
    poll_s : float
        Longest wait without looking at the requests.
    sample_s : float
        Between two samples of a job.
    settle_s : float
        An elastic job that is resized in place, and does not say that it is where it should be, saves its
        state and starts again; three of its steps are added.
    """

    again_s: float = 10.0
    startup_s: float = 60.0
    audit_s: float = 15.0
    stall_s: float = 600.0
    neighbour_s: float = 5.0
    poll_s: float = 1.0
    sample_s: float = 30.0
    settle_s: float = 120.0


class Former(msgspec.Struct, gc=False, frozen=True):
    """The place that a job leaves to go on elsewhere; ``moves``: both places are in the books."""

    serial: int
    devices: tuple[int, ...]
    moves: bool


class Run(msgspec.Struct, gc=False, eq=False):
    """One job that has devices. Owned by the executor.

    Attributes
    ----------
    phase : str
        ``wanted``: nothing was asked of the host yet; ``unsure``: so it seems after a restart; ``asked``:
        launched, not known to run; ``up``: known to run.
    want : str
        See ``Want``; ``told`` whether the host knows.
    former : Former or None
        The place that is left for this one: until its process is gone, the new one is not launched.
        ``left`` is whether the host knows.
    asked_s : float
        When the host was last asked for something that it has not answered; ``since_s`` for the first time.
    work_s, rate, rated_s : float
        Useful work up to ``rated_s``, speed since; ``base_s`` what its saved state holds.
    step_alone_s : float
        Seconds a step took when it was alone; 0 unknown.
    turned, halted : bool
        Stopped by signal because it is not its turn; because its user wants it to. ``halt`` is what
        the user asked for and the host has not confirmed; ``stood_s`` since when it stands.
    shift : tuple of int or None
        The devices it had when it was resized in place, until the host says that it is where it should be;
        ``shift_s`` when the host was first asked, -1 before.
    killed : int
        Processes of this serial that were killed and replaced, as far as the log says so.
    """

    job: Job
    place: Placement
    attempt: int
    serial: int
    resumed: bool
    rated_s: float
    work_s: float = 0.0
    base_s: float = 0.0
    phase: str = "wanted"
    want: Want = ""
    told: bool = False
    cause: str = ""
    former: Former | None = None
    left: bool = False
    asked_s: float = 0.0
    since_s: float = 0.0
    missed: int = 0
    rate: float = 1.0
    measured: float = 0.0
    steps: int = 0
    total: int = 0
    step_s: float = 0.0
    step_alone_s: float = 0.0
    moved_s: float = -1.0
    memory_bytes: int = 0
    sampled_s: float = -1e18
    sampled: tuple[float, float] = (0.0, 0.0)
    stood_s: float = 0.0
    turned: bool = False
    halted: bool = False
    halt: bool | None = None
    reshare: bool = False
    shift: tuple[int, ...] | None = None
    shift_s: float = -1.0
    killed: int = 0

    @property
    def id(self) -> int:
        """The job's number."""
        return self.job.id

    @property
    def devices(self) -> tuple[int, ...]:
        """Every device on which a process of it may be."""
        before = self.former.devices if self.former is not None else self.shift
        return self.place.devices if before is None else tuple(sorted({*self.place.devices, *before}))

    @property
    def turn(self) -> int:
        """Which turn it has where jobs take turns; one of its own is ``~id``."""
        turn = self.place.share.turn
        return turn if turn >= 0 else ~self.id

    def settle(self, now: float, gone_s: float = 0.0) -> None:
        """Add up what was done until now; for ``gone_s`` of it there was no process any more."""
        self.work_s += self.rate * max(now - self.rated_s, 0.0)
        if gone_s:
            self.work_s = max(self.work_s - self.rate * gone_s, self.base_s)
        self.rated_s = max(now, self.rated_s)

    def done_s(self, now: float) -> float:
        """Useful work so far: steps times seconds a step takes alone, if that is known."""
        if self.steps and self.step_alone_s:
            return self.steps * self.step_alone_s
        return self.work_s + self.rate * max(now - self.rated_s, 0.0)

    def stand(self, stands: bool, now: float) -> None:
        """It stands still, or goes on: while it stands it is no wonder that it makes no steps."""
        if stands:
            self.stood_s = now
        elif self.moved_s >= 0.0:
            self.moved_s += now - self.stood_s

    def see(self, told: Progress, now: float) -> None:
        """Note what a job tells of itself."""
        if told.steps != self.steps or self.moved_s < 0:
            self.moved_s = now
        self.steps, self.total = told.steps, told.total or self.total
        self.step_s, self.memory_bytes = told.step_s or self.step_s, told.memory_bytes


def launch_of(run: Run, asked: JobFile, epoch: int) -> Launch:
    """All that is needed to start the run's process."""
    job = run.job
    return Launch(
        id=job.id,
        attempt=run.attempt,
        serial=run.serial,
        epoch=epoch,
        command=asked.command,
        cwd=asked.cwd,
        env=asked.env,
        devices=run.place.devices,
        share=run.place.share,
        cpu_milli=job.cpu_milli,
        host_memory_bytes=job.host_memory_bytes,
        resume=run.resumed,
        gpus=len(run.place.devices),
        tenant=job.tenant,
        processes=asked.processes if asked.elastic is None else "elastic",
        least=job.min_gpus,
        most=job.max_gpus,
        determinism=job.determinism,
    )


def stop_mode(want: Want, asked: JobFile) -> StopMode:
    """How the host is to end a run.

    Those that go on from a checkpoint of their own are told to end; ``elsewhere``, ``suspend``: state saved.
    """
    if want in ("lost", "stalled"):
        return "kill"
    saves = asked.suspend == "runtime" or (asked.suspend == "restart" and asked.elastic is not None)
    return "suspend" if want in ("suspend", "elsewhere") and saves else "terminate"


def goes_on_itself(asked: JobFile) -> bool:
    """Whether a job that was told to end goes on from a checkpoint of its own; elastic ones have their state saved."""
    return asked.suspend == "restart" and asked.elastic is None
