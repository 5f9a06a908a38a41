"""Elastic jobs under the real scheduler: other numbers of devices, a suspension; the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.conftest import DEVICES, Scheduler, until

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(len(DEVICES) < 2, reason="needs two cores")

STEPS = 60


def _reference(folder: Path) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "cotenant.elastic.example", "--steps", str(STEPS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True, env=env, cwd=folder)
    return done.stdout.split()[-1]


def test_resized_and_suspended_with_the_same_bits(scheduler: Scheduler, tmp_path: Path) -> None:
    expected = _reference(tmp_path)
    number = scheduler.submit(
        *(sys.executable, "-m", "cotenant.elastic.example", "--steps", str(STEPS), "--pace", "0.1"),
        elastic={"min_gpus": 1, "max_gpus": 2},
        gpus=2,
        gpu_memory="1GiB",
    )

    def reaches(step: int) -> None:
        until(lambda: scheduler.job(number)["steps"] >= step, lambda: f"{scheduler.job(number)}")

    reaches(3)
    assert len(scheduler.job(number)["devices"]) == 2
    assert scheduler.job(number)["total_steps"] == STEPS
    assert scheduler.command_on(number, "resize", gpus=1).status_code < 300
    until(lambda: len(scheduler.job(number)["devices"]) == 1, scheduler.said)
    at = scheduler.job(number)["steps"]
    reaches(at + 5)
    assert scheduler.command_on(number, "suspend").status_code < 300
    scheduler.await_status(number, "held")
    assert scheduler.command_on(number, "resume").status_code < 300
    scheduler.await_status(number, "done")
    assert expected in scheduler.logs(number)
    events = [json.loads(line) for line in scheduler.ask("GET", "/v1/log").text.splitlines()]
    assert "failed" not in {event.get("outcome") for event in events}
    assert scheduler.job(number)["attempt"] == 1


def test_a_script_that_is_not_elastic_fails_in_words(scheduler: Scheduler) -> None:
    number = scheduler.submit(
        *(sys.executable, "-c", "raise SystemExit(7)"), elastic={"min_gpus": 1, "max_gpus": 2}
    )
    found = scheduler.await_status(number, "failed")
    assert found["exit_code"] == 7
