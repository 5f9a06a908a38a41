"""Results are told with what makes them doubtful: logs that changed, runs cut short, jobs that never ran."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def append(log: Path) -> None:
    with log.open("a") as stream:
        stream.write("\n")


def empty(log: Path) -> None:
    log.write_bytes(b"")


@pytest.fixture
def out(inside: Run, jobs_csv: Path) -> Path:
    assert inside("simulate", "jobs.csv", "-p", "fifo,sjf", "--gpus", "2").returncode == 0
    return jobs_csv.parent / "out"


@pytest.mark.parametrize(
    ("spoil", "state"), [(empty, "changed"), (append, "changed"), (Path.unlink, "missing")]
)
def test_a_log_that_is_no_longer_the_recorded_one_is_never_called_identical(
    inside: Run, out: Path, spoil: Callable[[Path], None], state: str
) -> None:
    spoil(out / "runs" / "fifo" / "seed-0" / "events.jsonl")
    done = inside("replay", "out")
    assert done.returncode == 1
    word = "missing" if state == "missing" else "not the one that the manifest names"
    first, *rest = done.stdout.splitlines()
    assert first == f"fifo seed 0: the log on disk is {word}; a new run gives the manifest's hash: yes"
    assert rest[-1] == "sjf seed 0: identical"
    found = json.loads(inside("replay", "out", "--json").stdout)
    assert found["identical"] is False
    assert [run["log"] for run in found["runs"]] == [state, "as recorded"]
    assert [run["gives_recorded_hash"] for run in found["runs"]] == [True, True]
    assert inside("validate", "out").returncode == 1


def test_compare_and_report_warn_of_a_changed_log(inside: Run, out: Path) -> None:
    assert "warning" not in inside("compare", "out").stderr
    append(out / "runs" / "sjf" / "seed-0" / "events.jsonl")
    expected = "sjf seed 0: its log is not the one that the manifest names"
    for command in ("compare", "report"):
        done = inside(command, "out")
        assert done.returncode == 0
        assert f"warning: {expected}" in done.stderr
    assert expected in (out / "report.html").read_text()


def test_a_log_that_was_packed_is_still_the_recorded_one(inside: Run, out: Path) -> None:
    log = out / "runs" / "fifo" / "seed-0" / "events.jsonl"
    log.with_name("events.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    assert inside("replay", "out").returncode == 0
    assert inside("compare", "out").stderr == ""
