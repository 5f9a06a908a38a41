"""Fair share over tenants: quotas, lending, taking back, decayed usage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.plan import Reason
from cotenant.model.settings import Settings
from cotenant.model.usage import Usage, ancestry
from cotenant.policies.fair_share import FairShare
from cotenant.policies.published.tenancy import fair_shares
from cotenant.testing import Harness

from .sharing_jobs import check, settings

HOUR = 3600.0
HALF_LIFE = 336 * HOUR
GPU = DeviceType(name="gpu")


def cluster(*nodes: int, tenants: tuple[Tenant, ...] = ()) -> Cluster:
    """Nodes of the given sizes."""
    return Cluster(
        nodes=tuple(Node(name=f"n{i}", gpus=(("gpu", size),)) for i, size in enumerate(nodes)),
        types=(GPU,),
        tenants=tenants,
    )


def test_decayed_usage_is_exact() -> None:
    """C59: 2 GPUs for 48 h under a half-life of 336 h are 2 * (1 - 2**(-1/7)) = 0.1886 GPU."""
    now = [0.0]
    usage = Usage(HALF_LIFE, {}, lambda: now[0])

    class Record:
        class job:  # noqa: N801
            tenant = "x"

    class Place:
        devices = (0, 1)

    usage.placed(Record(), Place())  # type: ignore[arg-type]
    assert usage.decayed("x") == 0.0
    now[0] = 48 * HOUR
    assert usage.decayed("x") == pytest.approx(0.1886, abs=0.0001)
    assert abs(usage.decayed("x") - 0.189) < 0.01 * 0.189
    # Samples in between (every 5 min) must not change the sum: 576 changes of zero.
    sampled = Usage(HALF_LIFE, {}, lambda: now[0])
    now[0] = 0.0
    sampled.placed(Record(), Place())  # type: ignore[arg-type]
    for step in range(1, 577):
        now[0] = step * 300.0
        sampled.vacated(Record(), Place())  # type: ignore[arg-type]
        sampled.placed(Record(), Place())  # type: ignore[arg-type]
    assert now[0] == 48 * HOUR
    assert sampled.decayed("x") == pytest.approx(usage.decayed("x"), rel=1e-9)
    # After it has left, half is left one half-life later.
    usage.vacated(Record(), Place())  # type: ignore[arg-type]
    now[0] += HALF_LIFE
    assert usage.decayed("x") == pytest.approx(0.1886 / 2, abs=0.0001)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1000.0, 1.0), (1.0, 1000.0)])
@pytest.mark.parametrize("quota", [0, 1])
def test_who_used_little_goes_first(weights: tuple[float, float], quota: int) -> None:
    """C59: X holds 2 GPUs for 48 h, Y none; one GPU frees and Y's younger job gets it."""
    tenants = (
        Tenant(name="x", weight=weights[0], quota_gpus=quota),
        Tenant(name="y", weight=weights[1], quota_gpus=quota),
    )
    h = Harness(cluster(3, tenants=tenants), FairShare(half_life_s=HALF_LIFE, reclaim=False))
    h.submit("x0", tenant="x", gpus=2, runs_s=96 * HOUR)
    h.submit("z0", tenant="z", gpus=1, runs_s=48 * HOUR)
    h.submit("x1", tenant="x", gpus=1, at_s=1.0, runs_s=HOUR)
    h.submit("y1", tenant="y", gpus=1, at_s=2.0, runs_s=HOUR)
    run = h.run()
    assert run.start_s("y1") == 48 * HOUR
    assert run.start_s("x1") == 49 * HOUR


def test_usage_is_divided_by_weight() -> None:
    """Both held 1 GPU for the same time; the heavier tenant's usage for its weight is half."""
    tenants = (Tenant(name="a"), Tenant(name="b", weight=2.0))
    h = Harness(cluster(2, tenants=tenants), FairShare())
    for name in ("a", "b"):
        h.submit(f"{name}0", tenant=name, runs_s=100.0)
        h.submit(f"{name}1", tenant=name, at_s=1.0, runs_s=50.0)
    h.submit("a2", tenant="a", at_s=0.5, runs_s=50.0)
    run = h.run()
    # At 100 both devices free: b (usage u/2) first, then a, whose oldest waiting is a2.
    assert [e.id for e in run.events if isinstance(e, ev.Started) and e.t == 100.0] == [
        run.ids["b1"],
        run.ids["a2"],
    ]
    assert run.start_s("a1") == 150.0


def test_borrowing_and_taking_back() -> None:
    """a borrows all 8 devices; b, within its quota of 4, gets 4 back at once; a goes on later."""
    tenants = (Tenant(name="a", quota_gpus=4), Tenant(name="b", quota_gpus=4))
    free = Settings(restore_s=0.0)
    h = Harness(cluster(8, tenants=tenants), FairShare(), settings=free)
    for i in range(8):
        h.submit(f"a{i}", tenant="a", at_s=float(i), runs_s=100.0)
    h.submit("b", tenant="b", gpus=4, at_s=20.0, runs_s=30.0)
    run = h.run()
    assert run.start_s("b") == 20.0
    stopped = {e.id for e in run.events if isinstance(e, ev.Stopping)}
    assert stopped == {run.ids[f"a{i}"] for i in (4, 5, 6, 7)}
    # a4 had run 16 of 100 s and goes on at 50: it ends at 50 + 84.
    assert run.starts("a4") == [4.0, 50.0]
    assert run.end_s("a4") == 134.0


def test_nothing_is_taken_from_who_is_within_quota() -> None:
    """b asks for 6 with a quota of 4: no claim, so it waits for a free block."""
    tenants = (Tenant(name="a", quota_gpus=4), Tenant(name="b", quota_gpus=4))
    h = Harness(cluster(8, tenants=tenants), FairShare())
    h.submit("a", tenant="a", gpus=4, runs_s=100.0)
    h.submit("b", tenant="b", gpus=6, at_s=1.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("b") == 100.0
    assert not [e for e in run.events if isinstance(e, ev.Stopping)]


def test_the_furthest_over_quota_gives_way_first() -> None:
    """a is 3 over, c is 1 over: both devices come from a (3 then 2 over), latest first."""
    tenants = tuple(Tenant(name=n, quota_gpus=2) for n in "abc")
    h = Harness(cluster(8, tenants=tenants), FairShare(), settings=Settings(restore_s=0.0))
    for i in range(5):
        h.submit(f"a{i}", tenant="a", at_s=float(i), runs_s=100.0)
    for i in range(3):
        h.submit(f"c{i}", tenant="c", at_s=10.0 + i, runs_s=100.0)
    h.submit("b", tenant="b", gpus=2, at_s=20.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("b") == 20.0
    assert {e.id for e in run.events if isinstance(e, ev.Stopping)} == {run.ids["a4"], run.ids["a3"]}


def test_saving_takes_time_and_the_devices_stay_reserved() -> None:
    """State of 10 GB at 1 GB/s: b starts 10 s after its claim; nobody slips in between."""
    tenants = (Tenant(name="a"), Tenant(name="b", quota_gpus=2))
    h = Harness(cluster(2, tenants=tenants), FairShare(), settings=Settings(restore_s=0.0))
    h.submit("a0", tenant="a", gpus=2, runs_s=100.0, state_bytes=10_000_000_000)
    h.submit("a1", tenant="a", gpus=1, at_s=1.0, runs_s=5.0)
    h.submit("b", tenant="b", gpus=2, at_s=20.0, runs_s=30.0)
    run = h.run()
    assert run.start_s("b") == 30.0
    # b ends at 60; a0 (older) and a1 ask then: a0 takes both, loads for 10 s, has 80 s left.
    assert run.end_s("a0") == 150.0
    assert run.start_s("a1") == 150.0


def test_a_young_victim_is_left_until_it_has_had_its_quantum() -> None:
    """The only borrower started at 5 and may not stop before 65."""
    tenants = (Tenant(name="a"), Tenant(name="b", quota_gpus=1))
    h = Harness(cluster(1, tenants=tenants), FairShare(), settings=Settings(min_quantum_s=60.0))
    h.submit("a", tenant="a", at_s=5.0, runs_s=100.0)
    h.submit("b", tenant="b", at_s=10.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("b") == 65.0
    assert run.refusals() == []


def test_quotas_of_a_parent_are_shared_by_its_children() -> None:
    """dept (quota 4) has children p, q without quotas; q may claim what x borrows, not what p has."""
    tenants = (
        Tenant(name="dept", quota_gpus=4),
        Tenant(name="p", parent="dept"),
        Tenant(name="q", parent="dept"),
        Tenant(name="x"),
    )
    h = Harness(cluster(4, tenants=tenants), FairShare(), settings=Settings(restore_s=0.0))
    h.submit("p0", tenant="p", gpus=2, runs_s=100.0)
    h.submit("x0", tenant="x", gpus=2, at_s=1.0, runs_s=100.0)
    h.submit("q0", tenant="q", gpus=2, at_s=5.0, runs_s=10.0)
    h.submit("q1", tenant="q", gpus=2, at_s=6.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("q0") == 5.0
    assert {e.id for e in run.events if isinstance(e, ev.Stopping)} == {run.ids["x0"]}
    # At 15 x0 (usage for weight less than dept's, but dept is within its quota) waits for q1.
    assert run.start_s("q1") == 15.0
    assert run.starts("x0") == [1.0, 25.0]


def test_a_tenant_without_capacity_waits_for_midnight() -> None:
    """C12: vB has 0 GPUs on the first day; vA's running job is let finish when vA shrinks."""
    midnight = 24 * HOUR
    tenants = (Tenant(name="vA", limit_gpus=8), Tenant(name="vB", limit_gpus=0))
    h = Harness(cluster(8, 4, tenants=tenants), FairShare())
    h.submit("y", tenant="vB", gpus=4, at_s=12 * HOUR, runs_s=HOUR)
    h.submit("x", tenant="vA", gpus=8, at_s=23 * HOUR, runs_s=2 * HOUR)
    h.happen(ev.TenantLimitChanged(midnight, "vA", 4))
    h.happen(ev.TenantLimitChanged(midnight, "vB", 4))
    run = h.run()
    assert run.reasons("y") == [Reason.TENANT_CAPACITY_ZERO]
    assert run.start_s("y") == midnight
    assert (run.start_s("x"), run.end_s("x")) == (23 * HOUR, 25 * HOUR)


def test_a_broken_node_and_guaranteed_tenants() -> None:
    """C62: VC1 gets its 8; only opportunistic work gives way; VC2 is told what is broken."""
    tenants = (Tenant(name="VC1", quota_gpus=8), Tenant(name="VC2", quota_gpus=16))
    h = Harness(cluster(4, 4, 4, 4, 4, 4, tenants=tenants), FairShare())
    for i in range(3):
        h.submit(f"g{i}", tenant="VC2", gpus=4, runs_s=1000.0)
    h.submit("opp", tenant="VC2", gpus=4, at_s=1.0, runs_s=1000.0, job_class="opportunistic")
    h.happen(ev.NodeDown(5.0, 5))
    h.submit("v0", tenant="VC1", gpus=4, at_s=10.0, runs_s=100.0)
    h.submit("v1", tenant="VC1", gpus=4, at_s=10.0, runs_s=100.0)
    h.submit("g3", tenant="VC2", gpus=4, at_s=20.0, runs_s=50.0)
    run = h.run()
    assert run.start_s("v0") == run.start_s("v1") == 10.0
    assert {e.id for e in run.events if isinstance(e, ev.Stopping)} == {run.ids["opp"]}
    held = run.of("g3", ev.Held)[0]
    assert held.t == 20.0
    assert (held.facts["quota_gpus"], held.facts["used_gpus"], held.facts["unavailable_gpus"]) == (16, 12, 4)
    broken = {20, 21, 22, 23}
    assert all(broken.isdisjoint(e.devices) for e in run.events if isinstance(e, ev.Started))
    assert run.start_s("g3") == 110.0


def test_two_bad_devices_on_two_nodes() -> None:
    """C62: each node has 3 good devices left: 6 free, the largest block is 3."""
    h = Harness(cluster(4, 4), FairShare(), settings=Settings(gang_span="never"))
    h.happen(ev.DeviceDown(0.5, 1))
    h.happen(ev.DeviceDown(0.5, 6))
    h.submit("j", tenant="t", gpus=4, at_s=1.0, runs_s=10.0)
    h.happen(ev.DeviceUp(50.0, 6))
    run = h.run()
    held = run.of("j", ev.Held)[0]
    assert (held.t, held.reason) == (1.0, Reason.FRAGMENTED)
    assert (held.facts["free_gpus"], held.facts["largest_block_gpus"]) == (6, 3)
    assert run.start_s("j") == 50.0


def test_a_reserved_device_that_fails_is_given_up() -> None:
    """b's claim is broken by a failure while the victim saves; it is served elsewhere later."""
    tenants = (Tenant(name="a"), Tenant(name="b", quota_gpus=2))
    h = Harness(cluster(2, 2, tenants=tenants), FairShare(), settings=Settings(restore_s=0.0))
    h.submit("a0", tenant="a", gpus=2, runs_s=100.0, state_bytes=10_000_000_000)
    h.submit("c0", tenant="c", gpus=2, runs_s=40.0, suspendable=False)
    h.submit("b", tenant="b", gpus=2, at_s=20.0, runs_s=30.0)
    h.happen(ev.NodeDown(25.0, 0))
    run = h.run()
    assert [e.devices for e in run.of("b", ev.Reserved)] == [(0, 1), ()]
    assert run.start_s("b") == 40.0
    assert run.devices("b") == (2, 3)


def test_strict_queueing_blocks_the_tenant_alone() -> None:
    """a's head of 4 does not fit: a1 waits under strict, passes under best-effort; b never waits."""
    for queueing, expected in (("strict", 50.0), ("best-effort", 1.0)):
        h = Harness("1x4", FairShare(queueing=queueing))  # type: ignore[arg-type]
        h.submit("z", tenant="z", gpus=1, runs_s=10.0)
        h.submit("a0", tenant="a", gpus=4, at_s=1.0, runs_s=40.0)
        h.submit("a1", tenant="a", gpus=1, at_s=1.0, runs_s=9.0)
        h.submit("b", tenant="b", gpus=1, at_s=1.0, runs_s=9.0)
        run = h.run()
        assert run.start_s("b") == 1.0
        assert run.start_s("a1") == expected
        assert run.start_s("a0") == 10.0


def test_what_each_would_get() -> None:
    """By hand: quotas first, then by weight, never beyond demand or ceiling."""
    a, b, c = Tenant(name="a", quota_gpus=4), Tenant(name="b", weight=2.0), Tenant(name="c", limit_gpus=1)
    # 4 to a; 6 left: c is full at 1, then a and b share 5 as 1 to 2.
    got = fair_shares(10, (a, b, c), {"a": 20, "b": 20, "c": 20})
    assert got == pytest.approx({"a": 4 + 5 / 3, "b": 10 / 3, "c": 1.0})
    # Quotas of 6 in all on 3 devices are scaled down together.
    got = fair_shares(3, (Tenant(name="a", quota_gpus=4), Tenant(name="b", quota_gpus=2)), {"a": 9, "b": 9})
    assert got == pytest.approx({"a": 2.0, "b": 1.0})
    # A hierarchy: dept and x get 5 each; inside dept by weight 3 to 1, own jobs none.
    tree = (
        Tenant(name="dept"),
        Tenant(name="p", parent="dept", weight=3.0),
        Tenant(name="q", parent="dept"),
        Tenant(name="x"),
    )
    got = fair_shares(10, tree, {"p": 9, "q": 9, "x": 9})
    assert got == pytest.approx({"p": 3.75, "q": 1.25, "x": 5.0})
    # Nobody declared, nobody zero: no division by zero.
    assert fair_shares(4, (), {"": 1, "u": 0}) == {"": 1.0, "u": 0.0}
    assert fair_shares(0, (Tenant(name="a", limit_gpus=0),), {"a": 3}) == {"a": 0.0}


@given(
    st.floats(0, 50),
    st.lists(st.tuples(st.integers(0, 9), st.floats(0.1, 10), st.integers(0, 20)), min_size=1, max_size=6),
)
@hyp(max_examples=100, deadline=None)
def test_shares_are_max_min_fair(capacity: float, parts: list[tuple[int, float, int]]) -> None:
    """Nothing beyond demand, nothing idle while somebody wants, no borrower ahead of a hungry peer."""
    tenants = [Tenant(name=f"t{i}", quota_gpus=q, weight=w) for i, (q, w, _) in enumerate(parts)]
    demand = {f"t{i}": float(d) for i, (_, _, d) in enumerate(parts)}
    got = fair_shares(capacity, tenants, demand)
    assert all(-1e-9 <= got[n] <= demand[n] + 1e-9 for n in demand)
    assert sum(got.values()) == pytest.approx(min(capacity, sum(demand.values())), abs=1e-6)
    promised = sum(min(t.quota_gpus, demand[t.name]) for t in tenants)
    if promised <= capacity:
        extra = {t.name: (got[t.name] - min(t.quota_gpus, demand[t.name])) / t.weight for t in tenants}
        hungry = [n for n in demand if got[n] < demand[n] - 1e-6]
        for name in hungry:
            assert all(extra[other] <= extra[name] + 1e-6 for other in demand)


def test_bad_parameters_and_circles() -> None:
    """Errors name what was found."""
    with pytest.raises(ConfigError, match="half_life_s"):
        FairShare(half_life_s=0.0)
    with pytest.raises(ConfigError, match="lifo"):
        FairShare(queueing="lifo")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ancestors"):
        ancestry((Tenant(name="a", parent="b"), Tenant(name="b", parent="a")))


TREE = (
    Tenant(name="dept", quota_gpus=3, limit_gpus=5),
    Tenant(name="p", parent="dept", quota_gpus=2),
    Tenant(name="q", parent="dept", weight=3.0),
    Tenant(name="x", quota_gpus=2, weight=0.5),
)


def _rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {
            "at_s": st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0, 9.0]),
            "runs_s": st.sampled_from([1.0, 3.0, 10.0, 30.0]),
            "gpus": st.sampled_from([0, 1, 1, 1, 2, 2, 4]),
            "tenant": st.sampled_from(["p", "q", "x", "stranger", ""]),
            "job_class": st.sampled_from(["guaranteed", "guaranteed", "opportunistic"]),
            "suspendable": st.booleans(),
            "state_bytes": st.sampled_from([0, 2_000_000_000]),
            "priority": st.sampled_from([0, 0, 1]),
        }
    )
    return st.lists(one, min_size=1, max_size=14)


@given(
    st.sampled_from([FairShare(), FairShare(queueing="strict"), FairShare(reclaim=False, half_life_s=5.0)]),
    st.lists(st.sampled_from([2, 4, 4]), min_size=1, max_size=3),
    _rows(),
    settings(),
    st.sampled_from([0.0, 4.0]),
)
@hyp(max_examples=150, deadline=None)
def test_any_run(
    policy: FairShare, sizes: list[int], rows: list[dict[str, Any]], rules: Settings, q: float
) -> None:
    """No refusals, no index needed, everybody ends."""
    rules = Settings(gang_span=rules.gang_span, min_quantum_s=q, restore_s=0.5)
    run = check(policy, cluster(*sizes, tenants=TREE), rows, rules)
    names = {number: int(name[1:]) for name, number in run.ids.items()}
    for event in run.events:
        if isinstance(event, ev.Stopping):
            assert event.suspend or rows[names[event.id]]["job_class"] == "opportunistic"
