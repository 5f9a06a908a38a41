"""A run that was cut short is marked, and never compared."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_compare_stars_the_column_and_says_where_the_run_was_cut_short(inside: Run, jobs_csv: Path) -> None:
    assert inside("simulate", "jobs.csv", "-p", "fifo,las", "--gpus", "2").returncode == 0
    metrics = jobs_csv.parent / "out" / "runs" / "las" / "seed-0" / "metrics.json"
    summary = json.loads(metrics.read_text())
    metrics.write_text(json.dumps(summary | {"interrupted": True, "window_s": 120.0}))
    done = inside("compare", "out")
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert "las was cut short at 2m (seed 0) of simulated time: not compared." in words
    assert "in common" not in words
    heads = done.stdout.splitlines()[0].split()
    assert "las*" in heads
    assert "fifo" in heads
    assert "* las: seed 0 cut short after 2m" in words
