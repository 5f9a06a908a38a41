"""Runs of several processes that start at once: they are forked from the test, which has PyTorch."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib.util
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cotenant.elastic import failing
from cotenant.elastic.supervisor import Supervisor

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
for _needed in (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.utils.data",
    "torch.utils.deterministic",
):
    importlib.import_module(_needed)  # once, before the processes are forked

_SPEC = importlib.util.spec_from_file_location("elastic_training", Path(__file__).with_name("training.py"))
training = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(training)
LIMIT_S = 50.0
PURE = {
    "model",
    "optimizer",
    "order",
    "precision",
    "accumulate",
    "workers",
    "most",
    "epochs",
    "script",
    "draw",
}
"""Options that only say what is trained."""
_DONE: dict[str, list[str]] = {}


class Nursery:
    """A process without threads that forks the others on request.

    The test itself has threads: those of the supervisor's store. A process forked while one of them holds a
    lock of the C library would wait for that lock for ever.
    """

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._ours.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with contextlib.suppress(OSError):
                self._serve(theirs)
            os._exit(0)
        theirs.close()

    def ask(self, *request: Any) -> Any:
        socket.send_fds(self._ours, [pickle.dumps(request)], [1, 2])
        return pickle.loads(self._ours.recv(1 << 16))

    def _serve(self, theirs: socket.socket) -> None:
        while True:
            data, streams, _, _ = socket.recv_fds(theirs, 1 << 16, 2)
            if not data:
                return
            what, *rest = pickle.loads(data)
            answer: Any = None
            if what == "start":
                answer = os.fork()
                if answer == 0:
                    theirs.close()
                    for number, stream in enumerate(streams, 1):
                        os.dup2(stream, number)
                    _play(*rest)
            else:
                found, status = os.waitpid(rest[0], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if found else None
            for stream in streams:
                os.close(stream)
            theirs.send(pickle.dumps(answer))


def _play(options: dict[str, Any], environment: Mapping[str, str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    os.environ.clear()
    os.environ.update(environment)
    failing.install()
    code = 1
    try:
        training.main(options)
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@functools.cache
def nursery() -> Nursery:
    return Nursery()


class Forked:
    """A process like those of ``subprocess``."""

    def __init__(self, options: dict[str, Any], more: Mapping[str, str]) -> None:
        self.pid: int = nursery().ask("start", options, {**os.environ, **more})
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = nursery().ask("poll", self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (LIMIT_S if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked", timeout or 0)
            time.sleep(0.01)
        return self._code or 0

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Play:
    """Plays trainings in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.code = 0
        self.told: list[str] = []

    def alone(self, **options: Any) -> list[str]:
        """Without supervisor: the digest after each step; run once for each model, as far as nothing is written."""
        asked = repr(sorted(options.items())) if options.keys() <= PURE else ""
        if asked in _DONE and "COTENANT_ELASTIC_DIGESTS" not in os.environ:
            self.code = 0
            return list(_DONE[asked])
        options = self._options(options)
        process = Forked(options, {})
        self.code = process.wait()
        assert self.code in (0, 85)
        found = self.digests(options)
        if asked and self.code == 0:
            _DONE[asked] = found
        return list(found)

    def together(
        self,
        processes: int,
        *,
        on_poll: Callable[[Supervisor, int], None] = lambda supervisor, steps: None,
        **options: Any,
    ) -> list[str]:
        """With a supervisor; ``on_poll`` is given it and the steps done so far, again and again."""
        options = self._options(options)
        most, limit_s = options.pop("up_to", processes), options.pop("limit_s", LIMIT_S)
        more = {name: options.pop(name) for name in ("slots", "hang_after_s", "control") if name in options}
        self.told = []
        supervisor = Supervisor(
            [], 1, most, tell=self.told.append, start=lambda env: Forked(options, env), **more
        )
        supervisor.want(processes)
        deadline = time.monotonic() + limit_s
        try:
            while supervisor.poll() is None:
                on_poll(supervisor, len(self.lines(options)))
                if time.monotonic() > deadline:
                    for pid in supervisor.running.values():
                        os.kill(pid, signal.SIGUSR1)
                    time.sleep(1.0)
                    pytest.fail(f"took more than {limit_s} s; {self.told}")
                time.sleep(0.01)
            self.code = supervisor.poll() or 0
        finally:
            supervisor.close()
        return self.digests(options)

    def ends(self, folder: Path) -> set[str]:
        """Digests of what each process had at its end, where ``ends`` named a folder."""
        return {path.read_text() for path in folder.iterdir()}

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return {"log": str(self.folder / f"log{self.count}")} | options

    def lines(self, options: Mapping[str, Any]) -> list[list[str]]:
        path = Path(options["log"])
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def digests(self, options: Mapping[str, Any]) -> list[str]:
        found = self.lines(options)
        self.processes = [int(line[2]) for line in found]
        assert [int(line[0]) for line in found] == list(range(len(found)))
        return [line[1] for line in found]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.delenv("COTENANT_ELASTIC", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    nursery()
    return Play(tmp_path)
