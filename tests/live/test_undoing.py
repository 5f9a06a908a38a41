"""A prediction that was wrong, with real processes: undone, explained, learnt, and not made again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cotenant.live.export import events_of
from cotenant.live.knowledge import first_forecast
from cotenant.live.learning import MEASURED, MeasuredSet
from cotenant.live.machine import cluster_of, discover, numbered
from cotenant.live.refit import fit
from cotenant.live.statedir import open_state
from cotenant.model import events as ev

KINDS = ("hungry-one/b8", "hungry-two/b8")
TRAINING = """
import mmap, os, struct, sys, threading, time
import numpy as np

rng = np.random.default_rng(0)
data, wide = rng.standard_normal((64, 1024), np.float32), rng.standard_normal((1024, 256), np.float32)

def step():
    global wide
    wide = wide - 1e-6 * (data.T @ (data @ wide))

def more():
    # So much of its core that others on this machine hardly count.
    while True:
        step()

for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=more, daemon=True).start()
with open(os.environ["COTENANT_STATUS"], "r+b") as file:
    status = mmap.mmap(file.fileno(), 4096)
struct.pack_into("<Q", status, 40, 1)
done, mean_s, last = 0, 0.0, time.monotonic()
while True:
    for _ in range(10):
        step()
    now = time.monotonic()
    done, mean_s, last = done + 1, (0.9 * mean_s or now - last) + 0.1 * (now - last) * bool(mean_s), now
    struct.pack_into("<QQQd", status, 8, done, 10**6, time.monotonic_ns(), mean_s)
"""
"""Gradient steps of a linear layer in NumPy, in several threads; every tenth of the first is told of."""


def taught_wrongly(state: Path, core: str) -> str:
    """A folder whose predictor has learnt that two kinds do not disturb each other; returns the device type."""
    open_state(state)
    present, _ = numbered(discover((core,)), state)
    cluster = cluster_of(present, ())
    kind = cluster.types[0].name
    speeds = dict.fromkeys(KINDS, (64, 0.98))
    sets = [
        MeasuredSet(device_type=kind, models=tuple(sorted(pair)), speeds={m: speeds[m] for m in pair})
        for pair in ((KINDS[0], KINDS[1]), (KINDS[0],) * 2, (KINDS[1],) * 2)
        for _ in range(4)
    ]
    folder = state / "learned"
    folder.mkdir(mode=0o700)
    (folder / MEASURED).write_bytes(msgspec.json.encode(sets))
    fit(folder)
    told = first_forecast("adaptive", cluster, state).co_speed(KINDS[0], (KINDS[1],), kind)
    assert told.low > 0.75, told
    return kind


def test_a_set_that_was_predicted_wrongly_is_undone_explained_learnt_and_avoided(
    make_scheduler: Callable[..., Any],
) -> None:
    core = make_scheduler().options[1]
    options = ("--policy", "cotenant:min_gain=0.4", "--forecast", "adaptive")
    settings = ("--settings", "sample_s=1", "--settings", "undo_after_s=6")
    scheduler = make_scheduler(*options, *settings, name="undo", devices=(core,))
    taught_wrongly(scheduler.state, core)
    scheduler.start()

    def job(model: str) -> int:
        command = (sys.executable, "-c", TRAINING, "4")
        env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        number: int = scheduler.submit(*command, name=model[:10], model=model, gpu_memory="1GiB", env=env)
        return number

    def log() -> list[ev.Event]:
        return list(events_of(scheduler.ask("GET", "/v1/log").content.splitlines()))

    first = job(KINDS[0])
    scheduler.until(lambda: (scheduler.job(first)["steps"] or 0) >= 60, lambda: str(scheduler.job(first)))
    second = job(KINDS[1])
    scheduler.await_status(second, "running")  # side by side: predicted to pay

    def undone() -> bool:
        return any(isinstance(e, ev.Stopping) for e in log())

    scheduler.until(undone, lambda: f"{scheduler.job(first)}\n{scheduler.job(second)}\n{scheduler.said()}")
    (stop,) = [e for e in log() if isinstance(e, ev.Stopping)]
    facts = stop.why.facts
    assert stop.why.rule == "outside-prediction"
    assert facts["speed"] < facts["predicted_low"] <= facts["predicted"] <= facts["predicted_high"]
    numbers = f"{facts['speed']:.2f} of its speed alone, predicted {facts['predicted']:.2f}"
    scheduler.until(lambda: numbers in scheduler.said(), scheduler.said)
    assert numbers in (scheduler.state / "daemon.log").read_text()
    told = scheduler.ask("GET", f"/v1/jobs/{stop.id}/explain").json()["text"]
    assert (
        f"slowest {facts['slowest']}, speed {facts['speed']:.4g}, predicted {facts['predicted']:.4g}" in told
    )

    def learnt() -> bool:
        """The fit has run, and the loop has taken what it gave."""
        return "forecast is in use from now on (version 2)" in scheduler.said()

    scheduler.until(learnt, scheduler.said, patience_s=300.0)
    sets = msgspec.json.decode((scheduler.state / "learned" / MEASURED).read_bytes(), type=list[MeasuredSet])
    (one,) = [s for s in sets if s.models == KINDS]
    assert one.speeds[KINDS[0]][1] < facts["predicted_low"]
    for number in (first, second):
        scheduler.command_on(number, "cancel")
        scheduler.await_status(number, "cancelled")
    # Now their kinds wait for each other: by the ban in the log, and, in a folder that knows only the fit, by that.
    third, fourth = job(KINDS[0]), job(KINDS[1])
    scheduler.await_status(third, "running")
    scheduler.until(lambda: bool(scheduler.job(fourth)["reason"]), lambda: str(scheduler.job(fourth)))
    assert scheduler.job(fourth)["status"] == "waiting"
    scheduler.cancel_all()
    again = first_forecast(
        "adaptive", cluster_of(numbered(discover((core,)), scheduler.state)[0], ()), scheduler.state
    )
    kind = one.device_type
    speeds = [again.co_speed(m, (n,), kind).mean for m, n in (KINDS, KINDS[::-1])]
    assert sum(speeds) < 1.4 < 2 * facts["predicted"]
