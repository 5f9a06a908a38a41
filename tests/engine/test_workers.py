"""Logical workers: the waste model by hand and by brute force, and what it does in the simulated world."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.plan import Decision, Plan, Resize, Start
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.model.workers import Held, divide, may_mix, workers_of
from cotenant.testing import FixedTruth, Harness


class Script:
    """Plays plans at their times."""

    plans: dict[float, tuple[Decision, ...]]

    def __init__(self, plans: dict[float, tuple[Decision, ...]]) -> None:
        self.plans = plans

    def decide(self, view: View) -> Plan:
        """What is written for this time; then wait for the next."""
        due = self.plans.pop(view.now, ())
        return Plan(due, wake_at_s=min(self.plans, default=None))


TYPES = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0.5, 1.0, 1.3, 1.5, 2.0, 3.7])), min_size=1, max_size=3
)


def by_equations(held: Held, each: tuple[int, ...], workers: int) -> tuple[float, float]:
    """Overload and waste as published, for a given number of workers on each device."""
    capacity = sum(n * a for (n, _), a in zip(held, each, strict=True))
    overload = max(a / c for (_, c), a in zip(held, each, strict=True))
    waste = sum(n * (c - a / overload) for (n, c), a in zip(held, each, strict=True))
    return overload, waste + (capacity - workers) / overload


def test_two_equal_devices_and_three_workers() -> None:
    # Two on each device, one place without a worker: 3 mini-batches in 2 rounds.
    found = divide(((2, 1.0),), 3)
    assert found == ((2,), 2.0, 1.5, 0.5, 0.25)
    assert by_equations(((2, 1.0),), (2,), 3) == (2.0, 0.5)


def test_a_fast_device_does_the_work_of_two() -> None:
    # 2 workers at 2.0 and 1 at 1.0: all are done after 1, nothing is wasted. With one worker more, 3 and 1 take
    # 1.5, 2 and 2 take 2: performance 4 / 1.5 of a capability of 3, a ninth is wasted.
    assert divide(((1, 2.0), (1, 1.0)), 3) == ((2, 1), 1.0, 3.0, 0.0, 0.0)
    more = divide(((1, 2.0), (1, 1.0)), 4)
    assert (more.each, more.rounds) == ((3, 1), 1.5)
    assert more.waste == pytest.approx(1 / 3)
    assert more.waste_share == pytest.approx(1 / 9)


@settings(max_examples=150, deadline=None)
@given(TYPES, st.integers(1, 7))
def test_no_other_spread_wastes_less(kinds: list[tuple[int, float]], workers: int) -> None:
    held = tuple(kinds)
    found = divide(held, workers)
    overload, waste = by_equations(held, found.each, workers)
    assert found.rounds == pytest.approx(overload)
    assert found.waste == pytest.approx(waste, abs=1e-9)
    assert found.performance + found.waste == pytest.approx(sum(n * c for n, c in held))
    least = min(
        by_equations(held, each, workers)[1]
        for each in itertools.product(range(workers + 1), repeat=len(held))
        if sum(n * a for (n, _), a in zip(held, each, strict=True)) >= workers
    )
    assert waste == pytest.approx(least, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(TYPES, st.integers(1, 12))
def test_the_published_candidates_are_never_better(kinds: list[tuple[int, float]], workers: int) -> None:
    # Floor and ceiling of t times the capability, relative to the slowest type, for t = 1 .. workers.
    held = tuple(kinds)
    slowest = min(c for _, c in held)
    candidates = []
    for t in range(1, workers + 1):
        choices = [{math.floor(t * c / slowest), math.ceil(t * c / slowest)} for _, c in held]
        for each in itertools.product(*choices):
            if sum(n * a for (n, _), a in zip(held, each, strict=True)) >= workers:
                candidates.append(by_equations(held, each, workers)[1])
    assert divide(held, workers).waste <= min(candidates) + 1e-9


@pytest.mark.parametrize(("grade", "mixes"), [("none", True), ("D0", False), ("D1", False), ("D2", True)])
def test_grades(grade: str, mixes: bool) -> None:
    assert may_mix(Job(id=0, name="a", submit_s=0.0, determinism=grade)) is mixes  # type: ignore[arg-type]


def test_workers_are_the_most_devices_a_job_can_use() -> None:
    assert workers_of(Job(id=0, name="a", submit_s=0.0, gpus=2, min_gpus=1, max_gpus=8)) == 8
    assert workers_of(Job(id=0, name="a", submit_s=0.0, gpus=4)) == 4


MIXED = Cluster(
    nodes=(Node(name="n0", gpus=(("fast", 4), ("slow", 4))),),
    types=(DeviceType(name="fast"), DeviceType(name="slow")),
)
TRUTH = FixedTruth(solo={("m", "fast"): 2.0, ("m", "slow"): 1.0})


@pytest.mark.parametrize(("kind", "end_s"), [("workers", 645.0), ("linear", 820.0)])
def test_speed_of_an_elastic_job_on_a_mix(kind: str, end_s: float) -> None:
    # Four workers, declared on four reference devices. On one fast device: 4 rounds of half a unit, speed 0.5 (also
    # a quarter of the devices at speed 2). At 100 s, 50 done, it is given a slow one, too, and restarts for 20 s.
    # By workers: 3 and 1 take 1.5, speed 1 / 1.5, so 525 s for the 350 left. Linear: half of the devices at the slow
    # one's pace, 0.5, 700 s.
    policy = Script({0.0: (Start(0, (0,)),), 100.0: (Resize(0, (0, 4)),)})
    rules = Settings(
        elastic_speed=kind,  # type: ignore[arg-type]
        mixed_types=True,
        gang_span="any",
        restore_s=20.0,
        span_speed=1.0,
    )
    h = Harness(MIXED, policy, settings=rules, truth=TRUTH)
    h.submit("a", runs_s=400.0, gpus=4, min_gpus=1, max_gpus=4, model="m")
    assert h.run().end_s("a") == pytest.approx(end_s)


def test_three_workers_on_two_devices_do_not_run_at_two_thirds() -> None:
    # Three declared: two devices need two rounds, as one device would for two of them: speed 1 / 2, not 2 / 3.
    for kind, end_s in (("workers", 200.0), ("linear", 150.0)):
        rules = Settings(elastic_speed=kind)  # type: ignore[arg-type]
        h = Harness("1x4", Script({0.0: (Start(0, (0, 1)),)}), settings=rules)
        h.submit("a", runs_s=100.0, gpus=3, min_gpus=1, max_gpus=3)
        assert h.run().end_s("a") == pytest.approx(end_s)
