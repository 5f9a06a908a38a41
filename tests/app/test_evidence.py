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


def test_jobs_that_do_not_finish_are_named_beside_the_table(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "name,submit_s,duration_s,gpus,outcome,device_types\n"
        "a,0,10,1,done,\nb,0,10,1,failed,\nc,0,10,3,done,\nd,0,10,1,done,A100\ne,0,10,1,done,T4\n"
    )
    done = inside("simulate", "t.csv", "-p", "fifo", "--gpus", "2", "--gpu-type", "V100")
    assert done.returncode == 0, done.stderr
    # c wants three of two devices; d and e want other types.
    told = "fifo: of 5 jobs 3 rejected (2 device-type, 1 never-fits), 1 failed"
    assert told in done.stdout.splitlines()
    assert told in inside("compare", "out").stdout.splitlines()
    assert inside("report", "out").returncode == 0
    assert f"{told}." in (tmp_path / "out" / "report.html").read_text()
    summary = json.loads((tmp_path / "out/runs/fifo/seed-0/metrics.json").read_text())
    assert summary["rejected_by_reason"] == {"device-type": 2, "never-fits": 1}


def test_a_trace_of_which_nothing_can_be_simulated_is_infeasible_and_says_why(
    inside: Run, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("name,submit_s,duration_s,gpus\na,0,,1\nb,5,,2\n")
    done = inside("simulate", "t.csv", "-p", "fifo", "--gpus", "2")
    assert done.returncode == 3, done.stderr
    assert "error: none of the 2 rows of the trace can be simulated (2: " in done.stderr
    (tmp_path / "h.csv").write_text("name,submit_s,duration_s,gpus\n")
    header = inside("simulate", "h.csv", "-p", "fifo", "--gpus", "2")
    assert header.returncode == 0
    assert "0 jobs" in header.stdout


QUITS = '''
import os
import signal
from pathlib import Path

from cotenant import Params
from cotenant.policies.fifo import Fifo


class Quits(Params):
    """Interrupts the second run that is made in this folder, as Ctrl-C would."""

    def decide(self, view):
        if Path("marker").exists() and view.now == 100:
            os.kill(os.getpid(), signal.SIGINT)
        if view.now == 300:
            Path("marker").touch()
        return Fifo().decide(view)
'''


@pytest.fixture
def cut(inside: Run, jobs_csv: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    (jobs_csv.parent / "quits.py").write_text(QUITS)
    words = ("-p", "fifo,quits.py:Quits", "--gpus", "2", "--seeds", "2")
    done = inside("simulate", "jobs.csv", *words)
    assert done.returncode == 130
    return jobs_csv.parent / "out", done


TORN = "quits.py:Quits: seed 1 cut short after 1m 40s of simulated time; left out of the means"


def test_a_run_cut_short_is_marked_and_not_averaged(
    inside: Run, cut: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, done = cut
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("quits.py:Quits  "))
    # One complete run with three jobs done; the one cut short had ended a alone.
    assert row[:3] == ["quits.py:Quits", "1*", "3"]
    assert f"* {TORN}" in done.stdout.splitlines()
    compared = inside("compare", "out")
    assert f"warning: {TORN}" in compared.stderr
    found = json.loads(inside("compare", "out", "--json").stdout)
    assert found["warnings"] == [TORN]
    jct = found["policies"]["quits.py:Quits"]["jct_s_mean"]
    assert (jct["mean"], jct["n"]) == (pytest.approx(700 / 3), 1)
    assert inside("report", "out").returncode == 0
    assert f"{TORN}." in (out / "report.html").read_text()


def test_where_no_run_is_complete_the_numbers_are_told_to_be_partial(
    inside: Run, cut: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, _ = cut
    again = inside("simulate", "jobs.csv", "-p", "fifo,quits.py:Quits", "--gpus", "2", "-o", "o2")
    told = "quits.py:Quits: seed 0 cut short after 1m 40s of simulated time; no run is complete"
    assert f"* {told}" in again.stdout
    compared = inside("compare", "o2")
    assert f"warning: {told}" in compared.stderr
    assert (
        "quits.py:Quits was cut short at 1m 40s (seed 0) of simulated time: not compared." in compared.stdout
    )
    assert inside("report", "o2").returncode == 0
    assert told in (out.parent / "o2" / "report.html").read_text()
