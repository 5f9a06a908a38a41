"""What the forecast says of jobs that share a device is in the log, once for each set."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.placement import Share
from cotenant.model.plan import EMPTY, Move, Plan, Resize, Start, Stop
from cotenant.model.ports import Policy
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.colocate import Colocate
from cotenant.policies.fifo import Fifo
from cotenant.policies.time_slice import TimeSlice
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun

SPEEDS = {("a", ("b",)): 0.8, ("b", ("a",)): 0.6, ("a", ("b", "c")): 0.5}


def foretold(run: HarnessRun) -> list[ev.Foretold]:
    return [e for e in run.events if isinstance(e, ev.Foretold)]


def day(policy: Policy, **options: object) -> Harness:
    options = {"forecast": FixedForecast(SPEEDS, default=0.7, spread=0.125), **options}
    return Harness("1x1", policy, memory_bytes=16 * GIB, truth=FixedTruth(default=0.7), **options)  # type: ignore[arg-type]


class Script:
    """Decides what it was told, at the instants it was told."""

    def __init__(self, *steps: tuple[float, object]) -> None:
        self.steps = steps

    def decide(self, view):
        done = view.memo or 0
        if done == len(self.steps):
            return EMPTY
        t, decision = self.steps[done]
        if view.now < t:
            return Plan(wake_at_s=t)
        return Plan((decision,), memo=done + 1, again=True)


SIDE = Share("spatial", GIB, 0)


def test_a_set_is_told_once_in_the_order_of_its_models() -> None:
    harness = day(Colocate(min_gain=0.0, min_speed=0.1))
    for i, model in enumerate("bab"):
        harness.submit(f"{i}", at_s=100.0 * (i // 2), runs_s=10.0, model=model, memory_bytes=GIB)
    harness.submit("again", at_s=500.0, runs_s=10.0, model="a", memory_bytes=GIB)
    harness.submit("again2", at_s=500.0, runs_s=10.0, model="b", memory_bytes=GIB)
    (told,) = foretold(harness.run())
    assert told == ev.Foretold(0.0, "gpu", ("a", "b"), (0.8, 0.6), (0.675, 0.475), (0.925, 0.725), 0)


def test_it_stands_after_the_decisions_of_its_instant() -> None:
    harness = day(Colocate(min_gain=0.0, min_speed=0.1))
    for i in range(3):
        harness.submit(f"{i}", runs_s=10.0, model="abc"[i], memory_bytes=GIB)
    run = harness.run()
    kinds = [type(e) for e in run.events if e.t == 0.0]
    assert kinds[-1] is ev.Foretold
    # All three came at once: no pair of them ever lasted at the start ...
    assert foretold(run)[0].models == ("a", "b", "c")


def test_what_is_left_when_one_leaves_is_told_too() -> None:
    harness = day(
        Script((0.0, Start(0, (0,), SIDE)), (0.0, Start(1, (0,), SIDE)), (0.0, Start(2, (0,), SIDE)))
    )
    for i, seconds in enumerate((7.0, 70.0, 70.0)):
        harness.submit(f"{i}", runs_s=seconds, model="abc"[i], memory_bytes=GIB)
    run = harness.run()
    # The first ends at 7 / 0.7 = 10 s.
    assert [(e.t, e.models) for e in foretold(run)] == [(0.0, ("a", "b", "c")), (10.0, ("b", "c"))]


def test_moves_and_resizes_make_sets_too() -> None:
    steps = (
        (0.0, Start(0, (0,), SIDE)),
        (0.0, Start(1, (1,), SIDE)),
        (0.0, Start(2, (2,))),
        (10.0, Move(1, (0,), SIDE)),
        (50.0, Stop(2, suspend=False)),
        (60.0, Start(2, (2,), SIDE)),
        (60.0, Resize(0, (2,), SIDE)),
    )
    harness = Harness(
        "1x3", Script(*steps), memory_bytes=16 * GIB, forecast=FixedForecast(default=0.5), truth=FixedTruth()
    )
    for i in range(3):
        harness.submit(f"{i}", runs_s=500.0, model="abc"[i], memory_bytes=GIB)
    run = harness.run()
    assert not run.refusals()
    assert [(e.t, e.models) for e in foretold(run)] == [(10.0, ("a", "b")), (60.0, ("a", "c"))]


def test_a_new_version_of_the_forecast_is_told_anew() -> None:
    class Learning(FixedForecast):
        @property
        def version(self):
            return self.told // 2

        @version.setter
        def version(self, value):
            self.told = value

        def co_speed(self, *asked):
            self.told += 1
            return super().co_speed(*asked)

    pairs = [(float(10 * i), Start(j, (0,), SIDE)) for i in range(3) for j in (2 * i, 2 * i + 1)]
    harness = day(Script(*pairs), forecast=Learning(default=0.5))
    for i in range(6):
        harness.submit(f"{i}", runs_s=2.0, model="ab"[i % 2], memory_bytes=GIB)
    assert [(e.t, e.version) for e in foretold(harness.run())] == [(0.0, 0), (10.0, 1), (20.0, 2)]


@pytest.mark.parametrize("policy", [Fifo, TimeSlice])
def test_nothing_is_told_where_nobody_shares_side_by_side(policy: type[Policy]) -> None:
    harness = day(policy())
    for i in range(4):
        harness.submit(f"{i}", runs_s=10.0, model="ab"[i % 2], memory_bytes=GIB)
    assert foretold(harness.run()) == []


def test_nothing_is_told_without_a_forecast_or_of_declared_fractions() -> None:
    half = Share("spatial", GIB, 500)
    steps = ((0.0, Start(0, (0,), half)), (0.0, Start(1, (0,), half)))
    for forecast, milli, expected in ((None, 0, 0), (FixedForecast(), 500, 0), (FixedForecast(), 0, 1)):
        harness = day(Script(*steps), forecast=forecast)
        for i in range(2):
            harness.submit(f"{i}", runs_s=10.0, model="ab"[i], memory_bytes=GIB, compute_milli=milli)
        assert len(foretold(harness.run())) == expected, (forecast, milli)


def sets_that_lasted(events: Iterable[ev.Event], kinds: list[str]) -> set[tuple[str, tuple[str, ...]]]:
    """Sets of at least two models on one device at the end of any instant, found the long way."""
    models: dict[int, str] = {}
    on: dict[int, set[int]] = {}
    held: dict[int, tuple[int, ...]] = {}
    found, last = set(), -1.0
    for event in [*events, None]:
        if event is None or event.t > last:
            for device, jobs in on.items():
                if len(jobs) > 1:
                    found.add((kinds[device], tuple(sorted(models[j] for j in jobs))))
            last = event.t if event is not None else last
        if isinstance(event, ev.Submitted):
            models[event.job.id] = event.job.model
        elif isinstance(event, ev.Started) and event.share is not None:
            held[event.id] = event.devices
            for device in event.devices:
                on.setdefault(device, set()).add(event.id)
        elif isinstance(event, ev.Ended | ev.Suspended):
            for device in held.pop(event.id, ()):
                on[device].discard(event.id)
    return found


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 40), st.sampled_from("abc"), st.sampled_from([1, 1, 2])),
        min_size=1,
        max_size=25,
    )
)
def test_every_set_that_lasted_is_told_exactly_once_and_no_other(jobs) -> None:
    cluster = Cluster(
        nodes=(Node(name="n0", gpus=(("x", 2),)), Node(name="n1", gpus=(("y", 2),))),
        types=tuple(DeviceType(name=n, memory_bytes=16 * GIB) for n in "xy"),
    )
    logs = []
    for drop in (False, True):
        harness = Harness(
            cluster,
            Colocate(min_gain=0.0, min_speed=0.1),
            forecast=FixedForecast(default=0.6, spread=0.1),
            truth=FixedTruth(default=0.6),
            settings=Settings(max_sharers=3),
            drop_indexes=drop,
        )
        for i, (at_s, runs_s, model, gpus) in enumerate(jobs):
            harness.submit(f"{i}", at_s=at_s, runs_s=runs_s, model=model, gpus=gpus, memory_bytes=GIB)
        run = harness.run()
        logs.append(run.log)
        told = [(e.device_type, e.models) for e in foretold(run)]
        assert len(set(told)) == len(told)
        assert set(told) == sets_that_lasted(run.events, ["x", "x", "y", "y"])
    assert logs[0] == logs[1]
