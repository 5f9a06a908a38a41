"""Shortest job first, and FIFO that lets later jobs pass: hand-made days and plain references."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.plan import Reason
from cotenant.model.settings import Settings
from cotenant.policies.fifo import Fifo
from cotenant.policies.sjf import Sjf
from cotenant.testing import Harness, HarnessRun


def test_the_shortest_goes_first_and_ties_go_by_order() -> None:
    # One device. At 10 the first ends: of 30, 5, 5 the first 5 goes, then the other, then 30.
    h = Harness("1x1", Sjf())
    h.submit("a", runs_s=10.0)
    for name, runs_s in (("b", 30.0), ("c", 5.0), ("d", 5.0)):
        h.submit(name, at_s=1.0, runs_s=runs_s)
    run = h.run()
    assert [run.start_s(n) for n in "cdb"] == [10.0, 15.0, 20.0]


def test_a_short_gang_that_does_not_fit_is_passed_or_waited_for() -> None:
    # 1x2: a (1) till 100. The gang of 2 is shortest but blocked; x (1 device, 20 s) fits.
    def start_of_x(skip_blocked: bool) -> float | None:
        h = Harness("1x2", Sjf(skip_blocked=skip_blocked))
        h.submit("a", runs_s=100.0)
        h.submit("gang", at_s=1.0, gpus=2, runs_s=10.0)
        h.submit("x", at_s=1.0, runs_s=20.0)
        run = h.run()
        assert run.reasons("gang") == [Reason.NO_CAPACITY]
        return run.start_s("x")

    # Waited for: the gang runs 100-110, then x.
    assert (start_of_x(True), start_of_x(False)) == (1.0, 110.0)


def test_aging_lets_a_long_job_through() -> None:
    # One device; a 5-s job arrives every 5 s from 0 to 100, L (50 s) at 0. Without aging L waits for all 21: 105.
    # With aging 1 a newcomer at t ranks as 5 + t, L as 50 + 0: at t=50 the newcomer's 55 is more, L starts.
    def start_of_long(aging: float) -> float | None:
        h = Harness("1x1", Sjf(aging=aging))
        h.submit("L", at_s=0.0, runs_s=50.0)
        for i in range(21):
            h.submit(f"s{i:02d}", at_s=5.0 * i, runs_s=5.0)
        return h.run().start_s("L")

    # At 45 the newcomer ranks 50, as L does; L was first in the queue and goes at 45.
    assert (start_of_long(0.0), start_of_long(1.0)) == (105.0, 45.0)


def test_aging_must_be_a_finite_number() -> None:
    with pytest.raises(ConfigError, match="aging must be zero or more and finite, found -1"):
        Sjf(aging=-1.0)


def test_fifo_may_let_later_jobs_pass() -> None:
    def start_of_small(head_of_line: bool) -> float | None:
        h = Harness("1x4", Fifo(head_of_line=head_of_line))
        h.submit("a", gpus=3, runs_s=100.0)
        h.submit("big", at_s=1.0, gpus=4, runs_s=10.0)
        h.submit("small", at_s=2.0, gpus=1, runs_s=500.0)
        return h.run().start_s("small")

    assert (start_of_small(True), start_of_small(False)) == (110.0, 2.0)


def test_first_fit_finds_the_one_job_behind_thousands_that_are_blocked() -> None:
    cluster = Cluster(
        nodes=(Node(name="x", gpus=(("X", 8),)), Node(name="y", gpus=(("Y", 8),))),
        types=(DeviceType(name="X"), DeviceType(name="Y")),
    )
    h = Harness(cluster, Fifo(head_of_line=False))
    h.submit("holder", gpus=8, runs_s=1000.0, device_types=["X"])
    for i in range(3000):
        h.submit(f"w{i:04d}", at_s=1.0, gpus=8, device_types=["X"])
    h.submit("deep", at_s=2.0, gpus=1, device_types=["Y"])
    run = h.run(invariants=False)
    assert (run.start_s("deep"), run.start_s("w0000")) == (2.0, 1000.0)


def test_a_full_tenant_blocks_only_itself() -> None:
    tenants = (Tenant(name="a", limit_gpus=1), Tenant(name="b"))
    for policy in (Fifo(head_of_line=False), Sjf(), Sjf(skip_blocked=False)):
        h = Harness(Cluster.uniform(4, gpus_per_node=4, tenants=tenants), policy)
        h.submit("a1", runs_s=100.0, tenant="a")
        h.submit("a2", at_s=1.0, runs_s=5.0, tenant="a")
        h.submit("b1", at_s=2.0, gpus=2, runs_s=50.0, tenant="b")
        run = h.run()
        assert (run.start_s("b1"), run.start_s("a2")) == (2.0, 100.0)
        assert run.reasons("a2") == [Reason.TENANT_LIMIT]


@st.composite
def days(draw: st.DrawFn) -> dict[str, Any]:
    jobs = [
        {
            "name": f"j{i:02d}",
            "at": draw(st.integers(0, 20)),
            "gpus": draw(st.sampled_from([1, 1, 2, 4])),
            "runs": draw(st.integers(1, 20)),
            "tenant": draw(st.sampled_from(["", "t"])),
            "priority": draw(st.sampled_from([0, 0, 1])),
        }
        for i in range(draw(st.integers(1, 20)))
    ]
    sizes = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
    return {"sizes": sizes, "jobs": jobs, "limit": draw(st.sampled_from([None, 2]))}


def played(day: dict[str, Any], policy: Any, **options: Any) -> HarnessRun:
    cluster = Cluster(
        nodes=tuple(Node(name=f"n{i}", gpus=(("g", s),)) for i, s in enumerate(day["sizes"])),
        types=(DeviceType(name="g"),),
        tenants=(Tenant(name="t", limit_gpus=day["limit"]),),
    )
    h = Harness(cluster, policy, **options)
    for j in day["jobs"]:
        h.submit(
            j["name"],
            at_s=float(j["at"]),
            gpus=j["gpus"],
            runs_s=float(j["runs"]),
            tenant=j["tenant"],
            priority=j["priority"],
        )
    for event in day.get("incidents", ()):
        h.happen(event)
    return h.run()


def planned(day: dict[str, Any], rank: Any, skip: bool) -> dict[str, float]:
    """Starts if at every event the first by ``rank`` that fits starts; without ``skip``, the first or none."""
    jobs = sorted(day["jobs"], key=lambda j: (j["at"], j["name"]))
    jobs = [{**j, "id": i} for i, j in enumerate(jobs) if j["gpus"] <= max(day["sizes"])]
    free, used, starts = list(day["sizes"]), 0, {}
    running: list[tuple[int, int, dict[str, Any]]] = []
    now = 0
    while len(starts) < len(jobs):
        for end, node, job in [r for r in running if r[0] <= now]:
            running.remove((end, node, job))
            free[node] += job["gpus"]
            used -= job["gpus"] if job["tenant"] == "t" else 0
        waiting = [j for j in jobs if j["at"] <= now and j["name"] not in starts]
        for job in sorted(waiting, key=rank):
            limit = day["limit"]
            if job["tenant"] == "t" and limit is not None and used + job["gpus"] > limit:
                continue
            rooms = [(f, i) for i, f in enumerate(free) if f >= job["gpus"]]
            if not rooms:
                if skip:
                    continue
                break
            node = min(rooms)[1]
            starts[job["name"]] = float(now)
            free[node] -= job["gpus"]
            used += job["gpus"] if job["tenant"] == "t" else 0
            running.append((now + job["runs"], node, job))
        now += 1
        if now > 1000:
            break
    return starts


@settings(max_examples=60, deadline=None)
@given(days(), st.sampled_from(["fifo", "sjf", "sjf-blocked", "sjf-aging"]))
def test_starts_are_those_of_a_plain_loop(day: dict[str, Any], which: str) -> None:
    policy, rank = {
        "fifo": (Fifo(head_of_line=False), lambda j: (-j["priority"], j["id"])),
        "sjf": (Sjf(), lambda j: (j["runs"], -j["priority"], j["id"])),
        "sjf-blocked": (Sjf(skip_blocked=False), lambda j: (j["runs"], -j["priority"], j["id"])),
        "sjf-aging": (Sjf(aging=0.5), lambda j: (j["runs"] + 0.5 * j["at"], -j["priority"], j["id"])),
    }[which]
    run = played(day, policy, settings=Settings(gang_span="never"))
    found = {j["name"]: s for j in day["jobs"] if (s := run.start_s(j["name"])) is not None}
    assert found == planned(day, rank, which != "sjf-blocked")
    assert run.refusals() == []


@settings(max_examples=60, deadline=None)
@given(days(), st.data())
def test_the_log_does_not_depend_on_what_is_remembered(day: dict[str, Any], data: st.DataObject) -> None:
    node = data.draw(st.integers(0, len(day["sizes"]) - 1))
    t = float(data.draw(st.integers(1, 30)))
    number = data.draw(st.integers(0, len(day["jobs"]) - 1))
    day["incidents"] = data.draw(
        st.sampled_from(
            [
                (),
                (ev.NodeDown(t, node), ev.NodeUp(t + 25.0, node)),
                (ev.Drained(t, node), ev.Undrained(t + 25.0, node)),
                (ev.TenantLimitChanged(t, "t", 1), ev.TenantLimitChanged(t + 25.0, "t", None)),
                (ev.PriorityChanged(t, number, 2),),
                (ev.CancelRequested(t, number),),
            ]
        )
    )
    span = data.draw(st.sampled_from(["never", "any"]))
    for policy in (Fifo(), Fifo(head_of_line=False), Sjf(), Sjf(skip_blocked=False, aging=0.5)):
        run = played(day, policy, settings=Settings(gang_span=span))
        again = played(day, policy, settings=Settings(gang_span=span), drop_indexes=True)
        assert run.log == again.log, repr(policy)
        assert run.refusals() == []


@pytest.mark.parametrize("policy", [Fifo(head_of_line=False), Sjf()], ids=repr)
def test_all_at_zero_fills_the_cluster_at_zero(policy: Any) -> None:
    # 10 nodes of 8; 40 jobs of 8 and 40 of 1: whatever the order, no device is left idle at t=0.
    h = Harness("10x8", policy)
    for i in range(80):
        h.submit(f"j{i:03d}", gpus=(8, 1)[i % 2], runs_s=100.0 + i)
    run = h.run(invariants=False)
    begun = [e for e in run.events if isinstance(e, ev.Started) and e.t == 0.0]
    assert sum(len(e.devices) for e in begun) == 80
    assert len(run.state.records) == 0
