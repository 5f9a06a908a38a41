"""Shepherds that come from a process which is warm: the same lives and deaths, and whatever becomes of that process."""

from __future__ import annotations

import errno
import os
import select
import signal
from pathlib import Path

import pytest
from hostlab import Lab, gone, job, wait_for

from cotenant.executors.local import host as module
from cotenant.executors.local import nursery
from cotenant.executors.local.host import LocalHost
from cotenant.executors.local.launching import spawn_nursery
from cotenant.executors.local.nursery import Nursery

WRITES = "open('ran', 'a').write('x')"
SLEEPS = "import time; time.sleep(300)"


def warm(lab: Lab, monkeypatch: pytest.MonkeyPatch, *, alone: bool = False) -> LocalHost:
    """A host that keeps a nursery; unless ``alone``, nothing may be started without it."""

    def refused(folder: str) -> int:
        raise AssertionError(f"started on its own: {folder}")

    if not alone:
        monkeypatch.setattr(module, "spawn", refused)
    made = lab.host()
    made.warm()
    return made


def mother(host: LocalHost) -> int:
    assert host.nursery is not None
    return host.nursery._pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_jobs_run_and_end_and_nobody_is_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    host = warm(lab, monkeypatch)
    for number in range(3):
        host.launch(job(WRITES, number))
    shepherds = [attempt.shepherd for attempt in host._attempts.values()]
    assert {parent(pid) for pid in shepherds} == {mother(host)}
    wait_for(lambda: all(os.getsid(pid) == pid for pid in shepherds), "each has a session of its own")
    for number in range(3):
        assert lab.ended(host, number).outcome == "done"
        assert lab.path(number, "work", "ran").read_text() == "x"
        host.forget(number)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in shepherds), "all are collected")
    before = mother(host)
    host.close()
    assert not Path(f"/proc/{before}").exists()


def test_shepherds_outlive_the_host_and_the_next_one_takes_them_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = warm(lab, monkeypatch)
    host.launch(job(SLEEPS))
    lab.started(host)
    shepherd = next(iter(host._attempts.values())).shepherd
    host.close()
    lab.hosts.clear()
    assert not gone(shepherd)
    again = lab.host(epoch=2)
    assert [found.id for found in again.running()] == [0]
    again.stop(0, 1, 0, "kill")
    assert lab.ended(again).outcome == "killed"
    wait_for(lambda: gone(shepherd), "it has said all and leaves")


def test_the_process_ends_with_a_host_that_dies(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    host = warm(lab, monkeypatch)
    pid = mother(host)
    assert host.nursery is not None
    os.close(host.nursery._end)  # as the kernel does for a host that is gone
    end = os.pidfd_open(pid)
    waits = select.poll()
    waits.register(end, select.POLLIN)
    assert waits.poll(90_000), "it saw that nobody is there any more"
    os.close(end)
    os.waitpid(pid, 0)
    host.nursery = None  # it has nothing left to close


def test_when_the_process_is_killed_jobs_go_on_and_others_are_started(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = warm(lab, monkeypatch, alone=True)
    host.launch(job("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"))
    lab.started(host)
    first = mother(host)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: gone(first), "it is dead")
    mothers = []
    for number in (1, 2):
        host.launch(job(WRITES, number))
        mothers.append(parent(host._attempts[number, 0].shepherd))
        assert lab.ended(host, number).outcome == "done"
        assert lab.path(number, "work", "ran").read_text() == "x"
    assert mothers == [os.getpid(), mother(host)], "one on its own, then another nursery was there"
    assert mother(host) not in (0, first)
    lab.path(0, "work", "go").touch()
    assert lab.ended(host, 0).outcome == "done"


def test_one_that_does_not_answer_is_given_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery, "_PATIENCE_MS", 100)
    host = warm(lab, monkeypatch, alone=True)
    first = mother(host)
    os.kill(first, signal.SIGSTOP)
    host.launch(job(WRITES))
    assert lab.ended(host).outcome == "done"
    assert lab.path(0, "work", "ran").read_text() == "x"
    assert gone(first), "it can bear nothing any more"


def test_one_that_cannot_be_started_is_done_without(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(end: int) -> int:
        raise OSError(errno.EAGAIN, "no")

    monkeypatch.setattr(module, "spawn_nursery", refused)
    host = warm(lab, monkeypatch, alone=True)
    for number in range(5):
        host.launch(job(WRITES, number))
        assert lab.ended(host, number).outcome == "done"


def test_why_a_shepherd_did_not_begin_is_known(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    host = warm(lab, monkeypatch)
    host.launch(job(WRITES))
    assert lab.ended(host).outcome == "done"
    assert host.nursery is not None
    folder = str(lab.path(0, "serial-0"))
    late = host.nursery.bear(folder)
    wait_for(lambda: gone(late), "it found the attempt taken")
    assert host.nursery.code(late) == 4
    assert host.nursery.code(late) == 0, "told once"
    with pytest.raises(OSError, match="No such file or directory"):
        host.nursery.bear(f"{folder}/not-there")
    # One whose epoch is over says so by its code alone.
    host.launch(job(WRITES, 1))
    assert lab.ended(host, 1).outcome == "done"
    lab.path(1, "serial-0", "claim").unlink()
    host.fence(8)
    stale = host.nursery.bear(str(lab.path(1, "serial-0")))
    wait_for(lambda: gone(stale), "its epoch is over")
    assert host.nursery.code(stale) == 3
    assert lab.path(1, "work", "ran").read_text() == "x"


def test_without_a_process_no_code_is_known() -> None:
    made = Nursery(spawn_nursery)
    made.close()
    made.forget(1)
    assert made.code(1) == 0
