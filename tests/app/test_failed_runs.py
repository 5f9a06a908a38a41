"""A run that failed is told of by every command that reads the folder afterwards."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def failed(inside: Run, jobs_csv: Path, mine_py: Path) -> str:
    """Two policies, one of which raises at 100 s; the sentence that tells of it."""
    done = inside("simulate", "jobs.csv", "-p", "fifo,mine.py:Failing:after_s=60", "--gpus", "2")
    assert done.returncode == 1
    line = 1 + mine_py.read_text().split("\n").index('            raise ValueError("boom")')
    folder = json.loads((jobs_csv.parent / "out" / "manifest.json").read_text())["runs"][1]["folder"]
    return (
        f"mine.py:Failing:after_s=60 seed 0 failed: raised ValueError: boom (mine.py:{line}, in decide), "
        f"see out/{folder}/error.txt"
    )


def test_compare_and_replay_name_the_failed_run_and_its_error_file(inside: Run, failed: str) -> None:
    compared = inside("compare", "out")
    assert compared.returncode == 0
    assert failed in compared.stderr.replace("\n", " ")
    assert failed in json.loads(inside("compare", "out", "--json").stdout)["warnings"]
    again = inside("replay", "out", "--json")
    assert json.loads(again.stdout)["left_out"] == [failed]
    assert failed in again.stderr.replace("\n", " ")


def test_the_report_warns_of_it(inside: Run, failed: str, tmp_path: Path) -> None:
    assert inside("report", "out").returncode == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    warned = [html.unescape(text) for text in re.findall(r'<p class="warn">(.*?)</p>', page)]
    assert f"{failed}." in warned


def test_explain_says_that_the_run_failed(inside: Run, failed: str, tmp_path: Path) -> None:
    words = ("explain", "out", "--policy", "mine.py:Failing:after_s=60")
    unknown = inside(*words, "nobody")
    assert unknown.returncode == 1
    assert failed in unknown.stderr.replace("\n", " ")
    assert "holds 0 jobs" not in unknown.stderr
    for log in (tmp_path / "out" / "runs").glob("mine*/seed-0/events.jsonl*"):
        log.unlink()
    gone = inside(*words, "a")
    assert gone.returncode == 1
    assert failed in gone.stderr.replace("\n", " ")
    assert failed not in inside("explain", "out", "--policy", "fifo", "a").stderr.replace("\n", " ")


def test_what_the_log_of_a_failed_run_holds_is_explained_with_a_warning(inside: Run, jobs_csv: Path) -> None:
    assert inside("simulate", "jobs.csv", "-p", "fifo", "--gpus", "2").returncode == 0
    manifest = jobs_csv.parent / "out" / "manifest.json"
    known = json.loads(manifest.read_text())
    known["runs"][0] |= {"status": "failed", "error": "policy fifo raised ValueError: late"}
    manifest.write_text(json.dumps(known))
    done = inside("explain", "out", "a")
    assert done.returncode == 0
    assert "fifo seed 0 failed: raised ValueError: late" in done.stderr


def test_where_every_run_failed_that_is_the_reason(inside: Run, jobs_csv: Path, mine_py: Path) -> None:
    assert inside("simulate", "jobs.csv", "-p", "mine.py:Failing:after_s=60", "--gpus", "2").returncode == 1
    for command in ("compare", "report", "replay"):
        done = inside(command, "out")
        assert done.returncode == 1
        assert "seed 0 failed: raised ValueError: boom" in done.stderr.replace("\n", " "), command


def test_replay_says_which_runs_were_cut_short_or_never_began(inside: Run, jobs_csv: Path) -> None:
    assert inside("simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--seeds", "3").returncode == 0
    manifest = jobs_csv.parent / "out" / "manifest.json"
    known = json.loads(manifest.read_text())
    known["runs"][1]["status"], known["runs"][2]["status"] = "interrupted", "pending"
    manifest.write_text(json.dumps(known))
    found = json.loads(inside("replay", "out", "--json").stdout)
    assert [run["seed"] for run in found["runs"]] == [0]
    assert found["left_out"] == [
        "fifo seed 2 never began, so it has no result",
        "fifo seed 1 was cut short, so it is not compared",
    ]


def test_a_folder_that_was_removed_is_told(inside: Run, jobs_csv: Path) -> None:
    import shutil

    assert inside("simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--seeds", "2").returncode == 0
    shutil.rmtree(jobs_csv.parent / "out" / "runs" / "fifo" / "seed-1")
    warnings = json.loads(inside("compare", "out", "--json").stdout)["warnings"]
    assert "fifo seed 1 is missing: out/runs/fifo/seed-1 is not there any more" in warnings
