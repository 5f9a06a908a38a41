"""The whole for real: measured, run by a scheduler, simulated; loose bounds, as the machine is shared."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LONG = bool(os.environ.get("COTENANT_TWIN_LONG"))
LINUX = hasattr(os, "sched_setaffinity")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not LINUX, reason="core sets need Linux")]


def _run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **more}
    return subprocess.run(
        [sys.executable, "-m", "cotenant", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def _hold(runs: list[dict[str, Any]], jobs: int, least_s: float) -> None:
    """What must be so of runs on a machine that others use, too: jobs take at least their work."""
    for run in runs:
        assert len(run["live"]["fates"]) == len(run["simulated"]["fates"]) == jobs
        for fate in run["live"]["fates"]:
            assert fate["end_s"] - fate["start_s"] > least_s
    fifo = runs[0]
    assert not any(fate["beside"] for side in ("live", "simulated") for fate in fifo[side]["fates"])
    # First come, first served: the order of starts is that of arrivals, however slow the machine is.
    assert fifo["like"]["order"] == 1.0


def test_light_jobs_measured_run_live_and_simulated(tmp_path: Path) -> None:
    # In every run two jobs under one policy; that jobs share is seen in the demo's runs, below.
    mix = ("--jobs", "6") if LONG else ("--jobs", "2", "-p", "fifo")
    done = _run(tmp_path, "twin", "--quick", "--light", *mix, "--json", "-o", "out")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [run["policy"] for run in told["runs"]] == (["fifo", "colocate"] if LONG else ["fifo"])
    _hold(told["runs"], 6 if LONG else 2, 1.2)  # jobs of 1.5 to 3 s
    assert not LONG or any(fate["beside"] for fate in told["runs"][1]["live"]["fates"])
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
    _hold(told["runs"], 8, 2.4)  # jobs of 3 to 5 s
    assert any(fate["beside"] for fate in told["runs"][1]["live"]["fates"])
    left = [
        path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _words(path)
    ]
    assert not left
    assert list(ours.iterdir()) == []


def _words(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
