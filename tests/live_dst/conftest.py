"""A calm machine with the real loop and executor, on which tests let things go wrong one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cotenant.checks.disk import Disk
from cotenant.checks.hostile import TrueWorld
from cotenant.checks.invariants import check_invariants
from cotenant.checks.nature import Nature, Process
from cotenant.engine.loop import Loop
from cotenant.engine.state import State
from cotenant.live.attempts import Patience
from cotenant.live.executor import LiveExecutor, StoreLog
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.liveports import Found, Launch, Report, Request, StopMode
from cotenant.model.placement import Share
from cotenant.model.ports import Policy
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.fifo import Fifo

PATIENCE = Patience(startup_s=60.0, stall_s=600.0)


class Enough(BaseException):
    """The time to which a test wanted to go has come."""


class Machine:
    """A machine, its disk, and the scheduler that leads on it; also the ``Host`` and ``Clock`` of that one.

    Attributes
    ----------
    world : TrueWorld
        What really runs.
    disk : Disk
    launched : list of Launch
        Every launch that reached the host.
    forgotten : list of int
        Jobs that the host need not know any more.
    """

    def __init__(
        self,
        policy: Callable[[], Policy] = Fifo,
        *,
        gpus: int = 1,
        memory_gib: int = 24,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        kind = DeviceType(name="card", memory_bytes=memory_gib * GIB)
        self.cluster = cluster or Cluster(types=(kind,), nodes=(Node(name="here", gpus=(("card", gpus),)),))
        self.world = TrueWorld(self.cluster, 1, Nature().kind())
        self.disk = Disk()
        self.world.may_run = self.disk.knows
        self.launched: list[Launch] = []
        self.forgotten: list[int] = []
        self.policy, self.settings = policy, settings or Settings(min_quantum_s=0.0)
        self._until_s, self._keys = 0.0, 0
        self.loop = self.begin()

    def begin(self) -> Loop:
        """A new scheduler takes over; the one before is gone."""
        lease = self.disk.acquire("daemon", 10.0)
        assert lease is not None
        self.world.epoch = lease.epoch
        self.world.looked_at()
        self.executor = LiveExecutor(self.disk, self, self, lease, settings=self.settings, patience=PATIENCE)
        self.loop = Loop(
            cluster=self.cluster,
            policy=self.policy(),
            executor=self.executor,
            settings=self.settings,
            log=StoreLog(self.disk, lease, self.executor),
            history=[event for _, event in self.disk.read()],
            durable=True,
            on_event=check_invariants,
        )
        self._begun = False
        return self.loop

    def ask(self, kind: str, **body: Any) -> int:
        """A user asks for something; returns the number of a submitted job."""
        self._keys += 1
        request = Request(key=f"k{self._keys}", tenant="", kind=kind, body=body)
        (found,) = self.disk.accept([request], self.world.now)
        assert not isinstance(found, Exception)
        self.world.wake()
        return found.job_id

    def submit(self, name: str, *, runs_s: float = 1e6, gib: int = 8, **body: Any) -> int:
        """Submit a job that really runs so long."""
        body = {"command": ["train"], "gpu_memory": f"{gib}GiB", "sharing": "any", **body}
        job_id = self.ask("submit", name=name, **body)
        self.world.lengths[job_id] = runs_s
        return job_id

    def to(self, t: float) -> Machine:
        """Let time go by."""
        self._until_s = t
        try:
            if self._begun:
                self.loop._play()
            else:
                self._begun = True
                self.loop.run()
        except Enough:
            pass
        assert self.world.wrong == []
        return self

    @property
    def state(self) -> State:
        """What the scheduler believes."""
        return self.loop.state

    def log(self, *kinds: type) -> list[Any]:
        """Events of these kinds, in order."""
        return [event for _, event in self.disk.read() if not kinds or isinstance(event, kinds)]

    def process(self, job_id: int) -> Process:
        """The newest process of a job."""
        return self.world.processes[max(key for key in self.world.processes if key[0] == job_id)][-1]

    def runs(self) -> list[int]:
        """Jobs with a process that is alive."""
        return sorted(p.launch.id for p in self.world.alive())

    # -- Host ----------------------------------------------------------------------------

    def launch(self, launch: Launch) -> None:
        self.launched.append(launch)
        self.world.launch(launch)

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        self.world.stop(job_id, attempt, serial, mode)

    def pause(self, job_id: int, attempt: int, serial: int, paused: bool) -> None:
        self.world.pause(job_id, attempt, serial, paused)

    def reshare(self, job_id: int, attempt: int, serial: int, share: Share) -> None:
        self.world.reshare(job_id, serial, share)

    def resettle(self, job_id: int, attempt: int, serial: int, number: int, devices: tuple[int, ...]) -> None:
        self.world.resettle(job_id, serial, number, devices)

    def poll(self, timeout_s: float) -> list[Report]:
        if self.world.now >= self._until_s:
            raise Enough
        return self.world.poll(min(timeout_s, self._until_s - self.world.now))

    def wake(self) -> None:
        self.world.wake()

    def running(self) -> list[Found]:
        return self.world.found()

    def forget(self, job_id: int) -> None:
        log = self.log()
        known = any(isinstance(event, ev.Submitted) and event.job.id == job_id for event in log)
        over = any(isinstance(event, ev.Rejected | ev.Ended) and event.id == job_id for event in log)
        assert over or not known, "forgotten before it is written down that it has ended"
        self.forgotten.append(job_id)

    def close(self) -> None:
        pass

    # -- Clock ---------------------------------------------------------------------------

    def now(self) -> float:
        return self.world.now

    def wall(self, t: float) -> float:
        return t


@pytest.fixture
def machine() -> type[Machine]:
    """Makes machines."""
    return Machine
