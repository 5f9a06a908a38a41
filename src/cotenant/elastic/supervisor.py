"""Starts the processes of an elastic run, and tells them who belongs to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cotenant.elastic.members import ADDRESS
from cotenant.errors import InputError, MissingExtraError

__all__ = ["Supervisor"]

_POLL_S = 0.05
_END_S = 60.0
"""So long after the last step a process may go on; then it is ended."""
_SUSPENDED = 85


class Supervisor:
    """Processes of one run, between ``least`` and ``most`` of them.

    Parameters
    ----------
    command : sequence of str
        Of one process; all run the same.
    least, most : int
    control : path, optional
        A file with the number of processes that are wanted; may be rewritten at any time.
    threads : int, optional
        CPU threads of each process; by default the cores shared out among ``most``.
    restarts : int
        So many processes that were killed are replaced; then the run fails.
    tell : callable
        Given a line for people at each change.
    start : callable, optional
        Starts a process with these environment variables added; by default the command.

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
    ) -> None:
        if not 1 <= least <= most:
            raise InputError(f"--elastic {least}:{most}: it must be MIN:MAX with 1 <= MIN <= MAX")
        try:
            from torch.distributed import TCPStore
        except ImportError:
            raise MissingExtraError("elastic training", "torch") from None
        self._command, self._least, self._most = list(command), least, most
        self._start = start or self._popen
        self._control, self._restarts, self._tell = control, restarts, tell
        self._threads = threads or max(1, len(os.sched_getaffinity(0)) // most)
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._running: dict[str, Any] = {}
        self._members: list[str] = []
        self._retiring: set[str] = set()
        self._generation = self._count = self._deaths = 0
        self._wanted = most
        self._lost = False
        self._code: int | None = None
        self._stopping = False

    @property
    def running(self) -> Mapping[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self._running.items()}

    @property
    def generation(self) -> int:
        """Number of the generation published last."""
        return self._generation

    def want(self, processes: int) -> None:
        """Grow or shrink to so many, within the limits, at the next step boundary."""
        self._wanted = min(max(processes, self._least), self._most)

    def stop(self) -> None:
        """Save and leave at the next step boundary."""
        self._stopping = True
        self._store.set("stop", "1")

    def run(self) -> int:
        """Until the last step is done; the exit code, 85 if the run was stopped and saved."""
        handlers = {
            signal.SIGUSR1: lambda *_: self.want(self._wanted + 1),
            signal.SIGUSR2: lambda *_: self.want(self._wanted - 1),
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
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def poll(self) -> int | None:
        """Look once: who has ended, who is wanted, who is ready; the exit code when all is over."""
        self._read_control()
        self._reap()
        if self._code is not None:
            return self._code
        finished = self._store.check(["finished"])
        if not self._running and (finished or self._stopping):
            self._code = 0 if finished else _SUSPENDED
        elif self._stopping and not finished:
            self._drop_newcomers()
            self._publish()
        elif not finished:
            self._adjust()
            self._publish()
        return self._code

    def _drop_newcomers(self) -> None:
        # The members leave at the next step; those that have not joined would wait for ever.
        for name in [n for n in self._running if n not in self._members and n not in self._retiring]:
            self._retiring.add(name)
            self._running[name].kill()

    def _read_control(self) -> None:
        if self._control is None:
            return
        try:
            text = self._control.read_text().strip()
        except OSError:
            return
        if text.isdigit():
            self.want(int(text))

    def _reap(self) -> None:
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[name]
            member = name in self._members
            self._members = [one for one in self._members if one != name]
            if name in self._retiring:
                self._retiring.discard(name)
                continue
            if code in (0, _SUSPENDED):
                if not self._running and not self._stopping and not self._store.check(["finished"]):
                    self._code = code  # a script that takes no steps
                continue
            if code > 0:
                self._tell(f"process {name} failed with exit code {code}; the run ends")
                self._code = code
                return
            self._lost = self._lost or member
            self._deaths += 1
            self._tell(f"process {name} was killed by signal {-code}")
            if self._deaths > self._restarts:
                self._tell(
                    f"{self._deaths} processes were killed, {self._restarts} are replaced; the run ends"
                )
                self._code = 128 - code

    def _adjust(self) -> None:
        staying = [name for name in self._running if name not in self._retiring]
        for _ in range(self._wanted - len(staying)):
            name = str(self._count)
            self._count += 1
            self._running[name] = self._start({ADDRESS: f"127.0.0.1:{self._store.port}:{name}"})
        # Those that have not joined yet go first.
        order = [n for n in staying if n not in self._members] + list(reversed(self._members))
        for name in [n for n in order if n in staying][: max(0, len(staying) - self._wanted)]:
            self._retiring.add(name)
            self._store.set(f"retire/{name}", "1")

    def _popen(self, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        env = {"OMP_NUM_THREADS": str(self._threads), **os.environ, **more}
        return subprocess.Popen(self._command, env=env)  # noqa: S603

    def _publish(self) -> None:
        waiting = [n for n in self._running if n not in self._members and n not in self._retiring]
        ready = [name for name in waiting if self._store.check([f"ready/{name}"])]
        staying = [name for name in self._members if name not in self._retiring]
        broken = self._generation > 0 and self._store.check([f"broken/{self._generation}"])
        lost = self._lost or broken
        if lost:
            self._store.set(f"lost/{self._generation}", "1")
        grown = bool(ready) and len(ready) == len(waiting)
        shrunk = len(staying) < len(self._members)
        if not staying and not grown:
            return  # the first generation, or all are gone: those that start are waited for
        if not (lost or grown or shrunk):
            return
        self._generation += 1
        self._members = staying + (ready if grown or lost else [])
        self._lost = False
        self._store.set(f"members/{self._generation}", json.dumps(self._members))
        self._store.set("generation", str(self._generation))
        self._tell(f"generation {self._generation}: {len(self._members)} processes")

    def _end_all(self) -> None:
        deadline = time.monotonic() + (_END_S if self._code == 0 else 0.0)
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
