"""A real scheduler in a process of its own, on CPU cores, in a temporary state folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cotenant.live.statedir import read_daemon

PATIENCE_S = 180.0
_TLS = ssl.create_default_context()
_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
DEVICES = tuple(f"cpu:{core}" for core in _CORES[:2])


class Scheduler:
    """A ``cotenant up`` and how to talk to it.

    Attributes
    ----------
    state : Path
    url, token : str
    process : Popen
    """

    def __init__(self, state: Path, *options: str, devices: tuple[str, ...] = DEVICES) -> None:
        self.state = state
        self.options = (*(word for name in devices for word in ("--device", name)), *options)
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.spare: list[subprocess.Popen[bytes]] = []
        self._keys = 0

    def command(self, *more: str) -> list[str]:
        return [sys.executable, "-m", "cotenant", "up", "--state", str(self.state), *self.options, *more]

    def spawn(self, *more: str) -> subprocess.Popen[bytes]:
        """A further daemon on the same folder; ended with the rest."""
        with (self.state.parent / f"{self.state.name}.out").open("ab") as out:
            # Nothing may depend on the locale.
            env = {**os.environ, "OMP_NUM_THREADS": "1", "LC_ALL": "C", "LANG": "C"}
            found = subprocess.Popen(self.command(*more), stdout=out, stderr=out, env=env)
        self.spare.append(found)
        return found

    def start(self, *more: str) -> Scheduler:
        """Start it and wait until it answers."""
        self.process = self.spawn(*more)
        return self.await_leader(self.process)

    def await_leader(self, process: subprocess.Popen[bytes]) -> Scheduler:
        """Wait until that process leads and answers."""

        def leads() -> bool:
            assert process.poll() is None, self.said()
            told = read_daemon(self.state)
            if told is None or told.pid != process.pid:
                return False
            self.url = told.url
            return True

        until(leads, "the scheduler does not answer", every_s=0.01)
        self.process = process
        return self

    def said(self) -> str:
        """What it wrote."""
        out = self.state.parent / f"{self.state.name}.out"
        return out.read_text(errors="replace")[-4000:] if out.exists() else ""

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    def kill(self) -> None:
        """As if the power of the daemon alone went: kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """End it in order; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> httpx.Response:
        """Ask the API, patient with one that restarts."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        # Its certificates are read once: a test that waits asks hundreds of times. No proxy leads to this machine.
        return httpx.request(
            method, self.url + path, json=body, headers=headers, timeout=120.0, verify=_TLS, trust_env=False
        )

    def gated(self, gate: Path, then: str = "echo end", **fields: Any) -> int:
        """Submit a job that runs until the file is there, then does the rest; returns its number."""
        return self.submit("/bin/sh", "-c", f"while [ ! -e '{gate}' ]; do sleep 0.05; done; {then}", **fields)

    def submit(self, *command: str, key: str = "", token: str | None = None, **fields: Any) -> int:
        """Submit a job of these words; returns its number."""
        (answer,) = self.submit_all([{"command": list(command), **fields}], keys=[key], token=token)
        assert "id" in answer, answer
        return int(answer["id"])

    def submit_all(
        self, jobs: list[dict[str, Any]], *, keys: list[str] | None = None, token: str | None = None
    ) -> list[dict[str, Any]]:
        """Submit several; returns the answers."""
        asked = []
        for i, job in enumerate(jobs):
            self._keys += 1
            key = (keys[i] if keys else "") or f"k{os.getpid()}-{self._keys}-{time.monotonic_ns()}"
            asked.append({"key": key, "job": {"name": f"job-{self._keys}", **job}})
        answer = self.ask("POST", "/v1/jobs", {"jobs": asked}, token)
        assert answer.status_code == 201, answer.text
        found: list[dict[str, Any]] = answer.json()["jobs"]
        return found

    def command_on(self, job: int, what: str, **body: Any) -> httpx.Response:
        """cancel, suspend, resume, priority, resize."""
        self._keys += 1
        key = f"c{os.getpid()}-{self._keys}-{time.monotonic_ns()}"
        return self.ask("POST", f"/v1/jobs/{job}/{what}", {"key": key, **body})

    def job(self, number: int, token: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/v1/jobs/{number}", token=token).json()
        return found

    def await_status(self, number: int, *statuses: str) -> dict[str, Any]:
        """Wait until a job has one of these statuses."""
        last: dict[str, Any] = {}

        def there() -> bool:
            last.update(self.job(number))
            return last.get("status") in statuses

        until(there, lambda: f"job {number} is {last}, not {statuses}\n{self.said()}")
        return last

    def await_process(self, number: int) -> None:
        """Wait for the process itself: the log says that a job runs before its shepherd has begun it."""
        folder = self.state / "jobs" / str(number)
        until(lambda: any(folder.glob("serial-*/started.json")), lambda: f"no process\n{self.said()}")

    def cancel_all(self) -> None:
        """End whatever lives."""

        def live() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self.ask("GET", "/v1/jobs?live=1").json()["jobs"]
            return found

        for job in live():
            self.command_on(job["id"], "cancel")
        until(lambda: not live(), lambda: f"still live: {live()}")

    def logs(self, number: int, stream: str = "stdout") -> str:
        return self.ask("GET", f"/v1/jobs/{number}/logs?stream={stream}").text

    @staticmethod
    def until(
        holds: Callable[[], bool], why: str | Callable[[], str], patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until something holds."""
        until(holds, why, patience_s)

    def end(self) -> None:
        """Everything that was started ends: jobs, daemons, shepherds."""
        for process in self.spare:
            if process.poll() is None:
                process.kill()
                process.wait()
        for claim in (self.state / "jobs").glob("*/serial-*/claim"):
            end_session(claim)
        leave_nothing(self.state)


def leave_nothing(state: Path) -> None:
    """What a daemon keeps outside its folder and, killed, cannot remove: groups, and a place in host memory."""
    from cotenant.executors.local.keeper import _short
    from cotenant.live.keeping import _memory_folder

    scope = f"cotenant-{os.getuid()}-{_short(str(state.absolute()))}"
    for _ in range(100):
        # The kernel lets go of a killed process's group a little later.
        # os.walk() does not mind groups of others that vanish meanwhile.
        left = [path for path, *_ in os.walk("/sys/fs/cgroup", topdown=False) if f"/{scope}" in path]
        for path in left:
            with contextlib.suppress(OSError):
                os.rmdir(path)  # noqa: PTH106
        if not left:
            break
        time.sleep(0.02)
    if (memory := _memory_folder(state)) is not None:
        shutil.rmtree(memory, ignore_errors=True)


def end_session(claim: Path) -> None:
    """Kill the session of a shepherd that is still alive."""
    from cotenant.executors.local.layout import alive, read_json

    found = read_json(str(claim))
    pid, ticks = int(str(found.get("pid", 0))), int(str(found.get("start_ticks", 0)))
    if not alive(pid, ticks):
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == pid:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, IndexError, ValueError):
            continue


def until(
    holds: Callable[[], bool],
    why: str | Callable[[], str],
    patience_s: float = PATIENCE_S,
    every_s: float = 0.03,
) -> None:
    """Wait until something holds."""
    end = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > end:
            pytest.fail(why if isinstance(why, str) else why())
        time.sleep(every_s)


@pytest.fixture
def make_scheduler(tmp_path: Path) -> Iterator[Callable[..., Scheduler]]:
    """Makes schedulers that are not started yet; all end with the test."""
    made: list[Scheduler] = []

    def make(*options: str, name: str = "state", devices: tuple[str, ...] = DEVICES) -> Scheduler:
        made.append(Scheduler(tmp_path / name, *options, devices=devices))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.end()


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One that answers, on two devices of one core each; policy fifo, so that nothing depends on forecasts."""
    return make_scheduler("--policy", "fifo", "--forecast", "contention").start()


@pytest.fixture(scope="module")
def lasting_scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """As ``scheduler``, for all tests of a module that leave it as it was."""
    options = ("--policy", "fifo", "--forecast", "contention")
    found = Scheduler(tmp_path_factory.mktemp("lasting") / "state", *options)
    try:
        yield found.start()
    finally:
        found.end()


@pytest.fixture
def calm(lasting_scheduler: Scheduler) -> Iterator[Scheduler]:
    """One on which nothing runs, before and after the test."""
    yield lasting_scheduler
    lasting_scheduler.cancel_all()


@pytest.fixture(scope="module")
def shared_scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """One for all tests of a module that do not end it, with the default policy."""
    found = Scheduler(tmp_path_factory.mktemp("live") / "state")
    try:
        yield found.start()
    finally:
        found.end()
