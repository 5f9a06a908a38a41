"""Whatever dies - the daemon, a shepherd, a job, the machine - nothing is lost and nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostlab import Lab, gone, job, marked, wait_for

from cotenant.executors.local import birth, layout
from cotenant.executors.local.attempts import Attempt
from cotenant.executors.local.survivors import survivors
from cotenant.model.liveports import AttemptPaused, AttemptStarted
from cotenant.shares.backends.cgroup1 import CgroupV1

DAEMON = """
import sys
sys.path.insert(0, sys.argv[2])
from hostlab import Lab, job
from pathlib import Path
host = Lab(Path(sys.argv[1])).host()
for number, code in enumerate(sys.argv[3:]):
    host.launch(job(code, number))
print("launched", flush=True)
while True:
    for report in host.poll(1.0):
        print(type(report).__name__, report.id, flush=True)
"""


def daemon(lab: Lab, *codes: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", DAEMON, str(lab.folder), str(Path(__file__).parent), *codes]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def read_until(process: subprocess.Popen[str], words: set[str]) -> None:
    assert process.stdout is not None
    while words:
        line = process.stdout.readline()
        assert line, f"it has ended without {words}"
        words.discard(line.strip())


def test_the_daemon_dies_and_its_jobs_live_on_and_are_taken_up(lab: Lab) -> None:
    ran = "open('ran', 'a').write('x')\n"
    first = daemon(
        lab,
        ran + "import time; time.sleep(0.6); raise SystemExit(7)",
        ran + "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nraise SystemExit(9)",
    )
    read_until(first, {"AttemptStarted 0", "AttemptStarted 1"})
    kill(first)
    wait_for(lambda: lab.path(0, "serial-0", "exit.json").is_file(), "job 0 ends while nobody looks")
    host = lab.host(epoch=2)
    found = host.running()
    assert [(f.id, f.serial, f.paused) for f in found] == [(1, 0, False)]
    assert found[0].start_ticks == layout.start_ticks(found[0].pid) > 0
    ended = lab.ended(host, 0)
    assert (ended.outcome, ended.code) == ("failed", 7), "the exit code of a job that nobody waited for"
    for _ in range(2):
        host.launch(job(ran, 1, epoch=2))
    lab.started(host, 1)
    lab.path(1, "work", "go").touch()
    assert lab.ended(host, 1).code == 9
    assert [lab.path(n, "work", "ran").read_text() for n in (0, 1)] == ["x", "x"], "nothing ran twice"


def test_orders_reach_a_job_that_was_taken_up(lab: Lab) -> None:
    first = daemon(lab, "import time; time.sleep(300)", "import time; time.sleep(300)")
    read_until(first, {"AttemptStarted 0", "AttemptStarted 1"})
    kill(first)
    host = lab.host(epoch=2)
    host.stop(0, 1, 0, "kill")
    host.pause(1, 1, 0, True)
    assert lab.ended(host, 0).outcome == "killed"
    lab.until(host, lambda r: type(r).__name__ == "AttemptPaused")
    host.close()
    lab.hosts.clear()
    again = lab.host(epoch=3)
    assert [(f.id, f.paused) for f in again.running()] == [(1, True)]
    assert lab.ended(again, 0).outcome == "killed", "told at least once: nobody said that it may be forgotten"
    again.forget(0)
    again.close()
    lab.hosts.clear()
    lab.seen.clear()
    last = lab.host(epoch=4)
    last.poll(0.1)
    assert [f.id for f in last.running()] == [1] and not (lab.folder / "live" / "0.0.1").exists()
    assert lab.path(0, "serial-0", "stdout.log").is_file(), "its output stays"


def test_a_scheduler_whose_epoch_is_over_starts_and_orders_nothing(lab: Lab) -> None:
    host = lab.host(epoch=5)
    host.launch(job("import time; time.sleep(300)", epoch=5))
    lab.started(host)
    Attempt(str(lab.folder), 0, 1, 0).order(4, stop="kill")
    time.sleep(0.3)
    assert [f.id for f in host.running()] == [0], "an order of epoch 4 counts for nothing"
    host.launch(job("pass", 1, epoch=4))
    ended = lab.ended(host, 1)
    assert ended.outcome == "not-started" and "epoch 4 is over" in ended.detail
    assert not lab.path(1, "serial-0", "exit.json").exists(), (
        "its word does not stand in the way of a later start"
    )
    assert host.fence(4) is False and host.fence(6) is True
    assert (lab.folder / "epoch").read_text() == "6\n"


def test_of_two_shepherds_one_starts_the_job_and_a_stale_one_none(lab: Lab) -> None:
    host = lab.host()
    host.launch(job("open('ran', 'a').write('x')"))
    lab.ended(host)
    shepherd = [sys.executable, "-I", "-S", birth.__file__.replace("birth", "shepherd")]
    folder = str(lab.path(0, "serial-0"))
    assert subprocess.run([*shepherd, folder], check=False).returncode == 4
    Path(folder, "claim").unlink()
    host.fence(8)
    assert subprocess.run([*shepherd, folder], check=False).returncode == 3
    assert lab.path(0, "work", "ran").read_text() == "x"


def shepherd_of(lab: Lab, number: int = 0) -> int:
    return int(json.loads(lab.path(number, "serial-0", "claim").read_text())["pid"])


TREE = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", "import os, time; os.setsid(); open('a', 'w').write(str(os.getpid())); time.sleep(300)"])
subprocess.Popen([sys.executable, "-S", "-c", "import os, time; open('b', 'w').write(str(os.getpid())); time.sleep(300)"], env={})
while not (os.path.exists("a") and os.path.exists("b")): time.sleep(0.01)
print("up", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("seen", [True, False], ids=["while we look", "while nobody looks"])
def test_a_shepherd_is_killed_and_its_whole_tree_is_gone_before_the_job_is_lost(lab: Lab, seen: bool) -> None:
    host = lab.host()
    host.launch(job(TREE))
    told = lab.started(host)
    wait_for(lambda: "up" in lab.output(), "the tree")
    pids = [int(lab.path(0, "work", name).read_text()) for name in "ab"]
    if not seen:
        host.close()
        lab.hosts.clear()
    os.kill(shepherd_of(lab), signal.SIGKILL)
    if not seen:
        host = lab.host(epoch=2)
    ended = lab.ended(host)
    assert ended.outcome == "lost"
    # One child shed its session, the other its environment: both are found.
    assert isinstance(told, AttemptStarted) and all(gone(pid) for pid in [*pids, told.pid])
    assert host.running() == []


def test_a_frozen_job_whose_shepherd_is_killed_is_gone_too(lab: Lab) -> None:
    backend = CgroupV1.detect(f"cotenant-test-{os.getpid()}")
    if backend is None or "freezer" not in backend._parents:
        pytest.skip("the freezer is not ours to write")
    host = lab.host(cores=[backend])
    host.launch(job(TREE))
    told = lab.started(host)
    wait_for(lambda: "up" in lab.output(), "the tree")
    host.pause(0, 1, 0, True)
    assert lab.until(host, lambda r: isinstance(r, AttemptPaused))
    freezer = backend._folders("0.0")["freezer"] / "freezer.state"
    assert freezer.read_text() == "FROZEN\n"
    os.kill(shepherd_of(lab), signal.SIGKILL)
    assert lab.ended(host).outcome == "lost"
    assert isinstance(told, AttemptStarted) and gone(told.pid)
    assert not any(path.exists() for path in backend._folders("0.0").values())
    host.launch(job("import time; time.sleep(300)", 1))
    lab.started(host, 1)
    host.pause(1, 1, 0, True)
    assert lab.until(host, lambda r: isinstance(r, AttemptPaused))
    host.stop(1, 1, 0, "terminate")
    assert lab.ended(host, 1).outcome == "killed", "a frozen job can be stopped"


def test_a_job_that_is_killed_from_outside_failed(lab: Lab) -> None:
    host = lab.host()
    host.launch(job("import time; time.sleep(300)"))
    told = lab.started(host)
    assert isinstance(told, AttemptStarted)
    os.kill(told.pid, signal.SIGKILL)
    ended = lab.ended(host)
    assert (ended.outcome, ended.signal) == ("failed", 9)


def test_after_a_restart_of_the_machine_all_is_lost_and_nobody_is_killed_for_it(lab: Lab) -> None:
    host = lab.host()
    host.launch(job("pass"))
    lab.ended(host)
    host.close()
    lab.hosts.clear()
    folder = lab.path(0, "serial-0")
    (folder / "exit.json").unlink()
    with subprocess.Popen(["sleep", "300"]) as other:
        # Another process has by now the number that the shepherd had.
        (folder / "claim").write_text(
            json.dumps(
                {
                    "pid": other.pid,
                    "start_ticks": layout.start_ticks(other.pid),
                    "boot_id": "earlier",
                    "epoch": 1,
                }
            )
        )
        again = lab.host(epoch=2)
        ended = lab.ended(again)
        assert ended.outcome == "lost" and "restarted" in ended.detail
        assert other.poll() is None
        other.kill()


def test_a_number_that_was_given_to_another_process_is_not_taken_for_the_shepherd(lab: Lab) -> None:
    host = lab.host()
    host.launch(job("pass"))
    lab.ended(host)
    host.close()
    lab.hosts.clear()
    folder = lab.path(0, "serial-0")
    (folder / "exit.json").unlink()
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as other:
        claim = json.loads((folder / "claim").read_text())
        (folder / "claim").write_text(json.dumps({**claim, "pid": other.pid, "start_ticks": 12345}))
        again = lab.host(epoch=2)
        assert lab.ended(again).outcome == "lost"
        assert other.poll() is None, "the process that has the number now is unharmed"
        other.kill()


def test_what_was_launched_and_not_begun_is_begun_once_by_whoever_comes_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = lab.host()
    spawned: list[str] = []
    import cotenant.executors.local.host as module

    def sleeper(folder: str) -> int:
        spawned.append(folder)
        return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})

    monkeypatch.setattr(module, "spawn", sleeper)
    host.launch(job("open('ran', 'a').write('x')"))
    monkeypatch.undo()
    os.kill(next(iter(host._attempts.values())).shepherd, signal.SIGKILL)
    host.close()
    lab.hosts.clear()
    again = lab.host(epoch=2)
    assert again.running() == []
    assert again.poll(0.1) == []
    # The shepherd that was on its way comes now: it finds the attempt taken, or its epoch over.
    late = subprocess.run(
        [sys.executable, "-I", "-S", birth.__file__.replace("birth", "shepherd"), spawned[0]], check=False
    )
    assert late.returncode in (3, 4) and not lab.path(0, "work", "ran").exists()
    again.launch(job("open('ran', 'a').write('x')", epoch=2))
    assert lab.ended(again).outcome == "done"
    assert lab.path(0, "work", "ran").read_text() == "x"


def test_what_was_not_begun_can_be_stopped_and_is_never_begun(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cotenant.executors.local.host as module

    host = lab.host()
    monkeypatch.setattr(module, "spawn", lambda _: os.posix_spawn("/bin/true", ["true"], {}))
    host.launch(job("open('ran', 'w')"))
    monkeypatch.undo()
    host.close()
    lab.hosts.clear()
    again = lab.host(epoch=2)
    again.stop(0, 1, 0, "suspend")
    assert lab.ended(again).outcome == "killed"
    again.launch(job("open('ran', 'w')", epoch=2))
    assert lab.ended(again).outcome == "killed" and not lab.path(0, "work", "ran").exists()


def test_a_fork_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert birth.start({"command": ["true"]}, {}, (1, 2)) == (
        -11,
        "no process could be made: Resource temporarily unavailable",
    )


def test_terminating_the_shepherd_stops_the_job_in_order(lab: Lab) -> None:
    host = lab.host()
    host.launch(job("import time; time.sleep(300)"))
    lab.started(host)
    os.kill(shepherd_of(lab), signal.SIGTERM)
    assert lab.ended(host).outcome == "killed"


def test_many_daemons_die_and_every_short_job_finishes_exactly_once(lab: Lab) -> None:
    codes = [
        f"import time; time.sleep({0.05 * (n % 5)}); open('ran', 'a').write('x'); raise SystemExit({n % 4})"
        for n in range(12)
    ]
    for round_ in range(3):
        part = daemon(lab, *codes)
        read_until(part, {"launched"})
        if round_ == 1:
            time.sleep(0.1)
        kill(part)
    host = lab.host(epoch=9)
    for number, code in enumerate(codes):
        host.launch(job(code, number, epoch=9))
    for number in range(len(codes)):
        assert lab.ended(host, number).code == number % 4
    assert [lab.path(n, "work", "ran").read_text() for n in range(len(codes))] == ["x"] * len(codes)
    assert host.running() == [] and marked(lab.folder / "jobs") == []


def test_how_a_job_ended_is_known_though_the_disk_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    lab = Lab(disk / "state")
    try:
        host = lab.host()
        code = "import os\nf = open('big', 'wb', buffering=0)\ntry:\n    while True: f.write(b'x' * 4096)\nexcept OSError: pass\n"
        host.launch(job(code + "print('word', flush=True)\nraise SystemExit(7)"))
        ended = lab.ended(host)
        assert (ended.outcome, ended.code) == ("failed", 7)
        exit_file = json.loads(lab.path(0, "serial-0", "exit.json").read_text())
        assert exit_file["code"] == 7 and exit_file["dropped"][0] == 5
        assert not lab.path(0, "serial-0", "exit.room").exists()
        host.launch(job("pass", 1))
        ended = lab.ended(host, 1)
        assert ended.outcome == "not-started" and "No space" in ended.detail and ended.again
        lab.path(0, "work", "big").unlink()
        host.launch(job("pass", 1))
        assert lab.ended(host, 1).outcome == "done", "there is room, so the same start is tried anew"
        host.launch(job("pass", 2))
        assert lab.ended(host, 2).outcome == "done"
        host.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_shepherd_whose_folder_was_deleted_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cotenant.executors.local import shepherd

    slept: list[float] = []
    monkeypatch.setattr(shepherd.time, "sleep", slept.append)
    left = shepherd.Shepherd.__new__(shepherd.Shepherd)
    left.folder = str(tmp_path / "deleted")
    left._write_end({"outcome": "done"})
    assert sum(slept) == 60.0


def test_survivors_are_those_with_the_mark_alone() -> None:
    marked_env = {**os.environ, "COTENANT_STATUS": "/state/jobs/1/serial-0/status"}
    other_env = {**os.environ, "COTENANT_STATUS": "/state/jobs/1/serial-01/status"}
    with (
        subprocess.Popen(["sleep", "60"], env=marked_env) as one,
        subprocess.Popen(["sleep", "60"], env=other_env) as two,
    ):
        wait_for(lambda: survivors("/state/jobs/1/serial-0/status", 0) == [one.pid], "the mark")
        one.kill()
        two.kill()
