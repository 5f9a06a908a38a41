"""Repeating a run, and runs that must not depend on anything but their inputs."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant import registry

Run = Callable[..., subprocess.CompletedProcess[str]]


def logs_and_tables(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "runs").rglob("*"))
        if path.is_file()
    }


def test_a_replay_is_identical_and_notices_every_change(inside: Run, jobs_csv: Path) -> None:
    assert inside("simulate", str(jobs_csv), "-p", "fifo", "--gpus", "2", "--seeds", "2").returncode == 0
    out = jobs_csv.parent / "out"
    again = inside("replay", "out")
    assert (again.returncode, again.stdout) == (0, "fifo seed 0: identical\nfifo seed 1: identical\n")

    log = out / "runs" / "fifo" / "seed-1" / "events.jsonl"
    manifest = json.loads((out / "manifest.json").read_text())
    lines = log.read_text().splitlines(keepends=True)
    changed = [*lines[:4], lines[4].replace('"t":', '"t": '), *lines[5:]]
    log.write_text("".join(changed))
    manifest["runs"][1]["log_sha256"] = hashlib.sha256(log.read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    differs = inside("replay", "out/manifest.json", "--json")
    assert differs.returncode == 1
    found = json.loads(differs.stdout)
    assert [run["identical"] for run in found["runs"]] == [True, False]
    assert "event 5 differs" in found["runs"][1]["difference"]

    jobs_csv.write_text(jobs_csv.read_text() + "d,60,10,1\n")
    refused = inside("replay", "out")
    assert refused.returncode == 1
    assert "the trace changed since the run" in refused.stderr


def test_a_manifest_names_no_host_and_no_folder_of_the_machine(inside: Run, jobs_csv: Path) -> None:
    import getpass
    import socket

    inside("simulate", "jobs.csv", "-p", "fifo", "--gpus", "2")
    text = (jobs_csv.parent / "out" / "manifest.json").read_text()
    assert str(jobs_csv.parent) not in text
    assert socket.gethostname() not in text
    manifest = json.loads(text)
    assert manifest["command"] == ["cotenant", "simulate", "jobs.csv", "-p", "fifo", "--gpus", "2"]
    assert manifest["inputs"][0]["sha256"] == hashlib.sha256(jobs_csv.read_bytes()).hexdigest()
    assert manifest["inputs"][0]["size_bytes"] == jobs_csv.stat().st_size
    assert getpass.getuser()  # a user exists, and is not needed


@pytest.mark.slow
def test_the_same_run_twice_is_the_same_bytes(cotenant: Run, tmp_path: Path) -> None:
    """C68: hash seed, workers, zone and locale change nothing, whatever the policy."""
    made = cotenant("generate", "bursty", "--jobs", "80", "--seed", "7", "-o", "t.csv")
    assert made.returncode == 0, made.stderr
    names = registry.names("policy")
    base = ("simulate", "t.csv", "-p", ",".join(names), "--gpus", "8", "--gpu-type", "V100", "--seed", "7")
    variants = {
        "a": (("--workers", "1"), {"PYTHONHASHSEED": "0"}),
        "b": (
            ("--workers", "2"),
            {"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8"},
        ),
    }
    found = {}
    for name, (extra, env) in variants.items():
        done = cotenant(*base, *extra, "-o", name, "--json", env=env)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        del answer["folder"]
        found[name] = (logs_and_tables(tmp_path / name), answer)
    assert len(found["a"][0]) >= len(names) * 4
    assert found["a"] == found["b"]


def test_another_seed_changes_what_is_drawn_and_nothing_else(inside: Run, tmp_path: Path) -> None:
    """C68: with models named in the trace, order alone decides under FIFO; speeds do under sharing."""
    rows = [f"j{i},{i},{100 + 7 * i},1,ResNet-50,4GiB" for i in range(30)]
    head = "name,submit_s,duration_s,gpus,model,memory\n"
    (tmp_path / "t.csv").write_text(head + "\n".join(rows) + "\n")
    words = ("-p", "fifo,time-slice", "--gpus", "2", "--gpu-type", "V100", "--seeds", "2", "--json")
    done = inside("simulate", "t.csv", *words)
    assert done.returncode == 0, done.stderr
    fifo, shared = json.loads(done.stdout)["policies"]
    assert fifo["independent_runs"] == 1
    assert fifo["runs"][0]["mean_jct_s"] == fifo["runs"][1]["mean_jct_s"]
    hashes = {run["log_sha256"] for policy in (fifo, shared) for run in policy["runs"]}
    assert len(hashes) == 4, "the seed itself is in the log"


def test_the_order_of_lines_in_the_trace_changes_nothing(inside: Run, tmp_path: Path) -> None:
    """C68, shuffled input."""
    rows = [f"j{i},{i % 3},{10 + i},{1 + i % 2}" for i in range(12)]
    head = "name,submit_s,duration_s,gpus\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "t.csv").write_text(head + "\n".join(rows) + "\n")
    (tmp_path / "b" / "t.csv").write_text(head + "\n".join(rows[::-1]) + "\n")
    for name in ("a", "b"):
        done = inside("simulate", "t.csv", "-p", "fifo", "--gpus", "2", cwd=tmp_path / name)
        assert done.returncode == 0, done.stderr
    assert logs_and_tables(tmp_path / "a" / "out") == logs_and_tables(tmp_path / "b" / "out")


def run_jobs(inside: Run, tmp_path: Path, name: str, rows: list[str]) -> dict[str, object]:
    (tmp_path / f"{name}.csv").write_text("name,submit_s,duration_s,gpus\n" + "\n".join(rows) + "\n")
    done = inside("simulate", f"{name}.csv", "-p", "fifo", "--gpus", "2", "-o", name, "--json")
    assert done.returncode == 0, done.stderr
    summary: dict[str, object] = json.loads(done.stdout)["policies"][0]["runs"][0]["summary"]
    return summary


def test_a_trace_that_does_not_begin_at_zero_gives_the_results_of_the_shifted_one(
    inside: Run, tmp_path: Path
) -> None:
    """C69 a."""
    rows = [(0, 100, 1), (10, 300, 2), (20, 50, 1)]
    plain = run_jobs(inside, tmp_path, "plain", [f"j{i},{s},{d},{g}" for i, (s, d, g) in enumerate(rows)])
    later = run_jobs(
        inside, tmp_path, "later", [f"j{i},{s + 86400},{d},{g}" for i, (s, d, g) in enumerate(rows)]
    )
    # j1 waits for j0 until 100 and ends at 400; j2 then runs to 450: JCT 100, 390 and 430.
    assert plain["jct_s_mean"] == pytest.approx((100 + 390 + 430) / 3)
    assert later == plain


def test_equal_arrivals_a_long_gap_and_a_single_job_all_work(inside: Run, tmp_path: Path) -> None:
    """C69 b, c, d."""
    equal = run_jobs(inside, tmp_path, "equal", [f"j{i},5,10,1" for i in range(4)])
    # Two devices: two jobs end after 10 s, two after 20 s.
    assert equal["jct_s_mean"] == pytest.approx(15.0)
    gap = run_jobs(inside, tmp_path, "gap", ["a,0,10,1", f"b,{30 * 86400},10,1"])
    assert gap["makespan_s"] == 30 * 86400 + 10
    # Opened, two jobs with a handful of events each, closed: no stepping through the month.
    assert gap["events"] < 20  # type: ignore[operator]
    one = run_jobs(inside, tmp_path, "one", ["a,7,10,1"])
    assert (one["jct_s_mean"], one["jobs_finished"]) == (10.0, 1)


def test_milliseconds_by_mistake_are_remarked(inside: Run, tmp_path: Path) -> None:
    """C69 e."""
    rows = [f"j{i},{i * 600_000},300,1" for i in range(50)]
    (tmp_path / "ms.csv").write_text("name,submit_s,duration_s,gpus\n" + "\n".join(rows) + "\n")
    done = inside("simulate", "ms.csv", "-p", "fifo", "--gpus", "2")
    assert done.returncode == 0, done.stderr
    assert "milliseconds" in done.stdout


def test_drawn_models_are_told_to_depend_on_each_seed_where_several_run(inside: Run, jobs_csv: Path) -> None:
    words = ("simulate", "jobs.csv", "-p", "fifo", "--gpus", "2", "--json")
    one = json.loads(inside(*words, "--seed", "4", "-o", "one").stdout)["assumptions"]
    two = json.loads(inside(*words, "--seeds", "2", "-o", "two").stdout)["assumptions"]
    told = 'models of 3 of 3 jobs are drawn, not observed: mix "gavel" of 26 kinds, '
    assert f"{told}seed 4, by job name" in one
    assert f"{told}by each run's own seed and the job name" in two
