"""Elastic jobs under the real scheduler: other numbers of devices, a suspension; the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import DEVICES, Scheduler, until

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(len(DEVICES) < 2, reason="needs two cores")

TRAINING = """
import hashlib, sys, time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import TensorDataset
from cotenant import elastic
run = elastic.Run(workers=4, max_processes=2)
x = torch.randn(300 * 16, 8)
layers = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2)
model, loader = run.prepare(nn.Sequential(*layers), TensorDataset(x, (x.sum(1) > 0).long()), batch_size=4)
run.keep(optimizer := torch.optim.AdamW(model.parameters(), lr=0.01))
for step in run.steps(loader, epochs=1):
    for a, b in step:
        nn.functional.cross_entropy(model(a), b).backward()
    optimizer.step()
    optimizer.zero_grad()
    if not Path(sys.argv[1]).exists():
        time.sleep(0.3)
if run.first:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print("parameters", digest.hexdigest())
"""
"""It takes its time until a file is there: whatever is to happen in the middle of it does."""
STEPS = 300


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of an undisturbed run on one process."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", TRAINING, sys.executable]
    folder = tmp_path_factory.mktemp("reference")
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True, env=env, cwd=folder)
    return done.stdout.split()[-1]


def _elastic(scheduler: Scheduler, flag: Path) -> int:
    return scheduler.submit(
        *(sys.executable, "-c", TRAINING, str(flag)),
        elastic={"min_gpus": 1, "max_gpus": 2},
        gpus=2,
        gpu_memory="1GiB",
    )


def _reach(scheduler: Scheduler, number: int, step: int) -> None:
    until(lambda: scheduler.job(number)["steps"] >= step, lambda: f"{scheduler.job(number)}")


def _events(scheduler: Scheduler, kind: str = "") -> list[dict[str, Any]]:
    events = [json.loads(line) for line in scheduler.ask("GET", "/v1/log").text.splitlines()]
    return [event for event in events if kind in ("", event["e"])]


def _resize(scheduler: Scheduler, number: int, gpus: int) -> None:
    """Give it so many devices, and wait until it has them and no others."""
    before = len(_events(scheduler, "resettled"))
    assert scheduler.command_on(number, "resize", gpus=gpus).status_code < 300
    until(lambda: len(_events(scheduler, "resettled")) > before, scheduler.said)
    until(lambda: len(scheduler.job(number)["devices"]) == gpus, scheduler.said)


def test_resized_in_place_and_suspended_with_the_same_bits(
    scheduler: Scheduler, expected: str, tmp_path: Path
) -> None:
    number = _elastic(scheduler, tmp_path / "hurry")
    _reach(scheduler, number, 3)
    assert len(scheduler.job(number)["devices"]) == 2
    assert scheduler.job(number)["total_steps"] == STEPS
    (launched,) = _events(scheduler, "launched")
    workers = Path(f"/proc/{launched['pid']}/task/{launched['pid']}/children").read_text().split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    until(lambda: bool(_events(scheduler, "process-killed")), scheduler.said)
    before = scheduler.job(number)["steps"]
    _reach(scheduler, number, before + 2)
    _resize(scheduler, number, 1)
    waits = scheduler.submit("true", gpu_memory="1GiB")
    scheduler.await_status(waits, "done")  # on what the other gave back
    _resize(scheduler, number, 2)
    assert scheduler.command_on(number, "suspend").status_code < 300
    scheduler.await_status(number, "held")
    (tmp_path / "hurry").touch()
    assert scheduler.command_on(number, "resume").status_code < 300
    scheduler.await_status(number, "done")
    assert expected in scheduler.logs(number)
    assert "failed" not in {event.get("outcome") for event in _events(scheduler)}
    assert [len(event["devices"]) for event in _events(scheduler, "resettled")] == [1, 2]
    assert not any(event.get("again") for event in _events(scheduler, "resettled"))
    # Processes came and went; what the scheduler started was started twice: at first, and after the suspension.
    assert len({event["serial"] for event in _events(scheduler, "launched") if event["id"] == number}) == 2
    story = scheduler.ask("GET", f"/v1/jobs/{number}/explain").text
    assert "without a restart, holding what it leaves until it is there" in story
    assert "and on no other device any more" in story
    assert "One of its processes was killed (signal 9); another takes its place." in story
    assert scheduler.job(number)["killed_processes"] == 1


def test_the_scheduler_dies_in_the_middle_of_a_resize(
    scheduler: Scheduler, expected: str, tmp_path: Path
) -> None:
    number = _elastic(scheduler, tmp_path / "hurry")
    _reach(scheduler, number, 3)
    assert scheduler.command_on(number, "resize", gpus=1).status_code < 300
    until(lambda: bool(_events(scheduler, "resized")), scheduler.said)
    scheduler.kill()
    scheduler.start()
    until(lambda: bool(_events(scheduler, "resettled")), scheduler.said)
    assert len(scheduler.job(number)["devices"]) == 1
    (tmp_path / "hurry").touch()
    scheduler.await_status(number, "done")
    assert expected in scheduler.logs(number)
    assert len(_events(scheduler, "launched")) == 1
    (restarted,) = _events(scheduler, "restarted")
    assert restarted["adopted"] == [number]


RANGE = {"min_gpus": 1, "max_gpus": 2}

LATE = """
import sys, time
from pathlib import Path
from cotenant.elastic.example import main
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
main(["--steps", "5"])
"""

THREADS = """
import os
from torch import nn, optim, zeros, ones
from torch.utils.data import TensorDataset
from cotenant import elastic
run = elastic.Run(workers=2, threads=int(os.environ["COTENANT_SERIAL"]))
model = nn.Linear(1, 1)
model, loader = run.prepare(model, TensorDataset(zeros(400, 1), ones(400, 1)), batch_size=1)
run.keep(optimizer=(optimizer := optim.SGD(model.parameters(), lr=0.1)))
for step in run.steps(loader, epochs=1):
    for x, y in step:
        (model(x) - y).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    __import__("time").sleep(0.1)
"""


def _python(script: str, *words: str) -> tuple[str, ...]:
    return sys.executable, "-c", script, *words


def test_a_script_that_fails_says_so(calm: Scheduler) -> None:
    number = calm.submit(*_python("{}['a']"), elastic=RANGE)
    found = calm.await_status(number, "failed")
    assert found["exit_code"] == 1
    assert "KeyError: 'a'" in found["reason"]


def test_a_script_that_takes_no_elastic_step_has_failed_and_says_why(calm: Scheduler) -> None:
    number = calm.submit(*_python("print('trained')"), elastic=RANGE, gpus=2)
    found = calm.await_status(number, "failed")
    assert "the script has ended without a step: does it use cotenant.elastic.Run?" in found["reason"]


def test_one_that_joins_late_is_resized_all_the_same(calm: Scheduler, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    number = calm.submit(*_python(LATE, str(flag)), elastic=RANGE, gpus=2, gpu_memory="1GiB")
    calm.await_status(number, "running")
    until(lambda: any(e["id"] == number for e in _events(calm, "launched")), calm.said)
    _resize(calm, number, 1)
    assert len(calm.job(number)["devices"]) == 1
    flag.touch()
    calm.await_status(number, "done")
    assert calm.logs(number).startswith("5 steps, parameters ")
    assert not any(event.get("again") for event in _events(calm, "resettled"))


def test_a_script_for_fewer_processes_than_it_may_get_is_refused_at_once(calm: Scheduler) -> None:
    number = calm.submit(*_python("from cotenant import elastic; elastic.Run(workers=1)"), elastic=RANGE)
    assert "--elastic 1:1" in calm.await_status(number, "failed")["reason"]


def test_a_grade_that_does_not_hold_is_refused_with_what_differs(calm: Scheduler) -> None:
    number = calm.submit(*_python(THREADS), elastic=RANGE, gpu_memory="1GiB")
    _reach(calm, number, 3)
    assert calm.command_on(number, "suspend").status_code < 300
    calm.await_status(number, "held")
    assert calm.command_on(number, "resume").status_code < 300
    reason = calm.await_status(number, "failed")["reason"]
    assert "grade statistical: CPU threads 1 -> 2; this run asks for bitwise" in reason
