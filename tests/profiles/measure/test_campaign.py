"""Measuring for real, with small jobs: tables, interruptions, failures, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from cotenant.errors import ConfigError
from cotenant.profiles.measure.campaign import Campaign, Outcome
from cotenant.profiles.measure.jobsfile import read_jobs
from cotenant.profiles.measure.target import parse_target
from cotenant.profiles.measure.worker import JobFailedError, Worker
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="core sets are measured on Linux"),
]
JobsFile = Callable[..., Path]


def _measure(
    path: Path, folder: Path, *, retry: bool = False, said: Callable[[str], None] | None = None
) -> Outcome:
    file = read_jobs(path)
    target = parse_target(file.settings.device)
    command = ["cotenant", "measure"]
    return Campaign(file, target, folder, command=command, retry_failed=retry, remark=said).run()


def _cli(path: Path, folder: Path, marker: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cotenant", "measure", str(path), "-o", str(folder)],
        env={**os.environ, "MEASURE_TEST_MARK": marker},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_repeats(folder: Path, count: int) -> None:
    journal = folder / "journal.jsonl"
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if journal.exists() and journal.read_text().count('"kind":"repeat"') >= count:
            return
        time.sleep(0.05)
    pytest.fail("no measurement in five minutes")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of jobs that are waited for 2 s alone, as they never report a step; the others have their time to start."""
    names: set[str] = set()
    wait_warm = Worker.wait_warm

    def waited(worker: Worker, steps: int, seconds: float, timeout_s: float, **more: Any) -> None:
        wait_warm(worker, steps, seconds, 2.0 if worker.name in names else timeout_s, **more)

    monkeypatch.setattr(Worker, "wait_warm", waited)
    return names


def _was_alone(folder: Path) -> bool:
    """Whether the jobs had their core for themselves: what others took of it is measured, too."""
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    taken = [member.get("taken") for line in lines for member in line.get("members", ())]
    assert taken and None not in taken
    return max(taken) < 0.1


def _wait_until_gone(kit: Any, marker: str) -> None:
    until = time.monotonic() + 120
    while kit.living(marker) and time.monotonic() < until:
        time.sleep(0.05)
    assert kit.living(marker) == []


def test_pairs_triples_and_copies_are_measured_and_tables_read_back(
    jobs_file: JobsFile, kit: Any, tmp_path: Path
) -> None:
    path = jobs_file(
        kit.job("w", kit.WORK, batch=4, family="f"),
        kit.job("z", kit.SLEEP),
        more='triples = [["w", "w", "z"]]',
    )
    outcome = _measure(path, tmp_path / "out")
    assert outcome.complete
    assert not outcome.interrupted
    co_runs = read_co_runs(tmp_path / "out")
    assert co_runs == list(outcome.tables.co_runs)
    assert [run.status for run in co_runs] == ["ok"] * 4
    by_models = {tuple(side.job.model for side in run.sides): run for run in co_runs}
    assert set(by_models) == {("w", "z"), ("w", "w"), ("z", "z"), ("w", "w", "z")}
    solos = {run.job.model: run for run in read_solo_runs(tmp_path / "out")}
    assert solos["w"].job.batch == 4
    assert solos["w"].gpu_util is not None
    assert solos["z"].gpu_util is not None
    assert all(side.speed for run in co_runs for side in run.sides)
    if _was_alone(tmp_path / "out"):
        # Two that compute share one core; two that sleep do not hinder each other.
        halves = [side.speed for side in by_models["w", "w"].sides]
        assert halves == [pytest.approx(0.5, rel=0.25)] * 2
        assert [side.speed for side in by_models["z", "z"].sides] == [pytest.approx(1.0, rel=0.25)] * 2
        assert solos["w"].gpu_util > 60
        assert solos["z"].gpu_util < 40
    assert solos["w"].mem_util is None  # nothing here measures memory bandwidth
    assert solos["w"].mem_mib is not None
    assert solos["w"].mem_mib > 1
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["command"] == ["cotenant", "measure"]
    assert manifest["machine"]["device"] == f"cpu:{kit.core()}"
    assert set(manifest["sha256"]) == {"pairs.csv", "solo_profiles.csv", "intervals.csv"}
    assert len((tmp_path / "out" / "intervals.csv").read_text().splitlines()) == 1 + 2 * 3 + 3
    assert kit.living(str(tmp_path)) == []
    # The same again has nothing to do, and changes no table.
    before = (tmp_path / "out" / "pairs.csv").read_bytes()
    again = _measure(path, tmp_path / "out")
    assert (again.complete, again.repeats) == (True, outcome.repeats)
    assert (tmp_path / "out" / "pairs.csv").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured_and_ends_all_jobs(
    jobs_file: JobsFile, kit: Any, tmp_path: Path, number: signal.Signals
) -> None:
    path = jobs_file(kit.job("w", kit.WORK), kit.job("z", kit.SLEEP))
    # So many that the signal comes before the end, however late.
    path.write_text(path.read_text().replace("_repeats = 1\n", "_repeats = 99\n"))
    process = _cli(path, tmp_path / "out", str(tmp_path))
    _wait_for_repeats(tmp_path / "out", 3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "goes on" in errors
    _wait_until_gone(kit, str(tmp_path))
    assert len(read_solo_runs(tmp_path / "out")) >= 1
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "interrupted"


def test_a_kill_leaves_no_process_and_a_journal_to_go_on_from(
    jobs_file: JobsFile, kit: Any, tmp_path: Path
) -> None:
    path = jobs_file(kit.job("w", kit.WORK), kit.job("z", kit.SLEEP))
    process = _cli(path, tmp_path / "out", str(tmp_path))
    _wait_for_repeats(tmp_path / "out", 3)  # two alone, one pair of three
    assert kit.living(str(tmp_path))
    process.kill()
    process.communicate(timeout=300)
    _wait_until_gone(kit, str(tmp_path))
    journal = tmp_path / "out" / "journal.jsonl"
    kept = journal.read_text().count('"kind":"repeat"')
    # As if it had been killed in the middle of a line:
    with journal.open("a") as file:
        file.write('{"kind":"repeat","session":1,"at')
    outcome = _measure(path, tmp_path / "out")
    assert outcome.complete
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    repeats = [line for line in lines if line["kind"] == "repeat"]
    assert {line["session"] for line in repeats[:kept]} == {1}
    assert {line["session"] for line in repeats[kept:]} == {2}
    # No set of the first session is measured again.
    sets = [tuple(line["jobs"]) for line in repeats if len(line["jobs"]) > 1]
    assert len(sets) == len(set(sets)) == 3


def test_failures_are_recorded_as_what_they_are(
    jobs_file: JobsFile, kit: Any, silent: set[str], tmp_path: Path
) -> None:
    crash = "import sys; sys.exit('no data at /nowhere')"
    mute = "import time; time.sleep(60)"
    ends = kit.WORK.replace("while True:", "for i in range(8):", 1)
    path = jobs_file(
        kit.job("w", kit.WORK),
        kit.job("crash", crash),
        kit.job(
            "big",
            kit.WORK.replace("while True:", "kept = bytearray(64 << 20)\nwhile True:", 1),
            memory_limit="40MiB",
        ),
        kit.job("mute", mute),
        kit.job("ends", ends),
        more="self_pairs = false",
    )
    silent.add("mute")
    outcome = _measure(path, tmp_path / "out")
    notes = {run.job.model: (run.note, run.fits) for run in outcome.tables.solo_runs}
    assert notes["crash"] == ("crashed: exit code 1: no data at /nowhere", False)
    assert notes["big"][0].startswith("out of memory: ")
    assert notes["big"][1] is False
    assert notes["mute"] == ("no steps: 0 steps in 2 s; does it report them to $COTENANT_STEPS?", True)
    assert notes["ends"] == ("ended: exit code 0: ", True)
    assert notes["w"] == ("", True)
    rows = {tuple(s.job.model for s in run.sides): run for run in outcome.tables.co_runs}
    # A set of which a job cannot even run alone was never tried, and is no failed co-run.
    assert rows["crash", "w"].status == "unmeasured"
    assert rows["big", "w"].status == "unmeasured"
    assert rows["crash", "w"].sides[0].speed is None
    assert not rows["crash", "w"].sides[0].label_ok
    assert kit.living(str(tmp_path)) == []


def test_a_job_that_never_reported_a_step_is_tried_again_on_request(
    jobs_file: JobsFile, kit: Any, silent: set[str], tmp_path: Path
) -> None:
    def written(mended: str) -> Path:
        return jobs_file(kit.job("w", kit.WORK), kit.job("mute", mended), more="self_pairs = false")

    silent.add("mute")
    why = "no steps: 0 steps in 2 s; does it report them to $COTENANT_STEPS?"
    first = _measure(written("import time; time.sleep(60)"), tmp_path / "out")
    assert first.skipped == {"mute": why}
    assert first.tables.co_runs[0].status == "unmeasured"

    # The same command goes on without it, and says so.
    said: list[str] = []
    again = _measure(written("import time; time.sleep(60)"), tmp_path / "out", said=said.append)
    assert again.repeats == first.repeats and again.skipped == {"mute": why}
    assert said == [
        f"mute is left out, with its sets: in an earlier session it failed ({why}); --retry-failed tries it again"
    ]

    # Mended, it is another job: refused as such, unless it is to be tried again.
    silent.clear()
    mended = written(kit.WORK)
    with pytest.raises(ConfigError, match="begun with other jobs"):
        _measure(mended, tmp_path / "out")
    third = _measure(mended, tmp_path / "out", retry=True)
    assert third.complete and third.skipped == {}
    (run,) = third.tables.co_runs
    assert run.status == "ok" and all(side.speed for side in run.sides)
    assert {solo.job.model: solo.note for solo in third.tables.solo_runs} == {"w": "", "mute": ""}
    # From now on the mended job is the folder's, with and without the option; one that ran is not changed.
    assert _measure(mended, tmp_path / "out").repeats == third.repeats
    changed = jobs_file(kit.job("w", kit.SLEEP), kit.job("mute", kit.WORK), more="self_pairs = false")
    with pytest.raises(ConfigError, match="begun with other jobs"):
        _measure(changed, tmp_path / "out", retry=True)
    assert kit.living(str(tmp_path)) == []


@pytest.mark.parametrize("resident", ["true", "false"])
def test_a_job_that_dies_beside_another_is_a_failed_co_run(
    jobs_file: JobsFile, kit: Any, tmp_path: Path, resident: str
) -> None:
    # It dies when its partner does a step while it runs itself, as one does that finds no memory left.
    partner = tmp_path / "out" / "steps" / "w-1.steps"
    dies = kit.WORK.replace(
        "while True:\n",
        f"size = lambda: os.path.getsize('{partner}') if os.path.exists('{partner}') else 0\n"
        "while True:\n    before = size()\n",
        1,
    )
    dies += "    if before and size() > before: raise SystemExit('CUDA out of memory')\n"
    more = f'pairs = [["w", "d"]]\nresident = {resident}'
    outcome = _measure(jobs_file(kit.job("d", dies), kit.job("w", kit.WORK), more=more), tmp_path / "out")
    (run,) = outcome.tables.co_runs
    solos = {solo.job.model: solo for solo in outcome.tables.solo_runs}
    assert solos["d"].fits
    assert (solos["d"].throughput or 0) > 0
    assert run.status == "failed_one_side"
    assert not any(side.usable for side in run.sides)
    lines = [json.loads(line) for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()]
    together = [line for line in lines if line.get("jobs") == ["d", "w"]]
    assert len(together) == 2  # tried twice, in the end given up
    assert [(f["job"], f["what"]) for f in together[0]["failures"]] == [("d", "out of memory")]


def test_jobs_started_anew_each_time_give_the_same_kind_of_table(
    jobs_file: JobsFile, kit: Any, tmp_path: Path
) -> None:
    path = jobs_file(
        kit.job("w", kit.WORK), kit.job("z", kit.SLEEP), more="resident = false\nself_pairs = false"
    )
    outcome = _measure(path, tmp_path / "out")
    assert outcome.complete
    (run,) = outcome.tables.co_runs
    assert run.status == "ok"
    assert run.sides[0].speed
    if _was_alone(tmp_path / "out"):
        assert run.sides[0].speed == pytest.approx(1.0, rel=0.3)


def test_another_campaign_does_not_go_into_the_same_folder(
    jobs_file: JobsFile, kit: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    _measure(jobs_file(kit.job("w", kit.WORK), more='pairs = "none"'), folder)
    with pytest.raises(ConfigError, match="begun with other jobs"):
        _measure(jobs_file(kit.job("w", kit.SLEEP), more='pairs = "none"'), folder)
    with pytest.raises(ConfigError, match=r"another seed \(0, now 3\)"):
        _measure(jobs_file(kit.job("w", kit.WORK), more='pairs = "none"\nseed = 3'), folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds no journal"):
        _measure(jobs_file(kit.job("w", kit.WORK)), tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (folder / "journal.jsonl").write_text("not a journal\n")
    with pytest.raises(ConfigError, match=r"journal.jsonl:1: is no line"):
        _measure(jobs_file(kit.job("w", kit.WORK), more='pairs = "none"'), folder)


def test_the_budget_ends_it_and_more_budget_goes_on(jobs_file: JobsFile, kit: Any, tmp_path: Path) -> None:
    # Three alone and six pairs of 0.35 s and more take longer than the budget.
    jobs = [kit.job(f"w{i}", kit.WORK) for i in range(3)]
    first = _measure(jobs_file(*jobs, budget="2s"), tmp_path / "out")
    assert not first.complete
    second = _measure(jobs_file(*jobs, budget="120s"), tmp_path / "out")
    assert second.complete
    assert second.repeats > first.repeats
    assert second.used_s > first.used_s


def test_a_leash_that_is_killed_takes_its_job_along(kit: Any, tmp_path: Path) -> None:
    worker = Worker(
        "w",
        [sys.executable, "-c", kit.WORK],
        {**os.environ, "MEASURE_TEST_MARK": str(tmp_path)},
        steps=tmp_path / "steps",
        log=tmp_path / "log",
    )
    worker.wait_warm(2, 0.0, 120.0)
    os.kill(psutil.Process(worker.pid).ppid(), signal.SIGKILL)
    with pytest.raises(JobFailedError) as caught:
        worker.check()
    assert caught.value.failure.what == "crashed"
    worker.close()
    _wait_until_gone(kit, str(tmp_path))


def test_what_a_job_started_ends_with_it(kit: Any, tmp_path: Path) -> None:
    # The child has a session of its own and outlives its parent.
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {kit.SLEEP!r}], start_new_session=True)"
    worker = Worker(
        "p",
        [sys.executable, "-c", child + "\nimport time\ntime.sleep(0.5)"],
        {**os.environ, "MEASURE_TEST_MARK": str(tmp_path)},
        steps=tmp_path / "steps",
        log=tmp_path / "log",
    )
    until = time.monotonic() + 120
    with pytest.raises(JobFailedError) as caught:
        while time.monotonic() < until:
            worker.check()
            time.sleep(0.05)
    assert caught.value.failure.what == "ended"
    assert kit.living(str(tmp_path))
    worker.close()
    _wait_until_gone(kit, str(tmp_path))


def test_a_suspended_job_does_no_step(kit: Any, tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    command = [sys.executable, "-c", kit.SLEEP]
    worker = Worker("z", command, dict(os.environ), steps=steps, log=tmp_path / "log")
    try:
        worker.wait_warm(2, 0.0, 120.0)
        worker.stop()
        until = time.monotonic() + 60
        while psutil.Process(worker.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < until:
            time.sleep(0.01)
        before = len(worker.read_steps())
        time.sleep(0.2)
        assert len(worker.read_steps()) == before
        worker.go()
        while len(worker.read_steps()) == before and time.monotonic() < until + 60:
            time.sleep(0.01)
        assert len(worker.read_steps()) > before
    finally:
        worker.close()


def test_a_silent_job_keeps_within_the_budget_and_leaves_time_for_the_others(
    jobs_file: JobsFile, kit: Any, tmp_path: Path
) -> None:
    path = jobs_file(
        kit.job("mute", "import time; time.sleep(300)"),
        kit.job("bad", "import sys; sys.exit('no data at /nowhere')"),
        "[[job]]\nname = 'absent'\ncommand = ['./not-here.sh']\n",
        kit.job("w", kit.WORK),
        budget="12s",
    )
    path.write_text(path.read_text().replace('start_timeout = "60s"', 'start_timeout = "120s"'))
    file = read_jobs(path)
    told: list[str] = []
    target = parse_target(file.settings.device)
    outcome = Campaign(file, target, tmp_path / "out", remark=told.append).run()
    assert outcome.used_s < 100  # it was 240 and more: twice the start_timeout
    assert (outcome.complete, outcome.put_off) == (False, ("mute",))
    rows = {tuple(s.job.model for s in run.sides): run.status for run in outcome.tables.co_runs}
    assert rows["w", "w"] == "ok"
    lines = [json.loads(line) for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()]
    tried = [line["jobs"] for line in lines if line["kind"] == "repeat"]
    assert (tried.count(["mute"]), tried.count(["absent"])) == (1, 1)
    (silent,) = [line for line in told if line.startswith("mute has reported no step for ")]
    assert "a job appends a line to $COTENANT_STEPS at each step (docs/prediction/measure.md)" in silent
    (late,) = [line for line in told if line.startswith("mute: mute no time (0 steps in ")]
    assert "half of what the budget left" in late
    log = tmp_path / "out" / "logs" / "bad-1.log"
    assert [line for line in told if line.startswith("bad: ")] == [
        f"bad: bad crashed (exit code 1: no data at /nowhere); its output: {log}"
    ]
    assert kit.living(str(tmp_path)) == []
