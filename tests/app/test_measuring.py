"""Commands profile and measure as people type them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cotenant.app.main import main
from cotenant.profiles.runsfile import read_solo_runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="core sets are measured on Linux")
CORE = f"cpu:{min(os.sched_getaffinity(0)) if sys.platform == 'linux' else 0}"
TRAIN = """
import os, sys, time
log = open(os.environ["COTENANT_STEPS"], "a", buffering=1) if "COTENANT_STEPS" in os.environ else sys.stderr
for _ in range(int(sys.argv[1])):
    until = time.process_time() + 0.01
    while time.process_time() < until:
        pass
    log.write(f"{time.monotonic_ns()}\\n")
print("trained")
sys.exit(int(sys.argv[2]))
"""

HEARS_CTRL_C = """
import runpy, signal

signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("cotenant", run_name="__main__", alter_sys=True)
"""


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cotenant", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A training script."""
    (tmp_path / "train.py").write_text(TRAIN)
    return str(tmp_path / "train.py")


def test_profile_says_what_a_run_did(tmp_path: Path, script: str) -> None:
    words = (
        "profile",
        "--device",
        CORE,
        "--every",
        "100ms",
        "-o",
        "solo.csv",
        "--model",
        "Mine",
        "--batch",
        "4",
    )
    done = _run(*words, "--", sys.executable, script, "60", "0", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout  # its output stays the terminal's
    assert "steps/s over 54 steps (the first 5 left out)" in done.stdout
    assert "busy time [%]" in done.stdout
    assert "SM active" not in done.stdout  # nothing measures it here
    (row,) = read_solo_runs(tmp_path / "solo.csv")
    assert (row.job.model, row.job.batch) == ("Mine", 4)
    assert row.throughput is not None
    assert 0 < row.throughput <= 100.5  # 10 ms of computing a step
    assert row.mem_mib is not None
    assert row.mem_mib > 3
    assert row.mem_util is None


def test_profile_as_json_and_for_a_time(tmp_path: Path, script: str) -> None:
    words = ("profile", "--json", "--every", "100ms", "--for", "1500ms", "--device", CORE, "--")
    done = _run(*words, sys.executable, script, "100000", "0", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["exit_code"] is None
    assert found["seconds"] >= 1.5
    assert found["devices"]["cpu"][0]["device"] == CORE
    assert found["devices"]["cpu"][0]["meters"]["dram_active_pct"]["mean"] is None
    assert found["job"][CORE]["meters"]["memory_used_mib"]["mean"] > 3


def test_profile_of_a_run_that_fails_or_cannot_start(tmp_path: Path, script: str) -> None:
    done = _run("profile", "--", sys.executable, script, "1", "3", folder=tmp_path)
    assert done.returncode == 1
    assert "error: the run ended with exit code 3" in done.stderr
    assert "1 steps reported" in done.stdout
    short = _run("profile", "--every", "60s", "--", "true", folder=tmp_path)
    assert "no device was read before the run ended" in short.stdout
    assert "this run" not in short.stdout  # no head of a table without rows
    missing = _run("profile", "--", "./nothing-here", folder=tmp_path)
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: cannot start './nothing-here'")
    nameless = _run("profile", "-o", "x.csv", "--", "true", folder=tmp_path)
    assert (nameless.returncode, "give --model" in nameless.stderr) == (1, True)
    device = _run("profile", "--device", "cpu:4095", "--", "true", folder=tmp_path)
    assert (device.returncode, "core 4095 is not there" in device.stderr) == (1, True)
    # Refused before the run, not after hours of it.
    nowhere = _run("profile", "-o", "gone/x.json", "--", "touch", "ran", folder=tmp_path)
    assert (nowhere.returncode, "there is no folder gone" in nowhere.stderr) == (1, True)
    assert not (tmp_path / "ran").exists()


def test_profile_that_is_interrupted_tells_what_it_saw_and_that_it_was(tmp_path: Path) -> None:
    words = [
        "profile",
        "--every",
        "100ms",
        "-o",
        "seen.json",
        "--json",
        "--",
        "sh",
        "-c",
        "touch ran; exec sleep 60",
    ]
    run = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(6000):
        if (tmp_path / "ran").exists():
            break
        time.sleep(0.05)
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 130
    assert "interrupted" in err
    found = json.loads(out)
    assert (found["interrupted"], found["exit_code"]) == (True, None)
    assert json.loads((tmp_path / "seen.json").read_text()) == found


JOBS = """
[measure]
device = "{core}"
budget = "60s"
warmup_steps = 2
warmup = "0s"
settle = "50ms"
window = "200ms"
min_steps = 3
min_repeats = 1
target_pct = 95.0
[[job]]
name = "one"
command = [{python!r}, {script!r}, "1000000", "0"]
[[job]]
name = "two"
command = [{python!r}, {script!r}, "2000000", "0"]
"""


def test_measure_from_a_plan_to_tables(tmp_path: Path, script: str) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS.format(core=CORE, python=sys.executable, script=script))
    plan = _run("measure", "jobs.toml", "-o", "out", "--plan", folder=tmp_path)
    assert "2 jobs, 3 pairs, 0 triples" in plan.stdout
    assert not (tmp_path / "out").exists()
    assert "unseen pairs" not in plan.stderr
    fitted = _run("measure", "jobs.toml", "-o", "out", "--plan", "--fit", folder=tmp_path)
    assert "pairs to measure: 3; --fit writes fit.json all the same" in fitted.stderr
    assert "the comparison on unseen pairs needs 6" in fitted.stderr
    done = _run("measure", "jobs.toml", "-o", "out", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["complete"] is True
    assert [entry["jobs"] for entry in found["sets"]] == [["one", "one"], ["one", "two"], ["two", "two"]]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["command"] == ["cotenant", "measure", "jobs.toml", "-o", "out", "--json"]
    assert str(Path.home()) not in (tmp_path / "out" / "pairs.csv").read_text()


def test_measure_refuses_in_words(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 1, words
        errors = capsys.readouterr().err
        assert errors.startswith("error: ")
        return errors

    monkeypatch.chdir(tmp_path)
    text = JOBS.format(core=CORE, python=sys.executable, script=script)
    (tmp_path / "jobs.toml").write_text(text)
    for words, expected in (
        (("measure", "nothing.toml", "-o", "out"), "nothing.toml: No such file"),
        (("measure", "jobs.toml", "-o", "out", "--device", "tpu:0"), "no device 'tpu:0'"),
        (("measure", "jobs.toml", "-o", "out", "--mps"), "MPS is NVIDIA's"),
        (("measure", "jobs.toml", "-o", "jobs.toml"), "jobs.toml is a file"),
        (("measure", "jobs.toml", "-o", "out", "--plan", "--device", "tpu:0"), "no device 'tpu:0'"),
        (("measure", "jobs.toml", "-o", "out", "--plan", "--device", "cpu:4095"), "core 4095 is not there"),
    ):
        assert expected in refused(*words)
    (tmp_path / "jobs.toml").write_text(text.replace(f'device = "{CORE}"\n', ""))
    assert "names no device; give --device" in refused("measure", "jobs.toml", "-o", "out")
