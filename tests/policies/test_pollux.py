"""Pollux: goodput, the greedy division, resizing by hand, and the contract on random days."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.checks import check_policy
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.settings import Settings
from cotenant.policies.elastic.goodput import Want, allot, efficiency, realloc_factor
from cotenant.policies.pollux import Pollux
from cotenant.testing import Harness, HarnessRun


def resizes(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, job, devices after) of every change of size."""
    return [(e.t, e.id, len(e.devices)) for e in run.events if isinstance(e, ev.Resized)]


# -- goodput and its division --------------------------------------------------------------


def test_goodput_by_hand() -> None:
    # Noise of 10 batches: 11/12 at twice the batch, 11/14 at four times.
    assert efficiency(2.0, 10.0) == pytest.approx(11 / 12)
    assert efficiency(4.0, 10.0) == pytest.approx(11 / 14)
    # 600 s old, moved twice at 30 s: 540 of 630.
    assert realloc_factor(600.0, 2, 30.0) == pytest.approx(540 / 630)
    assert realloc_factor(20.0, 1, 30.0) == 0.0
    assert realloc_factor(0.0, 0, 0.0) == 1.0


@hyp(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.lists(st.floats(0.05, 1.0), min_size=0, max_size=4)),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 6),
)
def test_greedy_is_best_where_speedups_are_concave(jobs: list[tuple[int, list[float]]], left: int) -> None:
    wants = []
    for number, (least, steps) in enumerate(jobs):
        gains = [1.0, *sorted(steps, reverse=True)]
        wants.append(Want(number, 0, least, least + len(steps), tuple(np.cumsum(gains).tolist())))
    given_ = allot(wants, [left])

    def cost(counts: tuple[int, ...]) -> float:
        return sum(1.0 / w.speedups[n - w.least] for w, n in zip(wants, counts, strict=True))

    spare = left + sum(w.least for w in wants)
    best = min(
        cost(counts)
        for counts in itertools.product(*(range(w.least, w.most + 1) for w in wants))
        if sum(counts) <= spare
    )
    mine = tuple(given_[w.id] for w in wants)
    assert sum(mine) <= spare
    assert cost(mine) == pytest.approx(best, rel=1e-9)


def test_flat_stretches_are_jumped_over_and_types_are_apart() -> None:
    # A third device is no gain, a fourth is: with two left it takes both, with one it takes none.
    steps = Want(0, 0, 2, 4, (2.0, 2.0, 4.0))
    assert allot([steps], [2]) == {0: 4}
    assert allot([steps], [1]) == {0: 2}
    other = Want(1, 1, 1, 4, (1.0, 2.0, 3.0, 4.0))
    assert allot([steps, other], [0, 2]) == {0: 2, 1: 3}


# -- in the simulator --------------------------------------------------------------------------


def test_two_elastic_jobs_end_up_with_half_each() -> None:
    h = Harness("1x4", Pollux())
    h.submit("a", runs_s=1000.0, gpus=1, min_gpus=1, max_gpus=4)
    h.submit("b", at_s=10.0, runs_s=300.0, gpus=1, min_gpus=1, max_gpus=4)
    run = h.run()
    # a starts on all four. At 60 each has one and two are left. Goodput of 1, 2, 3, 4 devices: 1, 1.833,
    # 2.538, 3.143; of two (an equal part) 1.833. A change costs a 60 / (60 + 10) of it. One over the speedups: a at 1, 2, 3:
    # 2.139, 1.167, 0.843, so the first step gains 0.972; b at 1, 2: 1.833, 1, gains 0.833. One each.
    assert len(run.devices("a")) == 4
    assert resizes(run)[0] == (60.0, 0, 2)
    assert run.start_s("b") == 60.0
    assert len(run.devices("b")) == 2
    # b runs twice as fast as on one device, 300 s of work to 210, unless it grows: then a is alone and grows again.
    assert run.end_s("b") == 210.0
    # a: 240 s of work until 60, a restart of 10 s, then 2 a second until 240 (340 s): 580. The allocation at
    # 240 gives it all four (after another 10 s): the last 420 s take 105.
    assert resizes(run)[1:] == [(240.0, 0, 4)]
    assert run.end_s("a") == 240.0 + 10.0 + 105.0


def test_a_fixed_gang_gets_what_elastic_jobs_can_spare_and_keeps_it() -> None:
    h = Harness("1x4", Pollux())
    h.submit("a", runs_s=4000.0, gpus=1, min_gpus=1, max_gpus=4)
    h.submit("gang", at_s=10.0, runs_s=500.0, gpus=3)
    h.submit("late", at_s=100.0, runs_s=100.0, gpus=1)
    run = h.run()
    assert resizes(run)[0] == (60.0, 0, 1)
    assert run.start_s("gang") == 60.0
    assert run.end_s("gang") == 560.0
    assert run.start_s("late") == 560.0
    assert not [e for e in run.events if isinstance(e, ev.Stopping)]


def test_logical_workers_take_no_device_that_does_not_help() -> None:
    """Four workers on three devices need two rounds, as on two."""
    h = Harness("1x3", Pollux(), settings=Settings(elastic_speed="workers"))
    h.submit("a", runs_s=1000.0, gpus=1, min_gpus=1, max_gpus=4)
    assert len(h.run().devices("a")) == 2


@pytest.mark.parametrize(("noise", "first_s"), [(0.01, 2040.0), (100.0, 120.0)])
def test_a_job_grows_once_it_is_worth_the_restart(noise: float, first_s: float) -> None:
    h = Harness("1x4", Pollux(noise_scale=noise))
    h.submit("s", runs_s=100.0, gpus=3)
    h.submit("a", runs_s=5000.0, gpus=1, min_gpus=1, max_gpus=4)
    run = h.run()
    # s leaves at 100. Two devices give 2 * 1.01 / 2.01 = 1.005 of one where noise is 0.01; T / (T + 10) of
    # that exceeds 1 from T = 2010 on. With a noise of 100 it is 1.98, at the next allocation.
    assert resizes(run)[0] == (first_s, run.ids["a"], 2)


def test_the_head_is_not_passed_for_ever() -> None:
    def day(patience_s: float) -> HarnessRun:
        h = Harness("1x2", Pollux(patience_s=patience_s))
        for i in range(12):
            h.submit(f"s{i:02}", at_s=50.0 * i, runs_s=100.0)
        h.submit("gang", at_s=60.0, runs_s=10.0, gpus=2)
        return h.run()

    # One of two devices always becomes free, and a single job waits for it.
    assert day(1e6).start_s("gang") == 650.0
    # After 120 s of waiting nobody passes it: those that run end at 250 at the latest.
    assert day(120.0).start_s("gang") == 250.0


def test_a_ceiling_binds_growth() -> None:
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=(Tenant(name="t", limit_gpus=2),))
    h = Harness(cluster, Pollux())
    h.submit("a", tenant="t", runs_s=1000.0, gpus=1, min_gpus=1, max_gpus=4)
    run = h.run()
    assert len(run.devices("a")) == 2
    assert run.refusals() == []


@pytest.mark.parametrize("name", ["period_s", "noise_scale", "patience_s"])
def test_parameters_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} of pollux"):
        Pollux(**{name: 0.0})


def elastic_day(number: int, *, drop: bool = False) -> Harness:
    """Elastic and fixed jobs, two types, failures and drains."""
    rng = np.random.default_rng((77, number))
    types = (DeviceType(name="new"), DeviceType(name="old", speed=0.5))
    nodes = (
        Node(name="n0", gpus=(("new", 4),)),
        Node(name="n1", gpus=(("old", 4),)),
        Node(name="n2", gpus=(("new", 2), ("old", 2))),
    )
    rules = Settings(
        elastic_speed="workers" if number % 2 else "linear",
        gang_span=("never", "any", "larger-than-node")[number % 3],  # type: ignore[arg-type]
        min_quantum_s=float(rng.choice([0.0, 50.0])),
    )
    cluster = Cluster(nodes=nodes, types=types, tenants=(Tenant(name="t", limit_gpus=5),))
    h = Harness(cluster, Pollux(period_s=20.0), settings=rules, drop_indexes=drop)
    for i in range(24):
        gpus = int(rng.integers(1, 5))
        fields: dict[str, object] = {"gpus": gpus, "tenant": str(rng.choice(["t", "u"]))}
        if rng.random() < 0.6:
            fields |= {"min_gpus": int(rng.integers(1, gpus + 1)), "max_gpus": gpus + int(rng.integers(1, 5))}
        if rng.random() < 0.2:
            fields["suspendable"] = False
        if rng.random() < 0.2:
            fields["determinism"] = "D1"
        h.submit(f"j{i:02}", at_s=float(rng.integers(0, 300)), runs_s=float(rng.integers(5, 400)), **fields)
    h.happen(ev.NodeDown(100.0, 2, "power"))
    h.happen(ev.NodeUp(180.0, 2))
    h.happen(ev.DeviceDown(150.0, 1, "xid"))
    h.happen(ev.DeviceUp(400.0, 1))
    h.happen(ev.Drained(200.0, 1))
    h.happen(ev.Undrained(350.0, 1))
    h.happen(ev.CancelRequested(120.0, 5))
    return h


@pytest.mark.parametrize("number", range(12))
def test_elastic_days_keep_every_invariant_and_need_no_index(number: int) -> None:
    run = elastic_day(number).run()
    assert run.log == elastic_day(number, drop=True).run().log
    assert not run.refusals()
    assert not run.state.records
    assert not [e for e in run.events if isinstance(e, ev.Stopping)]


def test_contract() -> None:
    check_policy(Pollux, first=60, scenarios=5)
