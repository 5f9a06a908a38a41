"""GaiaGPU: best fit of fractions, branches of whole devices, quotas, elastic ceilings, and the contract."""

from __future__ import annotations

import itertools
from pathlib import Path
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
from cotenant.policies.gaiagpu import GaiaGpu
from cotenant.policies.published.gaia_places import branch
from cotenant.policies.published.gaia_shares import ceiling_milli, read_quota
from cotenant.report.explain import explain
from cotenant.testing import Harness, HarnessRun

from .sharing_jobs import check, clusters, jobs, settings

LINEAR = Settings(elastic_shares=1.0)


def day(cluster: str, policy: GaiaGpu | None = None, rules: Settings | None = None) -> Harness:
    """Devices of 20 GiB."""
    return Harness(cluster, policy or GaiaGpu(), settings=rules, memory_bytes=20 * GIB)


def part(h: Harness, name: str, milli: int, gib: int = 1, runs_s: float = 1000.0, **fields: Any) -> None:
    """Submit a part of a device."""
    h.submit(name, compute_milli=milli, memory_bytes=gib * GIB, runs_s=runs_s, **fields)


# -- fractions -----------------------------------------------------------------------------------


def test_the_device_with_least_free_compute_that_suffices() -> None:
    """Free: 400 on device 0, 600 on device 1, 1000 on device 2. 300 goes to 0, 500 to 1, then 900 to 2."""
    h = day("1x3", GaiaGpu(elastic=False))
    part(h, "a", 600)
    part(h, "b", 401, at_s=1.0)
    part(h, "c", 300, at_s=2.0)
    part(h, "d", 500, at_s=3.0)
    part(h, "e", 900, at_s=4.0)
    run = h.run()
    # b does not fit beside a (400 free); c does, and leaves 100 there; d fits beside b (599 free).
    assert [run.devices(name) for name in "abcde"] == [(0,), (1,), (0,), (1,), (2,)]


def test_ties_go_to_least_free_memory_then_fewest_residents_then_number() -> None:
    """500 taken of each: 0 by one with 5 GiB, 1 by one with 8 GiB, 2 by two with 8 GiB together."""
    h = day("1x3", GaiaGpu(elastic=False))
    part(h, "a", 500, 5)
    part(h, "b", 501, 8, at_s=1.0)
    part(h, "c", 502, 4, at_s=2.0)
    part(h, "d", 498, 4, at_s=3.0)
    run = h.run()
    assert [run.devices(name) for name in "abc"] == [(0,), (1,), (2,)]
    # d fits all three; 2 has least free compute (498).
    assert run.devices("d") == (2,)
    h = day("1x2", GaiaGpu(elastic=False))
    part(h, "a", 600, 5)
    part(h, "b", 600, 8, at_s=1.0)
    part(h, "c", 300, 1, at_s=2.0)
    assert h.run().devices("c") == (1,)


def test_the_fullest_node_that_has_room_first() -> None:
    """Node 0 (devices 0, 1) has a whole job and 200 taken: 800 free; node 1 has 300 taken: 1,700 free.

    A request of 600 fits device 1 (800 free) and device 2 (700 free, the better fit): the fuller node wins.
    """
    h = day("2x2", GaiaGpu(elastic=False))
    h.submit("whole", memory_bytes=GIB, runs_s=1000.0)
    part(h, "a", 200, at_s=1.0)
    h.submit("pair", at_s=2.0, gpus=2, runs_s=1.0)
    part(h, "b", 900, at_s=2.5)
    part(h, "c", 300, at_s=4.0)
    part(h, "d", 600, at_s=5.0)
    run = h.run()
    assert (run.devices("whole"), run.devices("a"), run.devices("pair")) == ((0,), (1,), (2, 3))
    # b finds only 800 free at 2.5 s; at 3 s it takes a device of node 1; c fits beside a: 500 left there.
    assert (run.start_s("b"), run.devices("b"), run.devices("c")) == (3.0, (2,), (1,))
    assert run.devices("d") == (3,)


def test_memory_and_compute_must_both_suffice() -> None:
    h = day("1x1", GaiaGpu(elastic=False))
    part(h, "a", 300, 15, runs_s=100.0)
    part(h, "b", 300, 6, at_s=1.0)
    part(h, "c", 800, 1, at_s=2.0)
    run = h.run()
    assert run.reasons("b") == [Reason.MEMORY]
    assert run.reasons("c") == [Reason.COMPUTE]
    assert run.start_s("b") == 100.0


# -- whole devices -------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 7), min_size=1), st.integers(1, 8))
@hyp(max_examples=150, deadline=None)
def test_several_devices_have_least_distance_on_the_tree(free: set[int], count: int) -> None:
    """Against all sets: distance 1 in a pair, 3 in a four, 9 across; one device leaves most large branches whole."""
    slots = sorted(free)
    if count > len(slots):
        return

    def far(one: int, two: int) -> int:
        return 1 if one // 2 == two // 2 else 3 if one // 4 == two // 4 else 9

    def cost(chosen: tuple[int, ...]) -> int:
        return sum(far(a, b) for a, b in itertools.combinations(chosen, 2))

    found = branch(tuple(slots), count, (4, 2))
    assert len(set(found)) == count
    assert set(found) <= free
    assert cost(found) == min(cost(chosen) for chosen in itertools.combinations(slots, count))


def test_one_device_comes_from_the_branch_most_broken_into() -> None:
    """Slots 0, 2, 3, 5 to 7 are free: the four with slot 0 has 3 free, as the other; its pair has one."""
    assert branch((0, 2, 3, 5, 6, 7), 1, (4, 2)) == (0,)
    h = day("1x8")
    h.submit("a", runs_s=100.0)
    h.submit("two", at_s=1.0, gpus=2, runs_s=100.0)
    h.submit("b", at_s=2.0, runs_s=100.0)
    run = h.run()
    # a takes slot 0; two the pair (2, 3), from the four already broken into; b its last slot, 1.
    assert (run.devices("a"), run.devices("two"), run.devices("b")) == ((0,), (2, 3), (1,))


# -- quotas --------------------------------------------------------------------------------------


def test_quota_by_tenant_and_device_type() -> None:
    """t may hold one and a half V100; the second whole one goes to the T4, another half fits the V100 again."""
    types = (
        DeviceType(name="V100", memory_bytes=20 * GIB, speed=2.0),
        DeviceType(name="T4", memory_bytes=20 * GIB),
    )
    cluster = Cluster(
        nodes=(Node(name="a", gpus=(("V100", 4),)), Node(name="b", gpus=(("T4", 4),))), types=types
    )
    h = Harness(cluster, GaiaGpu(quota=("t/V100/1.5",), elastic=False))
    v100: dict[str, Any] = {"device_types": ["V100"], "tenant": "t"}
    h.submit("one", runs_s=1000.0, **v100)
    h.submit("two", at_s=1.0, runs_s=1000.0, **v100)
    h.submit("any", at_s=2.0, runs_s=100.0, tenant="t")
    part(h, "half", 500, at_s=3.0, **v100)
    h.submit("other", at_s=4.0, runs_s=100.0, tenant="u", device_types=["V100"])
    run = h.run()
    assert run.devices("any")[0] >= 4
    assert (run.start_s("half"), run.start_s("other")) == (3.0, 4.0)
    # one (1000 s of work at twice the speed) ends at 500 s.
    assert run.start_s("two") == 500.0
    assert run.reasons("two") == [Reason.TENANT_LIMIT]


def test_what_exceeds_every_quota_is_turned_away() -> None:
    """Two devices, where the tenant may have one and a half of the only type: it would wait for ever."""
    h = day("1x2", GaiaGpu(quota=("t/gpu/1.5",)))
    h.submit("two", gpus=2, tenant="t")
    h.submit("one", tenant="t", runs_s=5.0)
    run = h.run()
    (rejected,) = run.of("two", ev.Rejected)
    assert rejected.reason == Reason.TENANT_LIMIT
    assert run.start_s("one") == 0.0


def test_what_is_no_quota_is_refused() -> None:
    assert read_quota(("a/b/c/2", "/T4/0.5")) == {("a", "b/c"): 2000, ("", "T4"): 500}
    for wrong in (("a/2",), ("a/T4/x",), ("a/T4/-1",), ("a/T4/1", "a/T4/2"), ("a/T4/inf",)):
        with pytest.raises(ConfigError):
            read_quota(wrong)


# -- elastic -------------------------------------------------------------------------------------


def limits(run: HarnessRun, name: str) -> list[tuple[float, int]]:
    """When a job's ceiling changed, and to what."""
    found = [(e.t, e.share.compute_limit_milli) for e in run.of(name, ev.Started) if e.share]
    return found + [(e.t, e.share.compute_limit_milli) for e in run.of(name, ev.Resized) if e.share]


def test_idle_compute_is_lent_and_taken_back_when_a_neighbour_comes() -> None:
    """The paper's story: A with 0.3 drifts to 0.9 alone; B with 0.7 comes, and A is back at 0.3; B goes, A has 0.9.

    A has 1,000 s of work at 0.3. At 3 times the speed until 100 s it has done 300; beside B (70 s, at its guarantee)
    70 more until 170 s; the other 630 take 210 s: it ends at 380 s.
    """
    h = day("1x1", rules=LINEAR)
    part(h, "a", 300)
    part(h, "b", 700, at_s=100.0, runs_s=70.0)
    run = h.run()
    assert limits(run, "a") == [(0.0, 900), (100.0, 300), (170.0, 900)]
    assert limits(run, "b") == [(100.0, 700)]
    assert (run.end_s("b"), run.end_s("a")) == (170.0, 380.0)
    lent = [e.why for e in run.of("a", ev.Resized)]
    assert [why.rule for why in lent] == ["idle-compute-back", "idle-compute-lent"]
    assert lent[0].facts == {"limit_milli_before": 900, "limit_milli_after": 300, "residents": 2}


def test_idle_compute_is_divided_by_guarantees() -> None:
    """200 and 400 of 900: ceilings of 300 and 600, both 1.5 times as fast."""
    assert (ceiling_milli(200, 600, 900), ceiling_milli(400, 600, 900)) == (300, 600)
    h = day("1x1", rules=LINEAR)
    part(h, "a", 200, runs_s=300.0)
    part(h, "b", 400, runs_s=300.0)
    run = h.run()
    assert (run.end_s("a"), run.end_s("b")) == (200.0, 200.0)


def test_hard_shares_get_what_they_are_guaranteed() -> None:
    h = day("1x1", GaiaGpu(elastic=False), LINEAR)
    part(h, "a", 300, runs_s=100.0)
    run = h.run()
    assert run.end_s("a") == 100.0
    assert limits(run, "a") == [(0.0, 300)]


def test_half_of_the_gain() -> None:
    """With elastic_shares 0.5, three times the compute is 1 + 0.5 x 2 = twice the speed."""
    h = day("1x1", rules=Settings(elastic_shares=0.5))
    part(h, "a", 300, runs_s=100.0)
    assert h.run().end_s("a") == 50.0


def test_ceilings_in_the_world_are_filled_by_guarantee() -> None:
    """Under a policy that sets no ceilings nothing idles: 300 alone runs at 1000 / 300 of its speed."""
    from cotenant.policies.packing import BestFit

    h = Harness("1x1", BestFit(), settings=LINEAR, memory_bytes=20 * GIB)
    part(h, "a", 250, runs_s=400.0)
    assert h.run().end_s("a") == 100.0


def test_what_a_ceiling_leaves_over_goes_to_the_others() -> None:
    """Guarantees 200 and 300, ceilings 250 and 1000: by guarantees 400 and 600; so 250 and 750."""
    from cotenant.executors.attempt import Attempt
    from cotenant.executors.company import granted_milli
    from cotenant.model.placement import Placement, Share

    def run(job_id: int, milli: int, limit: int) -> Any:
        class Run:
            place = Placement((0,), Share("spatial", GIB, milli, limit))

        return Run()

    one, two = run(0, 200, 250), run(1, 300, 1000)
    members: tuple[Attempt, ...] = (one, two)
    assert (granted_milli(one, members), granted_milli(two, members)) == (250, 750.0)


def test_explain_tells_what_was_lent_and_taken_back(tmp_path: Path) -> None:
    h = day("1x1", rules=LINEAR)
    part(h, "a", 300)
    part(h, "b", 700, at_s=100.0, runs_s=70.0)
    (tmp_path / "log").write_bytes(h.run().log)
    told = {step.t: step.text for step in explain(tmp_path / "log", "a").steps if "idle-compute" in step.text}
    assert "a neighbour came who is guaranteed a part of that device" in told[100.0]
    assert "limit before 30 %, limit after 90 %" in told[170.0]


def test_bad_parameters_are_refused() -> None:
    for wrong in ({"most": 0.0}, {"most": 1.1}, {"groups": (2, 4)}, {"groups": (0,)}, {"quota": ("x",)}):
        with pytest.raises(ConfigError):
            GaiaGpu(**wrong)
    with pytest.raises(ConfigError):
        Settings(elastic_shares=1.5).check()


# -- contract ------------------------------------------------------------------------------------


@given(
    st.builds(GaiaGpu, elastic=st.booleans(), groups=st.sampled_from([(), (2,), (4, 2)]), quota=st.just(())),
    clusters(),
    jobs(),
    settings(),
)
@hyp(max_examples=80, deadline=None)
def test_any_run(policy: GaiaGpu, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings) -> None:
    """No refusals, no index needed, everybody ends."""
    check(policy, cluster, rows, rules)
