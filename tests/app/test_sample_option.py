"""``simulate --sample``: samples in the log, replayed byte for byte, and told by explain."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def long_jobs(jobs_csv: Path) -> Path:
    """Two jobs on two devices, for 100 and 1,000 s."""
    path = jobs_csv.parent / "long.csv"
    path.write_text("name,submit_s,duration_s,gpus\na,0,1000,1\nb,5,100,1\n")
    return path


def test_samples_are_logged_replayed_and_explained(inside: Run, long_jobs: Path) -> None:
    words = ("-p", "srtf,colocate", "--gpus", "2", "--sample", "35s", "-o", "o")
    done = inside("simulate", str(long_jobs), *words)
    assert done.returncode == 0, done.stderr
    folder = long_jobs.parent / "o"
    lines = (folder / "runs" / "srtf" / "seed-0" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [(e["t"], e["id"]) for e in events if e["e"] == "sampled"][:2] == [(35.0, 0), (40.0, 1)]
    assert events[0]["settings"]["sample_s"] == 35.0
    again = inside("replay", "o")
    assert again.returncode == 0 and "identical" in again.stdout, again.stdout + again.stderr
    told = inside("explain", "o", "--policy", "srtf", "a")
    assert "Sampled after 35s: will finish at 00:" in told.stdout
    assert "(between 00:" in told.stdout


def test_no_sample_is_the_default_and_can_be_said(inside: Run, long_jobs: Path) -> None:
    logs = []
    for folder, words in (("x", ()), ("y", ("--sample", "0s"))):
        assert (
            inside("simulate", str(long_jobs), "-p", "fifo", "--gpus", "2", *words, "-o", folder).returncode
            == 0
        )
        logs.append((long_jobs.parent / folder / "runs" / "fifo" / "seed-0" / "events.jsonl").read_bytes())
    assert logs[0] == logs[1] and b"sampled" not in logs[0]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--sample", "soon"), 2, "--sample soon: is no duration"),
        (("--sample", "30s", "--set", "sample_s=20"), 1, "give one of them"),
        (("--set", "sample_noise=2"), 1, "sample_noise must lie in [0, 1]"),
    ],
)
def test_wrong_ones_are_refused(
    inside: Run, long_jobs: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = inside("simulate", str(long_jobs), "-p", "fifo", "--gpus", "2", *words)
    assert done.returncode == code and said in done.stderr
