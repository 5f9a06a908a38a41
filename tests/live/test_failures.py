"""What can break under a scheduler: each time it ends, or goes on, in a clear state and with a clear word."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.conftest import Scheduler, until

Make = Callable[..., Any]
PLAIN = ("--policy", "fifo", "--forecast", "contention")
HUNGRY = "x = bytearray(400 << 20); import time; time.sleep(600)"


def started(make: Make) -> Any:
    return make(*PLAIN).start()


def test_a_log_that_is_damaged_is_named_and_nothing_starts(make_scheduler: Make) -> None:
    scheduler = started(make_scheduler)
    for _ in range(20):
        scheduler.submit_all([{"command": ["true"], "name": "x" * 150} for _ in range(20)])
    scheduler.stop()
    path = scheduler.state / "cotenant.db"
    data = bytearray(path.read_bytes())
    assert len(data) > 5 * 4096
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 512] = os.urandom(512)
    path.write_bytes(data)
    done = subprocess.run(scheduler.command(), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(path) in done.stderr


def test_a_tail_that_was_torn_by_a_crash_costs_only_what_was_never_answered(make_scheduler: Make) -> None:
    scheduler = started(make_scheduler)
    number = scheduler.submit("sleep", "300")
    scheduler.await_status(number, "running")
    scheduler.await_process(number)
    scheduler.kill()
    wal = scheduler.state / "cotenant.db-wal"
    with wal.open("ab") as file:
        file.write(os.urandom(3000))  # a page that was being written
    scheduler.start()
    assert scheduler.job(number)["status"] == "running"
    told: dict[str, Any] = {}

    def healthy() -> bool:
        told.update(scheduler.ask("GET", "/v1/doctor").json())
        return told["healthy"] is True

    until(healthy, lambda: str(told))


def test_a_full_disk_refuses_what_it_cannot_keep_and_says_so(make_scheduler: Make) -> None:
    scheduler = make_scheduler(*PLAIN)
    number = started_small(scheduler)
    refused = False
    for i in range(400):
        jobs = [{"key": f"f{i}-{n}", "job": {"name": "y" * 190, "command": ["true"]}} for n in range(50)]
        try:
            answer = scheduler.ask("POST", "/v1/jobs", {"jobs": jobs})
        except httpx.HTTPError:
            break  # it has ended
        if answer.status_code == 503 or any("error" in job for job in answer.json()["jobs"]):
            refused = True
            break
    assert refused or scheduler.process.wait(180) == 1
    if scheduler.process.poll() is None:
        scheduler.kill()
    assert "Traceback" not in scheduler.said()
    scheduler.start()  # there is room again
    assert scheduler.job(number)["status"] == "running"


def test_a_disk_without_room_is_waited_for_and_the_scheduler_goes_on_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    scheduler = Scheduler(folder / "state", *PLAIN)
    try:
        scheduler.start()
        began, gate = tmp_path / "began", tmp_path / "gate"
        number = scheduler.submit("sh", "-c", f"touch {began}; while [ ! -e {gate} ]; do sleep 0.05; done")
        # The log says that it runs before its shepherd has started it.
        until(began.exists, scheduler.said)
        fill(folder / "filler")
        gate.touch()  # what it may come to write down of its end finds no room
        tries = itertools.count()

        def refused() -> bool:
            # Large ones, so that the log's own spare pages are soon used up.
            job = {"name": "large", "command": ["true"], "env": {"FILL": "y" * 50_000}}
            body = {"jobs": [{"key": f"f{next(tries)}", "job": job}]}
            answer = scheduler.ask("POST", "/v1/jobs", body)
            return answer.status_code == 503 and "until there is room" in scheduler.said()

        until(refused, scheduler.said)
        assert scheduler.job(number)["name"] == "job-1"  # what it knows is still shown
        (folder / "filler").unlink()
        scheduler.await_status(number, "done")
        scheduler.await_status(scheduler.submit("true"), "done")
        assert scheduler.process is not None
        assert scheduler.process.poll() is None  # it never ended
    finally:
        for process in scheduler.spare:
            process.kill()
            process.wait()
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_job_that_finds_no_room_to_start_waits_for_it_and_has_not_failed(
    make_scheduler: Make, tmp_path: Path
) -> None:
    scheduler = make_scheduler(*PLAIN)
    jobs = scheduler.state / "jobs"
    jobs.mkdir(mode=0o700, parents=True)
    scheduler.state.chmod(0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(jobs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        scheduler.start()
        fill(jobs / "filler")
        marks = tmp_path / "marks"
        number = scheduler.submit("sh", "-c", f"echo x >> {marks}")
        until(lambda: f"job {number} cannot be started for now (No space" in scheduler.said(), scheduler.said)
        (jobs / "filler").unlink()
        ended = scheduler.await_status(number, "done")
        assert ended["attempt"] == 1  # it has no retries, and none was needed
        assert marks.read_text() == "x\n"
    finally:
        for process in scheduler.spare:
            process.kill()
            process.wait()
        subprocess.run(["umount", "-l", str(jobs)], check=True)


def fill(path: Path) -> None:
    """Take all the room that is left, the log's own last pages too."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def started_small(scheduler: Any) -> int:
    """A scheduler that may write files of 3 MB at most; returns a job that runs."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))

    with (scheduler.state.parent / f"{scheduler.state.name}.out").open("ab") as out:
        process = subprocess.Popen(scheduler.command(), stdout=out, stderr=out, preexec_fn=limit)  # noqa: PLW1509
    scheduler.spare.append(process)
    scheduler.await_leader(process)
    number: int = scheduler.submit("sleep", "300")
    scheduler.await_status(number, "running")
    return number


def test_a_job_that_takes_more_memory_than_it_asked_for_ends_alone_and_says_so(make_scheduler: Make) -> None:
    scheduler = make_scheduler("--policy", "cotenant", "--forecast", "contention").start()
    table = scheduler.ask("GET", "/v1/devices").json()["devices"][0]["enforcement"]
    quiet = scheduler.submit("sleep", "300", gpu_memory="200MiB")
    job = scheduler.submit(sys.executable, "-c", HUNGRY, gpu_memory="200MiB")
    if not any("memory hard" in words for words in table.values()):
        scheduler.command_on(job, "cancel")
        return
    ended = scheduler.await_status(job, "failed")
    assert "memory" in ended["reason"]
    assert scheduler.job(quiet)["status"] == "running"


def test_a_program_that_cannot_be_started_fails_by_name_and_others_go_on(make_scheduler: Make) -> None:
    scheduler = started(make_scheduler)
    wrong = scheduler.submit("/no/such/program")
    folder = scheduler.submit("true", cwd="/no/such/folder")
    right = scheduler.submit("true")
    assert "/no/such/program" in scheduler.await_status(wrong, "failed")["reason"]
    assert scheduler.await_status(folder, "failed", "rejected")["reason"]
    scheduler.await_status(right, "done")
