"""What every preemptive policy must keep to: complete plans, reservations, nobody stopped in vain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.plan import Reason
from cotenant.model.ports import Interval
from cotenant.model.settings import Settings
from cotenant.policies.gittins import Gittins
from cotenant.policies.las import Las
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness, HarnessRun

FREE = Settings(restore_s=0.0)
GB = 10**9
LEVELS = (100.0,)
POLICIES = {
    "srtf": lambda: Srtf(margin_s=0.0),
    "las": lambda: Las(levels=LEVELS),
    "gittins": lambda: Gittins(levels=LEVELS, least_jobs=3),
}
every = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES.keys())


def stops(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, victim, beneficiary) of every eviction."""
    return [(e.t, e.id, e.beneficiary) for e in run.events if isinstance(e, ev.Stopping)]


def slow_victims(make: Any, **fields: Any) -> Harness:
    """Case C36: wA and wB hold two of four GPUs each; saving takes 5 s and 60 s at 1 GB/s.

    p arrives at 100 s: it is shorter, and each victim has attained 200 GPU-seconds by then.
    """
    h = Harness("1x4", make(), settings=FREE)
    h.submit("wA", gpus=2, runs_s=5000.0, state_bytes=5 * GB)
    h.submit("wB", gpus=2, runs_s=5000.0, state_bytes=60 * GB)
    h.submit("p", gpus=4, at_s=100.0, runs_s=20.0, **fields)
    return h


@every
def test_freed_devices_stay_reserved_until_the_last_victim_is_gone(make: Any) -> None:
    run = slow_victims(make).run()
    wa, wb, p = (run.ids[n] for n in ("wA", "wB", "p"))
    assert sorted(stops(run)) == [(100.0, wa, p), (100.0, wb, p)]
    assert [e.t for e in run.of("wA", ev.Suspended)] == [105.0]
    assert run.starts("p") == [160.0]
    # Not readmitted at 105 on its own two devices, but once p has ended.
    assert run.starts("wA") == [0.0, 180.0]
    assert run.refusals() == []


@every
def test_all_devices_are_reserved_before_the_first_victim_stops(make: Any) -> None:
    run = slow_victims(make).run()
    told = [e for e in run.events if isinstance(e, (ev.Reserved, ev.Stopping))]
    assert isinstance(told[0], ev.Reserved)
    assert told[0].devices == (0, 1, 2, 3)


@every
def test_a_reservation_is_given_up_when_its_job_is_cancelled(make: Any) -> None:
    h = slow_victims(make)
    h.happen(ev.CancelRequested(t=120.0, id=2))
    run = h.run()
    assert run.start_s("p") is None
    # wA was saved at 105 and finds its devices free again at 120; wB once it is saved.
    assert run.starts("wA") == [0.0, 120.0]
    assert run.starts("wB") == [0.0, 160.0]
    assert len(stops(run)) == 2


@every
@pytest.mark.parametrize("incident", [ev.Drained, ev.NodeDown])
def test_a_reservation_is_given_up_when_its_node_is_lost(make: Any, incident: type) -> None:
    h = Harness("2x2", make(), settings=FREE)
    h.submit("a", gpus=2, runs_s=5000.0, state_bytes=30 * GB)
    h.submit("b", gpus=2, at_s=1.0, runs_s=4000.0, state_bytes=30 * GB)
    h.submit("p", gpus=2, at_s=100.0, runs_s=20.0)
    h.happen(incident(t=110.0, node=0))
    run = h.run()
    # At 100 the worst victim is a on node 0 (b on node 1 ends sooner, or is level with it on a
    # later node). At 110 the node is lost, so b is stopped too, and saved by 140.
    assert stops(run)[:2] == [(100.0, 0, 2), (110.0, 1, 2)]
    assert run.of("p", ev.Started)[0].devices == (2, 3)
    assert run.start_s("p") == 140.0
    assert run.end_s("a") is not None


@every
def test_a_job_that_never_fits_stops_nobody_and_priority_stops_the_cheapest(make: Any) -> None:
    # Case C37. All but job 6 save 2 GB or more at 1 GB/s; job 6 saves 1 GB.
    h = Harness("11x1", make(), settings=FREE)
    for i in range(11):
        h.submit(f"n{i}", runs_s=46800.0, state_bytes=((i + 5) % 11 + 1) * GB)
    h.submit("p1", at_s=1000.0, runs_s=10.0, priority=5, device_types=["Y"])
    h.submit("p2", at_s=1000.0, runs_s=10.0, priority=5)
    run = h.run()
    assert stops(run) == [(1000.0, 6, 12)]
    assert run.start_s("p2") == 1001.0
    assert run.devices("p2") == (6,)
    assert [e.reason for e in run.of("p1", ev.Rejected)] == [Reason.DEVICE_TYPE.value]


@every
def test_jobs_that_cannot_save_are_never_victims(make: Any) -> None:
    h = Harness("1x2", make(), settings=FREE)
    h.submit("pinned", gpus=2, runs_s=1000.0, suspendable=False)
    h.submit("p", at_s=300.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == []
    assert run.start_s("p") == 1000.0


@every
def test_a_gang_larger_than_a_node_empties_whole_nodes(make: Any) -> None:
    h = Harness("3x2", make(), settings=FREE)
    for i in range(6):
        h.submit(f"s{i}", runs_s=1000.0)
    h.submit("p", gpus=4, at_s=200.0, runs_s=10.0)
    run = h.run()
    assert len(stops(run)) == 4
    assert run.devices("p") == (0, 1, 2, 3)
    assert run.start_s("p") == 200.0


@every
def test_a_gang_that_needs_part_of_another_node_leaves_the_rest_alone(make: Any) -> None:
    h = Harness("3x2", make(), settings=FREE)
    for i in range(6):
        h.submit(f"s{i}", runs_s=1000.0)
    h.submit("p", gpus=3, at_s=200.0, runs_s=10.0)
    run = h.run()
    assert len(stops(run)) == 3
    assert run.devices("p") == (0, 1, 2)


@every
def test_free_devices_are_used_before_victims(make: Any) -> None:
    # Two devices are free: a gang of three needs one more, and stops one single job.
    h = Harness("1x4", make(), settings=FREE)
    h.submit("a", runs_s=1000.0)
    h.submit("b", runs_s=1000.0)
    h.submit("p", gpus=3, at_s=200.0, runs_s=10.0)
    run = h.run()
    assert len(stops(run)) == 1
    assert run.start_s("p") == 200.0


@every
def test_the_smaller_of_two_sufficient_victims_is_stopped(make: Any) -> None:
    h = Harness("1x4", make(), settings=FREE)
    h.submit("three", gpus=3, runs_s=5000.0)
    h.submit("one", runs_s=4000.0, at_s=1.0)
    h.submit("p", at_s=200.0, runs_s=10.0)
    run = h.run()
    assert stops(run)[:1] == [(200.0, run.ids["one"], run.ids["p"])]


@every
def test_nobody_is_stopped_before_the_minimum_quantum(make: Any) -> None:
    h = Harness("1x1", make(), settings=Settings(restore_s=0.0, min_quantum_s=300.0))
    h.submit("a", runs_s=5000.0)
    h.submit("p", at_s=150.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == [(300.0, 0, 1)]
    assert run.start_s("p") == 300.0
    assert run.refusals() == []


@every
def test_a_job_of_higher_priority_is_never_stopped_for_a_lower_one(make: Any) -> None:
    h = Harness("1x1", make(), settings=FREE)
    h.submit("a", runs_s=5000.0, priority=1)
    h.submit("p", at_s=150.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == []
    assert run.start_s("p") == 5000.0


@every
def test_a_running_job_whose_priority_falls_can_be_stopped(make: Any) -> None:
    h = Harness("1x1", make(), settings=FREE)
    h.submit("a", runs_s=5000.0, priority=1)
    h.submit("p", at_s=150.0, runs_s=10.0)
    h.happen(ev.PriorityChanged(t=400.0, id=0, priority=0))
    run = h.run()
    assert stops(run) == [(400.0, 0, 1)]


@every
def test_a_tenant_at_its_ceiling_does_not_hold_back_others(make: Any) -> None:
    cluster = Cluster.uniform(2, gpus_per_node=2, tenants=[Tenant(name="t", limit_gpus=1)])
    h = Harness(cluster, make(), settings=FREE)
    h.submit("a", runs_s=100.0, tenant="t")
    h.submit("b", runs_s=10.0, tenant="t", at_s=1.0)
    h.submit("c", runs_s=10.0, tenant="u", at_s=2.0)
    run = h.run()
    assert run.start_s("c") == 2.0
    assert run.start_s("b") == 100.0
    assert run.reasons("b") == [Reason.TENANT_LIMIT]
    assert run.refusals() == []


@every
def test_host_needs_count_what_the_victims_give_back(make: Any) -> None:
    gpu = DeviceType(name="gpu")
    node = Node(name="n", gpus=(("gpu", 2),), cpu_milli=4000)
    h = Harness(Cluster(types=(gpu,), nodes=(node,)), make(), settings=FREE)
    h.submit("big", runs_s=5000.0, cpu_milli=3000)
    h.submit("small", runs_s=6000.0, cpu_milli=1000)
    h.submit("p", at_s=200.0, runs_s=10.0, cpu_milli=2000)
    run = h.run()
    # Stopping "small" would free a device, but only 1 core.
    assert stops(run) == [(200.0, run.ids["big"], run.ids["p"])]
    assert run.refusals() == []


@every
def test_cpu_only_jobs_wait_for_cpu_and_stop_nobody(make: Any) -> None:
    gpu = DeviceType(name="gpu")
    node = Node(name="n", gpus=(("gpu", 1),), cpu_milli=1000)
    h = Harness(Cluster(types=(gpu,), nodes=(node,)), make(), settings=FREE)
    h.submit("a", gpus=0, runs_s=500.0, cpu_milli=1000)
    h.submit("b", gpus=0, at_s=200.0, runs_s=10.0, cpu_milli=1000)
    h.submit("g", gpus=1, at_s=300.0, runs_s=10.0)
    run = h.run()
    assert run.start_s("b") == 500.0
    assert run.start_s("g") == 300.0
    assert stops(run) == []


@every
def test_all_at_once_fill_the_cluster_and_all_end(make: Any) -> None:
    h = Harness("4x8", make(), settings=FREE)
    for i in range(60):
        h.submit(f"j{i}", gpus=(1, 2, 4, 8)[i % 4], runs_s=50.0 + 7.0 * (i % 5))
    run = h.run()
    # 32 devices are in use at once: no device is free while somebody fits.
    assert sum(len(e.devices) for e in run.events if isinstance(e, ev.Started) and e.t == 0.0) == 32
    assert run.state.counts["done"] == 60


@st.composite
def days(draw: st.DrawFn) -> dict[str, Any]:
    """A small cluster, a few jobs, and perhaps an incident."""
    nodes, size = draw(st.sampled_from([(1, 4), (2, 2), (3, 4), (2, 8)]))
    jobs = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "gpus": st.sampled_from([1, 1, 1, 2, 3, 4, 6]),
                    "at_s": st.integers(0, 200).map(float),
                    "runs_s": st.integers(1, 300).map(float),
                    "priority": st.sampled_from([0, 0, 0, 1]),
                    "suspendable": st.sampled_from([True, True, True, False]),
                    "state_bytes": st.sampled_from([0, 2 * GB, 9 * GB]),
                    "tenant": st.sampled_from(["", "t"]),
                }
            ),
            min_size=2,
            max_size=18,
        )
    )
    settings = Settings(
        restore_s=draw(st.sampled_from([0.0, 3.0])),
        min_quantum_s=draw(st.sampled_from([0.0, 25.0])),
        gang_span=draw(st.sampled_from(["larger-than-node", "any", "never"])),
    )
    at, node = draw(st.integers(10, 250)), draw(st.integers(0, nodes - 1))
    incidents: list[ev.Event] = draw(
        st.sampled_from(
            [
                [],
                [ev.NodeDown(float(at), node), ev.NodeUp(at + 100.0, node)],
                [ev.Drained(float(at), node), ev.Undrained(at + 100.0, node)],
                [ev.CancelRequested(float(at), 1)],
                [ev.PriorityChanged(float(at), 0, 2), ev.PriorityChanged(at + 20.0, 1, -1)],
                [ev.TenantLimitChanged(float(at), "t", 2), ev.TenantLimitChanged(at + 90.0, "t", None)],
            ]
        )
    )
    known = draw(st.sampled_from(["true", "half", "unknown"]))
    return {
        "cluster": f"{nodes}x{size}",
        "jobs": jobs,
        "settings": settings,
        "incidents": incidents,
        "known": known,
    }


class Told:
    """Predictions that may be wrong or missing."""

    def __init__(self, day: dict[str, Any]) -> None:
        self.factor = {"true": 1.0, "half": 0.5, "unknown": 0.0}[day["known"]]
        self.seconds = {f"j{i}": job["runs_s"] for i, job in enumerate(day["jobs"])}

    def predict_s(self, job: Any) -> Interval:
        """Every third job's prediction is off by the day's factor."""
        value = self.seconds[job.name] * (self.factor if job.name[-1] in "0369" else 1.0)
        return Interval(value, value, value)

    def observe(self, job: Any, work_s: float) -> None:
        """Nothing to learn."""

    def describe(self) -> dict[str, Any]:
        """For the log."""
        return {"kind": "told"}


def play(day: dict[str, Any], policy: Any, **options: Any) -> HarnessRun:
    """Run a day to its end."""
    h = Harness(day["cluster"], policy, settings=day["settings"], runtime=Told(day), **options)
    for i, job in enumerate(day["jobs"]):
        h.submit(f"j{i}", **job)
    for event in day["incidents"]:
        h.happen(event)
    return h.run()


@every
@hyp(max_examples=60, deadline=None)
@given(day=days())
def test_every_job_ends_no_decision_is_refused_and_indexes_change_nothing(
    make: Any, day: dict[str, Any]
) -> None:
    run = play(day, make())
    assert run.refusals() == []
    assert dict(run.state.records) == {}
    assert run.state.ledger.reserved == {}
    pinned = {run.ids[f"j{i}"] for i, job in enumerate(day["jobs"]) if not job["suspendable"]}
    assert not pinned & {victim for _, victim, _ in stops(run)}
    assert play(day, make(), drop_indexes=True).log == run.log


@every
@hyp(max_examples=40, deadline=None)
@given(day=days())
def test_nobody_stops_the_job_that_stopped_it(make: Any, day: dict[str, Any]) -> None:
    # With true predictions, or two levels, and constant priorities there is no way back.
    day |= {"known": "true", "incidents": []}
    pairs = {(victim, beneficiary) for _, victim, beneficiary in stops(play(day, make()))}
    assert not pairs & {(b, v) for v, b in pairs}
