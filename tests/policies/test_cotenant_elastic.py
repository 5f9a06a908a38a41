"""Ours, with elastic jobs: starts by what is free, growth that pays, giving before anybody is suspended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.cotenant import Cotenant
from cotenant.policies.elastic.sizes import size_speed
from cotenant.report.rulewords import RULE_WORDS
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun

FREE = Settings(restore_s=0.0)


def make(shape: str | Cluster, policy: Cotenant | None = None, **options: Any) -> Harness:
    return Harness(
        shape,
        policy or Cotenant(quantum_s=60.0),
        **{"settings": FREE, "forecast": FixedForecast(), **options},
    )


def sizes(run: HarnessRun, name: str) -> list[tuple[float, int, str]]:
    """When a job got how many devices, and by what rule."""
    found = run.of(name, ev.Started) + run.of(name, ev.Resized)
    return [(e.t, len(e.devices), e.why.rule) for e in sorted(found, key=lambda e: e.t)]


def elastic(h: Harness, name: str, least: int, gpus: int, most: int, **fields: Any) -> None:
    h.submit(name, gpus=gpus, min_gpus=least, max_gpus=most, **fields)


def test_alone_in_the_queue_it_starts_on_all_that_it_can_use() -> None:
    h = make("1x8")
    elastic(h, "a", 1, 2, 4, runs_s=100.0)
    run = h.run()
    assert sizes(run, "a") == [(0.0, 4, "sized-to-free")]
    assert run.end_s("a") == 50.0


def test_by_logical_workers_it_takes_no_device_that_would_not_make_it_faster() -> None:
    # Six workers on four or five devices: two in turn each, as on three.
    h = make("1x5", settings=Settings(restore_s=0.0, elastic_speed="workers"))
    elastic(h, "a", 1, 2, 6, runs_s=100.0)
    assert sizes(h.run(), "a") == [(0.0, 3, "sized-to-free")]


def test_it_starts_on_fewer_and_grows_when_more_are_free() -> None:
    h = make("1x4")
    h.submit("b", runs_s=100.0)
    elastic(h, "a", 1, 4, 4, at_s=10.0, runs_s=90.0)
    run = h.run()
    assert sizes(run, "a") == [(10.0, 3, "sized-to-free"), (100.0, 4, "grown-to-free")]
    # 90 s at three quarters, then what is left at full speed.
    assert run.end_s("a") == pytest.approx(100.0 + 90.0 - 67.5)


def test_on_fewer_than_half_it_does_not_start() -> None:
    # One of four is free: not at 10, but when the quantum of the others is over.
    h = make("1x4")
    h.submit("b", gpus=3, runs_s=1000.0)
    elastic(h, "a", 1, 4, 4, at_s=10.0, runs_s=90.0)
    assert sizes(h.run(), "a") == [(60.0, 4, "room-ready")]


def test_what_it_holds_beyond_what_it_declares_goes_to_who_waits_and_comes_back() -> None:
    h = make("1x4")
    elastic(h, "a", 1, 2, 4, runs_s=1000.0)
    h.submit("b", gpus=2, at_s=100.0, runs_s=100.0)
    run = h.run()
    assert sizes(run, "a") == [
        (0.0, 4, "sized-to-free"),
        (100.0, 2, "gives-devices"),
        (200.0, 4, "grown-to-free"),
    ]
    assert run.start_s("b") == 100.0
    # 200 s of work by 100, 300 by 200, the rest at twice the speed.
    assert run.end_s("a") == 200.0 + 700.0 / 2.0
    assert run.of("a", ev.Stopping) == []


def test_it_gives_down_to_its_least_before_anybody_is_suspended() -> None:
    h = make("1x2")
    elastic(h, "a", 1, 2, 2, runs_s=10_000.0)
    h.submit("b", at_s=20.0, runs_s=100.0)
    run = h.run()
    # Its quantum ends at 60.
    assert sizes(run, "a")[:2] == [(0.0, 2, "free-devices"), (60.0, 1, "gives-devices")]
    assert run.start_s("b") == 60.0
    assert [e for e in run.events if isinstance(e, ev.Stopping)] == []


def test_a_job_of_a_higher_class_gives_nothing_to_one_of_a_lower() -> None:
    h = make("1x2")
    elastic(h, "a", 1, 1, 2, runs_s=1000.0)
    h.submit("b", at_s=100.0, runs_s=10.0, job_class="opportunistic")
    # a has both devices for 500 s.
    assert h.run().start_s("b") == 500.0


@pytest.mark.parametrize(("runs_s", "grows"), [(1000.0, False), (2200.0, True)])
def test_it_grows_only_if_that_is_worth_ten_times_the_price(runs_s: float, *, grows: bool) -> None:
    # Price 50 s. At 100 a second device halves what is left: 450 s or 1,050 s are gained; 500 s are asked for.
    h = make("1x2", settings=Settings(restore_s=50.0))
    h.submit("b", runs_s=100.0)
    elastic(h, "a", 1, 1, 2, runs_s=runs_s)
    assert [rule for _, _, rule in sizes(h.run(), "a")] == ["free-devices", *["grown-to-free"] * grows]


def test_without_resizing_it_keeps_what_it_declares() -> None:
    h = make("1x4", Cotenant(quantum_s=60.0, resize_gain=0.0))
    elastic(h, "a", 1, 2, 4, runs_s=100.0)
    assert sizes(h.run(), "a") == [(0.0, 2, "free-devices")]


@pytest.mark.parametrize("elastic_speed", ["linear", "workers"])
def test_the_speed_of_a_size_is_that_of_the_simulator(elastic_speed: Any) -> None:
    rules = Settings(restore_s=0.0, elastic_speed=elastic_speed)
    for count in range(1, 9):
        h = make(f"1x{count}", settings=rules)
        elastic(h, "a", 1, 1, 8, runs_s=840.0)
        run = h.run()
        job = Job(id=0, name="a", submit_s=0.0, gpus=1, min_gpus=1, max_gpus=8)
        held = sizes(run, "a")[0][1]
        assert run.end_s("a") == pytest.approx(840.0 / size_speed(rules, job, held))
        assert size_speed(rules, job, held) == size_speed(rules, job, count)


JOBS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.floats(0.0, 2000.0),
        st.floats(1.0, 4000.0),
        st.integers(0, 4),
        st.integers(0, 1),
        st.sampled_from(["none", "D0", "D1", "D2"]),
    ),
    min_size=3,
    max_size=25,
)


@hyp(max_examples=40, deadline=None)
@given(jobs=JOBS, workers=st.booleans(), mixed=st.booleans())
def test_all_end_nothing_is_refused_and_nobody_is_on_two_types(
    jobs: list[tuple[int, float, float, int, int, str]], *, workers: bool, mixed: bool
) -> None:
    logs = []
    for drop in (False, True):
        nodes = tuple(Node(name=f"{k}{n}", gpus=((k, 4),)) for k in ("old", "new") for n in range(2))
        kinds = (
            DeviceType(name="old", memory_bytes=16 * GIB, speed=0.5),
            DeviceType(name="new", memory_bytes=16 * GIB),
        )
        h = make(
            Cluster(nodes=nodes, types=kinds),
            Cotenant(quantum_s=30.0, longest_wait_s=300.0, turn_s=60.0),
            settings=Settings(elastic_speed="workers" if workers else "linear", mixed_types=mixed),
            forecast=FixedForecast(default=0.6),
            truth=FixedTruth(default=0.6),
            drop_indexes=drop,
        )
        for k, (gpus, at_s, runs_s, more, priority, grade) in enumerate(jobs):
            h.submit(
                f"j{k}", gpus=gpus, at_s=at_s, runs_s=runs_s, priority=priority, model="m", memory_bytes=3 * GIB,
                determinism=grade, min_gpus=min(gpus, 1 + more // 3) if more else 0, max_gpus=gpus + more if more else 0,
            )  # fmt: skip
        run = h.run()
        assert run.refusals() == []
        assert all(run.end_s(f"j{k}") is not None for k in range(len(jobs)))
        for event in run.events:
            if isinstance(event, ev.Started | ev.Resized | ev.Moved):
                assert len({d // 8 for d in event.devices}) == 1
            if isinstance(event, ev.Started | ev.Resized):
                assert event.why.rule in RULE_WORDS
        logs.append(run.log)
    assert logs[0] == logs[1]
