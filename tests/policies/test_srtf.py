"""Shortest remaining time first: against a brute force, and where predictions fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.settings import Settings
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness, HarnessRun, TrueRuntime

FREE = Settings(restore_s=0.0)


def stops(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, victim, beneficiary) of every eviction."""
    return [(e.t, e.id, e.beneficiary) for e in run.events if isinstance(e, ev.Stopping)]


def test_a_shorter_job_stops_a_longer_one_which_goes_on_later() -> None:
    h = Harness("1x1", Srtf(margin_s=0.0), settings=FREE)
    h.submit("long", runs_s=100.0)
    h.submit("short", at_s=30.0, runs_s=20.0)
    run = h.run()
    # 30 s of long, 20 s of short, the other 70 s of long.
    assert run.end_s("short") == 50.0
    assert run.starts("long") == [0.0, 50.0]
    assert run.end_s("long") == 120.0


def test_waiting_jobs_start_shortest_first() -> None:
    h = Harness("1x1", Srtf(), settings=FREE)
    h.submit("a", runs_s=10.0)
    h.submit("b", at_s=1.0, runs_s=30.0)
    h.submit("c", at_s=2.0, runs_s=20.0)
    run = h.run()
    assert (run.start_s("c"), run.start_s("b")) == (10.0, 30.0)


@pytest.mark.parametrize(("margin_s", "start_s"), [(60.0, 30.0), (80.0, 100.0)])
def test_the_margin_decides_whether_stopping_is_worth_it(margin_s: float, start_s: float) -> None:
    # At 30 the long job ends at 100; the short one would end at 35: 65 s sooner.
    h = Harness("1x1", Srtf(margin_s=margin_s), settings=FREE)
    h.submit("long", runs_s=100.0)
    h.submit("short", at_s=30.0, runs_s=5.0)
    assert h.run().start_s("short") == start_s


def test_a_prediction_that_is_outlived_is_doubled_until_a_newcomer_gains() -> None:
    h = Harness("1x1", Srtf(margin_s=0.0), settings=FREE, runtime=TrueRuntime({"a": 100.0, "b": 500.0}))
    h.submit("a", runs_s=1000.0)
    h.submit("b", at_s=50.0, runs_s=500.0)
    run = h.run()
    # One second after 100, 200, 400, 800 the end is taken to be 200, 400, 800, 1600. b needs
    # 500: at 401 it would end at 901, later than 800; at 801 at 1301, sooner than 1600.
    assert stops(run) == [(801.0, 0, 1)]
    assert run.end_s("b") == 1301.0
    assert run.end_s("a") == 1301.0 + 199.0


def test_jobs_of_unknown_length_give_way_and_stop_nobody() -> None:
    told = TrueRuntime({"a": 0.0, "b": 500.0, "c": 0.0})
    h = Harness("1x1", Srtf(margin_s=0.0), settings=FREE, runtime=told)
    h.submit("a", runs_s=1000.0)
    h.submit("b", at_s=50.0, runs_s=500.0)
    h.submit("c", at_s=60.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == [(50.0, 0, 1)]
    # After b, a goes before c: both unknown, a was submitted first.
    assert run.starts("a") == [0.0, 550.0]
    assert run.start_s("c") == 1500.0


def test_ends_on_a_slow_device_are_predicted_with_its_speed() -> None:
    slow = DeviceType(name="slow", speed=0.5)
    cluster = Cluster(types=(slow,), nodes=(Node(name="n", gpus=(("slow", 1),)),))
    h = Harness(cluster, Srtf(margin_s=0.0), settings=FREE)
    h.submit("a", runs_s=100.0)
    h.submit("b", at_s=10.0, runs_s=96.0)
    h.submit("c", at_s=10.0, runs_s=94.0)
    run = h.run()
    # At 10 a has 95 left: shorter than b, longer than c, whatever the device's speed.
    assert stops(run) == [(10.0, 0, 2)]
    assert run.end_s("c") == 10.0 + 2 * 94.0


def test_no_job_is_stopped_for_one_with_more_work_left_even_if_it_ends_later() -> None:
    # a runs at half speed for its model: it ends at 200, but has only 90 of work left at 20.
    slow = DeviceType(name="slow", speed=1.0)
    cluster = Cluster(types=(slow,), nodes=(Node(name="n", gpus=(("slow", 1),)),))

    class Half:
        version = 0

        def solo_speed(self, model: str, device_type: str) -> float:
            return 0.5

        def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> float:
            return 1.0

        def source(self, model: str, beside: tuple[str, ...], device_type: str) -> str:
            return "measured"

        def describe(self) -> dict[str, str]:
            return {"kind": "half"}

    h = Harness(cluster, Srtf(margin_s=0.0), settings=FREE, truth=Half())
    h.submit("a", runs_s=100.0)
    h.submit("b", at_s=20.0, runs_s=95.0)
    assert stops(h.run()) == []


def reference_mean_s(jobs: list[tuple[int, int]], servers: int) -> float:
    """Mean completion time of SRPT on equal servers, second by second."""
    left = {i: runs for i, (_, runs) in enumerate(jobs)}
    total, now = 0, 0
    while left:
        here = sorted((left[i], i) for i in left if jobs[i][0] <= now)[:servers]
        now += 1
        for _, i in here:
            left[i] -= 1
            if not left[i]:
                del left[i]
                total += now - jobs[i][0]
    return total / len(jobs)


@hyp(max_examples=80, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=14),
    servers=st.integers(1, 3),
)
def test_the_mean_equals_that_of_a_brute_force(jobs: list[tuple[int, int]], servers: int) -> None:
    h = Harness(f"1x{servers}", Srtf(margin_s=0.0), settings=FREE)
    for i, (at, runs) in enumerate(jobs):
        h.submit(f"j{i}", at_s=float(at), runs_s=float(runs))
    run = h.run()
    mean = sum(float(run.end_s(f"j{i}") or 0.0) - at for i, (at, _) in enumerate(jobs)) / len(jobs)
    assert mean == pytest.approx(reference_mean_s(jobs, servers), abs=1e-6)


def test_a_negative_margin_is_refused() -> None:
    with pytest.raises(ConfigError, match="margin_s must be zero or more"):
        Srtf(margin_s=-1.0)


def test_a_cold_start_is_not_taken_for_work_where_speeds_are_not_told() -> None:
    # a starts up until 50 and works until 60; b (15 s) waits for it, then starts up for 50 s itself.
    quiet = Settings(start_s=50.0, rate_events=False)
    h = Harness("1x1", Srtf(margin_s=0.0), settings=quiet)
    h.submit("a", runs_s=10.0, estimate_s=10.0)
    h.submit("b", at_s=1.0, runs_s=15.0, estimate_s=15.0)
    run = h.run()
    assert stops(run) == []
    assert (run.end_s("a"), run.end_s("b")) == (60.0, 125.0)
