"""One life of the live scheduler on a hostile machine, by a seed; the same seed is the same life.

The loop, the executor, the reconciliation and the policies are the real ones. The daemon is killed at
any call it makes, before or after its effect, or stalls and goes on when another one leads already.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.checks.disk import Disk
from cotenant.checks.hostile import Nature, TrueWorld
from cotenant.checks.invariants import check_invariants
from cotenant.engine.loop import Loop
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import CotenantError, FencedError, StoreError
from cotenant.live.attempts import Patience
from cotenant.live.executor import LiveExecutor, StoreLog
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.liveports import Found, Launch, Lease, Report, Request, StopMode
from cotenant.model.placement import Share
from cotenant.model.ports import Policy
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings
from cotenant.testing import FixedForecast

__all__ = ["Faults", "Trial", "trial"]

_HOSTILE_S = 300.0
_LONGEST_S = 6000.0
_PATIENCE = Patience(
    again_s=4.0, startup_s=40.0, audit_s=9.0, stall_s=120.0, neighbour_s=2.0, poll_s=5.0, sample_s=20.0
)


class Faults(msgspec.Struct, kw_only=True):
    """What is broken on purpose, to see that a trial finds it."""

    acts_before_writing: bool = False
    forgets_epochs: bool = False
    forgets_claims: bool = False


class Crashed(BaseException):
    """The daemon was killed. Not an ``Exception``: nobody may catch it."""


class Stalled(Crashed):
    """The daemon stands still; it may go on later."""


class Finished(Crashed):
    """All is over."""


class _Grip:
    """Kills a daemon at some call that it makes."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self.zombie = trial, 0

    def call(self, what: Callable[[], Any], *, last: bool = False) -> Any:
        """Make the call, unless the daemon dies before it; it may die right after it, too."""
        trial = self._trial
        if self.zombie:
            return what()
        rng, odds = trial.rng, trial.crash_odds()
        if odds and rng.random() < odds:
            raise Crashed
        found = what()
        if odds and rng.random() < odds:
            raise Crashed
        return found


class _Host:
    """``model.liveports.Host`` on the true world."""

    def __init__(self, trial: Trial, grip: _Grip) -> None:
        self._trial, self._world, self._grip = trial, trial.world, grip

    def launch(self, launch: Launch) -> None:
        self._grip.call(lambda: self._world.call(lambda: self._world.launch(launch)))

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        self._grip.call(lambda: self._world.call(lambda: self._world.stop(job_id, attempt, serial, mode)))

    def pause(self, job_id: int, attempt: int, serial: int, paused: bool) -> None:
        self._grip.call(lambda: self._world.call(lambda: self._world.pause(job_id, attempt, serial, paused)))

    def reshare(self, job_id: int, attempt: int, serial: int, share: Share) -> None:
        self._grip.call(lambda: self._world.reshare(job_id, serial, share))

    def poll(self, timeout_s: float) -> list[Report]:
        trial = self._trial
        if self._grip.zombie:
            self._grip.zombie -= 1
            if not self._grip.zombie:
                raise Stalled
            return []
        trial.look()
        if trial.crash_odds() and trial.rng.random() < 0.01:
            raise Stalled
        found: list[Report] = self._grip.call(lambda: self._world.poll(timeout_s))
        return found

    def wake(self) -> None:
        self._world.wake()

    def running(self) -> list[Found]:
        return self._world.found()

    def forget(self, job_id: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


class _Store(Disk):
    """The disk as one daemon reaches it."""

    def __init__(self, disk: Disk, grip: _Grip) -> None:
        self.__dict__ = disk.__dict__  # one disk, many daemons
        self.grip_of: dict[int, _Grip]
        self._grip_now = grip

    def append(self, lease: Lease, events: Any, done_seq: int) -> int:
        found: int = self.grip_of[lease.epoch].call(lambda: Disk.append(self, lease, events, done_seq))
        return found


class _Clock:
    def __init__(self, world: TrueWorld) -> None:
        self._world, self.ahead_s = world, 0.0

    def now(self) -> float:
        return self._world.now + self.ahead_s

    def wall(self, t: float) -> float:
        return 1.8e9 + t


class Trial:
    """One trial; see ``trial``.

    Attributes
    ----------
    wrong : list of str
        What must not happen and did; empty if all is well.
    lives : int
        Daemons that led.
    events : int
        Length of the log.
    """

    def __init__(self, seed: int, policy: Callable[[], Policy], faults: Faults, jobs: int) -> None:
        self.seed, self._policy, self._faults, self._jobs = seed, policy, faults, jobs
        self.rng = random.Random(f"trial {seed}")
        self.cluster = _cluster(self.rng)
        nature = Nature(claims=not faults.forgets_claims, epochs=not faults.forgets_epochs)
        self.world = TrueWorld(self.cluster, seed, nature)
        self.disk = Disk()
        self.disk.fences = not faults.forgets_epochs
        self.disk.grip_of = {}  # type: ignore[attr-defined]
        self.world.may_run = self.disk.knows
        self.settings = _settings(self.rng)
        self.wrong: list[str] = []
        self.lives = 0
        self.events = 0
        self._asked: dict[int, str] = {}
        self._keys: set[str] = set()
        self._kind = False
        self._clock = _Clock(self.world)
        self._zombie: tuple[Loop, _Grip] | None = None
        self.state: State | None = None
        _script(self)

    # -- the world's side ------------------------------------------------------------------------

    def crash_odds(self) -> float:
        """How likely the daemon dies at a call."""
        return 0.0 if self._kind else 0.006

    def request(self, kind: str, body: dict[str, Any]) -> None:
        """A user asks for something; an answer that is lost is asked for again."""
        key = f"k{len(self._keys)}"
        request = Request(key=key, tenant="", kind=kind, body=body)
        for _ in range(2 if self.rng.random() < 0.2 else 1):
            (found,) = self.disk.accept([request], self._clock.now())
        if isinstance(found, Exception):
            return
        self._keys.add(key)
        if found.job_id >= 0:
            self.world.lengths[found.job_id] = self.rng.choice((2.0, 15.0, 40.0, 90.0))
            self._asked[found.job_id] = key
        self.world.wake()

    @property
    def submitted(self) -> int:
        """Jobs accepted so far."""
        return len(self._asked)

    def look(self) -> None:
        """Is it time for the world to turn kind, or to end?"""
        world = self.world
        if not self._kind and world.now >= _HOSTILE_S:
            self._kind = True
            world.nature = world.nature.kind()
            self.disk.full = False
            _mend(self)
        over = self._kind and world.now > _HOSTILE_S + 60.0 and self.state is not None
        if over:
            self._compare()
        if over and not self.state.records and not self.state.held and not world.alive():  # type: ignore[union-attr]
            raise Finished
        if world.now > _LONGEST_S:
            raise Finished

    def _compare(self) -> None:
        """The books against the machine, once what was under way has come to its end."""
        for process in self.world.alive():
            launch, state = process.launch, self.state
            record = state.records.get(launch.id) if state is not None else None
            if record is None or record.place is None:
                self.wrong.append(
                    f"t={self.world.now:.2f}: job {launch.id} runs, and has no place in the books"
                )
                raise Finished
            told = (
                record.serial,
                record.place.devices,
                record.place.share.mode,
                record.place.share.memory_bytes,
            )
            share = launch.share
            if told != (launch.serial, launch.devices, share.mode, share.memory_bytes) and not self._leaves(
                record, launch
            ):
                self.wrong.append(f"t={self.world.now:.2f}: the books have {told}, the machine runs {launch}")
                raise Finished

    @staticmethod
    def _leaves(record: JobRecord, launch: Launch) -> bool:
        """It is about to go on elsewhere."""
        return record.serial == launch.serial + 1 and record.process is not None

    # -- the daemons' side -----------------------------------------------------------------------

    def run(self) -> Trial:
        """Let daemons live one after the other until all is over."""
        while self.lives < 400:
            try:
                self._live()
            except Finished:
                break
            except Stalled:
                continue
            except Crashed:
                self._zombie = None
            except StoreError:
                self.world.now += 5.0
                self.disk.full = False
            except CotenantError as error:
                self.wrong.append(f"t={self.world.now:.2f}: {type(error).__name__}: {error}")
                break
            if self.rng.random() < 0.2:
                self._clock.ahead_s += self.rng.choice((0.001, 1.0, 3600.0))
            self.world.now += self.rng.choice((0.0, 0.1, 10.0))
        self.wrong += self.world.wrong
        self.wrong += _verdict(self)
        return self

    def _live(self) -> None:
        grip = _Grip(self)
        self.lives += 1
        store = _Store(self.disk, grip)
        lease = store.acquire(f"daemon {self.lives}", 10.0)
        assert lease is not None  # noqa: S101 - a disk always gives it
        self.disk.grip_of[lease.epoch] = grip  # type: ignore[attr-defined]
        if not self._faults.forgets_epochs:
            self.world.epoch = lease.epoch
        executor = LiveExecutor(
            store,
            _Host(self, grip),
            self._clock,
            lease,
            settings=self.settings,
            forecast=FixedForecast(default=0.8),
            patience=_PATIENCE,
        )
        loop = Loop(
            cluster=self.cluster,
            policy=self._policy(),
            executor=executor,
            forecast=FixedForecast(default=0.8),
            settings=self.settings,
            log=StoreLog(store, lease, executor),
            history=[event for _, event in store.read()],
            durable=not self._faults.acts_before_writing,
            on_event=check_invariants,
            header={"policy": "trial"},
        )
        self.state = loop.state
        self._awake()
        self._zombie = loop, grip
        loop.run()

    def _awake(self) -> None:
        """A daemon that stood still goes on for a moment, although another one leads."""
        zombie, self._zombie = self._zombie, None
        if zombie is None:
            return
        loop, grip = zombie
        grip.zombie = 3
        with contextlib.suppress(Crashed, FencedError, StoreError):
            loop._play()


def trial(seed: int, policy: Callable[[], Policy], faults: Faults | None = None, *, jobs: int = 10) -> Trial:
    """Run one trial.

    Parameters
    ----------
    seed : int
    policy : callable
        Makes the policy; a new one for each daemon.
    faults : Faults, optional
        What is broken on purpose.
    jobs : int
        How many are submitted.
    """
    return Trial(seed, policy, faults or Faults(), jobs).run()


def _cluster(rng: random.Random) -> Cluster:
    kind = DeviceType(name="card", memory_bytes=16 * GIB, speed=1.0)
    return Cluster(
        nodes=(Node(name="here", gpus=(("card", rng.choice((1, 1, 2, 4))),), cpu_milli=16000),), types=(kind,)
    )


def _settings(rng: random.Random) -> Settings:
    return Settings(
        min_quantum_s=rng.choice((0.0, 10.0)),
        restore_s=1.0,
        slice_s=10.0,
        retry_lost=1000,
        max_sharers=rng.choice((2, 4)),
        starts_per_event=rng.choice((0, 0, 1)),
    )


def _script(trial: Trial) -> None:
    """What users and fate will do."""
    rng, world = trial.rng, trial.world
    for _ in range(trial._jobs):
        world.at(rng.uniform(0.0, 0.5 * _HOSTILE_S), lambda: _submit(trial))
    for _ in range(rng.randrange(3, 14)):
        world.at(rng.uniform(1.0, _HOSTILE_S), lambda: _order(trial))
    for _ in range(rng.randrange(0, 6)):
        world.at(rng.uniform(1.0, _HOSTILE_S), lambda: _mishap(trial))


def _submit(trial: Trial) -> None:
    rng = trial.rng
    body: dict[str, Any] = {
        "name": f"job-{trial.submitted}",
        "command": ["train"],
        "gpu_memory": rng.choice(("2GiB", "5GiB", "9GiB")),
        "model": rng.choice(("small", "wide")),
        "sharing": rng.choice(("any", "any", "exclusive")),
        "priority": rng.choice((0, 0, 5)),
        "retries": rng.choice((0, 1, 3)),
        "suspend": rng.choice(("runtime", "runtime", "runtime", "restart", "pause", "none")),
    }
    devices = trial.cluster.gpu_count
    if rng.random() < 0.3:
        body["gpu_compute"] = rng.choice(("20%", "50%"))
    elif devices > 1 and rng.random() < 0.3:
        body["gpus"] = 2
        if rng.random() < 0.5:
            body["elastic"] = {"min_gpus": 1, "max_gpus": devices}
    if trial.submitted and rng.random() < 0.2:
        body["after"] = [rng.randrange(trial.submitted)]
    trial.request("submit", body)


def _order(trial: Trial) -> None:
    rng = trial.rng
    job_id = rng.randrange(max(trial.submitted, 1))
    kind = rng.choice(("cancel", "suspend", "suspend", "resume", "priority", "resize", "resize", "drain"))
    if kind == "drain":
        trial.request("drain", {"node": 0})
        trial.world.at(trial.world.now + 20.0, lambda: trial.request("undrain", {"node": 0}))
        return
    body: dict[str, Any] = {"id": job_id}
    if kind == "priority":
        body["priority"] = rng.choice((-1, 9))
    elif kind == "resize":
        body |= rng.choice(({"compute_milli": 300}, {"gpus": 1}, {"gpus": 2}, {"compute_limit_milli": 600}))
    trial.request(kind, body)


def _mishap(trial: Trial) -> None:
    rng, world = trial.rng, trial.world
    device = rng.randrange(trial.cluster.gpu_count)
    back = world.now + rng.uniform(5.0, 80.0)
    kind = rng.choice(("restart", "device", "device", "foreign", "full", "zombie"))
    if kind == "restart":
        world.restart()
    elif kind == "device":
        world.device(device, up=False)
        world.at(back, lambda: world.device(device, up=True))
    elif kind == "foreign":
        world.foreign(device, 12 * GIB)
        world.at(back, lambda: world.foreign(device, 0))
    elif kind == "full":
        trial.disk.full = True


def _mend(trial: Trial) -> None:
    """The world turns kind: what is away comes back, and nobody is held back any more."""
    world = trial.world
    for device in range(trial.cluster.gpu_count):
        world.device(device, up=True)
        world.foreign(device, 0)
    trial.request("undrain", {"node": 0})
    for job_id in range(trial.submitted):
        trial.request("resume", {"id": job_id})


def _verdict(trial: Trial) -> list[str]:
    """What must hold when all is over."""
    state, wrong = trial.state, list[str]()
    assert state is not None  # noqa: S101 - somebody lived
    log = [event for _, event in trial.disk.read()]
    trial.events = len(log)
    if state.records or state.held:
        stuck = [(r.id, r.status.name, r.hold) for r in (*state.records.values(), *state.held.values())]
        wrong.append(f"after {trial.world.now:.0f} s jobs have not ended: {stuck}")
    ends: dict[int, int] = {}
    for event in log:
        if isinstance(event, ev.Rejected) or (isinstance(event, ev.Ended) and event.final):
            ends[event.id] = ends.get(event.id, 0) + 1
    wrong += [f"job {job} ended {ends.get(job, 0)} times" for job in trial._asked if ends.get(job, 0) != 1]
    submitted = [event.job.id for event in log if isinstance(event, ev.Submitted)]
    if sorted(submitted) != list(range(trial.submitted)):
        wrong.append(f"submitted: {submitted}, accepted: {trial.submitted} jobs")
    keys = [key for event in log if (key := getattr(event, "request", ""))]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        wrong.append(f"requests applied twice: {twice}")
    if left := [p.launch.id for p in trial.world.alive()]:
        wrong.append(f"jobs still run that no log knows: {left}")
    folded = State(trial.cluster, trial.settings)
    folded.go_live()
    for event in log:
        folded.apply(event)
    if not wrong and picture(folded) != picture(state):
        wrong.append("folding the log does not give the state")
    return wrong
