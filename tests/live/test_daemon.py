"""A real scheduler with real processes: what a user does, and what dies."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cotenant.live import logs
from cotenant.live.leading import TTL_S
from cotenant.live.statedir import read_daemon

Scheduler = Any  # of conftest.py
Make = Callable[..., Any]
SLEEP = ("sleep", "300")


def words(text: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", text)


def test_a_job_is_submitted_runs_and_ends_and_its_output_is_kept(calm: Scheduler) -> None:
    number = calm.submit(*words("echo to-out; echo to-err >&2; echo $COTENANT_JOB_ID"), name="hello")
    job = calm.await_status(number, "done")
    assert job["exit_code"] == 0
    assert job["name"] == "hello"
    assert job["started"] >= job["submitted"]
    assert calm.logs(number) == f"to-out\n{number}\n"
    assert calm.logs(number, "stderr") == "to-err\n"


def test_a_job_that_fails_says_with_which_code(calm: Scheduler) -> None:
    job = calm.await_status(calm.submit(*words("exit 7")), "failed")
    assert job["exit_code"] == 7
    assert "exit code 7" in job["reason"]
    missing = calm.await_status(calm.submit("no-such-program-here"), "failed")
    assert "no-such-program-here" in missing["reason"]


def test_jobs_wait_for_devices_in_order_and_say_why(calm: Scheduler) -> None:
    running = [calm.submit(*SLEEP, name=f"holds-{i}") for i in range(2)]
    for number in running:
        calm.await_status(number, "running")
    waits = calm.submit(*words("true"), name="waits")
    job = calm.await_status(waits, "waiting")
    calm.until(lambda: "not now" in calm.job(waits)["reason"], "no reason is given")
    told = calm.ask("GET", f"/v1/jobs/{waits}/explain").json()
    assert told["outcome"] == "waiting"
    assert "WAITING" in told["verdict"]
    assert "not now, which is not never" in told["verdict"]
    assert job["devices"] == []
    calm.command_on(running[0], "cancel")
    calm.await_status(waits, "done")
    assert calm.job(running[0])["status"] == "cancelled"


def test_a_waiting_job_and_a_starting_one_are_cancelled(calm: Scheduler) -> None:
    numbers = [calm.submit(*SLEEP) for _ in range(4)]
    for number in reversed(numbers):  # the first two may be starting at this very moment
        assert calm.command_on(number, "cancel").status_code == 202
    for number in numbers:
        assert calm.await_status(number, "cancelled")["status"] == "cancelled"
    late = calm.command_on(numbers[0], "cancel")
    assert late.status_code == 409
    assert "has ended" in late.text


def test_what_never_fits_is_refused_with_both_numbers(calm: Scheduler) -> None:
    gpus, memory = calm.submit_all(
        [{"command": ["true"], "gpus": 9}, {"command": ["true"], "gpu_memory": "900TiB"}]
    )
    assert gpus["error"] == "InfeasibleError"
    assert "never fits: 9 devices asked, 2 of 2" in gpus["message"]
    assert "943,718,400 MiB" in memory["message"]


def test_the_same_key_is_the_same_job_and_another_content_is_refused(calm: Scheduler) -> None:
    body = {"command": ["true"], "name": "once"}
    (first,) = calm.submit_all([body], keys=["mine"])
    (again,) = calm.submit_all([body], keys=["mine"])
    assert (again["id"], again["again"]) == (first["id"], True)
    (other,) = calm.submit_all([{**body, "name": "twice"}], keys=["mine"])
    assert other["error"] == "ConflictError"


def test_the_same_id_twice_at_once_is_one_job_and_the_first_is_unharmed(calm: Scheduler) -> None:
    """Case C46: identical, other content, after the end, and a retry."""
    body = {"command": ["sleep", "0.3"], "name": "x"}
    with ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda _: calm.submit_all([body], keys=["x1"])[0], range(8)))
    (number,) = {answer["id"] for answer in same}
    assert sorted(answer["again"] for answer in same) == [False, *[True] * 7]
    (other,) = calm.submit_all([{**body, "command": ["false"]}], keys=["x1"])
    assert other["error"] == "ConflictError"
    calm.await_status(number, "done")
    (late,) = calm.submit_all([body], keys=["x1"])
    assert (late["id"], late["again"], calm.job(number)["status"]) == (number, True, "done")


def test_names_of_all_kinds_come_back_as_they_were(calm: Scheduler) -> None:
    """Case C67; shown in the daemon's log with control characters escaped."""
    names = [
        "dédé job",
        "训练-01",
        "für",
        "🚀",
        "\u05d0\u05d1\u05d2",
        "a|b",
        "=1+1",
        "\x1b[31mred\x1b[0m",
        "../../etc",
        "a\nb",
    ]
    numbers = [answer["id"] for answer in calm.submit_all([{"command": ["true"], "name": n} for n in names])]
    for number, name in zip(numbers, names, strict=True):
        assert calm.await_status(number, "done")["name"] == name
        assert calm.ask("GET", f"/v1/jobs/{number}/explain").json()["name"] == name
    listed = {job["id"]: job["name"] for job in calm.ask("GET", "/v1/jobs").json()["jobs"]}
    assert [listed[number] for number in numbers] == names
    assert "\x1b" not in calm.said()
    assert "\\x1b[31mred" in calm.said()


def test_a_job_waits_for_another_to_end_well(calm: Scheduler, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = calm.submit(*words(f"sleep 0.3; echo first >> {mark}"))
    second = calm.submit(*words(f"echo second >> {mark}"), after=[first])
    calm.await_status(second, "done")
    assert mark.read_text() == "first\nsecond\n"
    fails = calm.submit(*words("sleep 0.2; exit 1"))
    never = calm.submit(*words("true"), after=[fails])
    assert calm.await_status(never, "rejected")["status"] == "rejected"


def test_a_job_that_is_held_lets_another_go_first(calm: Scheduler) -> None:
    number = calm.submit(*SLEEP, suspend="restart")
    calm.await_status(number, "running")
    assert calm.command_on(number, "suspend").status_code == 202
    assert calm.await_status(number, "held")["suspensions"] == 1
    assert calm.command_on(number, "resume").status_code == 202
    calm.await_status(number, "running")
    calm.command_on(number, "cancel")


def test_jobs_run_on_when_the_scheduler_ends_in_order_and_are_adopted(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    number = scheduler.gated(tmp_path / "gate")
    scheduler.await_status(number, "running")
    assert scheduler.stop() == 0
    assert read_daemon(scheduler.state) is None
    scheduler.start()
    assert scheduler.job(number)["status"] == "running"
    (tmp_path / "gate").touch()
    job = scheduler.await_status(number, "done")
    assert job["attempt"] == 1
    assert scheduler.logs(number).endswith("end\n")


def test_after_kill_9_jobs_are_adopted_and_what_ended_meanwhile_is_known(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    long, short = scheduler.gated(tmp_path / "long"), scheduler.gated(tmp_path / "short", "exit 3")
    for number in (long, short):
        scheduler.await_status(number, "running")
        scheduler.await_process(number)
    scheduler.kill()
    (tmp_path / "short").touch()
    folder = scheduler.state / "jobs" / str(short)
    scheduler.until(lambda: any(folder.glob("serial-*/exit.json")), "it does not end")
    scheduler.start()
    assert scheduler.await_status(short, "failed")["exit_code"] == 3
    assert scheduler.job(long)["status"] == "running"
    (tmp_path / "long").touch()
    job = scheduler.await_status(long, "done")
    assert (job["attempt"], scheduler.logs(long)) == (1, "end\n")


def test_nobody_takes_the_time_without_a_scheduler_for_work_of_jobs_that_ended_meanwhile(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    number = scheduler.gated(tmp_path / "gate", "sleep 1")
    folder = scheduler.state / "jobs" / str(number)
    scheduler.await_process(number)
    scheduler.await_status(number, "running")
    scheduler.kill()
    (tmp_path / "gate").touch()
    scheduler.until(lambda: any(folder.glob("serial-*/exit.json")), "it does not end")
    time.sleep(3.0)
    scheduler.start()
    scheduler.await_status(number, "done")
    events = [json.loads(line) for line in scheduler.ask("GET", "/v1/log").text.splitlines()]
    (ended,) = [event for event in events if event["e"] == "ended"]
    (started,) = [event for event in events if event["e"] == "started"]
    assert ended["t"] - started["t"] > 4.0  # so long its device was held
    assert 0.9 < ended["work_s"] < ended["t"] - started["t"] - 2.9
    # People are told how long it took, not how long its device was held.
    view = scheduler.job(number)
    assert ended["ago_s"] > 2.9
    assert 0.9 < view["ended"] - view["started"] < ended["t"] - started["t"] - 2.9


def test_a_second_scheduler_on_the_same_folder_is_refused_by_name(scheduler: Scheduler) -> None:
    assert scheduler.process is not None
    for late in (False, True):
        if late:  # as on a machine that is far too busy: it prolongs nothing, and lives
            scheduler.process.send_signal(signal.SIGSTOP)
            time.sleep(1.1 * TTL_S)
        try:
            second = subprocess.run(
                scheduler.command(), capture_output=True, text=True, timeout=180, check=False
            )
        finally:
            scheduler.process.send_signal(signal.SIGCONT)
        assert second.returncode == 1
        assert f"process {scheduler.process.pid}, {scheduler.url}" in second.stderr


def test_a_standby_takes_over_with_jobs_running(scheduler: Scheduler, tmp_path: Path) -> None:
    number = scheduler.gated(tmp_path / "gate")
    scheduler.await_status(number, "running")
    standby = scheduler.spawn("--standby")
    scheduler.until(lambda: "standing by" in scheduler.said(), "it does not stand by")
    first = scheduler.ask("GET", "/v1/status").json()
    scheduler.kill()
    scheduler.await_leader(standby)
    after = scheduler.ask("GET", "/v1/status").json()
    assert after["epoch"] == first["epoch"] + 1
    assert scheduler.job(number)["status"] == "running"
    (tmp_path / "gate").touch()
    assert scheduler.await_status(number, "done")["attempt"] == 1


def test_a_leader_that_lost_its_lease_stops_by_itself(scheduler: Scheduler) -> None:
    old = scheduler.process
    assert old is not None
    standby = scheduler.spawn("--standby")
    scheduler.until(lambda: "standing by" in scheduler.said(), "it does not stand by")

    def taken_over() -> bool:
        # Stopped in the middle of a write it keeps the log locked: then it is let go on, and stopped anew.
        old.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            if (found := read_daemon(scheduler.state)) is not None and found.pid == standby.pid:
                return True
            time.sleep(0.02)
        old.send_signal(signal.SIGCONT)
        return False

    scheduler.until(taken_over, scheduler.said)
    scheduler.await_leader(standby)
    old.send_signal(signal.SIGCONT)
    assert old.wait(180) == 1, scheduler.said()
    assert "another scheduler" in scheduler.said()
    number = scheduler.submit(*words("echo still"))
    scheduler.await_status(number, "done")


def test_files_of_the_state_folder_are_for_its_owner_alone(calm: Scheduler) -> None:
    calm.await_status(calm.submit(*words("true")), "done")
    assert stat.S_IMODE(calm.state.stat().st_mode) == 0o700
    private = ["token", "cotenant.db", "cotenant.db-wal", "daemon.json", "daemon.log", "jobs/0"]
    modes = {name: stat.S_IMODE((calm.state / name).stat().st_mode) & 0o077 for name in private}
    assert modes == dict.fromkeys(private, 0)


def test_two_tenants_see_their_own_jobs_and_keep_to_their_limits(make_scheduler: Make) -> None:
    from cotenant.live.tenants import TenantRow, Tenants

    scheduler = make_scheduler("--policy", "fifo")
    scheduler.state.mkdir(mode=0o700)
    tenants = Tenants(scheduler.state)
    ada = tenants.add(TenantRow(name="ada", limit_gpus=1, isolation="exclusive"))
    bob = tenants.add(TenantRow(name="bob"))
    scheduler.start()
    first = scheduler.submit(*SLEEP, token=ada)
    second = scheduler.submit(*SLEEP, token=ada)
    third = scheduler.submit(*words("true"), token=bob)
    scheduler.await_status(third, "done")
    scheduler.await_status(first, "running")
    scheduler.until(lambda: "limit" in scheduler.job(second)["reason"], lambda: str(scheduler.job(second)))
    seen = scheduler.ask("GET", "/v1/jobs", token=bob).json()["jobs"]
    assert [job["id"] for job in seen] == [third]
    assert scheduler.ask("GET", f"/v1/jobs/{first}", token=bob).status_code == 403
    assert scheduler.ask("POST", "/v1/nodes/drain", {"key": "d"}, token=bob).status_code == 403
    assert scheduler.ask("GET", "/v1/jobs", token="ct_wrong").status_code == 401
    (refused,) = scheduler.submit_all([{"command": ["true"], "sharing": "any"}], token=ada)
    assert "keeps at least" in refused["message"]
    # A file that changes holds within a second, without a restart.
    ada = tenants.add(TenantRow(name="ada", limit_gpus=2, isolation="exclusive"))
    scheduler.await_status(second, "running")
    assert "ada: quota 0, limit 2, weight 1" in scheduler.ask("GET", "/v1/doctor").text
    assert scheduler.ask("GET", "/v1/log").text.count('"e":"tenants"') == 1


def test_doctor_finds_books_and_reality_the_same(calm: Scheduler) -> None:
    number = calm.submit(*SLEEP)
    calm.await_status(number, "running")
    calm.await_process(number)
    told: dict[str, Any] = {}

    def healthy() -> bool:
        told.update(calm.ask("GET", "/v1/doctor").json())
        texts = [f["text"] for f in told["findings"]]
        return told["healthy"] is True and "1 jobs run by the books, the same 1 in fact" in texts

    # On a busy machine earlier tests' processes may take a while to be gone.
    calm.until(healthy, lambda: str(told))
    assert any("of schedulers that were killed" in f["text"] for f in told["findings"])
    assert set(told["enforcement"]) == {d["name"] for d in calm.ask("GET", "/v1/devices").json()["devices"]}


def test_the_log_of_the_daemon_is_json_and_holds_no_secret(calm: Scheduler) -> None:
    number = calm.submit(*words("true"), name="quiet", env={"PASSWORD": "hunter2-xyz"})
    calm.await_status(number, "done")
    # A job that has ended holds no file of the daemon open.
    process = calm.process
    assert process is not None
    held = Path(f"/proc/{process.pid}/fd")
    calm.until(
        lambda: (
            not any(
                f"/jobs/{number}/" in str(path.readlink()) for path in held.iterdir() if path.is_symlink()
            )
        ),
        "the daemon still holds files of it",
    )
    assert not list((calm.state / "live").glob(f"{number}.*"))
    text = (calm.state / "daemon.log").read_text()
    kinds = [json.loads(line).get("kind") for line in text.splitlines()]
    assert {"submitted", "started", "ended"} <= set(kinds)
    assert "hunter2-xyz" not in text
    assert calm.token not in text


def test_the_log_of_the_daemon_goes_on_in_a_new_file_when_one_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger("cotenant")
    for name, value in (("handlers", []), ("propagate", True), ("level", root.level)):
        monkeypatch.setattr(root, name, value)
    monkeypatch.setattr(logs, "_BYTES", 250)  # two lines
    for turn in range(2):  # the second begins with a file that is half full
        logs.begin_logging(tmp_path, quiet=True)
        for number in range(3):
            logging.getLogger("cotenant.live").info("für %d", 10 * turn + number)
    root.handlers[0].close()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    files = [tmp_path / f"daemon.log{end}" for end in (".2", ".1", "")]
    assert all(0 < file.stat().st_size <= 250 for file in files)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [line["message"] for line in lines] == [f"für {n}" for n in (0, 1, 2, 10, 11, 12)]


def test_detach_returns_when_the_api_answers(make_scheduler: Make) -> None:
    scheduler = make_scheduler("--policy", "fifo")
    done = subprocess.run(
        scheduler.command("--detach", "--json"), capture_output=True, text=True, timeout=180, check=True
    )
    told = json.loads(done.stdout)
    try:
        scheduler.url = told["url"]
        assert scheduler.ask("GET", "/v1/status").json()["pid"] == told["pid"]
        again = subprocess.run(
            scheduler.command("--detach"), capture_output=True, text=True, timeout=180, check=False
        )
        assert again.returncode == 1
        assert f"process {told['pid']}" in again.stderr
    finally:
        os.kill(told["pid"], signal.SIGTERM)
        scheduler.until(lambda: read_daemon(scheduler.state) is None, "it does not end")


def test_another_address_needs_tls_or_an_explicit_word(make_scheduler: Make) -> None:
    scheduler = make_scheduler("--bind", "0.0.0.0")
    done = subprocess.run(scheduler.command(), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1
    assert "TLS" in done.stderr
    assert not (scheduler.state / "daemon.json").exists()


def test_install_writes_a_unit_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cotenant", "up", "--state", str(tmp_path / "s"), "--install"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True, env=env)
    unit = (tmp_path / "systemd" / "user" / "cotenant.service").read_text()
    assert "KillMode=process" in unit
    assert f"--state {tmp_path / 's'}" in unit
    assert "systemctl --user" in done.stdout


def test_a_policy_or_setting_that_is_not_known_is_named_before_anything_starts(make_scheduler: Make) -> None:
    def said(*options: str) -> Any:
        return subprocess.run(
            make_scheduler(*options).command(), capture_output=True, text=True, timeout=180, check=False
        )

    wrong = said("--policy", "fiffo")
    assert wrong.returncode == 2
    assert 'did you mean "fifo"' in wrong.stderr
    assert 'did you mean "restore_s"' in said("--settings", "restor_s=3").stderr
