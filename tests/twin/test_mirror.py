"""The simulated side: its truth is what was measured, starting takes what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.jobs import Job
from cotenant.profiles.table import CoRunTable, PairRow
from cotenant.twin.compare import course_of
from cotenant.twin.mirror import mirror

KIND = "Core x1"


def _pair(a: str, b: str, fast: float, other: float) -> PairRow:
    return PairRow(campaign="twin", device_type=KIND, a=a, b=b, a_speed=fast, b_speed=other)


TABLE = CoRunTable(
    [_pair("busy", "busy", 0.5, 0.5), _pair("busy", "late", 0.8, 0.9), _pair("late", "late", 0.95, 0.95)],
    name="pairs",
    campaigns=("twin",),
)
STARTS_S = {"busy": 2.0, "late": 1.0}


def _live(*jobs: tuple[str, str, float]) -> list[ev.Event]:
    cluster = Cluster.uniform(1, gpus_per_node=1, gpu_type=DeviceType(name=KIND, memory_bytes=2**33))
    opened: Any = ev.Opened(
        0.0, ev.SCHEMA, "0", 0, "fifo", {}, {}, cluster, {"name": "live"}, {}, {"kind": "real"}
    )
    found: list[ev.Event] = [opened]
    for i, (name, model, at) in enumerate(jobs):
        job = Job(id=i, name=name, submit_s=at, model=model, memory_bytes=2**30, sharing="any")
        found.append(ev.Submitted(at, job))
    return found


def _times(policy: str, *jobs: tuple[str, str, float]) -> dict[str, float]:
    work_s = {name: 8.0 for name, _, _ in jobs}
    events = mirror(_live(*jobs), policy, table=TABLE, starts_s=STARTS_S, work_s=work_s, settings={})
    return {fate.name: fate.end_s for fate in course_of(events).fates}


def test_one_after_the_other_each_starts_and_then_works():
    # a: 2 s of starting and 8 s of work; b waits for it, starts in 1 s and works 8 s.
    assert _times("fifo", ("a", "busy", 0.0), ("b", "late", 0.0)) == pytest.approx({"a": 10.0, "b": 19.0})


def test_side_by_side_speeds_are_those_measured_and_starting_is_slowed():
    found = _times("colocate:guest_s=0:doubt=0", ("a", "busy", 0.0), ("b", "late", 0.0))
    # b starts beside a: 1 s at 0.5, as busy work beside busy would go, is 2 s. a starts in 2 s as well, then
    # works 8 s at 0.8: 12 s. Until then b did 10 s at 0.9, more than its 8 s: it ends at 2 + 8 / 0.9.
    b = 2.0 + 8.0 / 0.9
    a = b + (8.0 - 0.8 * (b - 2.0)) / 1.0
    assert found == pytest.approx({"a": a, "b": b})


def test_a_job_that_starts_slows_its_neighbour_as_a_busy_one_does():
    found = _times("colocate:guest_s=0:doubt=0", ("a", "busy", 0.0), ("b", "late", 5.0))
    # a works from 2 on: 3 s until 5. b starts for 1 / 0.5 s, and a works at 0.5 meanwhile, as beside a busy one: 4 s
    # are done at 7, the other 4 take 5 s at 0.8. b did 4.5 s by then, and works the rest alone.
    assert found == pytest.approx({"a": 12.0, "b": 15.5})


def test_two_busy_ones_do_not_share():
    assert _times("colocate:guest_s=0:doubt=0", ("a", "busy", 0.0), ("b", "busy", 0.0)) == pytest.approx(
        {"a": 10.0, "b": 20.0}
    )
