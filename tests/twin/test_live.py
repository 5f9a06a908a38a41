"""The whole for real: measured, run by a scheduler, simulated; loose bounds, as the machine is shared."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

LONG = bool(os.environ.get("COTENANT_TWIN_LONG"))
LINUX = hasattr(os, "sched_setaffinity")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not LINUX, reason="core sets need Linux")]


HURRIED = """
import sys
from cotenant.app import demoelastic, demolive
from cotenant.app.main import main
from cotenant.twin import play, study
made = study.campaign_file
study.campaign_file = lambda kinds, device, **_: made(kinds, device, budget_s=300.0, window_s=0.2)
play._LOOK_S = 0.1
demolive._JOBS, demolive._WORK_S = 4, (1.2, 1.6)
demoelastic._PACE_S, demoelastic._PATIENCE_S = 0.2, 300.0
main()
"""
"""The command line with short looks and short jobs, and more patience: all that is not under test here."""


def _run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **more}
    start = ("-m", "cotenant") if LONG else ("-c", HURRIED)
    return subprocess.run(
        [sys.executable, *start, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def _hold(runs: list[dict[str, Any]], jobs: int) -> None:
    """What must be so of runs on a machine that others use, too: nothing of speeds, which they change at any time."""
    for run in runs:
        assert len(run["live"]["fates"]) == len(run["simulated"]["fates"]) == jobs
        for fate in run["live"]["fates"]:
            assert fate["end_s"] > fate["start_s"]
    fifo = runs[0]
    assert not any(fate["beside"] for side in ("live", "simulated") for fate in fifo[side]["fates"])
    # First come, first served: the order of starts is that of arrivals, however slow the machine is.
    assert fifo["like"]["order"] == 1.0


def _hold_alone(runs: list[dict[str, Any]], least_s: float) -> None:
    """What is so as well on a machine that nobody else uses meanwhile: jobs take at least their work, and share."""
    for run in runs:
        assert all(fate["end_s"] - fate["start_s"] > least_s for fate in run["live"]["fates"])
    assert any(fate["beside"] for fate in runs[1]["live"]["fates"])


def test_light_jobs_measured_run_live_and_simulated(tmp_path: Path) -> None:
    # In every run two jobs under one policy.
    mix = ("--jobs", "6") if LONG else ("--jobs", "2", "-p", "fifo")
    done = _run(tmp_path, "twin", "--quick", "--light", *mix, "--json", "-o", "out")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [run["policy"] for run in told["runs"]] == (["fifo", "colocate"] if LONG else ["fifo"])
    _hold(told["runs"], 6 if LONG else 2)
    if LONG:
        _hold_alone(told["runs"], 1.2)  # jobs of 1.5 to 3 s
        slowest = max(abs(side["difference_pct"][0]) for side in told["sides"])
        assert slowest < 25.0 + 100.0 * max(run["others"] for run in told["runs"])
    assert (tmp_path / "out" / "twin.html").stat().st_size > 10_000
    known = tmp_path / "out" / "measured" / "starts.json"
    assert set(json.loads(known.read_text())["starts_s"]) == {"dense/b1024", "loader/b64"}


def test_nothing_of_it_outlives_it(tmp_path: Path) -> None:
    # Processes of ours alone are known by this folder: others may run the same elsewhere on the machine.
    ours = tmp_path / "temporary"
    ours.mkdir()
    words = ("demo", "--jobs", "60", "--seeds", "1", "--workers", "1", "--live", "-o", "d")
    done = _run(tmp_path, *words, TMPDIR=str(ours))
    assert done.returncode == 0, done.stderr
    assert "real jobs on this machine" in done.stdout, done.stderr
    if importlib.util.find_spec("torch") is not None:
        # On a busy machine it may end before the others have started: how many took part is told as it was.
        assert re.search(
            r"an elastic training of \d+ steps, on 1[ >\-0-9]* processes, [01] killed", done.stdout
        )
        assert "the same model, bit for bit" in done.stdout, done.stderr
    assert (tmp_path / "d" / "report.html").is_file()
    assert (tmp_path / "d" / "live" / "twin.html").is_file()
    told = json.loads((tmp_path / "d" / "live" / "twin.json").read_text())
    assert [run["policy"] for run in told["runs"]] == ["fifo", "cotenant"]
    _hold(told["runs"], 8 if LONG else 4)
    if LONG:
        _hold_alone(told["runs"], 2.4)  # jobs of 3 to 5 s
    # Whoever has done its work may still be leaving.
    until = time.monotonic() + 60.0
    while (left := _left(tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left
    assert list(ours.iterdir()) == []


def _left(folder: Path) -> list[str]:
    """Processes that name the folder."""
    return [_words(path) for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in _words(path)]


def _words(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
