"""Starts the processes of an elastic run, and tells them who belongs to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cotenant.elastic.account import Account
from cotenant.elastic.board import Board
from cotenant.elastic.ends import Ends
from cotenant.elastic.failing import start_process
from cotenant.elastic.hung import Hung
from cotenant.elastic.members import ADDRESS, AGAIN, MOST
from cotenant.elastic.slots import Control, Slot, surplus
from cotenant.errors import InputError
from cotenant.runtime.run import SUSPENDED

__all__ = ["Supervisor"]

_POLL_S = 0.05
_END_S = 60.0
"""So long after the last step a process may go on; then it is ended."""


class Supervisor:
    """Processes of one run, between ``least`` and ``most`` of them.

    Parameters
    ----------
    command : sequence of str
        Of one process; all run the same.
    least, most : int
    control : path, optional
        A file that says how many processes are wanted, or where, or that a checkpoint is; may be rewritten
        at any time. See ``slots.Control``.
    threads : int, optional
        CPU threads of each process; by default the cores shared out among ``most``.
    restarts : int
        So many processes that were killed are replaced; then the run fails.
    tell : callable
        Given a line for people at each change.
    start : callable, optional
        Starts a process with these environment variables added; by default the command. What it returns
        has ``pid``, ``poll``, ``wait`` and ``kill``, as ``subprocess.Popen`` has.
    slots : sequence of Slot, optional
        Where processes go, the first first: at least ``most``, or with a control file at least ``least``. By
        default anywhere.
    hang_after_s : float, optional
        A process that has been at a step's turns, or between two steps, for so long is killed and
        replaced. By default it is waited for.
    account : path, optional
        File that tells of the places (``account.Account``); a script that takes no steps has failed then.

    Raises
    ------
    InputError, MissingExtraError
    """

    def __init__(
        self,
        command: Sequence[str],
        least: int,
        most: int,
        *,
        control: Path | None = None,
        threads: int | None = None,
        restarts: int = 10,
        tell: Callable[[str], None] = lambda text: None,
        start: Callable[[Mapping[str, str]], Any] | None = None,
        slots: Sequence[Slot] | None = None,
        hang_after_s: float | None = None,
        account: Path | None = None,
    ) -> None:
        if not 1 <= least <= most:
            raise InputError(f"--elastic {least}:{most}: it must be MIN:MAX with 1 <= MIN <= MAX")
        self._slots = list(slots or [Slot()] * most)
        if len(self._slots) < (most if control is None else least):
            raise InputError(f"{len(self._slots)} places for up to {most} processes: give one for each")
        self._command, self._least, self._most = list(command), least, most
        threads = threads or max(1, len(os.sched_getaffinity(0)) // most)
        self._start = start or partial(start_process, self._command, threads)
        self._control = None if control is None else Control(control)
        self._account = Account(account)
        self._restarts, self._tell = restarts, tell
        self._board = Board()
        self._hung = Hung(hang_after_s)
        if hang_after_s is not None:
            self._board.tell()
        self._running: dict[str, Any] = {}
        self._where: dict[str, Slot] = {}
        self._members: list[str] = []
        self._retiring: set[str] = set()
        self._generation = self._count = self._deaths = self._checkpoints = 0
        self._wanted = self._slots[:most]
        self._lost = self._departed = self._handover = self._let_go = False
        self._code: int | None = None
        self._ends = Ends(self._board, tell, self._end)
        self._stopping = self._left = False

    # -- what others may ask and order -----------------------------------------------

    @property
    def running(self) -> Mapping[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self._running.items()}

    @property
    def places(self) -> Mapping[str, Slot]:
        """Where each process was put, by name."""
        return {name: self._where[name] for name in self._running}

    @property
    def members(self) -> Sequence[str]:
        """Names of those that take turns, in order of rank; others are starting or leaving."""
        return tuple(self._members)

    @property
    def generation(self) -> int:
        """Number of the generation published last."""
        return self._generation

    @property
    def settled(self) -> bool:
        """Whether exactly those that are wanted run, and have all joined."""
        return (
            set(self._members) == set(self._running)
            and surplus(self._held(), self._wanted) == ([], [])
            and not any(self._board.waiting(name) for name in self._members)
        )

    def want(self, processes: int) -> None:
        """Grow or shrink to so many, within the limits, at the next step boundary; they keep their places."""
        number = min(max(processes, self._least), self._most)
        if number != processes:
            self._tell(
                f"{processes} wanted, this run takes {self._least} to {self._most} processes: {number} it is"
            )
        _, free = surplus({str(n): slot for n, slot in enumerate(self._wanted)}, self._slots)
        self._wanted = [*self._wanted, *free][:number]

    def place(self, slots: Sequence[Slot]) -> None:
        """Go on with one process in each of these; those elsewhere leave once their successors have joined.

        Raises
        ------
        InputError
            If these are fewer or more than the run's limits.
        """
        if not self._least <= len(slots) <= self._most:
            raise InputError(f"{len(slots)} places: this run takes {self._least} to {self._most} processes")
        self._wanted = list(slots)

    def replace(self, name: str, slot: Slot) -> None:
        """Move one process: another is started there, is sent the state, and then this one leaves.

        Raises
        ------
        InputError
            If there is no such process.
        """
        if name not in self._running or name in self._retiring:
            names = ", ".join(n for n in self._running if n not in self._retiring) or "none"
            raise InputError(f"process {name!r} cannot be moved: running are {names}")
        wanted = list(self._wanted)
        with contextlib.suppress(ValueError):
            wanted.remove(self._where[name])
        self.place([*wanted, slot])

    def checkpoint(self) -> None:
        """Save at the next step boundary, and go on."""
        self._checkpoints += 1
        self._board.checkpoint(self._checkpoints)

    def stop(self) -> None:
        """Save and leave at the next step boundary."""
        self._stopping = True
        self._board.stop()

    # -- its life --------------------------------------------------------------------

    def run(self) -> int:
        """Until the last step is done; the exit code, 85 if the run was stopped and saved."""
        handlers = {
            signal.SIGUSR1: lambda *_: self.want(len(self._wanted) + 1),
            signal.SIGUSR2: lambda *_: self.want(len(self._wanted) - 1),
            signal.SIGHUP: lambda *_: self.checkpoint(),
            signal.SIGTERM: lambda *_: self.stop(),
        }
        before: dict[int, Any] = {}
        with contextlib.suppress(ValueError):  # not in the main thread
            before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            while self.poll() is None:
                time.sleep(_POLL_S)
            return self._code or 0
        finally:
            self.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def poll(self) -> int | None:
        """Look once: who has ended, who is wanted, who is ready; the exit code when all is over."""
        code = self._look()
        # Who has not begun yet is where it should be once it runs there: a script may first read its data for long.
        done = self.settled if self._generation else surplus(self.places, self._wanted) == ([], [])
        self._account.tell(self.places.values(), done=done)
        return code

    def _look(self) -> int | None:
        self._read_control()
        self._reap()
        if self._code is not None:
            return self._code
        self._end_hung()
        finished = self._board.finished
        self._stopping = self._stopping or self._board.stopping  # asked of the first process
        if not self._running and (finished or self._stopping or self._left):
            self._code = self._ends.code(left=self._left)
        elif finished:
            self._release()
        else:
            if self._stopping or self._left:
                self._drop(self._useless())
            self._adjust()
            self._publish()
        return self._code

    def _useless(self) -> list[str]:
        # The members leave; those that have not joined would wait for ever, or begin again alone.
        alone = self._departed and not any(self._board.inside(name) for name in self._members)
        joined = [] if alone else self._members
        return [name for name in self._running if name not in joined and name not in self._retiring]

    def _release(self) -> None:
        # Who still waits for an answer of one that has done the last step, and has left, need not: it has
        # all of that step, or is given none. Who has no state has nothing to do, and may never get ready.
        if not self._let_go:
            self._let_go = True
            self._board.lost(self._generation)
            self._retiring.clear()  # who was to leave has done the last step with the others
            self._drop([name for name in self._running if not self._board.inside(name)])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._retiring.add(name)
            self._running[name].kill()

    def _read_control(self) -> None:
        if self._control is None:
            return
        try:
            news = self._control.news()
            if news.order:
                self._account.order, self._account.refused = news.order, ""
            if news.processes is not None:
                self.want(news.processes)
            elif news.slots is not None:
                self.place(news.slots)
        except InputError as error:
            self._account.refused = str(error)
            self._tell(f"{error}; nothing is changed")
            return
        if news.checkpoint:
            self.checkpoint()

    def _reap(self) -> None:
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[name]
            self._ends.ended(name, code)
            member = name in self._members
            self._members = [one for one in self._members if one != name]
            if name in self._retiring:
                self._retiring.discard(name)
                # One that should have left is gone: nobody else may wait for it.
                self._lost = self._lost or (member and code < 0)
                continue
            if (code < 0 or code == AGAIN) and self._board.finished and self._board.inside(name):
                self._ends.unended(name)
                continue
            if code == AGAIN:
                continue  # of a sharded run, whose group has changed: another is started in its place, unless all stop
            if code in (0, SUSPENDED):
                self._ended(code, member=member)
            elif code > 0:
                self._end(f"process {name} failed with exit code {code}; the run ends")
                self._code = code
                return
            else:
                self._killed(name, code, member=member)

    def _ended(self, code: int, *, member: bool) -> None:
        self._departed = self._departed or member
        # A script that leaves its loop early leaves it in all processes, if not in the same moment.
        if member and code == 0 and not self._left:
            self._left = True
            self._board.left()
        if not self._running and not self._stopping and not self._left and not self._board.finished:
            self._code = code  # a script that takes no steps
            if not self._generation:
                self._end("the script has ended without a step: does it use cotenant.elastic.Run?")
                self._code = code or (1 if self._account else 0)

    def _killed(self, name: str, code: int, *, member: bool) -> None:
        self._lost = self._lost or member
        self._deaths += 1
        self._account.killed(-code)
        if member and not self._members:
            self._board.all_killed()
        self._tell(f"process {name} was killed by signal {-code} ({self._deaths} of {self._restarts} deaths)")
        if self._deaths > self._restarts:
            self._end(f"{self._deaths} processes were killed, --restarts {self._restarts}: it ends")
            self._code = 128 - code

    def _end(self, why: str) -> None:
        self._account.why = why
        self._tell(why)

    def _held(self) -> dict[str, Slot]:
        """Places of those that are not leaving: members by rank, then newcomers."""
        newcomers = [name for name in self._running if name not in self._members]
        return {n: self._where[n] for n in [*self._members, *newcomers] if n not in self._retiring}

    def _adjust(self) -> None:
        held = self._held()
        over, free = surplus(held, self._wanted)
        for slot in [] if self._stopping or self._left else free:
            self._launch(slot)
        # Who has not joined has nothing that others need.
        for name in [name for name in over if name not in self._members]:
            self._tell(f"process {name} is not wanted any more, and had not joined yet: it is ended")
            self._drop([name])
        members = [name for name in held if name in self._members]
        staying = [name for name in members if name not in over]
        # Nobody leaves before all who stay have the state.
        if staying and len(members) > len(staying) and all(self._board.inside(name) for name in staying):
            few = len(self._wanted) if not self._stopping else len(staying)
            for name in [name for name in members if name in over][: max(0, len(members) - few)]:
                self._retiring.add(name)
                self._board.retire(name)

    def _launch(self, slot: Slot) -> None:
        name = str(self._count)
        self._count += 1
        address = f"127.0.0.1:{self._board.port}:{name}"
        self._where[name] = slot
        self._running[name] = self._start({**dict(slot.environment), ADDRESS: address, MOST: str(self._most)})
        slot.pin(self._running[name].pid)

    def _publish(self) -> None:
        waiting = [n for n in self._running if n not in self._members and n not in self._retiring]
        ready = [name for name in waiting if self._board.ready(name)]
        staying = [name for name in self._members if name not in self._retiring]
        lost = self._lost or (self._generation > 0 and self._board.broken(self._generation))
        # Who has left by itself never joins those that wait for it.
        lost = lost or (self._departed and any(self._board.waiting(name) for name in staying))
        if lost:
            self._board.lost(self._generation)
        grown = bool(ready) and len(ready) == len(waiting)
        shrunk = len(staying) < len(self._members)
        over = self._handover and len(staying) <= len(self._wanted)
        if not staying and not grown:
            return  # the first generation, or all are gone: those that start are waited for
        if not (lost or grown or shrunk or over):
            return
        self._generation += 1
        self._members = staying + (ready if grown or lost else [])
        self._ends.published(self._generation, self._members[0])
        self._lost = self._departed = False
        # With more than are wanted no step is taken: the state is handed over, and some leave.
        self._handover = len(self._members) > len(self._wanted)
        self._board.publish(self._generation, self._members, handover=self._handover)
        count = len(self._members)
        self._tell(f"generation {self._generation}: {count} process{'es' if count > 1 else ''}")

    def _end_hung(self) -> None:
        found = self._hung.look(time.monotonic(), self.running, self._board.told, self._board.waiting)
        for name, why in found.items():
            self._tell(f"process {name} {why}: it is killed")
            self._running[name].kill()

    def close(self) -> None:
        """Nobody of the run is left afterwards; after the last step, processes have a minute for their own ends."""
        deadline = time.monotonic() + (_END_S if self._code == 0 else 0.0)
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
