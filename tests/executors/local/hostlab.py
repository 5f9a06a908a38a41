"""A host with real processes, and what waits for them; whatever a test leaves running is ended after it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.executors.local.devices import DeviceInfo
from cotenant.executors.local.host import LocalHost
from cotenant.executors.local.launching import Limits
from cotenant.model.liveports import AttemptEnded, Launch, Report
from cotenant.shares.backends.plain import DutyCycleBackend

PATIENCE_S = 180.0
"""However busy the machine is: what takes longer than this does not happen."""


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def core_devices() -> list[DeviceInfo]:
    return [
        DeviceInfo(
            device=n, name=f"cpu:{core}", uuid=f"cpu:{core}", kind="cpu", memory_bytes=1 << 30, cores=(core,)
        )
        for n, core in enumerate(cores()[:2])
    ]


class Lab:
    """Makes hosts on one state folder, and waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[LocalHost] = []
        self.seen: list[Report] = []

    def host(self, **given: Any) -> LocalHost:
        given.setdefault("limits", Limits(suspend_s=2.0, term_s=1.0))
        given.setdefault("cores", [DutyCycleBackend()])
        given.setdefault("gpus", [])
        given.setdefault("sample_s", 0.05)
        given.setdefault("watch_s", 1e6)
        made = LocalHost(
            self.folder, given.pop("devices", core_devices()), epoch=given.pop("epoch", 1), **given
        )
        self.hosts.append(made)
        return made

    def until(self, host: LocalHost, wanted: Callable[[Report], bool]) -> Report:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for place, report in enumerate(self.seen):
                if wanted(report):
                    return self.seen.pop(place)
            self.seen += host.poll(0.2)
        raise AssertionError(f"never told; seen: {self.seen}")

    def ended(self, host: LocalHost, job: int = 0) -> AttemptEnded:
        found = self.until(host, lambda r: isinstance(r, AttemptEnded) and r.id == job)
        assert isinstance(found, AttemptEnded)
        return found

    def started(self, host: LocalHost, job: int = 0) -> Report:
        return self.until(host, lambda r: type(r).__name__ == "AttemptStarted" and r.id == job)

    def output(self, job: int = 0, serial: int = 0, stream: str = "stdout") -> str:
        path = self.path(job, f"serial-{serial}", f"{stream}.log")
        return path.read_text() if path.exists() else ""

    def path(self, *parts: object) -> Path:
        return self.folder.joinpath("jobs", *map(str, parts))


def job(
    code: str, number: int = 0, *, serial: int = 0, devices: tuple[int, ...] = (0,), **more: Any
) -> Launch:
    """A launch that runs Python code."""
    more.setdefault("attempt", 1)
    more.setdefault("epoch", 1)
    return Launch(
        id=number, serial=serial, command=(sys.executable, "-S", "-c", code), devices=devices, **more
    )


def wait_for(what: Callable[[], Any], told: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never happened: {told}")


def gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def marked(folder: Path) -> list[int]:
    """Processes that bear the mark of any attempt of a state folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            words = Path(f"/proc/{name}/environ").read_bytes() + Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder / "jobs") in words and not gone(int(name)):
            found.append(int(name))
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "state")
    yield made
    for host in made.hosts:
        with contextlib.suppress(OSError):
            host.close()
    for _ in range(200):
        left = marked(made.folder)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    for host in made.hosts:
        for attempt in host._attempts.values():
            host.holding.leave(attempt)
        host.holding.tidy()
