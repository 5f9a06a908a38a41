"""Small jobs that need no library, and a file that measures them in a few seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

WORK = """
import os, time
log = open(os.environ["COTENANT_STEPS"], "a", buffering=1)
while True:
    until = time.process_time() + 0.004
    while time.process_time() < until:
        pass
    log.write(f"{time.monotonic_ns()}\\n")
"""
SLEEP = """
import os, time
log = open(os.environ["COTENANT_STEPS"], "a", buffering=1)
while True:
    time.sleep(0.004)
    log.write(f"{time.monotonic_ns()}\\n")
"""

QUICK = """
[measure]
source = "test"
device = "cpu:{core}"
budget = "{budget}"
warmup_steps = 2
warmup = "0s"
settle = "50ms"
window = "{window}"
min_steps = 3
longest_window = "20s"
min_repeats = 1
max_repeats = 1
target_pct = 90.0
start_timeout = "60s"
{more}
"""


def core() -> int:
    """A core that this process may use."""
    return min(os.sched_getaffinity(0))


def job(name: str, script: str, **more: object) -> str:
    """A ``[[job]]`` that runs a script."""
    lines = "".join(f"{key} = {value!r}\n" for key, value in more.items())
    return f"[[job]]\nname = {name!r}\ncommand = [{sys.executable!r}, '-c', '''{script}''']\n{lines}"


@pytest.fixture
def jobs_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of jobs."""

    def write(*jobs: str, budget: str = "300s", window: str = "300ms", more: str = "") -> Path:
        path = tmp_path / "jobs.toml"
        head = QUICK.format(core=core(), budget=budget, window=window, more=more)
        path.write_text(head + "".join(jobs))
        return path

    return write


def living(marker: str) -> list[int]:
    """Processes whose environment or command line holds the marker; zombies do not count."""
    found = []
    for process in psutil.process_iter(["pid", "status", "cmdline"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
            continue
        try:
            words = [*(process.info["cmdline"] or ()), *process.environ().values()]
        except psutil.Error:
            continue
        if any(marker in word for word in words):
            found.append(process.pid)
    return found


@pytest.fixture
def kit() -> SimpleNamespace:
    """The scripts and helpers of this module, which tests cannot import."""
    return SimpleNamespace(WORK=WORK, SLEEP=SLEEP, core=core, job=job, living=living)
