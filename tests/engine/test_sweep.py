"""Searches: who is ended at which rung, whoever schedules; all times by hand."""

from __future__ import annotations

import math

import polars as pl
import pytest

from cotenant.engine.loop import Loop
from cotenant.errors import ConfigError
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.executors.sweep import Rule, Sweep
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.ports import Policy
from cotenant.model.progress import Progress
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload
from cotenant.policies.fifo import Fifo
from cotenant.policies.time_slice import TimeSlice

SCORES = {"s/a": 0.5, "s/b": 0.3, "s/c": 0.7, "s/d": 0.6, "other": 9.9}


class Kept:
    def __init__(self) -> None:
        self.events: list[ev.Event] = []

    def see(self, events: list[ev.Event]) -> None:
        self.events += events


def search(
    gpus: int, policy: Policy, rule: Rule, names: str = "abcd", good: float = math.inf, keep: int = 1
) -> tuple[Sweep, list[ev.Event]]:
    rows = [f"s/{n}" for n in names] + ["other"] * (gpus > 1)
    frame = pl.DataFrame({"name": rows, "submit_s": 0.0, "duration_s": 100.0, "memory_bytes": GIB})
    kind = DeviceType(name="gpu", memory_bytes=16 * GIB)
    cluster = Cluster.uniform(gpus, gpus_per_node=gpus, gpu_type=kind)
    workload, settings = Workload(frame), Settings(slice_switch_s=0.0)
    inner = SimulatedExecutor(workload, cluster, settings=settings)
    sweep = Sweep(
        inner,
        lambda name, work_s: SCORES[name] * work_s / 100.0,
        rung_s=10.0,
        rule=rule,
        good=good,
        keep=keep,
    )
    kept = Kept()
    Loop(cluster=cluster, policy=policy, executor=sweep, settings=settings, observers=[kept]).run()
    return sweep, kept.events


def test_the_lower_half_ends_once_all_have_reached_a_rung() -> None:
    # Each on its own device: at 10 s the worse two end, at 20 s one more; the best goes on.
    sweep, events = search(5, Fifo(), "half", good=0.35)
    assert sweep.stopped == [(10.0, "s/b", 1), (10.0, "s/a", 1), (20.0, "s/d", 2)]
    ends = {e.id: (e.t, e.outcome) for e in events if isinstance(e, ev.Ended)}
    names = {e.job.id: e.job.name for e in events if isinstance(e, ev.Submitted)}
    assert {names[i]: end for i, end in ends.items()} == {
        "s/a": (10.0, "cancelled"),
        "s/b": (10.0, "cancelled"),
        "s/d": (20.0, "cancelled"),
        "s/c": (100.0, "done"),
        "other": (100.0, "done"),
    }
    # 0.7 * 0.5 is 0.35, at the fifth rung.
    assert sweep.first_good_s == {"s": (50.0, "s/c")}


def test_halving_leaves_as_many_as_it_is_told() -> None:
    sweep, _ = search(5, Fifo(), "half", keep=3)
    assert sweep.stopped == [(10.0, "s/b", 1)]


def test_with_one_device_first_come_first_served_never_compares() -> None:
    # Who waits has not reached a rung, so nobody ends before the last but one is done: d starts at
    # 300 s as the only one left.
    sweep, events = search(1, Fifo(), "half", good=0.5)
    assert sweep.stopped == []
    assert max(e.t for e in events if isinstance(e, ev.Ended)) == 400.0
    assert sweep.first_good_s == {"s": (100.0, "s/a")}


def test_taking_turns_compares_early() -> None:
    # Four in turns reach 10 s of work at 40 s; two go on and reach 20 s at 60 s; the last one then
    # has the device to itself: 80 s more. It reaches 0.62 with 0.7 * 0.9 after 90 s of work, at 130 s.
    sweep, events = search(1, TimeSlice(), "half", good=0.62)
    assert [(t, name) for t, name, _ in sweep.stopped] == [(40.0, "s/b"), (40.0, "s/a"), (60.0, "s/d")]
    found_s, name = sweep.first_good_s["s"]
    assert name == "s/c"
    assert found_s == pytest.approx(130.0)
    assert max(e.t for e in events if isinstance(e, ev.Ended)) == pytest.approx(140.0)


def test_the_median_of_those_seen_so_far_ends_one_at_a_time() -> None:
    # One device, in order a, b, c: a is its own median. b is below it at its first rung, 110 s; c is
    # above the median of 0.5, 0.3 and 0.7 there and everywhere after.
    sweep, events = search(1, Fifo(), "median", names="abc")
    assert [(t, n, r) for t, n, r in sweep.stopped] == [(110.0, "s/b", 1)]
    assert max(e.t for e in events if isinstance(e, ev.Ended)) == 210.0


def test_a_good_one_is_noted_at_its_end_and_nobody_ends_without_a_rule() -> None:
    sweep, _ = search(1, Fifo(), "none", names="bc", good=0.7)
    assert sweep.stopped == []
    assert sweep.first_good_s == {"s": (200.0, "s/c")}


def test_a_rung_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="rung_s"):
        Sweep(None, lambda name, work_s: 0.0, rung_s=0.0)  # type: ignore[arg-type]


def test_progress_follows_speeds_pauses_and_attempts() -> None:
    progress = Progress()
    for event in (
        ev.Started(10.0, 1, 1, (0,)),
        ev.Rated(20.0, 1, 0.5),  # 10 s done
        ev.Rated(30.0, 1, 0.0),  # 15
        ev.Suspended(31.0, 1, 1, 15.0),
        ev.Started(40.0, 1, 1, (0,), None, True),
    ):
        progress.see(event)
    assert progress.work_s(1, 45.0) == 20.0
    assert progress.due_s(1, 35.0) == 60.0
    progress.see(ev.Ended(50.0, 1, 1, "failed", 25.0, 25.0, False))
    assert progress.due_s(1, 35.0) == math.inf
    progress.see(ev.Started(60.0, 1, 2, (0,)))
    assert progress.work_s(1, 61.0) == 1.0
