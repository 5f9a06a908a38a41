"""Sharers' speeds: the quick ways against the definition, and ends that move against fresh ones."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.executors.attempt import Attempt
from cotenant.executors.company import Companies, is_plain
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI, Placement, Share
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.model.workload import Behaviour, Workload

CLUSTER = Cluster(
    types=(DeviceType(name="big", memory_bytes=40 * GIB), DeviceType(name="small", memory_bytes=16 * GIB)),
    nodes=(Node(name="n0", gpus=(("big", 2), ("small", 2))),),
)
RULES = Settings(slice_s=9.0, slice_switch_s=1.0)


class Tables:
    """Speeds that depend on model, set and type in a way that no two sets have in common."""

    version = 0

    def solo_speed(self, model: str, device_type: str) -> float:
        return 1.0

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> float:
        assert list(beside) == sorted(beside)
        weight = sum((ord(m) - 96) * float(7**i) for i, m in enumerate((model, *beside)))
        return 1.0 / (1.0 + len(beside) + weight / 1000 + (0.3 if device_type == "small" else 0.0))

    def source(self, model: str, beside: tuple[str, ...], device_type: str) -> str:
        return "measured" if len(beside) == 1 else "composed"

    def describe(self) -> dict[str, Any]:
        return {"kind": "tables"}


def defined(run: Attempt, there: dict[int, list[Attempt]], layout: Layout) -> float:
    """The definition, device by device."""
    share, job, speeds = run.place.share, run.job, []
    limit = min(1.0, share.compute_limit_milli / (job.compute_milli or DEVICE_MILLI))
    ceiling = 1.0 if share.compute_limit_milli >= DEVICE_MILLI else limit
    for device in run.place.devices:
        beside = [r for r in there[device] if r is not run]
        everybody = there[device]
        if not beside:
            speeds.append(ceiling)
        elif share.mode == "time-sliced":
            speeds.append(0.9 / len(everybody))
        elif all(0 < r.job.compute_milli < 1000 for r in everybody) and all(
            r.place.share.compute_milli >= r.job.compute_milli for r in everybody
        ):
            speeds.append(ceiling)
        else:
            kind = layout.types[layout.device_type[device]].name
            speed = Tables().co_speed(job.model, tuple(sorted(r.job.model for r in beside)), kind)
            speeds.append(min(speed, ceiling))
    return min(speeds)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from("abc"),
        st.sets(st.integers(0, 3), min_size=1).map(lambda s: tuple(sorted(s))),
        st.sampled_from(("spatial", "spatial", "time-sliced")),
        st.sampled_from((0, 300, 1000)),  # declared
        st.sampled_from((0, 300)),  # guaranteed
        st.sampled_from((1000, 1000, 200)),  # ceiling
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_speeds_beside_others_are_as_defined(steps: list[Any]) -> None:
    layout = Layout(CLUSTER)
    companies = Companies(layout, Tables(), RULES)
    there: dict[int, list[Attempt]] = {d: [] for d in range(4)}
    live: dict[int, Attempt] = {}
    for job_id, model, devices, mode, declared, guaranteed, limit in steps:
        if (run := live.pop(job_id, None)) is not None:
            for device in run.place.devices:
                there[device].remove(run)
            left = companies.part(run, run.place)
            assert left == any(there[d] for d in run.place.devices)
        else:
            job = Job(id=job_id, name="", submit_s=0.0, model=model, compute_milli=declared)
            place = Placement(devices, Share(mode, GIB, guaranteed, limit))
            run = live[job_id] = Attempt(job, Behaviour(1.0), place, 1, 1.0, 1.0, 0.0, 0.0, 1.0)
            run.plain = is_plain(run)
            assert companies.join(run, place) == any(there[d] for d in devices)
            for device in devices:
                there[device].append(run)
        for run in live.values():
            assert companies.pace(run)[0] == defined(run, there, layout)
            found = companies.neighbours(run.place.devices)
            ids = sorted({r.job.id for d in run.place.devices for r in there[d]})
            assert [r.job.id for r in found] == ids
    assert sorted(companies.on) == [d for d in there if there[d]]


class Fresh(SimulatedExecutor):
    """Notes every new end at once, never leaving an entry where it is; and looks at each sharer by itself."""

    def _change(self, run: Attempt, rate: float, source: str, before: float | None = None) -> None:
        run.due_s = math.inf
        super()._change(run, rate, source, before)

    def _rerate_devices(self, devices: tuple[int, ...], but: Attempt | None = None) -> None:
        for run in self._companies.neighbours(devices):
            if run is not but:
                self._rerate(run)


JOBS = st.lists(
    st.tuples(
        st.integers(0, 20),  # arrives
        st.integers(1, 40),  # works
        st.sampled_from("abc"),
        st.sets(st.integers(0, 3), min_size=1).map(lambda s: tuple(sorted(s))),
    ),
    min_size=1,
    max_size=12,
)


def played(world: SimulatedExecutor, places: list[tuple[int, ...]], stops: list[int]) -> list[ev.Event]:
    """Start all at once; at every third event stop one that runs, and start it again at the next."""
    out: list[ev.Event] = []
    jobs: dict[int, tuple[Job, int]] = {}
    again: list[int] = []

    def begin(job_id: int, resumed: bool) -> None:
        job, attempt = jobs[job_id]
        jobs[job_id] = job, attempt + (not resumed)
        world.start(job, Placement(places[job_id], Share("spatial", GIB, 0)), jobs[job_id][1], resumed)
        out.extend(world.drain())

    while events := world.wait(math.inf):
        out += events
        for job_id in again:
            begin(job_id, True)
        again = []
        for event in events:
            if isinstance(event, ev.Submitted):
                jobs[event.job.id] = event.job, 0
                begin(event.job.id, False)
        running = sorted(world.running())
        if stops and running and len(out) % 3 == 0:
            world.stop(victim := running[stops.pop() % len(running)], True)
            out += world.drain()
            again.append(victim)
        if again and world.idle():
            begin(again.pop(), True)
    return out


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOBS, st.lists(st.integers(0, 9), max_size=4))
def test_entries_left_where_they_are_change_no_event(rows: list[Any], stops: list[int]) -> None:
    frame = pl.DataFrame(
        {
            "name": [f"{i:02}" for i in range(len(rows))],
            "submit_s": [float(r[0]) for r in sorted(rows)],
            "duration_s": [float(r[1]) for r in sorted(rows)],
            "model": [r[2] for r in sorted(rows)],
            "gpus": [len(r[3]) for r in sorted(rows)],
        }
    )
    places = [r[3] for r in sorted(rows)]
    worlds = [kind(Workload(frame), CLUSTER, truth=Tables()) for kind in (SimulatedExecutor, Fresh)]
    lazy, fresh = (played(w, places, list(stops)) for w in worlds)
    assert lazy == fresh
    assert sum(isinstance(e, ev.Ended) for e in lazy) == len(rows)
    assert worlds[0].source_hours == worlds[1].source_hours


def test_hours_belong_to_the_speed_that_was_run_at() -> None:
    # a works alone for 3600 s, then beside b; both have work for far longer. Stopped 7200 s later.
    frame = pl.DataFrame(
        {"name": ["a", "b"], "submit_s": [0.0, 3600.0], "duration_s": [1e6, 1e6], "model": "a"}
    )
    world = SimulatedExecutor(Workload(frame), CLUSTER, truth=Tables())
    share = Share("spatial", GIB, 0)
    for _ in range(2):
        (event,) = world.wait(math.inf)
        assert isinstance(event, ev.Submitted)
        world.start(event.job, Placement((0,), share), 1, False)
        world.drain()
    assert world.wait(10_800.0) == []
    for job_id in (0, 1):
        world.cancel(job_id)
    # 1 h alone; then two jobs for 2 h each.
    assert dict(world.source_hours) == {"alone": 1.0, "measured": 4.0}


def test_hours_are_moved_where_only_the_source_changes() -> None:
    # Without a truth sharing costs nothing, so no speed changes.
    frame = pl.DataFrame({"name": ["a", "b"], "submit_s": [0.0, 3600.0], "duration_s": [7200.0, 7200.0]})
    world = SimulatedExecutor(Workload(frame), CLUSTER)
    share = Share("spatial", GIB, 0)
    for _ in range(2):
        (event,) = world.wait(math.inf)
        assert isinstance(event, ev.Submitted)
        world.start(event.job, Placement((0,), share), 1, False)
    ends = [world.wait(math.inf)[0].t for _ in range(2)]
    assert ends == [7200.0, 10800.0]
    # Hour 1: a alone; hour 2: both; hour 3: b alone.
    assert dict(world.source_hours) == {"alone": 2.0, "modelled": 2.0}
