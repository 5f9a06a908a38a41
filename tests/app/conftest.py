"""The command line, inside this process and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

MINE = '''
import time

from cotenant import Params
from cotenant.policies.fifo import Fifo


class Failing(Params):
    """First come, first served, until it raises."""

    def __init__(self, *, after_s: float = 1000.0) -> None:
        self.after_s = after_s

    def decide(self, view):
        if view.now > self.after_s:
            raise ValueError("boom")
        return Fifo().decide(view)


class Mine(Params):
    """A policy of one's own."""

    def __init__(self, *, factor: float = 1.0) -> None:
        self.factor = factor

    def decide(self, view):
        return Fifo().decide(view)


class Slow(Params):
    """Takes its time, so that a run can be interrupted."""

    def decide(self, view):
        time.sleep(0.02)
        return Fifo().decide(view)
'''


@pytest.fixture
def cotenant(tmp_path: Path) -> Run:
    """Run the command line as a process, in an empty folder; standard input is closed."""

    def run(
        *words: str, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cotenant", *words],
            cwd=cwd or tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run


@pytest.fixture
def jobs_csv(tmp_path: Path) -> Path:
    """Three jobs on two devices: the third waits for the first two.

    a: 0 to 100; b: 0 to 300; c, submitted at 50, wants both devices: 300 to 350.
    Completion times 100, 300 and 300 s, mean 233.333...; waits 0, 0 and 250 s.
    """
    path = tmp_path / "jobs.csv"
    path.write_text("name,submit_s,duration_s,gpus\na,0,100,1\nb,0,300,1\nc,50,50,2\n")
    return path


@pytest.fixture
def mine_py(tmp_path: Path) -> Path:
    """Policies outside the package."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in this process: quick, for everything but signals and start-up."""
    from typer.testing import CliRunner

    from cotenant.app.main import app

    # Worker processes cost seconds to start; the tests that are about them name --workers.
    monkeypatch.setattr("cotenant.runs.many.default_workers", lambda: 1)

    def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(cwd or tmp_path)
        monkeypatch.setattr(sys, "argv", ["cotenant", *words])
        done = CliRunner().invoke(app, list(words), prog_name="cotenant")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(list(words), done.exit_code, done.stdout, done.stderr)

    return run
