"""What several processes say when they fail, when the supervisor is gone, and on Ctrl-C: one of them for all."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.elastic.members import Member
from cotenant.elastic.slots import Control
from cotenant.elastic.supervisor import Supervisor
from cotenant.errors import InputError

torch = pytest.importorskip("torch")

LIMIT_S = 240.0
SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
from cotenant import elastic

def make():
    return elastic.Run(workers=4, max_processes=1 if sys.argv[1] == "few" else 2, threads=1)

run = make()
model, loader = run.prepare(torch.nn.Linear(3, 1), TensorDataset(torch.ones(800, 3)), 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.keep(optimizer)
for step in run.steps(loader, epochs=100):
    for (x,) in step:
        if sys.argv[1] == "turn" and step.number == 2:
            raise ValueError("bad sample\\nin the second line")
        model(x).sum().backward()
    optimizer.step()
    if sys.argv[1] == "all killed" and step.number == 1:
        if Path("killed").exists():
            break
        Path("killed").touch()
        os.kill(os.getpid(), 9)
    if sys.argv[1] == "go on":
        Path("pid" + str(os.getpid())).touch()
        time.sleep(0.02)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@contextlib.contextmanager
def started(script: Path) -> Iterator[subprocess.Popen[str]]:
    """Two processes under a supervisor of their own group; their words are in the file ``told``."""
    command = [
        sys.executable,
        "-m",
        "cotenant",
        "run",
        "--elastic",
        "2",
        "--",
        sys.executable,
        str(script),
        "go on",
    ]
    with script.with_name("told").open("w") as told:
        process = subprocess.Popen(
            command, stdout=told, stderr=told, text=True, cwd=script.parent, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def going(script: Path) -> list[int]:
    """Process ids of those that take steps, when both do."""
    deadline = time.monotonic() + LIMIT_S
    while len(found := list(script.parent.glob("pid*"))) < 2:
        assert time.monotonic() < deadline, script.with_name("told").read_text()
        time.sleep(0.05)
    return [int(path.name.removeprefix("pid")) for path in found]


def ended(pids: list[int]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while any(
        Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text() for pid in pids
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_traceback_with_worker_and_step(script: Path, capfd: Any) -> None:
    told: list[str] = []
    supervisor = Supervisor([sys.executable, str(script), "turn"], 2, 2, threads=1, tell=told.append)
    assert supervisor.run() == 1
    assert told[-1].endswith("failed with exit code 1; the run ends")
    said = capfd.readouterr().err
    assert said.count("Traceback") == 1
    first, other = ("0", "1") if "process 0, logical worker 0, step 2 failed:" in said else ("1", "0")
    assert f"process {first}, logical worker {2 * int(first)}, step 2 failed:\nTraceback" in said
    assert (
        f"process {other}, logical worker {2 * int(other)}, step 2 failed, too: ValueError: bad sample\n"
        in said
    )


def test_what_cotenant_refuses_is_told_with_the_scripts_own_lines_only(script: Path, capfd: Any) -> None:
    supervisor = Supervisor([sys.executable, str(script), "few"], 2, 2, threads=1)
    assert supervisor.run() == 1
    said = capfd.readouterr().err
    assert said.count("Traceback") == 1 and said.count('  File "') == 2 == said.count(f'  File "{script}"')
    assert "return elastic.Run(workers=4" in said and "check_wanted" not in said
    assert "\nInputError: up to 2 processes are to be started, the run is made for 1 at most" in said


def test_without_state_a_run_that_was_killed_altogether_says_that_it_begins_again(
    script: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    assert Supervisor([sys.executable, str(script), "all killed"], 1, 1, threads=1).run() == 0
    said = capfd.readouterr().err
    words = "cotenant: all processes were killed and nothing was saved: it begins again at step 0; elastic.Run(state=...) keeps checkpoints\n"
    assert said.count("all processes were killed") == 1 == said.count(words)


def test_when_no_more_are_replaced_the_option_is_named() -> None:
    class Killed:
        pid = 1

        def poll(self) -> int:
            return -9

    told: list[str] = []
    supervisor = Supervisor([], 1, 1, restarts=1, tell=told.append, start=lambda _: Killed())
    assert supervisor.run() == 137
    assert told[-1] == "2 processes were killed, --restarts 1: it ends"


def test_ctrl_c_is_the_supervisors_and_without_it_each_process_says_so_in_a_line(script: Path) -> None:
    with started(script) as process:
        pids = going(script)
        for pid in pids:
            os.kill(pid, signal.SIGINT)  # as the terminal does
            script.with_name(f"pid{pid}").unlink()
        assert sorted(going(script)) == sorted(pids)
        process.kill()
        ended(pids)
    said = script.with_name("told").read_text()
    assert "Traceback" not in said and "frame #" not in said
    lines = sorted(line for line in said.splitlines() if "the supervisor that started it is gone" in line)
    assert [line.split(",")[0] for line in lines] == ["cotenant: process 0", "cotenant: process 1"]


def test_a_process_that_finds_no_supervisor_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        monkeypatch.setenv("COTENANT_ELASTIC", f"127.0.0.1:{taken.getsockname()[1]}:0")
        with pytest.raises(InputError, match=r"nobody answers at 127.0.0.1:.* the supervisor is gone"):
            Member.from_environment()


def test_a_control_file_that_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*none; make it first"):
        Control(tmp_path / "none" / "wanted")
    with pytest.raises(InputError, match="it is a folder; name a file"):
        Control(tmp_path)
    control = Control(tmp_path / "wanted")
    assert control.news().processes is None
    (tmp_path / "wanted").mkdir()
    with pytest.raises(InputError, match=r"control file .*wanted: Is a directory"):
        control.news()
    assert control.news().processes is None  # told once
    (tmp_path / "wanted").rmdir()
    (tmp_path / "wanted").write_bytes(b"\xff2\n")
    with pytest.raises(InputError, match="wanted:1: place"):
        control.news()


def test_a_number_out_of_range_is_told(tmp_path: Path) -> None:
    told: list[str] = []

    class Nothing:
        pid = 1
        poll = wait = kill = lambda *_: None

    def start(_: Any) -> Any:
        return Nothing()

    wanted = tmp_path / "wanted"
    supervisor = Supervisor([], 1, 3, control=wanted, tell=told.append, start=start)
    for number, words in (
        (9, ["9 wanted, this run takes 1 to 3 processes: 3 it is"]),
        (2, ["process 2 is not wanted any more, and had not joined yet"]),
        (0, ["0 wanted", "process 1 is not wanted any more"]),
    ):
        wanted.write_text(f"{number}\n")
        supervisor.poll()
        supervisor.poll()
        assert [line[: len(word)] for line, word in zip(told, words, strict=True)] == words
        told.clear()
    supervisor.close()
