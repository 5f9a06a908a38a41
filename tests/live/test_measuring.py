"""The live loop of learning with real processes: what a job's steps take alone, then beside another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cotenant.live.export import events_of
from cotenant.live.learning import Measured
from cotenant.model import events as ev

SCRIPT = """
import mmap, os, struct, sys, time
file = open(os.environ["COTENANT_STATUS"], "r+b")
status = mmap.mmap(file.fileno(), 4096)
total = int(sys.argv[1])
struct.pack_into("<Q", status, 16, total)
struct.pack_into("<Q", status, 40, 1)
for step in range(1, total + 1):
    time.sleep(0.02)
    struct.pack_into("<QQQd", status, 8, step, total, time.monotonic_ns(), 0.02)
"""
"""A job without our runtime's code that keeps to the layout of the status file."""


def test_speeds_beside_others_are_predicted_measured_and_join_the_table(
    make_scheduler: Callable[..., Any],
) -> None:
    policy = "colocate:min_speed=0:min_gain=0:doubt=0"
    options = ("--policy", policy, "--forecast", "contention", "--settings", "sample_s=1")
    core = make_scheduler().options[1]
    scheduler = make_scheduler(*options, name="learn", devices=(core,)).start()

    def job(name: str) -> int:
        command = (sys.executable, "-c", SCRIPT, "30000")
        number: int = scheduler.submit(*command, name=name, model=f"{name}/b4", gpu_memory="1GiB")
        return number

    first = job("one")
    scheduler.until(lambda: scheduler.job(first)["step_s"] is not None, "no steps are told")
    scheduler.until(lambda: scheduler.job(first)["ends_at"] is not None, "no end is foreseen")
    second = job("two")
    scheduler.await_status(second, "running")
    scheduler.until(lambda: scheduler.job(first)["measured_speed"], lambda: str(scheduler.job(first)))
    seen = scheduler.job(first)
    assert seen["total_steps"] == 30000
    assert 0.05 < seen["measured_speed"] <= 1.0
    assert seen["predicted_speed"][1] <= seen["predicted_speed"][0] <= seen["predicted_speed"][2]
    (device,) = scheduler.ask("GET", "/v1/devices").json()["devices"]
    assert [r["id"] for r in device["residents"]] == [first, second]
    lines = scheduler.ask("GET", "/v1/log").content.splitlines()
    log = list(events_of(lines))
    assert any(isinstance(e, ev.Foretold) and e.models == ("one/b4", "two/b4") for e in log)
    measured = Measured()
    for event in log:
        measured.see(event)
    (one,) = measured.sets()
    assert one.models == ("one/b4", "two/b4")
    count, speed = one.speeds["one/b4"]
    assert count >= 1
    assert 0.05 < speed <= 1.0
    told = scheduler.ask("GET", f"/v1/jobs/{first}/explain").json()["text"]
    assert "two" in told
