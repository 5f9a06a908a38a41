"""A machine that does everything wrong that real ones do, by a seed: for tests of what must hold live.

Calls get lost or arrive late, reports are lost, repeated, delayed and out of order, processes crash,
ignore signals and start late, devices vanish, others use them, the machine restarts. What it is
promised to keep is only what a kernel and a disk keep: a serial is claimed once, and a process that
is gone stays gone. ``TrueWorld.wrong`` lists what must never happen and did, in its own truth.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import msgspec

from cotenant.checks.nature import Nature, Process
from cotenant.checks.shifting import Shift
from cotenant.model.cluster import Cluster
from cotenant.model.layout import Layout
from cotenant.model.liveports import (
    AttemptEnded,
    AttemptPaused,
    AttemptStarted,
    DeviceGone,
    Foreign,
    Found,
    Launch,
    Progress,
    Report,
    StopMode,
)
from cotenant.model.placement import Share

__all__ = ["TrueWorld"]

_GRACE_S = 5.0
_STEP_S = 0.5


class TrueWorld:
    """The machine.

    Parameters
    ----------
    cluster : Cluster
    seed : int
    nature : Nature, optional

    Attributes
    ----------
    now : float
        True time, in seconds.
    epoch : int
        The newest epoch written in the state folder.
    wrong : list of str
        What must never happen, and did.
    processes : dict of (int, int) to list of Process
        By job and serial; more than one only if claims are not checked.
    may_run : callable
        Whether the log has a start of (job, serial): a start that nobody wrote down is wrong.
    """

    def __init__(self, cluster: Cluster, seed: int, nature: Nature | None = None) -> None:
        self.rng = random.Random(seed)
        self.nature = nature or Nature()
        self.layout = Layout(cluster)
        self.now = 0.0
        self.epoch = 0
        self.wrong: list[str] = []
        self.processes: dict[tuple[int, int], list[Process]] = {}
        self.saved: dict[int, float] = {}
        self.lengths: dict[int, float] = {}
        self.done: set[int] = set()
        self.down: set[int] = set()
        self.outside: dict[int, int] = {}
        self.may_run: Callable[[int, int], bool] = lambda job_id, serial: True
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._reports: list[tuple[float, int, Report]] = []
        self._count = 0
        self._woken = False

    # -- time --------------------------------------------------------------------------------

    def at(self, t: float, what: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._count += 1
        heapq.heappush(self._heap, (t, self._count, what))

    def wake(self) -> None:
        """Somebody asked for something: a waiting poll returns."""
        self._woken = True

    def poll(self, timeout_s: float) -> list[Report]:
        """Let time pass until a report arrives, somebody wakes us, or the time is over."""
        end = self.now + timeout_s
        while True:
            due = [r for r in self._reports if r[0] <= self.now]
            if due or self._woken or self.now >= end:
                self._woken = False
                self._reports = [r for r in self._reports if r[0] > self.now]
                due.sort(key=lambda r: r[1])
                if len(due) > 1 and self.rng.random() < self.nature.late:
                    self.rng.shuffle(due)
                return [report for _, _, report in due]
            upcoming = [end, *(r[0] for r in self._reports)]
            if self._heap:
                upcoming.append(self._heap[0][0])
            self.now = max(self.now, min(upcoming))
            self.settle()

    def settle(self) -> None:
        """Let happen what was to happen by now."""
        while self._heap and self._heap[0][0] <= self.now:
            heapq.heappop(self._heap)[2]()

    def tell(self, report: Report) -> None:
        """The scheduler hears of something: now, later, twice, or never."""
        nature, rng = self.nature, self.rng
        if rng.random() < nature.lost_report:
            return
        for _ in range(2 if rng.random() < nature.repeated else 1):
            delay = rng.expovariate(0.3) if rng.random() < nature.late else 0.01
            self._count += 1
            self._reports.append((self.now + delay, self._count, report))

    # -- calls -------------------------------------------------------------------------------

    def call(self, what: Callable[[], None]) -> None:
        """A call of the scheduler: it arrives now, later, or never."""
        nature, rng = self.nature, self.rng
        if rng.random() < nature.lost_call:
            return
        if rng.random() < nature.late:
            self.at(self.now + rng.expovariate(0.3), what)
        else:
            what()

    def launch(self, launch: Launch) -> None:
        """A shepherd is started for an attempt."""
        if self.nature.epochs and launch.epoch < self.epoch:
            return
        key = (launch.id, launch.serial)
        known = self.processes.get(key, [])
        if known and self.nature.claims:
            self._say(known[-1])
            return
        if not self.may_run(*key):
            self.wrong.append(f"t={self.now:.2f}: {key} is launched, but no log says so")
        process = Process(launch, self.lengths.get(launch.id, 30.0))
        process.deaf = self.rng.random() < self.nature.ignores_signals
        self.processes.setdefault(key, []).append(process)
        delay = self.rng.expovariate(0.1) if self.rng.random() < self.nature.late_start else 0.05
        self.at(self.now + delay, lambda: self._start(process))

    def _say(self, process: Process) -> None:
        launch = process.launch
        if process.end is not None:
            self.tell(process.end)
        elif process.state == "running":
            self.tell(self._started(launch, process))

    @staticmethod
    def _started(launch: Launch, process: Process) -> AttemptStarted:
        return AttemptStarted(
            id=launch.id, attempt=launch.attempt, serial=launch.serial, pid=process.pid, start_ticks=7
        )

    def _start(self, process: Process) -> None:
        if process.state != "starting":
            return
        launch = process.launch
        self._count += 1
        process.state, process.pid, process.since_s = "running", 1000 + self._count, self.now
        process.work_s = self.saved.get(launch.id, 0.0) if launch.resume else 0.0
        self._check_start(launch, process)
        self.tell(self._started(launch, process))
        if not self.down.isdisjoint(launch.devices):
            self._end(process, "failed", code=1)
            return
        self._go_on(process)
        self._step(process)

    def _check_start(self, launch: Launch, process: Process) -> None:
        others = [p for p in self.alive() if p is not process]
        twice = [p.launch.serial for p in others if p.launch.id == launch.id]
        if twice:
            self.wrong.append(
                f"t={self.now:.2f}: job {launch.id} runs as serials {twice[0]} and {launch.serial}"
            )
        if launch.id in self.done:
            self.wrong.append(f"t={self.now:.2f}: job {launch.id} runs again although it was done")
        for device in launch.devices:
            there = [p.launch for p in self.alive() if device in p.launch.devices]
            self.check_device(device, there)

    def check_device(self, device: int, there: list[Launch]) -> None:
        """Do those who are there hold no more than it has?"""
        capacity = self.layout.device_memory[device]
        held = [capacity if x.share.mode == "exclusive" else x.share.memory_bytes for x in there]
        if sum(held) > capacity:
            who = [(x.id, x.serial, x.share.mode) for x in there]
            self.wrong.append(f"t={self.now:.2f}: device {device} is over-committed by {who}")

    def _go_on(self, process: Process) -> None:
        """Set when it ends by itself, if nothing changes."""
        process.stamp += 1
        stamp, left = process.stamp, process.total_s - process.work_s
        rng, nature = self.rng, self.nature
        if rng.random() < nature.crash:
            left *= rng.random()
            self.at(self.now + left, lambda: self._due(process, stamp, "failed", 0, 9))
        elif rng.random() < nature.fails:
            left *= rng.random()
            self.at(self.now + left, lambda: self._due(process, stamp, "failed", 1, 0))
        elif rng.random() < nature.hangs:
            process.hangs_s = process.work_s + left * rng.random()
        else:
            self.at(self.now + max(left, 0.0), lambda: self._due(process, stamp, "done", 0, 0))

    def _due(self, process: Process, stamp: int, outcome: str, code: int, signal: int) -> None:
        if process.stamp == stamp and process.state == "running" and not process.paused:
            self._end(process, outcome, code=code, signal=signal)

    def _step(self, process: Process) -> None:
        launch = process.launch
        if process.state != "running":
            return
        if not process.paused:
            self.tell(
                Progress(
                    id=launch.id,
                    attempt=launch.attempt,
                    serial=launch.serial,
                    steps=int(process.done_s(self.now) / _STEP_S),
                    total=int(process.total_s / _STEP_S),
                    step_s=_STEP_S,
                    memory_bytes=1,
                )
            )
        self.at(self.now + 7.0, lambda: self._step(process))

    def _end(self, process: Process, outcome: str, *, code: int = 0, signal: int = 0) -> None:
        if process.state == "ended":
            return
        launch = process.launch
        process.work_s = process.done_s(self.now)
        process.state, process.stamp = "ended", process.stamp + 1
        if outcome == "suspended":
            self.saved[launch.id] = process.work_s
        if outcome == "done":
            self.done.add(launch.id)
        process.end = AttemptEnded(
            id=launch.id,
            attempt=launch.attempt,
            serial=launch.serial,
            outcome=outcome,
            code=code,
            signal=signal,
        )
        self.tell(process.end)

    def stop(self, job_id: int, attempt: int, serial: int, mode: StopMode) -> None:
        """A shepherd is told to end its process; one that has none yet will never start one."""
        known = self.processes.get((job_id, serial))
        if not known:
            launch = Launch(id=job_id, attempt=attempt, serial=serial, epoch=0, command=())
            gone = Process(launch, 0.0)
            self.processes[job_id, serial] = [gone]
            self._end(gone, "killed")
            return
        for process in known:
            self._stop(process, mode)

    def _stop(self, process: Process, mode: StopMode) -> None:
        if process.end is not None:
            self.tell(process.end)
        elif process.state == "starting":
            self._end(process, "killed", signal=15)
        elif mode == "kill":
            self.at(self.now + 0.05, lambda: self._end(process, "killed", signal=9))
        elif process.deaf or process.paused:
            self.at(self.now + 2 * _GRACE_S, lambda: self._end(process, "killed", signal=9))
        elif mode == "terminate":
            self.at(self.now + 0.2, lambda: self._end(process, "killed", signal=15))
        elif not process.saving:
            process.saving = True
            takes_s = self.rng.expovariate(1.0)
            self.at(self.now + takes_s, lambda: self._end(process, "suspended", code=85))

    def pause(self, job_id: int, attempt: int, serial: int, paused: bool) -> None:
        """Stop a process by signal, or let it go on."""
        for process in self.processes.get((job_id, serial), []):
            if process.state != "running":
                continue
            if process.paused != paused:
                process.work_s, process.since_s = process.done_s(self.now), self.now
                process.paused = paused
                if not paused:
                    self._go_on(process)
            self.tell(AttemptPaused(id=job_id, attempt=attempt, serial=serial, paused=paused))

    def reshare(self, job_id: int, serial: int, share: Share) -> None:
        """A running process has another share."""
        for process in self.processes.get((job_id, serial), []):
            if process.state == "running":
                process.launch = msgspec.structs.replace(process.launch, share=share)
                for device in process.launch.devices:
                    self.check_device(device, [p.launch for p in self.alive() if device in p.launch.devices])

    def resettle(self, job_id: int, serial: int, number: int, devices: tuple[int, ...]) -> None:
        """An elastic job's processes go elsewhere, in a while, or refuse."""
        for process in self.processes.get((job_id, serial), []):
            if process.state == "running":
                Shift(self, process, number, devices).begin()

    # -- mishaps -----------------------------------------------------------------------------

    def alive(self) -> list[Process]:
        """Processes that really run."""
        return [p for found in self.processes.values() for p in found if p.state == "running"]

    def found(self) -> list[Found]:
        """What a look at the machine shows: what runs, and what is about to, without a pid yet."""
        return [
            Found(
                id=p.launch.id,
                attempt=p.launch.attempt,
                serial=p.launch.serial,
                pid=p.pid,
                start_ticks=7 if p.pid else 0,
                paused=p.paused,
            )
            for known in self.processes.values()
            for p in known
            if p.state != "ended"
        ]

    def restart(self) -> None:
        """The machine restarts: every process is gone, with no word of how."""
        self._reports.clear()
        for found in self.processes.values():
            for process in found:
                if process.state != "ended":
                    self._end(process, "lost")
        self._reports.clear()

    def device(self, device: int, *, up: bool) -> None:
        """A device vanishes or comes back; the machine goes on saying so."""
        (self.down.discard if up else self.down.add)(device)
        for process in self.alive():
            if not up and device in process.launch.devices and self.rng.random() < 0.5:
                self._end(process, "failed", code=1)
        self._say_device(device, up=up, times=8)

    def _say_device(self, device: int, *, up: bool, times: int) -> None:
        if up != (device in self.down) and times:
            self.tell(DeviceGone(device=device, up=up, cause="" if up else "fell off the bus"))
            self.at(self.now + 15.0, lambda: self._say_device(device, up=up, times=times - 1))

    def looked_at(self) -> None:
        """A new daemon's host looks at the devices: it says what is away, and who uses what from outside."""
        for device in sorted(self.down):
            self._say_device(device, up=False, times=3)
        for device, held in sorted(self.outside.items()):
            self.foreign(device, held)

    def foreign(self, device: int, memory_bytes: int) -> None:
        """Somebody outside uses a device, or ends."""
        self.outside[device] = memory_bytes
        if not memory_bytes:
            del self.outside[device]
        pids = (4242,) if memory_bytes else ()
        report = Foreign(device=device, memory_bytes=memory_bytes, pids=pids)
        for delay in (0.0, 20.0, 40.0):
            self.at(self.now + delay, lambda: self.tell(report))
