"""Tong: joining, order with ageing, suspension, the guard of large jobs, and the contract on random days."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.plan import Reason
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.tong import Tong
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun, TrueRuntime

from .sharing_jobs import check, clusters, jobs, settings

HOUR = 3600.0
INSTANT = Settings(restore_s=0.0, state_bytes_per_s=1e18)


def day(
    cluster: str,
    policy: Tong | None = None,
    rules: Settings | None = None,
    speed: float = 1.0,
    **options: Any,
) -> Harness:
    """Devices of 20 GiB, where jobs side by side run at ``speed``, as predicted."""
    return Harness(
        cluster,
        policy or Tong(),
        settings=rules,
        truth=FixedTruth(default=speed),
        forecast=FixedForecast(default=speed, shares={"m": (0.5, 0.1, 0.1), "n": (0.2, 0.1, 0.1)}),
        memory_bytes=20 * GIB,
        **options,
    )


def stops(run: HarnessRun) -> list[ev.Stopping]:
    return [e for e in run.events if isinstance(e, ev.Stopping)]


# -- who joins whom -------------------------------------------------------------------------


def test_idle_devices_first_then_the_tightest_fit() -> None:
    """12 and 6 GiB lie on two devices; 5 more fit beside either, and leave less beside the 12."""
    h = day("1x2")
    h.submit("a", memory_bytes=6 * GIB, runs_s=500.0)
    h.submit("b", at_s=1.0, memory_bytes=12 * GIB, runs_s=500.0)
    h.submit("c", at_s=2.0, memory_bytes=5 * GIB, model="m", runs_s=10.0)
    run = h.run()
    assert (run.devices("a"), run.devices("b"), run.devices("c")) == ((0,), (1,), (1,))
    (started,) = run.of("c", ev.Started)
    assert started.why.rule == "best-fit-beside"
    # b is unknown, hence reckoned with 100%; m has 50%.
    assert started.why.facts == {"left_bytes": 3 * GIB, "utilisation_percent": 150.0}


def test_equal_fits_go_to_the_device_in_less_use() -> None:
    """8 GiB each on both; device 0 runs at 50%, device 1 at 20%."""
    h = day("1x2")
    h.submit("a", memory_bytes=8 * GIB, model="m", runs_s=500.0)
    h.submit("b", at_s=1.0, memory_bytes=8 * GIB, model="n", runs_s=500.0)
    h.submit("c", at_s=2.0, memory_bytes=5 * GIB, model="m", runs_s=10.0)
    assert h.run().devices("c") == (1,)


def test_a_twentieth_of_the_memory_stays_free() -> None:
    """19 of 20 GiB may be shared: 10 + 9 fit, 10 + 9.5 do not. Alone a job may have all."""
    for gib, start_s in ((9.0, 1.0), (9.5, 100.0)):
        h = day("1x1", Tong(gain_factor=1e9))
        h.submit("a", memory_bytes=10 * GIB, runs_s=100.0 if start_s > 1 else 200.0)
        h.submit("b", at_s=1.0, memory_bytes=int(gib * GIB), runs_s=50.0)
        assert h.run().start_s("b") == start_s
    h = day("1x1")
    h.submit("a", memory_bytes=20 * GIB, runs_s=10.0)
    assert h.run().start_s("a") == 0.0


def test_nobody_joins_where_throughput_would_not_rise() -> None:
    """Two at 0.5 make 1.0, no more than one alone: refused; at 0.6 they make 1.2."""
    for speed, start_s in ((0.5, 100.0), (0.6, 1.0)):
        h = day("1x1", Tong(gain_factor=1e9), speed=speed)
        h.submit("a", memory_bytes=2 * GIB, runs_s=100.0)
        h.submit("b", at_s=1.0, memory_bytes=2 * GIB, runs_s=50.0)
        run = h.run()
        assert run.start_s("b") == start_s
        assert run.reasons("b") == ([Reason.SLOWDOWN] if start_s > 1 else [])


def test_a_gang_counts_for_all_its_devices() -> None:
    """A single job at 0.6 beside a member of a gang of two at 0.6: +0.6 - 2 * 0.4 = -0.2: refused."""
    h = day("1x2", Tong(gain_factor=1e9, guard_s=1e6), speed=0.6)
    h.submit("gang", gpus=2, memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("single", at_s=1.0, memory_bytes=2 * GIB, runs_s=500.0)
    assert h.run().start_s("single") == 100.0


def test_no_more_than_so_many_residents() -> None:
    """Four at most by default, however small they are."""
    h = day("1x1", Tong(gain_factor=1e9))
    for i in range(5):
        h.submit(f"j{i}", memory_bytes=GIB, runs_s=100.0 + i)
    run = h.run()
    assert sorted(run.start_s(f"j{i}") or 0.0 for i in range(5)) == [0.0, 0.0, 0.0, 0.0, 100.0]


# -- order ---------------------------------------------------------------------------------


def test_the_shortest_goes_first_unless_another_waited_long() -> None:
    """At 100 a has waited 100 s and ranks 90 / (1 + 100 / 50) = 30; b came at 99: 35 / 1.02 = 34.3.

    Without ageing (tau very long) b goes first.
    """
    for tau_s, first in ((50.0, "a"), (1e9, "b")):
        h = day("1x1", Tong(tau_s=tau_s, gain_factor=1e9, guard_s=1e6))
        h.submit("0", memory_bytes=20 * GIB, runs_s=100.0)
        h.submit("a", memory_bytes=15 * GIB, runs_s=110.0 if tau_s > 1e6 else 90.0, at_s=0.5)
        h.submit("b", at_s=99.0, memory_bytes=15 * GIB, runs_s=35.0)
        run = h.run()
        assert run.start_s(first) == 100.0


# -- suspension ------------------------------------------------------------------------------


def suspending(short_s: float, **fields: Any) -> HarnessRun:
    """A job of 1000 s holds the device; at 10 another comes. Saving takes 5 s, loading 10 + 5."""
    h = day("1x1", rules=Settings(restore_s=10.0, state_bytes_per_s=1e9))
    h.submit("long", memory_bytes=10 * GIB, state_bytes=5 * 10**9, runs_s=1000.0, **fields)
    h.submit("short", at_s=10.0, memory_bytes=10 * GIB, runs_s=short_s)
    return h.run()


def test_a_long_job_is_suspended_for_a_short_one_after_its_quantum() -> None:
    """At 60 it has run its 60 s; gain 940 - 100 = 840, price 10 + 2 * 5 = 20. Saved at 65.

    The short one runs until 165; the long one loads until 180 and has 940 s left: 1120.
    """
    run = suspending(100.0)
    (stop,) = stops(run)
    assert (stop.t, stop.why.rule, stop.why.facts) == (
        60.0,
        "shorter-first",
        {"gain_s": 840.0, "price_s": 20.0},
    )
    assert (run.start_s("short"), run.end_s("short")) == (65.0, 165.0)
    assert (run.starts("long"), run.end_s("long")) == ([0.0, 165.0], 1120.0)


def test_a_gain_below_twice_the_price_is_none() -> None:
    """A job of 901 s gains 940 - 901 = 39 at 60, and less later: under 2 * 20."""
    assert stops(suspending(901.0)) == []
    assert len(stops(suspending(899.0))) == 1


def test_what_cannot_be_saved_is_not_stopped() -> None:
    """C25-C38: a job that cannot be suspended runs to its end."""
    run = suspending(100.0, suspendable=False)
    assert stops(run) == []
    assert run.start_s("short") == 1000.0


def test_c38_devices_of_a_suspended_job_are_taken_when_it_has_gone() -> None:
    """C38: 18 of 24 GiB are held until saved: asked at 60, gone at 78; never both."""
    h = Harness(
        Cluster.uniform(1, gpus_per_node=1, gpu_type=DeviceType(name="g", memory_bytes=24 * GIB)),
        Tong(),
        settings=Settings(restore_s=0.0, state_bytes_per_s=float(GIB)),
        truth=FixedTruth(),
        forecast=FixedForecast(),
    )
    h.submit("a", memory_bytes=18 * GIB, runs_s=HOUR)
    h.submit("b", at_s=1.0, memory_bytes=12 * GIB, runs_s=60.0)
    run = h.run()
    # a is large (more than half): only its own end, or a larger job's guard, takes it off.
    assert run.start_s("b") == HOUR
    h = day("1x1", rules=Settings(restore_s=0.0, state_bytes_per_s=float(GIB)))
    h.submit("a", memory_bytes=10 * GIB, runs_s=HOUR)
    h.submit("b", at_s=1.0, memory_bytes=12 * GIB, runs_s=60.0)
    run = h.run()
    assert [e.t for e in run.of("a", ev.Suspended)] == [70.0]
    assert run.start_s("b") == 70.0


def test_c37_a_preemption_needs_a_place_that_suits() -> None:
    """C37: whoever asks for a type that is not there stops nobody; a job for X stops exactly one."""
    types = (DeviceType(name="X", memory_bytes=20 * GIB), DeviceType(name="Y", memory_bytes=20 * GIB))
    cluster = Cluster(nodes=tuple(Node(name=f"n{i}", gpus=(("X", 1),)) for i in range(11)), types=types)
    h = Harness(cluster, Tong(), settings=INSTANT, truth=FixedTruth(), forecast=FixedForecast(default=0.4))
    for i in range(11):
        h.submit(f"w{i:02}", memory_bytes=8 * GIB, runs_s=13 * HOUR + i)
    h.submit("p1", at_s=HOUR, priority=9, memory_bytes=8 * GIB, device_types=["Y"], runs_s=HOUR)
    h.submit("p2", at_s=HOUR, priority=9, memory_bytes=8 * GIB, device_types=["X"], runs_s=HOUR)
    run = h.run()
    (stop,) = stops(run)
    assert (stop.beneficiary, run.start_s("p2")) == (run.ids["p2"], pytest.approx(HOUR))
    assert [e.reason for e in run.of("p1", ev.Rejected)] == ["never-fits"]
    # The one that would have lasted longest.
    assert stop.id == run.ids["w10"]


# -- the guard -------------------------------------------------------------------------------


def test_c36_what_is_emptied_for_a_large_job_stays_empty_until_it_starts() -> None:
    """C36: p waits max(600, 2 * 600) s from 10 on; at 1210 both are told to go. wA is gone 5 s later, wB 60 s.

    Nobody is readmitted meanwhile, p starts at 1270, and nobody is stopped twice.
    """
    h = day("1x4", rules=Settings(restore_s=0.0, state_bytes_per_s=1e9))
    h.submit("wA", gpus=2, memory_bytes=10 * GIB, state_bytes=5 * 10**9, runs_s=5 * HOUR)
    h.submit("wB", gpus=2, memory_bytes=10 * GIB, state_bytes=60 * 10**9, runs_s=5 * HOUR)
    h.submit("p", at_s=10.0, gpus=4, memory_bytes=12 * GIB, runs_s=600.0)
    run = h.run()
    assert [(e.t, e.beneficiary) for e in stops(run)] == [(1210.0, run.ids["p"])] * 2
    assert [e.t for e in run.of("wA", ev.Suspended)] == [1215.0]
    assert (run.start_s("p"), run.end_s("p")) == (1270.0, 1870.0)
    assert (run.starts("wA")[1:], run.starts("wB")[1:]) == ([1870.0], [1870.0])
    (reserved,) = [e for e in run.events if isinstance(e, ev.Reserved)]
    assert (reserved.devices, reserved.why.rule) == ((0, 1, 2, 3), "starvation-guard")


def test_c33_the_big_job_gets_its_node() -> None:
    """C33: eight jobs end at 60 to 95 min; B (8 GPUs, 10 min) comes at 1 min, hour-long jobs follow for ever.

    B is overdue after max(10, 2 * 10) min, at 21 min. If those in its way cannot be suspended it starts at
    95 min, no hour-long job starts before, and a job of 20 min that comes at 62 is backfilled.
    """
    for suspendable, start_min in ((False, 95), (True, 21)):
        h = day("1x8", rules=INSTANT)
        for i in range(8):
            h.submit(f"a{i}", memory_bytes=12 * GIB, suspendable=suspendable, runs_s=60.0 * (60 + 5 * i))
        h.submit("B", at_s=60.0, gpus=8, memory_bytes=12 * GIB, runs_s=600.0)
        for i in range(60):
            h.submit(f"s{i:02}", at_s=300.0 * (i + 1), memory_bytes=12 * GIB, suspendable=False, runs_s=HOUR)
        h.submit("t", at_s=62 * 60.0, memory_bytes=12 * GIB, runs_s=20 * 60.0)
        run = h.run()
        assert run.start_s("B") == pytest.approx(start_min * 60.0)
        if not suspendable:
            assert run.start_s("t") == 62 * 60.0
            assert run.of("t", ev.Started)[0].why.rule == "fragment-before-reservation"
            assert min(run.start_s(f"s{i:02}") or math.inf for i in range(60)) > 95 * 60.0


def test_the_largest_fragment_that_ends_in_time_is_used() -> None:
    """Device 0 is busy until 1000, device 1 until 700. G (2 GPUs, overdue at 610) may have both at 1000.

    At 700 device 1 has 300 s for others: of 12 GiB x 250 s, 14 GiB x 290 s and 15 GiB x 310 s the second
    uses most of it and is in time.
    """
    h = day("1x2", rules=INSTANT)
    h.submit("a0", memory_bytes=16 * GIB, suspendable=False, runs_s=1000.0)
    h.submit("a1", memory_bytes=16 * GIB, suspendable=False, runs_s=700.0)
    h.submit("g", at_s=10.0, gpus=2, memory_bytes=16 * GIB, runs_s=100.0)
    for name, gib, runs_s in (("x", 12, 250.0), ("y", 14, 290.0), ("z", 15, 310.0)):
        h.submit(name, at_s=650.0, memory_bytes=gib * GIB, suspendable=False, runs_s=runs_s)
    run = h.run()
    assert (run.start_s("y"), run.start_s("g")) == (700.0, 1000.0)
    assert min(run.start_s("x") or 0, run.start_s("z") or 0) >= 990.0


def test_after_ten_jobs_went_ahead_a_large_job_is_guarded() -> None:
    """A pair waits behind singles that come every 20 s and run 30 s: one device is always busy.

    It is not overdue before 1e6 s, but the tenth single that came later and started makes it guarded.
    """
    h = day("1x2", Tong(guard_s=1e6, gain_factor=1e9), INSTANT)
    for i in range(60):
        h.submit(f"s{i:02}", at_s=20.0 * i, memory_bytes=12 * GIB, runs_s=30.0)
    h.submit("pair", at_s=10.0, gpus=2, memory_bytes=12 * GIB, runs_s=10.0)
    run = h.run()
    started = [e.t for e in run.events if isinstance(e, ev.Started) and e.id != run.ids["pair"]]
    start_s = run.start_s("pair") or math.inf
    assert len([t for t in started if 10.0 < t <= start_s]) == 10
    # The tenth came at 200; the devices are predicted to be empty at 230, and are.
    assert start_s == 230.0


def test_a_guard_outlives_a_failure_of_its_devices() -> None:
    """The node kept for g fails: another is chosen, and g starts there."""
    h = day("2x2", rules=INSTANT)
    for i in range(4):
        h.submit(f"a{i}", memory_bytes=16 * GIB, suspendable=False, runs_s=1000.0 + 100.0 * i)
    h.submit("g", at_s=10.0, gpus=2, memory_bytes=16 * GIB, runs_s=100.0)
    h.happen(ev.NodeDown(800.0, 0, "power"))
    run = h.run()
    assert run.devices("g") == (2, 3)


# -- no cycles, and everything else ----------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 2, 4]),
            st.integers(1, 18),
            st.floats(1.0, 3000.0),
            st.floats(0.0, 2000.0),
            st.sampled_from([0.05, 0.3, 1.0, 4.0]),
        ),
        min_size=2,
        max_size=16,
    ),
    st.sampled_from([0.4, 0.6, 1.0]),
    st.booleans(),
)
@hyp(max_examples=80, deadline=None)
def test_no_two_jobs_stop_each_other_in_turn(
    rows: list[tuple[int, int, float, float, float]], speed: float, known: bool
) -> None:
    """C36, C37: however wrong predictions are. Where they are right, one stops another twice only if it was stopped itself."""
    wrong = {f"j{i:02}": runs_s * (1.0 if known else off) for i, (_, _, runs_s, _, off) in enumerate(rows)}
    h = day(
        "1x4",
        Tong(guard_s=120.0, guard_factor=0.5),
        Settings(restore_s=1.0),
        speed=speed,
        runtime=TrueRuntime(wrong),
    )
    for i, (gpus, gib, runs_s, at_s, _) in enumerate(rows):
        h.submit(f"j{i:02}", at_s=at_s, gpus=gpus, memory_bytes=gib * GIB, runs_s=runs_s)
    run = h.run()
    last: dict[tuple[int, int], float] = {}
    stopped: dict[int, float] = {}
    for event in stops(run):
        pair = (event.id, event.beneficiary)
        if known:
            assert pair not in last or stopped.get(event.beneficiary, -1.0) > last[pair]
        assert (event.beneficiary, event.id) not in last
        last[pair] = stopped[event.id] = event.t
    assert run.refusals() == []
    assert run.state.counts["done"] == len(rows)


def test_all_at_zero_and_nobody_left() -> None:
    """Sixty jobs in one instant: all end, and none is refused."""
    h = day("2x2", Tong(), Settings(), speed=0.7)
    for i in range(60):
        h.submit(f"j{i:02}", gpus=1 + i % 2, memory_bytes=(2 + i % 15) * GIB, runs_s=20.0 + 9 * i)
    run = h.run()
    assert run.state.counts["done"] == 60
    assert run.refusals() == []


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"tau_s": 0.0}, "tau_s"),
        ({"spare": 1.0}, "spare"),
        ({"large": -0.1}, "large"),
        ({"max_residents": 0}, "max_residents"),
        ({"gain_factor": math.inf}, "gain_factor"),
    ],
)
def test_bad_parameters_are_named(given_: dict[str, Any], told: str) -> None:
    """The error names the parameter."""
    with pytest.raises(ConfigError, match=told):
        Tong(**given_)


@given(
    st.sampled_from(
        [Tong(), Tong(quantum_s=1.0, guard_s=2.0, guard_factor=0.0, overtaken=1, free_first=False)]
    ),
    clusters(),
    jobs(),
    settings(),
    st.booleans(),
)
@hyp(max_examples=80, deadline=None)
def test_any_run(
    policy: Tong, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings, burst: bool
) -> None:
    """No refusals, no index needed, everybody ends, also when all come at once."""
    rows = [{**row, "at_s": 0.0} for row in rows] if burst else rows
    check(policy, cluster, rows, rules)


def test_a_neighbour_can_make_a_device_good_for_a_third() -> None:
    """x beside a alone: 0.4 + 0.4 < 1, refused. With b there, too, three at 0.7 make 2.1 against 2: taken.

    Nothing leaves between: that b came must be enough for x to be looked at again.
    """
    speeds = {
        ("m", ("m",)): 1.0,
        ("n", ("m",)): 0.4,
        ("m", ("n",)): 0.4,
        ("m", ("m", "n")): 0.7,
        ("n", ("m", "m")): 0.7,
    }
    h = Harness(
        "1x1",
        Tong(gain_factor=1e9),
        truth=FixedTruth(speeds),
        forecast=FixedForecast(speeds),
        memory_bytes=20 * GIB,
    )
    h.submit("a", model="m", memory_bytes=2 * GIB, runs_s=1000.0)
    h.submit("x", at_s=1.0, model="n", memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("b", at_s=5.0, model="m", memory_bytes=2 * GIB, runs_s=1000.0)
    assert h.run().start_s("x") == 5.0


def test_no_preemption_on_a_node_that_is_drained() -> None:
    """Its job runs on, but nobody can take its place."""
    h = day("1x1", rules=INSTANT)
    h.submit("long", memory_bytes=10 * GIB, runs_s=1000.0)
    h.submit("short", at_s=10.0, memory_bytes=10 * GIB, runs_s=10.0)
    h.happen(ev.Drained(5.0, 0))
    h.happen(ev.Undrained(500.0, 0))
    run = h.run()
    (stop,) = stops(run)
    # The first multiple of 60 s after it is back.
    assert stop.t == 540.0
    assert run.refusals() == []
