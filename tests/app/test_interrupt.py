"""Ctrl-C: a real process, a real signal, and results that stay valid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cotenant.engine.log import read_log
from cotenant.model.events import Closed


def begin(tmp_path: Path, workers: int) -> subprocess.Popen[str]:
    """Start four runs, and wait until two are complete and a slow one is under way."""
    rows = "".join(f"j{i},{i * 10},30,1\n" for i in range(3000))
    (tmp_path / "t.csv").write_text("name,submit_s,duration_s,gpus\n" + rows)
    words = ["simulate", "t.csv", "-p", "fifo,mine.py:Slow", "--gpus", "4", "--seeds", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cotenant", *words, "--workers", str(workers), "--json"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    manifest = tmp_path / "out" / "manifest.json"
    for _ in range(3000):
        time.sleep(0.1)
        if process.poll() is not None:
            pytest.fail(f"the process ended before it was interrupted: {process.communicate()[1]}")
        slow = list((tmp_path / "out" / "runs").glob("mine.py-Slow/seed-*/events.jsonl"))
        if slow and manifest.is_file() and manifest.read_text().count('"complete"') >= 2:
            return process
    process.kill()
    pytest.fail("the runs did not get going in time")


def interrupt(tmp_path: Path, workers: int, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    process = begin(tmp_path, workers)
    try:
        process.send_signal(number)
        out, err = process.communicate(timeout=3000)
    finally:
        process.kill()
    return subprocess.CompletedProcess([], process.returncode, out, err)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (1, signal.SIGTERM)])
def test_an_interrupt_leaves_complete_runs_and_valid_partial_logs(
    tmp_path: Path, mine_py: Path, workers: int, number: signal.Signals
) -> None:
    done = interrupt(tmp_path, workers, number)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "interrupted: 2 of 4 runs complete" in done.stderr
    found = json.loads(done.stdout)
    assert found["interrupted"] is True
    fifo, slow = found["policies"]
    assert [run["status"] for run in fifo["runs"]] == ["complete", "complete"]
    assert slow["runs"][0]["status"] == "interrupted"
    assert slow["runs"][0]["summary"]["jobs_finished"] < 3000
    folder = tmp_path / "out" / "runs" / "mine.py-Slow" / "seed-0"
    last = list(read_log(folder / "events.jsonl"))[-1]
    assert isinstance(last, Closed)
    assert last.interrupted
    assert last.submitted == last.finished + last.waiting + last.running
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [run["status"] for run in manifest["runs"]][:3] == ["complete", "complete", "interrupted"]


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_main_process(tmp_path: Path, mine_py: Path) -> None:
    process = begin(tmp_path, 2)
    workers = [p for p in psutil.Process(process.pid).children(recursive=True) if p.is_running()]
    assert workers
    process.kill()
    process.communicate(timeout=300)
    _, alive = psutil.wait_procs(workers, timeout=3000)
    for left in alive:
        left.kill()
    assert alive == []
    # What was complete is still whole, and the manifest says so.
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [run["status"] for run in manifest["runs"]][:2] == ["complete", "complete"]
    assert isinstance(list(read_log(tmp_path / "out/runs/fifo/seed-0/events.jsonl"))[-1], Closed)
