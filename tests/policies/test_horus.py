"""Horus: costs by hand, class queues, rounds, and the contract on random days."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.plan import Reason
from cotenant.model.settings import Settings
from cotenant.policies.horus import Horus
from cotenant.policies.published.clusters import Classes, apportioned, cluster
from cotenant.testing import FixedForecast, FixedTruth, Harness

from .sharing_jobs import GIB, check, clusters, jobs, settings

SHARES = {
    "a30": (0.3, 0.1, 0.1),
    "b50": (0.5, 0.1, 0.1),
    "c60": (0.6, 0.1, 0.1),
    "d90": (0.9, 0.1, 0.1),
}


def day(cluster: str, policy: Horus, rules: Settings | None = None) -> Harness:
    """Devices of 20 GiB where nobody disturbs anybody."""
    return Harness(
        cluster,
        policy,
        settings=rules,
        truth=FixedTruth(),
        forecast=FixedForecast(shares=SHARES),
        memory_bytes=20 * GIB,
    )


def facts(h: Harness, name: str) -> dict[str, Any]:
    found: dict[str, Any] = h.run().of(name, ev.Started)[0].why.facts
    return found


def test_a_job_fills_a_device_up_to_its_whole_utilisation() -> None:
    """Filling: beside c60, a30 costs 0.5 * (4 + 2) / 20 + 0.5 * (1 - 0.9) = 0.2; alone 0.05 + 0.35 = 0.4."""
    h = day("1x2", Horus())
    h.submit("first", model="c60", memory_bytes=4 * GIB, runs_s=100.0)
    h.submit("second", at_s=1.0, model="a30", memory_bytes=2 * GIB, runs_s=100.0)
    run = h.run()
    assert (run.devices("first"), run.devices("second")) == ((0,), (0,))
    (started,) = run.of("second", ev.Started)
    assert (started.why.rule, started.why.facts) == ("least-cost", {"cost": 0.2, "utilisation_percent": 90.0})


def test_over_commitment_costs_more_than_any_free_device() -> None:
    """c60 beside c60 is 120%: 0.5 * 8 / 20 + 0.5 * exp(3 * 0.2) = 1.11; alone 0.1 + 0.2 = 0.3."""
    h = day("1x2", Horus())
    for name in ("first", "second"):
        h.submit(name, model="c60", memory_bytes=4 * GIB, runs_s=100.0)
    run = h.run()
    assert (run.devices("first"), run.devices("second")) == ((0,), (1,))


def test_where_nothing_is_free_the_least_over_committed_device_is_taken() -> None:
    """Third: beside d90 it would be 150%, beside c60 110%; 0.5 * 0.2 + 0.5 * exp(0.3) = 0.7749."""
    h = day("1x2", Horus())
    h.submit("first", model="d90", memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("second", at_s=1.0, model="c60", memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("third", at_s=2.0, model="b50", memory_bytes=2 * GIB, runs_s=100.0)
    run = h.run()
    assert run.devices("third") == run.devices("second") == (1,)
    (started,) = run.of("third", ev.Started)
    assert started.why.facts == {"cost": round(0.1 + 0.5 * math.exp(0.3), 4), "utilisation_percent": 110.0}


def test_spreading_takes_the_idle_device() -> None:
    """Beside c60: 0.15 + 0.45 = 0.6; alone: 0.05 + 0.15 = 0.2."""
    h = day("1x2", Horus(shape="spread"))
    h.submit("first", model="c60", memory_bytes=4 * GIB, runs_s=100.0)
    h.submit("second", at_s=1.0, model="a30", memory_bytes=2 * GIB, runs_s=100.0)
    assert h.run().devices("second") == (1,)


def test_weights_decide_between_memory_and_utilisation() -> None:
    """By memory alone the idle device is cheapest; by utilisation alone the fuller one."""
    for weights, device in (((1.0, 0.0), 1), ((0.0, 1.0), 0)):
        h = day("1x2", Horus(memory_weight=weights[0], utilisation_weight=weights[1]))
        h.submit("first", model="c60", memory_bytes=4 * GIB, runs_s=100.0)
        h.submit("second", at_s=1.0, model="a30", memory_bytes=2 * GIB, runs_s=100.0)
        assert h.run().devices("second") == (device,)


def test_a_bound_on_utilisation_keeps_jobs_waiting_and_says_so() -> None:
    """c60 and b50 make 110%: with a bound of 100 the second waits."""
    h = day("1x1", Horus(max_utilisation=100.0))
    h.submit("first", model="c60", memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("second", at_s=1.0, model="b50", memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("third", at_s=2.0, model="a30", memory_bytes=2 * GIB, runs_s=10.0)
    run = h.run()
    assert run.reasons("second") == [Reason.SLOWDOWN]
    assert (run.start_s("third"), run.start_s("second")) == (2.0, 100.0)


def test_memory_is_never_over_committed() -> None:
    """12 of 20 GiB are left; 13 do not fit, and the reason has both numbers."""
    h = day("1x1", Horus())
    h.submit("first", model="a30", memory_bytes=8 * GIB, runs_s=100.0)
    h.submit("second", at_s=1.0, model="a30", memory_bytes=13 * GIB, runs_s=10.0)
    run = h.run()
    (held,) = run.of("second", ev.Held)
    assert held.facts == {"needs_bytes": 13 * GIB, "largest_hole_bytes": 12 * GIB}
    assert run.start_s("second") == 100.0


def test_a_gang_takes_the_cheapest_devices_of_one_node() -> None:
    """Node 0 has c60 on device 0, node 1 is free. The gang of a30 fills: device 0 and an idle one of node 0."""
    h = day("2x2", Horus())
    h.submit("first", model="c60", memory_bytes=2 * GIB, runs_s=100.0)
    h.submit("gang", at_s=1.0, gpus=2, model="a30", memory_bytes=2 * GIB, runs_s=100.0)
    assert h.run().devices("gang") == (0, 1)


def test_a_gang_may_lie_over_nodes_where_the_settings_let_it() -> None:
    """One device is taken exclusively on each node, and any span is allowed."""
    h = day("2x2", Horus(), Settings(gang_span="any"))
    for name in ("x", "y"):
        h.submit(name, gpus=1, memory_bytes=2 * GIB, sharing="exclusive", runs_s=100.0)
    h.submit("z", gpus=2, at_s=1.0, model="a30", memory_bytes=2 * GIB, runs_s=10.0)
    run = h.run()
    assert (run.devices("x"), run.devices("y"), run.devices("z")) == ((0,), (1,), (2, 3))
    h = day("2x2", Horus(shape="spread"), Settings(gang_span="any"))
    for name in ("x", "y", "w"):
        h.submit(name, gpus=1, memory_bytes=2 * GIB, sharing="exclusive", runs_s=100.0)
    h.submit("z", gpus=2, at_s=1.0, model="a30", memory_bytes=2 * GIB, runs_s=10.0)
    assert h.run().reasons("z") == [Reason.NO_CAPACITY]


def test_brute_force_places_pairs_where_cost_is_least() -> None:
    """Every pair of devices of one node is priced by hand; the policy's choice is the first cheapest."""
    residents = [("c60", 4), ("a30", 2), ("b50", 6), ("d90", 1)]
    h = day("2x2", Horus(shape="spread", max_utilisation=0.0))
    for i, (model, gib) in enumerate(residents):
        h.submit(f"r{i}", at_s=float(i), model=model, memory_bytes=gib * GIB, runs_s=1000.0)
    h.submit("gang", at_s=10.0, gpus=2, model="b50", memory_bytes=3 * GIB, runs_s=10.0)
    run = h.run()
    on = {run.devices(f"r{i}")[0]: residents[i] for i in range(4)}
    assert sorted(on) == [0, 1, 2, 3]

    def cost(device: int) -> float:
        model, gib = on[device]
        util = SHARES[model][0] + 0.5
        return 0.5 * (gib + 3) / 20 + 0.5 * (math.exp(3 * (util - 1)) if util > 1 else util)

    pairs = itertools.chain(itertools.combinations((0, 1), 2), itertools.combinations((2, 3), 2))
    assert run.devices("gang") == min(pairs, key=lambda pair: (sum(map(cost, pair)), pair))


def test_an_unknown_forecast_takes_every_job_for_a_full_one() -> None:
    """200% beside another, so free devices go first, and still nobody waits for ever."""
    h = Harness("1x2", Horus(), memory_bytes=20 * GIB)
    for name in "xyz":
        h.submit(name, memory_bytes=2 * GIB, runs_s=10.0)
    run = h.run()
    assert [run.devices(name) for name in "xyz"] == [(0,), (1,), (0,)]


# -- queues ----------------------------------------------------------------------------


def test_three_kinds_of_jobs_are_three_classes() -> None:
    """Small, large and ganged jobs, many of each: the centres are theirs."""
    small, large, gang = (1.0, 20.0, 1.0, 2.0), (1.0, 90.0, 1.0, 14.0), (1.0, 80.0, 8.0, 6.0)
    near = (1.0, 22.0, 1.0, 2.1)
    classes = cluster({small: 50, large: 20, gang: 10, near: 3}, 3)
    assert len(classes) == 3
    assert classes.of(small) == classes.of(near)
    assert len({classes.of(x) for x in (small, large, gang)}) == 3
    assert cluster({small: 2, large: 1}, 3).of(large) != cluster({small: 2, large: 1}, 3).of(small)


@given(
    st.dictionaries(
        st.tuples(*[st.integers(0, 5).map(float)] * 4), st.integers(1, 50), min_size=1, max_size=12
    ),
    st.integers(1, 4),
)
@hyp(max_examples=100, deadline=None)
def test_clusters_do_not_depend_on_the_order_of_jobs(weights: dict[Any, int], k: int) -> None:
    """Equal weights, whatever the order in which they came; each job is in the nearest class."""
    one = cluster(weights, k)
    two = cluster(dict(reversed(list(weights.items()))), k)
    assert (one.mean, one.scale, one.centres) == (two.mean, two.scale, two.centres)
    assert 1 <= len(one) <= min(k, len(weights))
    for point in weights:
        at = [(x - m) / s for x, m, s in zip(point, one.mean, one.scale, strict=True)]
        far = [sum(abs(a - b) for a, b in zip(at, centre, strict=True)) for centre in one.centres]
        assert far[one.of(point)] == min(far)


def test_quotas_are_in_proportion_to_weight() -> None:
    """10 over 5 : 3 : 1 is 5.56, 3.33, 1.11: the largest remainder takes the tenth."""
    assert apportioned(10, [5.0, 3.0, 1.0]) == [6, 3, 1]
    assert sum(apportioned(16, [7.1, 0.3, 2.2])) == 16


def test_a_class_that_waited_long_goes_before_a_long_queue_of_newcomers() -> None:
    """One device, one job at a time. Two large jobs wait since 1, five small ones since 95.

    At 100: large 2 * 99 = 198, small 5 * 5 = 25. At 150: one large job that has waited 149 s against
    five small ones of 55 s, 275. At 160: four of 65 s (260) against 159; at 170: three of 75 s (225)
    against 169; at 180: two of 85 s (170) against 179.
    """
    h = day("1x1", Horus(beta=1, classes=2))
    h.submit("busy", memory_bytes=20 * GIB, sharing="exclusive", model="d90", runs_s=100.0)
    for i in range(2):
        h.submit(f"large{i}", at_s=1.0, memory_bytes=18 * GIB, sharing="exclusive", model="d90", runs_s=50.0)
    for i in range(5):
        h.submit(f"small{i}", at_s=95.0, memory_bytes=GIB, sharing="exclusive", model="a30", runs_s=10.0)
    run = h.run()
    names = ("large0", "small0", "small1", "small2", "large1", "small3", "small4")
    assert [run.start_s(name) for name in names] == [100.0, 150.0, 160.0, 170.0, 180.0, 230.0, 240.0]


def test_makespan_takes_the_cheapest_of_those_that_waited_longest() -> None:
    """At 50 a device with d90 has room for one more: a30 (120%) is cheaper than c60 (150%), which came first."""
    rules = Settings(max_sharers=2)
    for variant, order in (("makespan", ("late", "early")), ("fairness", ("early", "late"))):
        h = day("1x1", Horus(variant=variant, classes=1), rules)
        h.submit("base", model="d90", memory_bytes=2 * GIB, runs_s=500.0)
        h.submit("leaves", model="a30", memory_bytes=2 * GIB, runs_s=50.0)
        h.submit("early", at_s=1.0, model="c60", memory_bytes=2 * GIB, runs_s=30.0)
        h.submit("late", at_s=2.0, model="a30", memory_bytes=2 * GIB, runs_s=30.0)
        run = h.run()
        assert sorted(("early", "late"), key=lambda name: run.start_s(name) or 0.0) == list(order)


def test_whoever_waits_too_long_gets_devices_reserved() -> None:
    """Small jobs come every 10 s for ever; the gang of 2 waits 100 s, then its devices empty."""
    h = day("1x2", Horus(patience_s=100.0))
    for i in range(40):
        h.submit(f"s{i:02}", at_s=10.0 * i, memory_bytes=12 * GIB, model="d90", runs_s=35.0)
    h.submit("gang", at_s=5.0, gpus=2, memory_bytes=12 * GIB, model="d90", runs_s=10.0)
    run = h.run()
    reserved = [e for e in run.events if isinstance(e, ev.Reserved)]
    # The oldest waits longest, but the head of the queue is s-jobs' in turn: the gang came second.
    assert reserved
    assert (run.start_s("gang") or 1e9) < 300.0


def test_all_at_zero_and_nobody_left() -> None:
    """Sixty jobs in one instant on four devices: all end, and none is refused."""
    for variant in ("fairness", "makespan"):
        h = day("2x2", Horus(variant=variant))
        for i in range(60):
            h.submit(
                f"j{i:02}",
                gpus=1 + i % 2,
                memory_bytes=(2 + i % 7) * GIB,
                model=list(SHARES)[i % 4],
                runs_s=20.0 + i,
            )
        run = h.run()
        assert run.state.counts["done"] == 60
        assert run.refusals() == []


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"variant": "fast"}, "variant"),
        ({"shape": "full"}, "shape"),
        ({"steepness": 21.0}, "steepness"),
        ({"memory_weight": -1.0}, "memory_weight"),
        ({"beta": 0}, "beta"),
        ({"floor_s": 0.0}, "floor_s"),
    ],
)
def test_bad_parameters_are_named(given_: dict[str, Any], told: str) -> None:
    """The error names the parameter."""
    with pytest.raises(ConfigError, match=told):
        Horus(**given_)


@given(
    st.sampled_from(
        [Horus(), Horus(variant="makespan"), Horus(max_utilisation=100.0, beta=2, recluster_s=2.0)]
    ),
    clusters(),
    jobs(),
    settings(),
    st.booleans(),
)
@hyp(max_examples=80, deadline=None)
def test_any_run(
    policy: Horus, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings, burst: bool
) -> None:
    """No refusals, no index needed, everybody ends, also when all come at once."""
    rows = [{**row, "at_s": 0.0} for row in rows] if burst else rows
    check(policy, cluster, rows, rules)


def test_classes_are_plain_values() -> None:
    """What the policy remembers can be read back from a log."""
    found = cluster({(1.0, 2.0): 3}, 3)
    assert Classes(found.mean, found.scale, found.centres).of((5.0, 5.0)) == 0
