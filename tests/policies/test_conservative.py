"""Conservative backfill: hand-made days, and a plain reference on random ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.jobs import Job
from cotenant.model.ports import Interval
from cotenant.model.queue import PendingQueue
from cotenant.model.records import JobRecord, Status
from cotenant.model.settings import Settings
from cotenant.policies import conservative
from cotenant.policies.conservative import Conservative
from cotenant.testing import Harness, HarnessRun


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


@dataclass
class PlainJob:
    number: int
    submit: int
    gpus: int
    runs: int
    predicted: int
    start: int = -1
    node: int = -1


@dataclass
class PlainNode:
    size: int
    jobs: list[PlainJob] = field(default_factory=list)


# So large that adding whole seconds changes nothing: all unknown ends are equal.
UNKNOWN = 1e300


class Reference:
    """Promises made by trying every time on every node. Whole seconds, one device type."""

    def __init__(self, sizes: list[int], window: int) -> None:
        self.nodes = [PlainNode(s) for s in sizes]
        self.window = window
        self.queue: list[PlainJob] = []
        self.now = 0

    def run(self, jobs: list[PlainJob], instants: list[int]) -> None:
        coming = sorted(jobs, key=lambda j: j.number)
        while True:
            times = [j.start + j.runs for n in self.nodes for j in n.jobs]
            times += [j.submit for j in coming[:1]]
            if not times:
                return
            self.now = min([*times, *(t for t in instants if t > self.now)])
            for node in self.nodes:
                node.jobs = [j for j in node.jobs if j.start + j.runs > self.now]
            while coming and coming[0].submit <= self.now:
                self.queue.append(coming.pop(0))
            while self.plan():
                pass

    def end(self, job: PlainJob) -> float:
        if not job.predicted:
            return UNKNOWN
        work = job.predicted
        while job.start + work <= self.now:
            work *= 2
        return job.start + work

    def plan(self) -> bool:
        """One pass over the window; whether anybody started, so that others moved up."""
        held: list[list[tuple[float, float, int]]] = [
            [(j.start, self.end(j), j.gpus) for j in n.jobs] for n in self.nodes
        ]
        closed: set[int] = set()
        for job in self.queue[: self.window or None]:
            hold = job.predicted or UNKNOWN
            times = sorted({self.now, *(end for node in held for _, end, _ in node)})
            found = [
                (t, self.size_now(i, held[i]) if t == self.now else 0, i)
                for t in times
                for i in range(len(self.nodes))
                if i not in closed and self.fits(job, i, held[i], t, t + hold)
            ]
            if not found:
                continue
            start, _, node = min(found)
            if start >= UNKNOWN:
                closed.add(node)
            held[node].append((start, start + hold, job.gpus))
            if start == self.now:
                job.start, job.node = self.now, node
                self.nodes[node].jobs.append(job)
        before, self.queue = len(self.queue), [j for j in self.queue if j.start < 0]
        return len(self.queue) < before

    def size_now(self, node: int, held: list[tuple[float, float, int]]) -> int:
        return self.nodes[node].size - sum(g for a, b, g in held if a <= self.now < b)

    def fits(
        self, job: PlainJob, node: int, held: list[tuple[float, float, int]], since: int, until: int
    ) -> bool:
        points = {since, *(a for a, _, _ in held if since < a < until)}
        return all(
            sum(g for a, b, g in held if a <= t < b) + job.gpus <= self.nodes[node].size for t in points
        )


def test_no_promise_is_broken_where_easy_would_break_one() -> None:
    # 1x4. a (2) till 100. B (4, 50 s) promised 100-150. C (3, 50 s) promised 150-200. d (2, 100 s) at t=3 would
    # end at 103 > 100: waits. e (1, 97 s) at t=3 ends at 100: starts. f (1, 60 s) is promised 150: beside C.
    h = Harness("1x4", Conservative())
    h.submit("a", gpus=2, runs_s=100.0)
    h.submit("B", at_s=1.0, gpus=4, runs_s=50.0)
    h.submit("C", at_s=2.0, gpus=3, runs_s=50.0)
    h.submit("d", at_s=3.0, gpus=2, runs_s=100.0)
    h.submit("e", at_s=3.0, gpus=1, runs_s=97.0)
    h.submit("f", at_s=101.0, gpus=1, runs_s=60.0)
    run = h.run()
    starts = {n: run.start_s(n) for n in "BCdef"}
    # d: after C, on 4 devices less f's one: at 200.
    assert starts == {"B": 100.0, "C": 150.0, "d": 200.0, "e": 3.0, "f": 150.0}


def test_a_window_of_one_is_strict_order() -> None:
    h = Harness("1x2", Conservative(window=1))
    h.submit("a", gpus=1, runs_s=100.0)
    h.submit("b", at_s=1.0, gpus=2, runs_s=10.0)
    h.submit("c", at_s=2.0, gpus=1, runs_s=5.0)
    run = h.run()
    assert (run.start_s("b"), run.start_s("c")) == (100.0, 110.0)


def test_a_negative_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="window must be zero or more, found -1"):
        Conservative(window=-1)


def test_a_gang_over_nodes_is_promised_devices_that_stay_free() -> None:
    # 2x2: a (1) till 100, b (1) till 50. The gang of 3 is promised 50, with both devices free now and b's.
    # c (60 s) would hold one of those; d (40 s) ends at 42.
    h = Harness("2x2", Conservative())
    h.submit("a", runs_s=100.0)
    h.submit("x", gpus=1, runs_s=1.0)
    h.submit("b", runs_s=50.0)
    h.submit("gang", at_s=1.0, gpus=3, runs_s=10.0)
    h.submit("c", at_s=2.0, runs_s=60.0)
    h.submit("d", at_s=2.0, runs_s=40.0)
    run = h.run()
    assert (run.start_s("gang"), run.start_s("d"), run.start_s("c")) == (50.0, 2.0, 60.0)
    assert run.refusals() == []


def test_host_memory_is_promised_too() -> None:
    # One node, 4 devices, 100 bytes. a (60 bytes) till 100; h (80 bytes) promised 100; c (30 bytes, 500 s) would
    # leave it 70; c is promised 110. The CPU-only e (40 bytes, 90 s) ends at 94 and starts.
    node = Node(name="n", gpus=(("gpu", 4),), host_memory_bytes=100)
    h = Harness(Cluster(nodes=(node,), types=(DeviceType(name="gpu"),)), Conservative())
    h.submit("a", runs_s=100.0, host_memory_bytes=60)
    h.submit("h", at_s=1.0, runs_s=10.0, host_memory_bytes=80)
    h.submit("c", at_s=2.0, runs_s=500.0, host_memory_bytes=30)
    h.submit("e", at_s=4.0, gpus=0, runs_s=90.0, host_memory_bytes=40)
    run = h.run()
    assert (run.start_s("h"), run.start_s("c"), run.start_s("e")) == (100.0, 110.0, 4.0)


@st.composite
def days(draw: st.DrawFn) -> dict[str, Any]:
    jobs = []
    for i in range(draw(st.integers(1, 18))):
        runs = draw(st.integers(1, 20))
        how = draw(st.sampled_from(["right", "right", "long", "short", "unknown"]))
        jobs.append(
            {
                "name": f"j{i:02d}",
                "at": draw(st.integers(0, 20)),
                "gpus": draw(st.sampled_from([1, 1, 2, 3, 4])),
                "runs": runs,
                "predicted": {"right": runs, "long": 2 * runs, "short": runs // 2, "unknown": 0}[how],
            }
        )
    sizes = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
    return {"sizes": sizes, "jobs": jobs, "window": draw(st.sampled_from([0, 1, 3, 8]))}


def played(day: dict[str, Any], **options: Any) -> HarnessRun:
    cluster = Cluster(
        nodes=tuple(Node(name=f"n{i}", gpus=(("gpu", s),)) for i, s in enumerate(day["sizes"])),
        types=(DeviceType(name="gpu"),),
        tenants=(Tenant(name="t", limit_gpus=day.get("limit")),),
    )
    predicted = Predicted({j["name"]: float(j["predicted"]) for j in day["jobs"]})
    h = Harness(cluster, Conservative(window=day["window"]), runtime=predicted, **options)
    for j in day["jobs"]:
        h.submit(
            j["name"],
            at_s=float(j["at"]),
            gpus=j["gpus"],
            runs_s=float(j["runs"]),
            tenant=j.get("tenant", ""),
        )
    for event in day.get("incidents", ()):
        h.happen(event)
    return h.run()


@settings(max_examples=150, deadline=None)
@given(days())
def test_starts_are_those_of_the_plain_reference(day: dict[str, Any]) -> None:
    run = played(day, settings=Settings(gang_span="never"))
    found, jobs = {}, []
    for number, j in enumerate(sorted(day["jobs"], key=lambda j: (j["at"], j["name"]))):
        if j["gpus"] <= max(day["sizes"]):
            jobs.append((j["name"], PlainJob(number, j["at"], j["gpus"], j["runs"], j["predicted"])))
            node = run.state.layout.device_node[run.devices(j["name"])[0]]
            found[j["name"]] = (run.start_s(j["name"]), node)
    Reference(day["sizes"], day["window"]).run([job for _, job in jobs], [j["at"] for j in day["jobs"]])
    assert found == {name: (job.start, job.node) for name, job in jobs}
    assert run.refusals() == []
    assert all(job.start < math.inf for _, job in jobs)


@settings(max_examples=50, deadline=None)
@given(days(), st.data())
def test_the_log_does_not_depend_on_what_is_remembered(day: dict[str, Any], data: st.DataObject) -> None:
    node = data.draw(st.integers(0, len(day["sizes"]) - 1))
    t = float(data.draw(st.integers(1, 30)))
    number = data.draw(st.integers(0, len(day["jobs"]) - 1))
    for j in day["jobs"]:
        j["tenant"] = data.draw(st.sampled_from(["", "t"]))
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
    rules = Settings(
        gang_span=data.draw(st.sampled_from(["never", "larger-than-node", "any"])),
        start_s=data.draw(st.sampled_from([0.0, 2.0])),
    )
    run = played(day, settings=rules)
    assert run.log == played(day, settings=rules, drop_indexes=True).log
    assert run.refusals() == []
    assert len(run.state.records) == 0, "every feasible job ends"


def test_all_at_zero_fills_the_cluster_at_zero() -> None:
    # 10 nodes of 8, jobs of 1, 2, 4 and 8 in turn (15 per round): with the first 32 in the window, all 80 devices.
    h = Harness("10x8", Conservative())
    for i in range(80):
        h.submit(f"j{i:03d}", gpus=(1, 2, 4, 8)[i % 4], runs_s=100.0 + i)
    run = h.run(invariants=False)
    begun = [e for e in run.events if isinstance(e, ev.Started) and e.t == 0.0]
    assert sum(len(e.devices) for e in begun) == 80
    assert len(run.state.records) == 0


def test_long_runs_do_not_depend_on_what_is_remembered() -> None:
    # Long enough for the index of ends to drop old changes many times, also while promises are being made;
    # every third prediction is too short, so ends move, too.
    def log(drop: bool) -> Any:
        seconds = {f"j{i:03d}": (40.0 + 37 * (i % 11)) * (0.4 if i % 3 == 0 else 1.0) for i in range(400)}
        h = Harness("4x4", Conservative(), runtime=Predicted(seconds), drop_indexes=drop)
        for i, name in enumerate(seconds):
            gpus = (1, 2, 1, 4, 3)[i % 5]
            h.submit(name, at_s=9.0 * i, gpus=gpus, runs_s=40.0 + 37 * (i % 11))
        return h.run(invariants=False).log

    assert log(False) == log(True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 79), min_size=1, max_size=160),
    st.integers(1, 4),
    st.sampled_from([2, 6, 4096]),
)
def test_the_front_of_the_queue_is_that_of_the_queue(moves: list[int], count: int, most: int) -> None:
    # Each number joins if it does not wait and leaves if it does; every fifth has a higher priority.
    queue, by_id = PendingQueue(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conservative, "_MOST", most)
        front = conservative._Front(SimpleNamespace(queue=queue))  # type: ignore[arg-type]
        for step, number in enumerate(moves):
            record = by_id.pop(number, None)
            if record is None:
                job = Job(id=number, name=str(number), submit_s=0.0, priority=number % 5 == 0)
                record = by_id[number] = JobRecord.of(job, None, 0.0, 0.0)  # type: ignore[arg-type]
                record.attempt = 1
                queue.push(record)
                front.enqueued(record)
            else:
                record.status = Status.RUNNING
                queue.left(record)
                front.dequeued(record)
            if step % 3 == 0:
                assert front.first(count) == list(queue)[:count]
