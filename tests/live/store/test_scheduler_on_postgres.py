"""A whole scheduler whose log is on PostgreSQL: killed, followed by the one that stands by, and without its database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.live.client import Client, connect
from cotenant.live.statedir import read_daemon
from cotenant.live.store import check, open_store


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts schedulers in the foreground on one state folder; none outlives the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(url: str, *options: str) -> subprocess.Popen[bytes]:
        device = f"cpu:{min(os.sched_getaffinity(0))}"
        words = ["up", "--state", str(tmp_path / "state"), "--device", device, "--policy", "colocate"]
        words += ["--forecast", "none", "--store", url, *options]
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "cotenant", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def leads(state: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while (found := read_daemon(state)) is None or found.pid != process.pid:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)


def await_file(path: Path) -> None:
    end = time.monotonic() + 180
    while not path.is_file():
        assert time.monotonic() < end, f"no {path.name}"
        time.sleep(0.05)


def until(gate: Path) -> str:
    """Python that waits for a file."""
    return f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)"


def job(name: str, code: str) -> dict[str, Any]:
    command = [sys.executable, "-c", code]
    return {"name": name, "command": command, "cwd": "/", "suspend": "restart", "gpu_memory": "100MiB"}


def test_the_one_that_stands_by_takes_over_and_no_job_is_lost_or_runs_twice(
    server: Any, started: Any, tmp_path: Path
) -> None:
    url, state, trace, gate = server.place(), tmp_path / "state", tmp_path / "trace", tmp_path / "gate"
    first = started(url)
    leads(state, first)
    second = started(url, "--standby")
    code = f"print('begun', file=open({str(trace)!r}, 'a'))\n{until(gate)}"
    with Client(lambda: connect(state), patience_s=300.0) as client:
        (one,) = client.submit([("k1", job("one", code))])
        await_file(trace)
        (two,) = client.submit([("k2", job("two", "pass"))])
        os.kill(first.pid, signal.SIGKILL)
        leads(state, second)
        (again,) = client.submit([("k2", job("two", "pass"))])
        assert (one.id, two.id, again.id, again.again) == (0, 1, 1, True)
        gate.touch()
        end = time.monotonic() + 180
        while {(j.name, j.status) for j in client.jobs()} != {("one", "done"), ("two", "done")}:
            assert time.monotonic() < end, client.jobs()
            time.sleep(0.1)
        assert client.status().epoch == 2
    assert trace.read_text() == "begun\n"
    second.send_signal(signal.SIGTERM)
    assert second.wait(180) == 0
    store = open_store(url, create=False)
    assert check(store) == []
    assert store.done_seq() == 2
    store.close()


def test_a_server_that_is_away_for_a_while_is_waited_for(server: Any, started: Any, tmp_path: Path) -> None:
    url, state, trace, gate = server.place(), tmp_path / "state", tmp_path / "trace", tmp_path / "gate"
    only = started(url)
    leads(state, only)
    code = f"{until(gate)}\nprint('ended', file=open({str(trace)!r}, 'a'))"
    with Client(lambda: connect(state), patience_s=300.0) as client:
        client.submit([("k1", job("one", code))])
        end = time.monotonic() + 180
        while [j.status for j in client.jobs()] != ["running"]:
            assert time.monotonic() < end, client.jobs()
            time.sleep(0.05)
        server.stop(signal.SIGINT)
        gate.touch()
        await_file(trace)  # its end cannot be written down now
        time.sleep(1.0)
        assert only.poll() is None, only.communicate()[1]
        server.start()
        client.submit([("k2", job("two", "pass"))])
        end = time.monotonic() + 180
        while {(j.name, j.status) for j in client.jobs()} != {("one", "done"), ("two", "done")}:
            assert time.monotonic() < end, client.jobs()
            time.sleep(0.1)
        assert client.status().epoch == 1, "the same scheduler, all the time"
    only.send_signal(signal.SIGTERM)
    assert only.wait(180) == 0
    assert "nothing is started or ended until the log is back" in (state / "daemon.log").read_text()
    store = open_store(url, create=False)
    assert check(store) == []
    store.close()
