"""The commands of the live scheduler against one that really runs, on a core of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.live.client import Client, connect
from cotenant.live.statedir import read_daemon
from cotenant.live.views import JobView

DEVICE = f"cpu:{min(os.sched_getaffinity(0))}"
UP = ("up", "--detach", "--device", DEVICE, "--policy", "colocate", "--forecast", "none")
SLOW = "import time,sys\nfor i in range(100_000):\n print(i, flush=True); time.sleep(0.05)"
Run = Callable[..., subprocess.CompletedProcess[str]]


def cotenant(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line in this process: imports are paid once."""
    done = CliRunner().invoke(app, list(words), prog_name="cotenant")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(list(words), done.exit_code, done.stdout, done.stderr)


def good(*words: str) -> str:
    done = cotenant(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(*words: str) -> Any:
    place = words.index("--") if "--" in words else len(words)
    return json.loads(good(*words[:place], "--json", *words[place:]))


def start(state: Path) -> None:
    words = [sys.executable, "-m", "cotenant", *UP, "--state", str(state)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A scheduler that runs; its state folder."""
    state = tmp_path_factory.mktemp("cotenant") / "state"
    start(state)
    yield state
    os.environ["COTENANT_STATE_DIR"] = str(state)
    try:
        found = read_daemon(state)
        if found is None or not found.alive:
            start(state)
        done = cotenant("down", "--jobs", "cancel", "--timeout", "180s")
        assert done.returncode == 0, done.stderr
    finally:
        del os.environ["COTENANT_STATE_DIR"]
        found = read_daemon(state)
        if found is not None and found.alive:
            os.kill(found.pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def here(scheduler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COTENANT_STATE_DIR", str(scheduler))
    monkeypatch.chdir(tmp_path)
    yield
    found = read_daemon(scheduler)
    if found is not None and found.alive:
        cotenant("undrain")
        cotenant("undrain", "--device", DEVICE)
        live = [job["id"] for job in read("ps")]
        if live:
            cotenant("cancel", *map(str, live))
            cotenant("wait", *map(str, live), "--timeout", "180s")


def submit(name: str, code: str, *options: str) -> int:
    words = ("submit", "--name", name, "--gpu-memory", "100MiB", "--suspend", "restart", *options)
    (told,) = read(*words, "--", sys.executable, "-c", code)["jobs"]
    number = told["id"]
    assert isinstance(number, int)
    return number


def job(number: int) -> JobView:
    (found,) = (one for one in read("ps", "-a") if one["id"] == number)
    return msgspec.convert(found, JobView)


def states(state: Path) -> list[str]:
    with Client(lambda: connect(state)) as client:
        return [device.state for device in client.devices()]


def until(number: int, *statuses: str) -> JobView:
    end = time.monotonic() + 180
    while (found := job(number)).status not in statuses:
        assert time.monotonic() < end, f"job {number} is {found.status} ({found.reason}), not {statuses}"
        time.sleep(0.1)
    return found


def test_a_job_is_submitted_awaited_and_told_of() -> None:
    name = "dédé 训练-01 =1+1 a|b"
    number = submit(name, "import sys; print('für 🚀'); print('bad', file=sys.stderr)")
    assert good("wait", name) == ""
    assert good("logs", name) == "für 🚀\n"
    assert good("logs", f"#{number}", "--stderr") == "bad\n"
    assert name in good("history")
    assert job(number).name == name
    told = good("explain", name)
    assert told.startswith(f"Job {name!r}")
    assert "Ended: done" in told
    story = read("explain", str(number))
    assert (story["outcome"], story["name"]) == ("done", name)
    (ended,) = (one for one in read("history") if one["id"] == number)
    assert (ended["status"], ended["exit_code"]) == ("done", 0)


def test_output_is_followed_to_the_end_and_its_last_lines_can_be_asked_for() -> None:
    number = submit("count", "import time\nfor i in range(8):\n print(i, flush=True); time.sleep(0.1)")
    assert good("logs", "-f", str(number)) == "".join(f"{i}\n" for i in range(8))
    assert good("logs", str(number), "--tail", "2") == "6\n7\n"
    assert good("logs", str(number), "-n", "0") == ""


def test_a_job_that_fails_makes_waiting_fail() -> None:
    done = cotenant("submit", "--wait", "--name", "bad", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 1
    assert '"bad" failed: failed with exit code 3' in done.stderr
    assert cotenant("wait", "bad").returncode == 1
    assert read("history")[-1]["exit_code"] == 3


def test_c46_asking_twice_with_one_key_is_one_job_and_other_content_is_refused() -> None:
    words = ("submit", "--key", "x1", "--name", "once", "--", "true")
    first, second = good(*words), good(*words)
    assert second == first.replace("accepted", "accepted (had been accepted before)")
    other = cotenant("submit", "--key", "x1", "--name", "other", "--", "true")
    assert other.returncode == 1
    assert 'request "x1" was used before with other content' in other.stderr
    assert [one["name"] for one in read("ps", "-a") if one["name"] in ("once", "other")] == ["once"]


def test_what_never_fits_is_refused_with_exit_code_3_and_the_others_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_text('name = "big"\ncommand = ["true"]\ngpu_memory = "900GiB"\n')
    (tmp_path / "small.toml").write_text('name = "small"\ncommand = ["true"]\ngpu_memory = "9MiB"\n')
    done = cotenant("submit", "big.toml", "small.toml")
    assert done.returncode == 3
    assert 'job "big" never fits: 921,600 MiB of memory asked' in done.stderr
    assert '"small" accepted' in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("submit",), 2, "nothing to submit"),
        (("submit", "--gpu-memory", "6", "--", "x"), 1, "no unit"),
        (("submit", "--sharing", "all", "--", "x"), 1, "sharing"),
        (("submit", "--sweep", "lr", "--", "x"), 2, "write NAME=V1,V2"),
        (("submit", "--env", "NO_SUCH_VARIABLE_HERE", "--", "x"), 2, "no such variable"),
        (("submit", "--after", "nobody", "--", "x"), 1, 'no job called "nobody"'),
        (("logs", "nobody"), 1, 'no job called "nobody"'),
        (("cancel",), 2, "name at least one job"),
        (("cancel", "--all", "7"), 2, "not both"),
        (("cancel", "999999"), 1, "no job 999999"),
        (("resize", "7"), 2, "nothing to change"),
        (("ps", "--watch", "--json"), 2, "give one of them"),
        (("down", "--jobs", "kill"), 2, "known: cancel, keep, suspend"),
        (("explain", "7", "--seed", "1"), 2, "cotenant explain RUN JOB"),
        (("tenants", "add", "a b"), 1, "letters, digits"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    done = cotenant(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_word_that_names_a_folder_and_no_job_says_how_its_jobs_are_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = cotenant("explain", "out")
    assert done.returncode == 1
    assert "for a job of the run in out: cotenant explain out JOB" in done.stderr


def test_arrays_and_sweeps_are_jobs_of_their_own_that_know_their_part() -> None:
    code = "import os, sys; print(os.environ['COTENANT_ARRAY_INDEX'], os.environ['SEED'], *sys.argv[1:])"
    words = (
        "submit",
        "--name",
        "many",
        "--array",
        "2",
        "--sweep",
        "lr=0.1,1e-2",
        "--env",
        "SEED=4",
        "--wait",
    )
    told = read(*words, "--", sys.executable, "-c", code)["jobs"]
    assert [one["name"] for one in told] == [f"many lr={lr}[{i}]" for lr in ("0.1", "1e-2") for i in (0, 1)]
    assert {one["status"] for one in told} == {"done"}
    assert [good("logs", str(one["id"])).strip() for one in told] == [
        f"{i} 4 --lr {lr}" for lr in ("0.1", "1e-2") for i in (0, 1)
    ]


@pytest.mark.parametrize("words", [("top",), ("ps", "--watch"), ("logs", "-f", "seen")])
def test_on_a_terminal_it_is_drawn_anew_until_ctrl_c_which_leaves_the_terminal_as_it_was(
    words: tuple[str, ...],
) -> None:
    import pty
    import select

    submit("seen", SLOW, "--env", "PYTHONUNBUFFERED=1")
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm", COLUMNS="120", LINES="30")
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where the tests were started in the background
        os.execv(sys.executable, [sys.executable, "-m", "cotenant", *words])
    out, asked, end = b"", False, time.monotonic() + 180
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        out += part
        if not asked and (b"seen" in out or (words[0] == "logs" and b"2\r\n" in out)):
            os.kill(process, signal.SIGINT)
            asked = True
    else:
        os.kill(process, signal.SIGKILL)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    assert b"Traceback" not in out
    assert out.count(b"\x1b[?1049h") == out.count(b"\x1b[?1049l") == (words[0] != "logs")
    assert out.count(b"\x1b[?25l") == out.count(b"\x1b[?25h")


def test_many_jobs_are_awaited_together() -> None:
    told = read("submit", "--name", "lot", "--array", "12", "--wait", "--", "true")["jobs"]
    assert [(one["name"], one["status"]) for one in told] == [(f"lot[{i}]", "done") for i in range(12)]


def test_a_job_is_suspended_goes_on_and_is_cancelled() -> None:
    number = submit("slow", SLOW)
    until(number, "running")
    assert "slow" in good("top", "--once")
    assert f"cotenant resume {number} lets it go on" in good("suspend", "slow")
    assert "resume" in until(number, "held").reason
    assert good("resume", "slow") == f'job {number} "slow" may go on\n'
    assert until(number, "running").suspensions == 1
    assert (
        good("resize", "slow", "--compute", "30%", "--limit", "60%")
        == f'job {number} "slow" is being resized\n'
    )
    end = time.monotonic() + 180
    while (found := job(number)).compute_milli != 300 and time.monotonic() < end:
        time.sleep(0.1)
    assert (found.compute_milli, found.compute_limit_milli) == (300, 600)
    good("cancel", "slow")
    assert until(number, "cancelled").ended is not None
    done = cotenant("suspend", "slow")
    assert (done.returncode, "has ended (cancelled)" in done.stderr) == (1, True)


def test_one_that_is_paused_stands_still_on_its_device_and_one_that_makes_no_room_is_left_alone() -> None:
    number = submit("still", SLOW, "--suspend", "pause")
    until(number, "running")
    good("suspend", "still")
    paused = until(number, "paused")
    assert paused.devices == (DEVICE,)
    end = time.monotonic() + 180

    def writes() -> bool:
        before = good("logs", "still")
        time.sleep(0.3)
        return good("logs", "still") != before

    while writes():  # what it had written before may still be on its way
        assert time.monotonic() < end, "it goes on writing"
    good("resume", "still")
    until(number, "running")
    good("cancel", "still")
    until(number, "cancelled")
    fixed = submit("fixed", SLOW, "--suspend", "none")
    until(fixed, "running")
    done = cotenant("suspend", "fixed")
    assert (done.returncode, "it makes no room; cancel it instead" in done.stderr) == (1, True)
    assert job(fixed).status == "running"


def test_who_asks_for_a_part_without_memory_is_told_that_it_gets_a_whole_device() -> None:
    told = cotenant("submit", "--gpus", "0.4", "--", "true")
    assert "how much memory it needs is not known" in told.stderr
    for words in (
        ("--gpus", "0.4", "--gpu-memory", "64MiB"),
        ("--gpus", "0.4", "--model", "convolution/b8"),
        (),
    ):
        assert "memory" not in cotenant("submit", *words, "--", "true").stderr


def test_a_drained_machine_starts_nothing_until_it_is_undrained_and_priority_decides_who_is_first() -> None:
    good("drain")
    low = submit("low", "pass", "--sharing", "exclusive")
    high = submit("high", "pass", "--sharing", "exclusive")
    assert good("priority", "high", "--", "7") == f'job {high} "high" has priority 7 now\n'
    end = time.monotonic() + 180
    while job(high).priority != 7 and time.monotonic() < end:
        time.sleep(0.1)
    assert (job(high).priority, job(low).status, job(high).status) == (7, "waiting", "waiting")
    good("undrain")
    assert cotenant("wait", "low", "high", "--timeout", "180s").returncode == 0


def test_a_device_that_is_drained_by_itself_takes_no_new_jobs(scheduler: Path) -> None:
    running = submit("running", SLOW, "--gpus", "0.4")
    until(running, "running")
    assert read("drain", "--device", DEVICE) == {"node": 0, "device": 0, "drain": True}
    waiting = submit("waiting", "pass")
    end = time.monotonic() + 180
    while "drained" not in (why := job(waiting).reason):
        assert time.monotonic() < end, why
        time.sleep(0.1)
    assert why == "every device is drained until cotenant undrain --device NAME"
    assert (job(running).status, states(scheduler)) == ("running", ["drained"])
    assert "drained" in good("top", "--once")
    found = read_daemon(scheduler)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    while found.alive:
        time.sleep(0.02)
    start(scheduler)
    assert states(scheduler) == ["drained"], "the next scheduler knows"
    time.sleep(1.0)
    assert (job(running).status, job(running).attempt) == ("running", 1), (
        "and nobody takes it for a lost device"
    )
    good("undrain")
    assert job(waiting).status == "waiting", "a device that was named must be named again"
    assert good("undrain", "--device", "0") == f"jobs start on {DEVICE} again\n"
    good("cancel", str(running))
    assert cotenant("wait", str(waiting), "--timeout", "180s").returncode == 0
    done = cotenant("drain", "--device", "cpu:99999")
    assert (done.returncode, f"no such device; known: {DEVICE}" in done.stderr) == (2, True)


def test_a_job_after_another_waits_for_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)"
    first = submit("first", code)
    second = submit("second", "pass", "--after", "first")
    assert (job(second).after, job(second).status) == ((first,), "waiting")
    gate.touch()
    assert cotenant("wait", str(second), "--timeout", "180s").returncode == 0
    assert (job(second).started or 0.0) >= (job(first).ended or 1e18)


def test_waiting_has_an_end() -> None:
    number = submit("slow", SLOW)
    done = cotenant("wait", str(number), "--timeout", "200ms")
    assert (done.returncode, done.stderr) == (1, f"not ended after 0.2s: job {number}\n")


def test_a_tenant_sees_and_changes_only_its_own(scheduler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = submit("mine", SLOW)
    secret = cotenant("tenants", "add", "vision", "--limit", "4", "--max-priority", "3").stdout.strip()
    assert [(row["name"], row["max_priority"]) for row in read("tenants", "list")] == [("vision", 3)]
    assert secret not in good("tenants", "list")
    monkeypatch.setenv("COTENANT_URL", connect(scheduler).url)
    monkeypatch.setenv("COTENANT_TOKEN", secret)
    monkeypatch.delenv("COTENANT_STATE_DIR")
    theirs = submit("theirs", "pass", "--priority", "3")
    assert "may have up to 3" in cotenant("submit", "--priority", "4", "--", "true").stderr
    assert [one["id"] for one in read("ps", "-a")] == [theirs]
    done = cotenant("cancel", str(mine))
    assert (done.returncode, f'job {mine} is not of tenant "vision"' in done.stderr) == (1, True)
    assert cotenant("drain").returncode == 1
    monkeypatch.setenv("COTENANT_STATE_DIR", str(scheduler))
    good("tenants", "remove", "vision")
    monkeypatch.delenv("COTENANT_STATE_DIR")
    done = cotenant("ps")
    assert (done.returncode, "set COTENANT_TOKEN" in done.stderr) == (1, True)
    assert secret not in done.stderr
    monkeypatch.delenv("COTENANT_URL")
    monkeypatch.delenv("COTENANT_TOKEN")
    monkeypatch.setenv("COTENANT_STATE_DIR", str(scheduler))


def test_the_token_is_the_one_of_the_folder(scheduler: Path) -> None:
    assert good("token").strip() == (scheduler / "token").read_text().strip()
    assert good("token", "--path").strip() == str(scheduler / "token")


def test_what_is_looked_at_is_whole() -> None:
    end = time.monotonic() + 180
    while (found := json.loads(cotenant("doctor", "--json").stdout))["healthy"] is not True:
        assert time.monotonic() < end, found
    assert "log" in {one["about"] for one in found["findings"]}
    assert "whole" in good("doctor")


def test_what_ran_live_is_reported_and_played_again_under_other_policies(tmp_path: Path) -> None:
    number = submit("for the report", "import time; time.sleep(0.3)", "--wait")
    good("report", "--from-live")
    page = (tmp_path / "live" / "report.html").read_text()
    assert "for the report" in page
    assert "real runs on one machine, not a simulation" in (tmp_path / "live" / "manifest.json").read_text()
    assert "Ended: done" in good("explain", "live", f"#{number}")
    done = cotenant(
        "simulate", "--from-live", "--since", "1h", "-p", "fifo,las", "-o", "again", "--workers", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "that ran live under colocate" in done.stderr
    assert (tmp_path / "again-inputs" / "workload.parquet").is_file()
    ended = sum(one["started"] is not None for one in read("history", "--limit", "10000"))
    told = json.loads((tmp_path / "again" / "manifest.json").read_text())
    assert 1 <= told["workload"]["jobs"] <= ended
    assert good("replay", "again", "--quiet") is not None
    for words, said in (
        (("simulate", "--from-live", "--gpus", "4"), "leave out --gpus"),
        (("simulate", "x.csv", "--since", "1h"), "--since goes with --from-live"),
        (("report",), "or give --from-live"),
    ):
        done = cotenant(*words)
        assert done.returncode in (1, 2)
        assert said in done.stderr


def test_the_scheduler_ends_jobs_run_on_and_the_next_one_takes_them_over(scheduler: Path) -> None:
    number = submit("lasting", SLOW)
    until(number, "running")
    assert "jobs run on" in good("down")
    for words in (("ps",), ("submit", "--", "true"), ("down",)):
        done = cotenant(*words)
        assert (done.returncode, done.stdout) == (4, "")
    assert "start it: cotenant up" in cotenant("ps").stderr
    offline = cotenant("doctor")
    assert offline.returncode == 1
    assert "the log is whole" in offline.stdout
    start(scheduler)
    found = job(number)
    assert (found.status, found.attempt, found.suspensions) == ("running", job(number).attempt, 0)
    lines = good("logs", "lasting").splitlines()
    # It never stopped: one start, one count.
    assert lines == [str(n) for n in range(len(lines))]


def test_a_scheduler_that_is_killed_and_started_again_is_found_by_those_who_ask(scheduler: Path) -> None:
    number = submit("survivor", SLOW)
    until(number, "running")
    with Client(lambda: connect(scheduler), patience_s=300.0) as client:
        before = client.status()
        followed: list[bytes] = []
        reader = threading.Thread(target=_follow, args=(scheduler, number, followed))
        reader.start()
        end = time.monotonic() + 180
        while b"".join(followed).count(b"\n") < 4:
            assert time.monotonic() < end, followed
            time.sleep(0.02)
        found = read_daemon(scheduler)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        again = threading.Thread(target=start, args=(scheduler,))
        again.start()
        # Asked while nobody answers, and answered by the next one.
        (answer,) = client.submit([("k1", {"name": "between", "command": ["true"], "cwd": "/"})])
        again.join(300)
        assert answer.id is not None
        assert client.status().epoch == before.epoch + 1
        assert (
            client.submit([("k1", {"name": "between", "command": ["true"], "cwd": "/"})])[0].id == answer.id
        )
        assert client.job(number).status == "running"
        client.command(number, "cancel", "c1")
        reader.join(180)
    lines = b"".join(followed).decode().split()
    assert lines == [str(n) for n in range(len(lines))]
    assert len(lines) > 3


def _follow(state: Path, number: int, followed: list[bytes]) -> None:
    with Client(lambda: connect(state), patience_s=300.0) as client:
        for part in client.follow(number):
            followed.append(part)
