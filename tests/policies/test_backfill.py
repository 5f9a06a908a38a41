"""EASY backfill: hand-made days, and the plain reference on random ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.plan import Reason
from cotenant.model.ports import Interval
from cotenant.model.settings import Settings
from cotenant.policies.backfill import Backfill
from cotenant.testing import Harness, HarnessRun

MIN = 60.0


@dataclass
class PlainJob:
    number: int
    submit: int
    gpus: int
    runs: int
    predicted: int
    kinds: tuple[int, ...]
    tenant: str = ""
    priority: int = 0
    start: int = -1
    node: int = -1


@dataclass
class PlainNode:
    kind: int
    size: int
    jobs: list[PlainJob] = field(default_factory=list)

    def free(self) -> int:
        return self.size - sum(j.gpus for j in self.jobs)


class Reference:
    """EASY backfill, as plainly as it can be said: lists, loops, whole seconds.

    Written from the rules, not from the policy: every job is looked at every time. Gangs
    stay on one node. ``speeds`` is by kind; ``limits`` by tenant.
    """

    def __init__(self, nodes: list[PlainNode], speeds: list[int], limits: dict[str, int]) -> None:
        self.nodes, self.speeds, self.limits = nodes, speeds, limits
        self.queue: list[PlainJob] = []
        self.now = 0

    def run(self, jobs: list[PlainJob], instants: list[int]) -> None:
        """Besides starts and ends, the scheduler is called at ``instants`` (jobs rejected on arrival)."""
        coming = sorted(jobs, key=lambda j: j.number)
        while True:
            ends = [self.true_end(j) for n in self.nodes for j in n.jobs]
            times = [*ends, *(j.submit for j in coming[:1])]
            if not times:
                return
            self.now = min([*times, *(t for t in instants if t > self.now)])
            for node in self.nodes:
                node.jobs = [j for j in node.jobs if self.true_end(j) > self.now]
            while coming and coming[0].submit <= self.now:
                self.queue.append(coming.pop(0))
            while self.start_one():
                pass

    def true_end(self, job: PlainJob) -> int:
        return job.start + job.runs // self.speeds[self.nodes[job.node].kind]

    def predicted_end(self, job: PlainJob) -> float:
        if not job.predicted:
            return math.inf
        work, speed = job.predicted, self.speeds[self.nodes[job.node].kind]
        while job.start + work // speed <= self.now:
            work *= 2
        return job.start + work // speed

    def over_limit(self, job: PlainJob, besides: int = 0) -> bool:
        if job.tenant not in self.limits:
            return False
        used = sum(j.gpus for n in self.nodes for j in n.jobs if j.tenant == job.tenant)
        return used + job.gpus + besides > self.limits[job.tenant]

    def tightest(self, job: PlainJob, but: int = -1) -> int:
        for kind in job.kinds:
            fitting = [
                (n.free(), i)
                for i, n in enumerate(self.nodes)
                if n.kind == kind and n.free() >= job.gpus and i != but
            ]
            if fitting:
                return min(fitting)[1]
        return -1

    def start(self, job: PlainJob, node: int) -> bool:
        self.queue.remove(job)
        job.start, job.node = self.now, node
        self.nodes[node].jobs.append(job)
        return True

    def start_one(self) -> bool:
        self.queue.sort(key=lambda j: (-j.priority, j.number))
        allowed = [j for j in self.queue if not self.over_limit(j)]
        if not allowed:
            return False
        head = allowed[0]
        node = self.tightest(head)
        if node >= 0:
            return self.start(head, node)
        kept, at = self.reservation(head)
        for job in allowed[1:]:
            tenants = job.tenant == head.tenant and self.over_limit(job, head.gpus)
            node = self.tightest(job, kept)
            if node >= 0 and (not tenants or self.in_time(job, node, at)):
                return self.start(job, node)
            if node < 0 <= kept and self.nodes[kept].kind in job.kinds:
                if self.nodes[kept].free() < job.gpus:
                    continue
                spare = 0
                if at < math.inf:
                    spare = self.free_at(self.nodes[kept], at) - head.gpus
                if (job.gpus <= spare and not tenants) or self.in_time(job, kept, at):
                    return self.start(job, kept)
        return False

    def in_time(self, job: PlainJob, node: int, at: float) -> bool:
        if not job.predicted or at == math.inf:
            return False
        return self.now + job.predicted // self.speeds[self.nodes[node].kind] <= at

    def free_at(self, node: PlainNode, at: float) -> int:
        return node.size - sum(j.gpus for j in node.jobs if self.predicted_end(j) > at)

    def reservation(self, head: PlainJob) -> tuple[int, float]:
        """Node and time; -1 if no node is large enough."""
        best: tuple[int, float] = (-1, math.inf)
        for kind in head.kinds:
            for i, node in enumerate(self.nodes):
                if node.kind != kind or node.size < head.gpus:
                    continue
                times = sorted({self.predicted_end(j) for j in node.jobs})
                at = next(t for t in times if t == math.inf or self.free_at(node, t) >= head.gpus)
                if best[0] < 0 or at < best[1]:
                    best = (i, at)
        return best


class Predicted:
    """Predictions from a table by name; 0 is unknown."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    def predict_s(self, job: Any) -> Interval:
        value = self.seconds[job.name]
        return Interval(value, value, value)

    def observe(self, job: Any, work_s: float) -> None:
        """Nothing to learn."""

    def describe(self) -> dict[str, Any]:
        return {"kind": "table"}


def test_a_big_job_starts_when_promised_while_a_short_one_slips_in() -> None:
    # Eight 1-GPU jobs end at 60, 65, ..., 95 min, so B (8 GPUs) can start at 95 min and not before.
    # From 60 min on there are free devices, but a 60-min job would end after 95; s (20 min) ends at 82.
    h = Harness("1x8", Backfill())
    for i in range(8):
        h.submit(f"first{i}", runs_s=(60 + 5 * i) * MIN)
    h.submit("B", at_s=1 * MIN, gpus=8, runs_s=10 * MIN)
    for i in range(288):
        h.submit(f"small{i}", at_s=(5 + 5 * i) * MIN, runs_s=60 * MIN)
    h.submit("s", at_s=62 * MIN, runs_s=20 * MIN)
    run = h.run(invariants=False)
    assert run.start_s("B") == 95 * MIN
    assert (run.start_s("s"), run.end_s("s")) == (62 * MIN, 82 * MIN)
    early = [s for i in range(288) if 60 * MIN <= (s := run.start_s(f"small{i}") or 0.0) < 95 * MIN]
    assert early == []
    assert run.start_s("small0") == 105 * MIN
    assert run.refusals() == []


def test_with_nothing_known_the_reserved_node_runs_empty() -> None:
    # Nobody knows anything: no 1-GPU job may take a place that B waits for; B starts when the last ends.
    h = Harness("1x8", Backfill(), runtime=Predicted(dict.fromkeys(["B", *"abcdefghijkl"], 0.0)))
    for i, name in enumerate("abcdefgh"):
        h.submit(name, runs_s=100.0 + i)
    h.submit("B", at_s=1.0, gpus=8, runs_s=10.0)
    for name in "ijkl":
        h.submit(name, at_s=2.0, runs_s=100.0)
    assert h.run().start_s("B") == 107.0


def test_two_gangs_of_the_whole_cluster_run_one_after_the_other() -> None:
    # 4 nodes x 1 GPU, two gangs of 4, 600 s each: never halves of both.
    h = Harness("4x1", Backfill())
    h.submit("a", gpus=4, runs_s=600.0)
    h.submit("b", gpus=4, runs_s=600.0)
    run = h.run()
    # Spread over four nodes where one would be too small, no extra nodes are used: full speed.
    assert (run.end_s("a"), run.end_s("b")) == (600.0, 1200.0)


def test_a_gang_larger_than_the_cluster_is_rejected_at_once() -> None:
    h = Harness("1x4", Backfill())
    h.submit("five", gpus=5)
    h.submit("one", gpus=1)
    run = h.run()
    rejected = run.of("five", ev.Rejected)
    assert [(e.t, e.reason) for e in rejected] == [(0.0, "never-fits")]
    assert run.start_s("one") == 0.0


def test_the_only_job_that_fits_is_found_deep_in_the_queue() -> None:
    # Model X is taken until 1000 s; 5,000 jobs wait for it; the one for model Y sits behind 2,500 of them.
    cluster = Cluster(
        nodes=(Node(name="x", gpus=(("X", 8),)), Node(name="y", gpus=(("Y", 8),))),
        types=(DeviceType(name="X"), DeviceType(name="Y")),
    )
    h = Harness(cluster, Backfill())
    h.submit("holder", gpus=8, runs_s=1000.0, device_types=["X"])
    for i in range(5000):
        h.submit(f"w{i:04d}", at_s=1.0, gpus=8, runs_s=1.0, device_types=["X"])
    h.submit("deep", at_s=1.0 + 1e-6, gpus=1, runs_s=1.0, device_types=["Y"])
    run = h.run(invariants=False)
    assert run.start_s("deep") == 1.0 + 1e-6
    assert run.start_s("w0000") == 1000.0


def test_a_short_job_deep_in_one_line_goes_first_of_those_that_may() -> None:
    # 1x4: a (3 GPUs) till 100, head needs 4: reserved from 100. One device is free: of 300 one-GPU jobs only
    # those of at most 90 s at t=10 may start; the first such is number 200, though 250 is shorter.
    h = Harness("1x4", Backfill())
    h.submit("a", gpus=3, runs_s=100.0)
    h.submit("head", at_s=5.0, gpus=4, runs_s=50.0)
    for i in range(300):
        h.submit(f"j{i:03d}", at_s=10.0, runs_s={200: 90.0, 250: 5.0}.get(i, 90.5))
    run = h.run(invariants=False)
    assert (run.start_s("j200"), run.start_s("head")) == (10.0, 100.0)
    # The head ends at 150; from then four at a time, 90.5 s each: before j250 are 249, 62 rounds of 4 and one.
    assert run.start_s("j250") == 150.0 + 62 * 90.5
    assert run.reasons("head") == [Reason.NO_CAPACITY]
    held = run.of("head", ev.Held)[0]
    assert held.facts == {
        "needs_gpus": 4,
        "free_gpus": 1,
        "largest_block_gpus": 1,
        "reserved_from_s": 100.0,
    }


def test_spare_devices_of_the_reserved_node_may_be_held_for_long() -> None:
    # 1x8: a holds 6 till 100, head needs 4: at 100 eight less its 4 are spare: one 2-GPU job of 1000 s may
    # start at once on the 2 free devices; a second would need more than is spare in total (2 + 2 <= 4, but
    # nothing is free); the head still starts at 100.
    h = Harness("1x8", Backfill())
    h.submit("a", gpus=6, runs_s=100.0)
    h.submit("head", at_s=1.0, gpus=4, runs_s=10.0)
    h.submit("long", at_s=2.0, gpus=2, runs_s=1000.0)
    run = h.run()
    assert (run.start_s("long"), run.start_s("head")) == (2.0, 100.0)


def test_the_reserved_node_moves_when_a_prediction_is_outlived() -> None:
    # Node 0: a (2 GPUs) predicted 50, truly 300. Node 1: b (1 GPU) predicted and truly 80. Head (2 GPUs), t=2:
    # node 0 is kept, from 50. At t=60 a is predicted to end at 100 (twice 50), so node 1 is kept, from 80:
    # d (30 s) would end there at 90 and waits; e (20 s) ends at 80 and starts. The head starts at 80, d at 90.
    seconds = {"a": 50.0, "b": 80.0, "head": 10.0, "d": 30.0, "e": 20.0}
    h = Harness("2x2", Backfill(), runtime=Predicted(seconds))
    h.submit("a", gpus=2, runs_s=300.0)
    h.submit("b", runs_s=80.0)
    h.submit("head", at_s=2.0, gpus=2, runs_s=10.0)
    h.submit("d", at_s=60.0, runs_s=30.0)
    h.submit("e", at_s=60.0, runs_s=20.0)
    run = h.run()
    assert (run.start_s("e"), run.start_s("head"), run.start_s("d")) == (60.0, 80.0, 90.0)


def test_a_tenant_at_its_ceiling_blocks_only_itself() -> None:
    # Ceiling 2 for "a". a1 holds 2; a2 must wait though the cluster has room; b1 goes past it.
    cluster = Cluster.uniform(4, gpus_per_node=4, tenants=(Tenant(name="a", limit_gpus=2), Tenant(name="b")))
    h = Harness(cluster, Backfill())
    h.submit("a1", gpus=2, runs_s=100.0, tenant="a")
    h.submit("a2", at_s=1.0, gpus=1, runs_s=10.0, tenant="a")
    h.submit("b1", at_s=2.0, gpus=2, runs_s=500.0, tenant="b")
    run = h.run()
    assert (run.start_s("b1"), run.start_s("a2")) == (2.0, 100.0)
    assert run.reasons("a2") == [Reason.TENANT_LIMIT]


def test_a_job_that_could_use_up_the_heads_ceiling_must_end_in_time_wherever_it_goes() -> None:
    # Ceiling 2 for "t". The head (t, 2 GPUs) waits for the fast node till 100. j (t, 50 s): on the slow node it
    # would run 200 s and hold the ceiling beyond 100, so not at 2. At 3 x takes the slow node; on the fast one j
    # ends at 53: it starts at 3, and the head at 100.
    cluster = Cluster(
        nodes=(Node(name="f", gpus=(("fast", 2),)), Node(name="s", gpus=(("slow", 1),))),
        types=(DeviceType(name="fast"), DeviceType(name="slow", speed=0.25)),
        tenants=(Tenant(name="t", limit_gpus=2), Tenant(name="u")),
    )
    h = Harness(cluster, Backfill())
    h.submit("a", runs_s=100.0, tenant="u", device_types=["fast"])
    h.submit("head", at_s=1.0, gpus=2, runs_s=10.0, tenant="t")
    h.submit("j", at_s=2.0, runs_s=50.0, tenant="t")
    h.submit("x", at_s=3.0, runs_s=50.0, tenant="u", device_types=["slow"])
    run = h.run()
    assert (run.start_s("j"), run.start_s("head")) == (3.0, 100.0)


def test_a_gang_over_nodes_is_promised_enough_devices_wherever() -> None:
    # 2x2 = 4 devices. a (1) till 100, b (1) till 50. The head needs 3: with 2 free, it starts when b ends: at 50;
    # at 50 exactly 3 are free, so one more 1-GPU job must end by 50: c (60 s) waits, d (40 s) starts at 2.
    h = Harness("2x2", Backfill())
    h.submit("a", runs_s=100.0)
    h.submit("b", runs_s=50.0)
    h.submit("head", at_s=1.0, gpus=3, runs_s=10.0)
    h.submit("c", at_s=2.0, runs_s=60.0)
    h.submit("d", at_s=2.0, runs_s=40.0)
    run = h.run()
    assert (run.start_s("d"), run.start_s("head")) == (2.0, 50.0)
    assert run.start_s("c") == 60.0


def test_host_memory_is_kept_with_the_devices() -> None:
    # One node, 4 devices, 100 bytes of host memory. a (1 GPU, 60 bytes) till 100. The head needs 80 bytes: 100.
    # c (1 GPU, 30 bytes, 500 s) has room now but would leave the head 70 bytes at 100: it waits; d needs no
    # host memory, and at 100 three of four devices are spare: it starts.
    node = Node(name="n", gpus=(("gpu", 4),), host_memory_bytes=100)
    h = Harness(Cluster(nodes=(node,), types=(DeviceType(name="gpu"),)), Backfill())
    h.submit("a", runs_s=100.0, host_memory_bytes=60)
    h.submit("head", at_s=1.0, runs_s=10.0, host_memory_bytes=80)
    h.submit("c", at_s=2.0, runs_s=500.0, host_memory_bytes=30)
    h.submit("d", at_s=3.0, runs_s=500.0)
    h.submit("e", at_s=4.0, gpus=0, runs_s=90.0, host_memory_bytes=40)
    run = h.run()
    assert (run.start_s("head"), run.start_s("d"), run.start_s("e")) == (100.0, 3.0, 4.0)
    assert run.start_s("c") == 110.0


def test_a_head_whose_only_node_is_down_holds_up_nobody() -> None:
    cluster = Cluster(
        nodes=(Node(name="big", gpus=(("gpu", 4),)), Node(name="small", gpus=(("gpu", 1),))),
        types=(DeviceType(name="gpu"),),
    )
    h = Harness(cluster, Backfill())
    h.happen(ev.NodeDown(0.5, 0))
    h.happen(ev.NodeUp(500.0, 0))
    h.submit("head", at_s=1.0, gpus=4, runs_s=10.0)
    h.submit("one", at_s=2.0, gpus=1, runs_s=10.0)
    run = h.run()
    assert (run.start_s("one"), run.start_s("head")) == (2.0, 500.0)


SPEEDS = [2, 1]


@st.composite
def days(draw: st.DrawFn) -> dict[str, Any]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4))
    kinds = [draw(st.integers(0, 1)) for _ in sizes]
    jobs = []
    for i in range(draw(st.integers(1, 24))):
        runs = 2 * draw(st.integers(1, 20))
        how = draw(st.sampled_from(["right", "right", "long", "short", "unknown"]))
        jobs.append(
            {
                "name": f"j{i:02d}",
                "at": draw(st.integers(0, 30)),
                "gpus": draw(st.sampled_from([1, 1, 1, 2, 4, 8])),
                "runs": runs,
                "predicted": {"right": runs, "long": 2 * runs, "short": 2 * (runs // 4), "unknown": 0}[how],
                "kinds": draw(st.sampled_from([(0, 1), (0, 1), (0,), (1,)])),
                "tenant": draw(st.sampled_from(["", "", "t"])),
                "priority": draw(st.sampled_from([0, 0, 0, 1])),
            }
        )
    return {"sizes": sizes, "kinds": kinds, "jobs": jobs, "limit": draw(st.sampled_from([None, 2, 5]))}


def played(day: dict[str, Any], **options: Any) -> HarnessRun:
    names = ["fast", "slow"]
    cluster = Cluster(
        nodes=tuple(
            Node(name=f"n{i}", gpus=((names[k], s),))
            for i, (s, k) in enumerate(zip(day["sizes"], day["kinds"], strict=True))
        ),
        types=tuple(DeviceType(name=n, speed=float(s)) for n, s in zip(names, SPEEDS, strict=True)),
        tenants=(Tenant(name="t", limit_gpus=day["limit"]),),
    )
    predicted = Predicted({j["name"]: float(j["predicted"]) for j in day["jobs"]})
    h = Harness(
        cluster,
        Backfill(),
        runtime=predicted,
        settings=options.pop("settings", None) or Settings(),
        **options,
    )
    for j in day["jobs"]:
        h.submit(
            j["name"],
            at_s=float(j["at"]),
            gpus=j["gpus"],
            runs_s=float(j["runs"]),
            device_types=[names[k] for k in j["kinds"]],
            tenant=j["tenant"],
            priority=j["priority"],
        )
    for event in day.get("incidents", ()):
        h.happen(event)
    return h.run(invariants=options.get("invariants", True))


def planned(day: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Start and node of each job by the reference; jobs that never fit are left out."""
    jobs = []
    for number, j in enumerate(sorted(day["jobs"], key=lambda j: (j["at"], j["name"]))):
        kinds = tuple(k for k in j["kinds"] if k in day["kinds"])
        fits = [s for s, k in zip(day["sizes"], day["kinds"], strict=True) if k in kinds and s >= j["gpus"]]
        if fits:
            plain = PlainJob(
                number, j["at"], j["gpus"], j["runs"], j["predicted"], kinds, j["tenant"], j["priority"]
            )
            jobs.append((j["name"], plain))
    nodes = [PlainNode(k, s) for s, k in zip(day["sizes"], day["kinds"], strict=True)]
    limits = {"t": day["limit"]} if day["limit"] is not None else {}
    Reference(nodes, SPEEDS, limits).run([job for _, job in jobs], [j["at"] for j in day["jobs"]])
    return {name: (job.start, job.node) for name, job in jobs if job.start >= 0}


@settings(max_examples=200, deadline=None)
@given(days())
def test_starts_are_those_of_the_plain_reference(day: dict[str, Any]) -> None:
    run = played(day, settings=Settings(gang_span="never"))
    layout = run.state.layout
    found = {
        j["name"]: (run.start_s(j["name"]), layout.device_node[run.devices(j["name"])[0]])
        for j in day["jobs"]
        if run.start_s(j["name"]) is not None
    }
    assert found == planned(day)
    assert run.refusals() == []


@settings(max_examples=60, deadline=None)
@given(days(), st.data())
def test_the_log_does_not_depend_on_what_is_remembered(day: dict[str, Any], data: st.DataObject) -> None:
    node = data.draw(st.integers(0, len(day["sizes"]) - 1))
    t = float(data.draw(st.integers(1, 40)))
    incident = data.draw(st.sampled_from(["none", "down", "drain", "limit", "priority", "cancel"]))
    number = data.draw(st.integers(0, len(day["jobs"]) - 1))
    day["incidents"] = {
        "none": (),
        "down": (ev.NodeDown(t, node), ev.NodeUp(t + 25.0, node)),
        "drain": (ev.Drained(t, node), ev.Undrained(t + 25.0, node)),
        "limit": (ev.TenantLimitChanged(t, "t", 1), ev.TenantLimitChanged(t + 25.0, "t", None)),
        "priority": (ev.PriorityChanged(t, number, 2),),
        "cancel": (ev.CancelRequested(t, number),),
    }[incident]
    rules = Settings(
        gang_span=data.draw(st.sampled_from(["never", "larger-than-node", "any"])),
        start_s=data.draw(st.sampled_from([0.0, 2.0])),
        checkpoint_s=data.draw(st.sampled_from([0.0, 5.0])),
    )
    run = played(day, settings=rules)
    assert run.log == played(day, settings=rules, drop_indexes=True).log
    assert run.refusals() == []
    if incident != "limit" and day["limit"] is None:
        assert len(run.state.records) == 0, "every feasible job ends"


def test_all_at_zero_fills_the_cluster_at_zero() -> None:
    # 10 nodes of 8, 200 jobs of 1, 2, 4 and 8 devices in turn: at t=0 all 80 devices are taken.
    h = Harness("10x8", Backfill())
    for i in range(200):
        h.submit(f"j{i:03d}", gpus=(1, 2, 4, 8)[i % 4], runs_s=100.0 + i)
    run = h.run(invariants=False)
    begun = [e for e in run.events if isinstance(e, ev.Started) and e.t == 0.0]
    assert sum(len(e.devices) for e in begun) == 80
    assert len(run.state.records) == 0


def test_names_and_order_of_lines_change_nothing() -> None:
    def starts(names: list[str], order: list[int]) -> list[float | None]:
        h = Harness("2x4", Backfill())
        for i in order:
            h.submit(names[i], at_s=float(i), gpus=(1, 4, 2, 3)[i % 4], runs_s=10.0 + 7 * (i % 5))
        run = h.run()
        return [run.start_s(n) for n in names]

    plain = [f"a{i:02d}" for i in range(20)]
    other = [f"z{97 - i}" for i in range(20)]
    assert starts(plain, list(range(20))) == starts(other, list(reversed(range(20))))


def test_a_backfilled_job_says_by_what_right() -> None:
    h = Harness("1x4", Backfill())
    h.submit("a", gpus=3, runs_s=100.0)
    h.submit("head", at_s=5.0, gpus=4, runs_s=50.0)
    h.submit("short", at_s=10.0, runs_s=90.0)
    run = h.run()
    why = run.of("short", ev.Started)[0].why
    assert why.rule == "backfill-ends-in-time"
    assert run.start_s("head") == pytest.approx(100.0, abs=0.0)
