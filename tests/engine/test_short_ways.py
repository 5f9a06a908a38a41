"""Short ways of the engine's hottest parts say what the long ways say."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import rules
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.events import Ended, Submitted
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.ledger import Ledger
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.quantities import GIB
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord, Status
from cotenant.model.residents import joined, parted
from cotenant.model.rules import Books, check_start
from cotenant.model.settings import Settings
from cotenant.model.shape import ShapeTable
from cotenant.model.workload import Workload

CLUSTER = Cluster(
    types=(DeviceType(name="big", memory_bytes=40 * GIB), DeviceType(name="small", memory_bytes=16 * GIB)),
    nodes=(
        Node(name="n0", gpus=(("big", 2), ("small", 2))),
        Node(name="n1", gpus=(("small", 3),), cpu_milli=4000),
    ),
)


def test_sharers_join_and_part_in_order() -> None:
    for mask in range(1 << 6):
        ids = {i for i in range(6) if mask >> i & 1}
        for job in range(6):
            before = tuple(sorted(ids - {job}))
            after = joined(before, job)
            assert after == tuple(sorted(ids | {job}))
            assert parted(after, job) == before


def books(running: set[int], reserved: set[int], down: set[int], limit: int | None) -> Books:
    """Books in which each of these devices is held, kept for job 70, or out of order."""
    ledger = Ledger(Layout(CLUSTER))
    for device in sorted(running):
        ledger.occupy(100 + device, Placement((device,)))
    if reserved:
        ledger.set_reserved(70, tuple(sorted(reserved)), ())
    ledger.set_usable(sorted(down), False)
    made = Books(ledger, Settings(), {})
    if limit is not None:
        made.limits[""] = limit
    return made


DEVICES = st.sets(st.integers(0, 6), max_size=3)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    DEVICES,
    DEVICES,
    DEVICES,
    st.none() | st.integers(0, 2),
    st.integers(1, 3),
    st.sampled_from((0, 30 * GIB)),
    st.sampled_from((0, 1000, 9000)),
    st.lists(st.integers(-2, 9), min_size=1, max_size=3).map(tuple),
)
def test_a_start_accepted_at_first_sight_is_accepted_in_full(
    running: set[int],
    reserved: set[int],
    down: set[int],
    limit: int | None,
    gpus: int,
    memory: int,
    cpu: int,
    devices: tuple[int, ...],
) -> None:
    made = books(running, reserved - running, down, limit)
    job = Job(id=1, name="a", submit_s=0.0, gpus=gpus, memory_bytes=memory, cpu_milli=cpu)
    record = JobRecord.of(job, ShapeTable(made.ledger.layout, made.settings).of(job), 0.0, 0.0)
    short = check_start(made, record, devices, WHOLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "_offered", lambda *_: False)
        assert check_start(made, record, devices, WHOLE) == short


def test_a_start_on_one_free_device_is_accepted_at_first_sight() -> None:
    made = books({0}, set(), set(), None)
    job = Job(id=1, name="a", submit_s=0.0, memory_bytes=30 * GIB)
    record = JobRecord.of(job, ShapeTable(made.ledger.layout, made.settings).of(job), 0.0, 0.0)
    # Device 0 is held, 1 is free, 2 has too little memory, -1 and 7 are none.
    found = [rules._offered(made, record, (device,)) for device in (-1, 0, 1, 2, 7)]
    assert found == [False, False, True, False, False]


class LongWay(Ledger):
    """Books that know no short ways."""

    def occupy(self, job_id: int, place: Placement, cpu_milli: int = 0, host_bytes: int = 0) -> None:
        self.held[job_id] = place
        self._take(job_id, place)

    def vacate(self, job_id: int, cpu_milli: int = 0, host_bytes: int = 0) -> Placement:
        place = self.held.pop(job_id)
        self._give(job_id, place)
        return place


PART = st.builds(
    Share, st.sampled_from(("spatial", "time-sliced")), st.integers(1, 4), st.sampled_from((0, 250))
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(("job", "job", "job", "reserve", "down", "drain")),
        st.integers(0, 9),
        st.sets(st.integers(0, 6), min_size=1, max_size=2).map(lambda s: tuple(sorted(s))),
        st.just(WHOLE) | st.just(Share("exclusive")) | PART,
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TURNS)
def test_one_device_is_taken_and_given_back_as_several_are(turns: list[Any]) -> None:
    short, long = Ledger(Layout(CLUSTER)), LongWay(Layout(CLUSTER))
    kept: dict[int, tuple[int, ...]] = {}
    for kind, number, devices, share in turns:
        on = [short.held[j].share.mode for d in devices for j in short.residents[d]]
        for ledger in (short, long):
            if kind == "down":
                ledger.set_usable(devices, not ledger.usable[devices[0]])
            elif kind == "drain":
                ledger.set_draining(number % 2, not ledger.draining[number % 2])
            elif kind == "reserve":
                ledger.set_reserved(70, devices if number < 5 else (), kept.get(70, ()))
            elif number in ledger.held:
                ledger.vacate(number)
            elif all(mode == share.mode != "exclusive" for mode in on):
                ledger.occupy(number, Placement(devices, share))
        if kind == "reserve":
            kept[70] = devices if number < 5 else ()
        for name in ("residents", "free_milli", "free_memory", "whole", "free_count", "held", "reserved"):
            assert getattr(short, name) == getattr(long, name), name
        assert short.index_errors() == []


def test_demands_are_numbered_as_they_come_and_a_whole_device_needs_no_saying() -> None:
    table = ShapeTable(Layout(CLUSTER), Settings())
    jobs = [
        Job(id=0, name="a", submit_s=0.0, compute_milli=0),
        Job(id=1, name="b", submit_s=0.0),
        Job(id=2, name="c", submit_s=0.0, gpus=2),
        Job(id=3, name="d", submit_s=0.0, memory_bytes=GIB, compute_milli=0),
        Job(id=4, name="e", submit_s=0.0, memory_bytes=GIB),
    ]
    # Without memory, 0 and 1000 thousandths are one demand; with it they are two, as before.
    assert [table.count(job).number for job in jobs] == [0, 0, 1, 2, 3]
    assert [(s.number, s.seen) for s in table] == [(0, 2), (1, 1), (2, 1), (3, 1)]
    assert table.jobs == 5


def test_blocks_and_devices_are_each_others_inverse() -> None:
    layout = Layout(CLUSTER)
    # Bays: big 0-1, small 2-3, small 4-6.
    assert layout.device_bit == [1, 2, 1, 2, 1, 2, 4]
    for bay, size in enumerate((2, 2, 3)):
        for mask in range(1, 1 << size):
            devices = layout.devices(bay, mask)
            assert layout.blocks(devices) == ((bay, mask),)
            assert layout.devices(bay, mask) is devices
    assert layout.devices(2, 0) == ()


def executor(*rows: tuple[str, float, float]) -> SimulatedExecutor:
    frame = pl.DataFrame(rows, schema=["name", "submit_s", "duration_s"], orient="row")
    return SimulatedExecutor(Workload(frame), Cluster.uniform(4))


def test_waiting_ends_at_the_time_given_and_void_entries_tell_nothing() -> None:
    world = executor(("a", -5.0, 10.0), ("b", 2.0, 30.0))
    (first,) = world.wait(math.inf)
    assert isinstance(first, Submitted)
    assert (first.t, world.now()) == (0.0, 0.0)  # submitted before the start: arrives at the start
    world.start(first.job, Placement((0,)), 1, False)
    assert world.wait(1.0) == []
    assert world.now() == 1.0
    (second,) = world.wait(math.inf)
    assert isinstance(second, Submitted)
    world.start(second.job, Placement((1,)), 1, False)
    # Taken off at 2 and begun anew at 4: the entry for the end at 10 is void, its work ends at 14.
    world.stop(0, False)
    world.drain()
    assert world.wait(4.0) == []
    world.start(first.job, Placement((2,)), 2, False)
    ends = [world.wait(math.inf)[0] for _ in range(2)]
    assert [(e.t, e.id, e.outcome) for e in ends if isinstance(e, Ended)] == [
        (14.0, 0, "done"),
        (32.0, 1, "done"),
    ]
    assert world.idle()
    assert world.wait(math.inf) == []
    assert world.now() == 32.0
    assert world.wait(40.0) == []
    assert world.now() == 40.0


def test_the_line_is_swept_though_nobody_asks_for_its_head() -> None:
    queue = PendingQueue()
    shape = ShapeTable(Layout(CLUSTER), Settings())
    for i in range(20_000):
        job = Job(id=i, name=str(i), submit_s=0.0)
        record = JobRecord.of(job, shape.of(job), 0.0, 0.0)
        queue.push(record)
        record.status = Status.RUNNING
        queue.left(record)
    # 4,096 may lie about, and one is pushed before it is counted.
    assert len(queue._line) <= 4096 + 3
    assert queue.head() is None
