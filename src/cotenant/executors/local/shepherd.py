"""Holds one attempt of one job: starts it, keeps its output, obeys, and writes how it ended.

Run as a file of its own (``python -I -S shepherd.py FOLDER``) or born by the nursery, in a session of its own, so that
neither the daemon's death nor a terminal's end touches it; it imports the standard library alone and sleeps in one
``poll`` while nothing happens. In FOLDER lie ``spec.json`` (what to start), ``claim`` (by linking: of two, one starts
the job), ``started.json``, ``control.json`` (orders; ``control`` wakes it), ``status`` and, at the end, ``exit.json``.

Leaves with 0 when that is written, 3 if its epoch is over, 4 if the attempt is another's, 5 if it could not even
begin, 6 if it could not for want of what comes back (space, memory, processes).
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # By its folders alone, so that neither the package's door nor what that imports is loaded.
    import types

    _here = __file__.rpartition("/")[0]
    for _name, _up in (("cotenant.executors.local", 0), ("cotenant.executors", 1), ("cotenant", 2)):
        _package = types.ModuleType(_name)
        _package.__path__ = [_here.rsplit("/", _up)[0] if _up else _here]
        sys.modules[_name] = _package

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable

from cotenant.executors.local import layout
from cotenant.executors.local.birth import become_subreaper, start
from cotenant.executors.local.duty import DutyCycle
from cotenant.executors.local.freezing import Freezer
from cotenant.executors.local.outputs import OutputFile
from cotenant.executors.local.ports import taken
from cotenant.executors.local.stepcount import StepCounter
from cotenant.executors.local.stopping import Stop
from cotenant.executors.local.trees import TreeClock, descendants, hold_still, signal_tree
from cotenant.executors.local.verdict import judge, kills, machine_kills, saved_as_asked

# The module typing would cost a fifth of the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Shepherd", "main"]

STALE, TAKEN, BROKEN, SHORT = 3, 4, 5, 6
_SWEEP_S = 0.02
_AGAIN_S = 1.0
_GONE_S = 60.0


class Shepherd:
    """One attempt, from claim to ``exit.json``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = layout.read_json(f"{folder}/spec.json")
        self.state_dir = str(self.spec.get("state_dir", ""))
        self.status = os.open(f"{folder}/status", os.O_RDWR | os.O_CLOEXEC)
        self.control = os.open(f"{folder}/control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.steps = StepCounter(f"{folder}/steps", self.status)
        self.outputs: list[OutputFile] = []
        self.ranks: dict[int, int] = {}
        self.codes: list[int] = []
        self.paused, self.asked, self.seen = False, "", -1
        self.leaving = self.short = self.told = False
        self.stop: Stop | None = None
        self.duty: DutyCycle | None = None
        self.freezer = Freezer(str(self.spec.get("freezer", "")))
        self.save_s = 0.0
        self.machine_kills = machine_kills()
        self.clock = TreeClock(os.getpid())

    # -- beginning -----------------------------------------------------------------------

    def claim(self) -> int:
        """Take the attempt, for good; 0, or the code to leave with."""
        if self.epoch() > int(self.spec["epoch"]):
            return STALE
        mine, room = f"{self.folder}/claim.{os.getpid()}", f"{self.folder}/room.{os.getpid()}"
        layout.write_json(mine, layout.identity() | {"epoch": self.spec["epoch"]})
        # All the room that it will need is taken before the attempt is: one that is claimed must be told the end of.
        rooms = (room, f"{room}.started")
        try:
            for name in rooms:
                layout.keep_room(name)
            os.link(mine, f"{self.folder}/claim")
            for name, at in zip(rooms, ("exit", "started"), strict=True):
                os.replace(name, f"{self.folder}/{at}.room")  # noqa: PTH105
        except FileExistsError:
            return TAKEN
        finally:
            for name in (mine, *rooms):
                with contextlib.suppress(OSError):
                    os.unlink(name)  # noqa: PTH108
        return 0

    def epoch(self) -> int:
        """The newest epoch that anybody wrote."""
        return layout.read_epoch(self.state_dir)

    def begin(self) -> str:
        """Start every rank; returns what went wrong, if something did."""
        pipes = []
        for name in ("stdout", "stderr"):
            read, write = os.pipe()
            os.set_blocking(read, False)
            pipes.append(write)
            self.outputs.append(
                OutputFile(
                    f"{self.folder}/{name}.log", read, int(self.spec["log_bytes"]), int(self.spec["log_keep"])
                )
            )
        problem = ""
        for rank, own in enumerate(self.spec.get("ranks") or [{}]):
            pid, problem = start(self.spec, {**self.spec["env"], **own}, (pipes[0], pipes[1]))
            if problem:
                self.short = -pid in layout.PASSING
                problem = f"rank {rank}: {problem}" if rank else problem
                break
            self.ranks[pid] = rank
        for write in pipes:
            os.close(write)
        return problem

    # -- running -------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until no process is left."""
        wake, woken = os.pipe()
        for descriptor in (wake, woken):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if self.spec.get("duty"):
            self.duty = DutyCycle(
                self.clock,
                int(self.spec["duty"]),
                lambda: self._signal(signal.SIGSTOP),
                self._go,
                time.monotonic(),
            )
        poll = select.poll()
        for descriptor in (wake, self.control, *(out.pipe for out in self.outputs)):
            poll.register(descriptor, select.POLLIN)
        self.obey()
        while not self.reap():
            if self.leaving and self.stop is None:
                # The machine goes down: TERM is all the notice that anybody gets.
                self.order("suspend")
            if self.steps.due(time.monotonic()):
                poll.register(self.steps.pipe, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(self._timeout_ms())}
            if self.steps.pipe in ready:
                self.steps.count(time.monotonic())
                poll.unregister(self.steps.pipe)
            for out in self.outputs:
                if out.pipe in ready and not out.pump() and not out.open:
                    poll.unregister(out.pipe)
            for descriptor in ready & {wake, self.control}:
                with contextlib.suppress(OSError):
                    while os.read(descriptor, 4096):
                        pass
            if self.control in ready:
                self.obey()

    def _timeout_ms(self) -> int | None:
        """Until something must be looked at again; None: nothing but what others do."""
        now = time.monotonic()
        waits = [self.steps.wait_s(now)]
        if self.stop is not None:
            waits.append(self.stop.step(now))
        elif self.duty is not None and not self.paused:
            waits.append(self.duty.step(now, layout.read_word(self.status, layout.DUTY_AT, 4)))
        known = [wait for wait in waits if wait is not None]
        return None if not known else max(int(min(known) * 1000.0 + 0.999), 0)

    def reap(self) -> bool:
        """Collect the dead; True once nobody is left, descendants in other sessions included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid in self.ranks:
                del self.ranks[pid]
                code = os.waitstatus_to_exitcode(status)
                self.codes.append(code)
                # One rank that fails fails all; once the last has ended, what it left behind must go, too.
                if code not in (0, layout.SUSPENDED_CODE) or not self.ranks:
                    self._end_the_rest()

    def _end_the_rest(self) -> None:
        if self.stop is None and descendants(os.getpid()):
            self._thaw()
            self.stop = Stop(self, "rest")

    # -- orders --------------------------------------------------------------------------

    def obey(self) -> None:
        """Carry out what ``control.json`` says, if it is new and from a scheduler that still may."""
        found: dict[str, Any] = layout.read_json(f"{self.folder}/control.json")
        if (
            not found
            or int(found.get("version", 0)) <= self.seen
            or int(found.get("epoch", 0)) < self.epoch()
        ):
            return
        self.seen = int(found.get("version", 0))
        if found.get("stop"):
            self.order(str(found["stop"]))
        elif bool(found.get("paused")) != self.paused:
            self.pause(not self.paused)

    def order(self, mode: str) -> None:
        """Stop, by the gentlest way that was asked; a harder one may follow."""
        self.asked = self.asked or mode
        self._thaw()
        if self.stop is None or self.stop.mode == "rest":
            self.stop = Stop(self, mode)
        else:
            self.stop.harder(mode)

    def pause(self, paused: bool) -> None:
        """Hold every process where it is, or let all go on."""
        if self.stop is not None:
            return
        self.paused = paused
        if paused:
            if not self.freezer.freeze():
                hold_still(os.getpid())
        else:
            self._thaw()
        self.tell()

    def _thaw(self) -> None:
        self.paused = False
        self.freezer.thaw()
        self._signal(signal.SIGCONT)
        if self.duty is not None:
            self.duty.running = True
            self.duty.reset(time.monotonic())

    def _signal(self, number: int) -> None:
        signal_tree(os.getpid(), number)

    def _go(self) -> None:
        if not self.paused:
            self._signal(signal.SIGCONT)

    # -- words to others -----------------------------------------------------------------

    def tell(self) -> None:
        """Write who runs, and whether it is paused."""
        self.told = True
        pid = next(iter(self.ranks), 0)
        if pid:
            told: dict[str, object] = {
                "pid": pid,
                "start_ticks": layout.start_ticks(pid),
                "paused": self.paused,
            }
            layout.write_or_use_room(f"{self.folder}/started.room", f"{self.folder}/started.json", told)
        self.notify()

    def notify(self) -> None:
        """Say that something changed; a daemon that is not there will look when it comes."""
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{self.state_dir}/notify", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{self.spec['id']} {self.spec['serial']}\n".encode())
            finally:
                os.close(descriptor)

    def finish(self, problem: str = "") -> None:
        """Write how it ended."""
        self.steps.count(time.monotonic())
        for out in self.outputs:
            out.close()
        steps, state_step, flags = (
            layout.read_word(self.status, at)
            for at in (layout.STEPS_AT, layout.STATE_STEP_AT, layout.FLAGS_AT)
        )
        outcome, code, number, detail = "not-started", 0, 0, problem
        if not problem:
            outcome, code, number, detail = judge(
                self.codes,
                asked=self.asked,
                saved=saved_as_asked(flags, state_step, steps),
                memory_kills=sum(kills(path) for path in self.spec.get("oom_files", ())),
                machine_kills=machine_kills() - self.machine_kills,
                tail=self.outputs[1].tail[-2048:] if len(self.outputs) > 1 else b"",
                taken=taken(self.spec, self.outputs),
            )
        used = os.times()
        self._write_end(
            {
                "outcome": outcome,
                "code": code,
                "signal": number,
                "detail": detail,
                "again": bool(problem) and self.short,
                "steps": steps,
                "state_step": state_step if flags & layout.STATE_SAVED else 0,
                "save_s": self.save_s,
                "cpu_s": used.children_user + used.children_system,
                "dropped": [out.dropped for out in self.outputs],
                "ended": time.time(),
                "ended_boot_s": time.clock_gettime(time.CLOCK_BOOTTIME),
            },
        )
        for folder in self.spec.get("remove", ()):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        self.notify()

    def _write_end(self, told: dict[str, object]) -> None:
        """Write how it ended, come what may: a job that is done and not known to be done would run again."""
        path, room = f"{self.folder}/exit.json", f"{self.folder}/exit.room"
        gone_s = 0.0
        while gone_s < _GONE_S:
            try:
                layout.write_json(path, told, durable=True)
                break
            except OSError:
                try:
                    layout.write_into_room(room, path, told)
                    break
                except OSError:
                    # A disk may come back; whoever deletes the folder asks no more.
                    gone_s = 0.0 if os.path.isdir(self.folder) else gone_s + _AGAIN_S  # noqa: PTH112
                    time.sleep(_AGAIN_S)
        for kept in (room, f"{self.folder}/started.room"):  # the second is there if nothing could be started
            with contextlib.suppress(OSError):
                os.unlink(kept)  # noqa: PTH108


def _guarded(shepherd: Shepherd, work: Callable[[], str]) -> None:
    """Whatever goes wrong in here, an attempt that was claimed gets its end written, and leaves nobody behind."""
    problem = ""
    try:
        problem = work()
        if problem:
            shepherd.asked = "kill"
            shepherd.stop = Stop(shepherd, "kill")
        shepherd.run()
    except Exception as error:
        shepherd.short = not shepherd.told and getattr(error, "errno", None) in layout.PASSING
        problem = f"its shepherd failed: {type(error).__name__}: {error}"
        while descendants(os.getpid()):
            signal_tree(os.getpid(), signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(_SWEEP_S)
    shepherd.finish(problem)


def main(folder: str) -> int:
    """Hold the attempt whose ``spec.json`` lies in ``folder``; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setsid()
    try:
        shepherd = Shepherd(folder)
        signal.signal(signal.SIGTERM, lambda *_: setattr(shepherd, "leaving", True))
        refused = shepherd.claim()
    except (OSError, KeyError, ValueError, TypeError) as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{folder}: {error}\n".encode(errors="replace"))
        return SHORT if getattr(error, "errno", None) in layout.PASSING else BROKEN
    if refused:
        return refused
    become_subreaper()

    def work() -> str:
        problem = shepherd.begin()
        if not problem:
            shepherd.tell()
        return problem

    _guarded(shepherd, work)
    return 0


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(sys.argv[1]))
    from cotenant.executors.local.nursery import serve

    serve(main)
