"""One life of the live scheduler on a hostile machine, by a seed; the same seed is the same life.

The loop, the executor, the reconciliation and the policies are the real ones. The daemon is killed at
any call it makes, before or after its effect, or stalls and goes on when another one leads already.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cotenant import registry
from cotenant.checks.disk import Disk
from cotenant.checks.fates import HOSTILE_S, draw_cluster, draw_settings, mend, verdict, write_script
from cotenant.checks.hostile import TrueWorld
from cotenant.checks.invariants import check_invariants
from cotenant.checks.nature import Nature
from cotenant.engine.loop import Loop
from cotenant.engine.state import State
from cotenant.errors import CotenantError, FencedError, StoreError
from cotenant.live.attempts import Patience
from cotenant.live.executor import LiveExecutor, StoreLog
from cotenant.model.events import encode_event
from cotenant.model.liveports import Found, Launch, Lease, Report, Request, StopMode
from cotenant.model.placement import Share
from cotenant.model.ports import Policy
from cotenant.model.records import JobRecord
from cotenant.testing import FixedForecast

__all__ = ["JOBS", "Faults", "Trial", "main", "trial"]

JOBS = 10
"""Submitted in a trial, unless told otherwise."""

_LONGEST_S = 6000.0
_PATIENCE = Patience(
    again_s=4.0,
    startup_s=40.0,
    audit_s=9.0,
    stall_s=120.0,
    neighbour_s=2.0,
    poll_s=5.0,
    sample_s=20.0,
    settle_s=20.0,
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

    def resettle(self, job_id: int, attempt: int, serial: int, number: int, devices: tuple[int, ...]) -> None:
        def call() -> None:
            self._world.resettle(job_id, serial, number, devices)

        self._grip.call(lambda: self._world.call(call))

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

    def __init__(
        self, seed: int, policy: Callable[[], Policy], faults: Faults, jobs: int, *, elastic: bool = False
    ) -> None:
        self.seed, self._policy, self._faults, self.jobs = seed, policy, faults, jobs
        self.elastic = elastic
        self.rng = random.Random(f"trial {seed}")
        self.cluster = draw_cluster(self.rng, least=3 if elastic else 1)
        nature = Nature(claims=not faults.forgets_claims, epochs=not faults.forgets_epochs)
        self.world = TrueWorld(self.cluster, seed, nature)
        self.disk = Disk()
        self.disk.fences = not faults.forgets_epochs
        self.disk.grip_of = {}  # type: ignore[attr-defined]
        self.world.may_run = self.disk.knows
        self.settings = draw_settings(self.rng)
        self.wrong: list[str] = []
        self.lives = 0
        self.events = 0
        self.asked: dict[int, str] = {}
        self._keys: set[str] = set()
        self._kind = False
        self._clock = _Clock(self.world)
        self._zombie: tuple[Loop, _Grip] | None = None
        self.state: State | None = None
        write_script(self)

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
            self.asked[found.job_id] = key
        self.world.wake()

    @property
    def submitted(self) -> int:
        """Jobs accepted so far."""
        return len(self.asked)

    def look(self) -> None:
        """Is it time for the world to turn kind, or to end?"""
        world = self.world
        if not self._kind and world.now >= HOSTILE_S:
            world.settle()
            self._kind = True
            world.nature = world.nature.kind()
            self.disk.full = False
            mend(self)
        over = self._kind and world.now > HOSTILE_S + 60.0 and self.state is not None
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
        if record.settling and record.place is not None and record.serial == launch.serial:
            return set(launch.devices) <= {*record.settling, *record.place.devices}
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
        self.wrong += verdict(self)
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
        self.world.looked_at()
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


def trial(
    seed: int,
    policy: Callable[[], Policy],
    faults: Faults | None = None,
    *,
    jobs: int = JOBS,
    elastic: bool = False,
) -> Trial:
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
    elastic : bool
        Most jobs can be resized while they run, and are, again and again.
    """
    return Trial(seed, policy, faults or Faults(), jobs, elastic=elastic).run()


def main(words: Sequence[str] | None = None) -> int:
    """Replay one trial: prints its log, then what went wrong.

    ::

        python -m cotenant.checks.trials --policy cotenant --seed 17
    """
    parser = argparse.ArgumentParser(prog="python -m cotenant.checks.trials", description=main.__doc__)
    parser.add_argument("--policy", default="fifo", choices=registry.names("policy"))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--elastic", action="store_true")
    asked = parser.parse_args(words)
    found = trial(asked.seed, registry.load("policy", asked.policy), jobs=asked.jobs, elastic=asked.elastic)
    said = [f"{number} {encode_event(event).decode()}" for number, event in found.disk.read()]
    said.append(f"{found.lives} daemons, {found.events} events, {found.world.now:.0f} s")
    sys.stdout.write("\n".join([*said, *(found.wrong or ["nothing went wrong"]), ""]))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
