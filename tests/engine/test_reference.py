"""FIFO against references written here from scratch, and the published exact results."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cotenant
from cotenant.engine.loop import Loop
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.workload import Workload
from cotenant.policies.fifo import Fifo

Jobs = list[tuple[int, int, int]]
"""For each job: submission, devices, running time; whole numbers, so that sums are exact."""


class Starts:
    """Keeps starts and ends by job."""

    def __init__(self) -> None:
        self.starts: dict[int, float] = {}
        self.devices: dict[int, tuple[int, ...]] = {}
        self.ends: dict[int, float] = {}

    def see(self, events: list[ev.Event]) -> None:
        for e in events:
            if isinstance(e, ev.Started):
                self.starts[e.id], self.devices[e.id] = e.t, e.devices
            elif isinstance(e, ev.Ended):
                self.ends[e.id] = e.t


def simulate(jobs: Jobs, cluster: Cluster) -> Starts:
    frame = pl.DataFrame(
        {
            "name": [f"{i:06}" for i in range(len(jobs))],
            "submit_s": [float(s) for s, _, _ in jobs],
            "gpus": [g for _, g, _ in jobs],
            "duration_s": [float(d) for _, _, d in jobs],
        }
    )
    seen = Starts()
    executor = SimulatedExecutor(Workload(frame), cluster)
    Loop(cluster=cluster, policy=Fifo(), executor=executor, observers=[seen]).run()
    return seen


def reference_counts(jobs: Jobs, gpus: int) -> list[int]:
    """Start of each job where only the number of devices matters: nobody before his elder."""
    starts: list[int] = []
    busy: list[tuple[int, int]] = []  # (end, devices)
    for submit, needs, length in jobs:
        t = max(submit, starts[-1] if starts else submit)
        while sum(g for end, g in busy if end > t) + needs > gpus:
            t = min(end for end, _ in busy if end > t)
        starts.append(t)
        busy.append((t + length, needs))
    return starts


def reference_nodes(jobs: Jobs, nodes: int, size: int) -> list[tuple[int, tuple[int, ...]]]:
    """Start and devices of each job where a gang lies on one node: the tightest, the lowest first."""
    found: list[tuple[int, tuple[int, ...]]] = []
    held: list[tuple[int, tuple[int, ...]]] = []  # (end, devices)
    for submit, needs, length in jobs:
        t = max(submit, found[-1][0] if found else submit)
        while True:
            taken = {d for end, devices in held if end > t for d in devices}
            free = [[d for d in range(n * size, n * size + size) if d not in taken] for n in range(nodes)]
            fitting = sorted((len(f), n) for n, f in enumerate(free) if len(f) >= needs)
            if fitting:
                break
            t = min(end for end, _ in held if end > t)
        devices = tuple(free[fitting[0][1]][:needs])
        found.append((t, devices))
        held.append((t + length, devices))
    return found


def check_counts(jobs: Jobs, gpus: int) -> None:
    seen = simulate(jobs, Cluster.uniform(gpus, gpus_per_node=gpus))
    expected = reference_counts(jobs, gpus)
    assert [seen.starts[i] for i in range(len(jobs))] == expected
    assert [seen.ends[i] for i in range(len(jobs))] == [
        s + d for s, (_, _, d) in zip(expected, jobs, strict=True)
    ]


def check_nodes(jobs: Jobs, nodes: int, size: int) -> None:
    seen = simulate(jobs, Cluster.uniform(nodes * size, gpus_per_node=size))
    found = [(seen.starts[i], seen.devices[i]) for i in range(len(jobs))]
    assert found == reference_nodes(jobs, nodes, size)


def workloads(widest: int) -> st.SearchStrategy[Jobs]:
    """Up to 25 jobs; small numbers, so that ties of all kinds are common."""
    job = st.tuples(st.integers(0, 12), st.integers(1, widest), st.integers(1, 9))
    return st.lists(job, max_size=25).map(lambda jobs: sorted(jobs, key=lambda j: j[0]))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_fifo_on_counts_equals_the_reference(data: st.DataObject) -> None:
    gpus = data.draw(st.integers(1, 9))
    check_counts(data.draw(workloads(gpus)), gpus)


@settings(max_examples=150, deadline=None)
@given(workloads(8), st.integers(1, 3))
def test_fifo_on_nodes_of_8_equals_the_reference(jobs: Jobs, nodes: int) -> None:
    check_nodes(jobs, nodes, 8)


def draw(rng: random.Random, widest: int) -> Jobs:
    at, jobs = 0, []
    pace = rng.choice([0, 1, 4, 20])
    for _ in range(rng.randint(1, 16)):
        at += rng.randint(0, pace)
        jobs.append((at, rng.randint(1, widest), rng.randint(1, 30)))
    return jobs


def test_fifo_equals_the_references_on_3000_small_workloads() -> None:
    rng = random.Random(7)
    for _ in range(1500):
        gpus = rng.randint(1, 12)
        check_counts(draw(rng, gpus), gpus)
    for _ in range(1500):
        size = rng.choice([1, 2, 4, 8])
        check_nodes(draw(rng, size), rng.randint(1, 4), size)


def test_the_references_are_right_by_hand() -> None:
    # 4 devices: (0, 3, 10) runs 0-10; (1, 2, 5) needs 2, 1 is free: waits for 10, runs to 15;
    # (2, 1, 1) may not overtake: 10; (2, 2, 1): 2 + 1 are held at 10, so at 11.
    assert reference_counts([(0, 3, 10), (1, 2, 5), (2, 1, 1), (2, 2, 1)], 4) == [0, 10, 10, 11]
    # Two nodes of 4: 3 on node 0; 2 on node 1; 1 on node 0, the tightest; 2 on node 1.
    assert reference_nodes([(0, 3, 10), (0, 2, 5), (0, 1, 9), (0, 2, 1), (0, 2, 1)], 2, 4) == [
        (0, (0, 1, 2)),
        (0, (4, 5)),
        (0, (3,)),
        (0, (6, 7)),
        (1, (6, 7)),
    ]


@pytest.mark.data
@pytest.mark.parametrize(
    ("trace", "gpus", "mean_jct_s"),
    [
        ("n500-g64", 64, 8250.8),
        ("n2000-g64", 64, 8984.1),
        ("n8000-g64", 64, 15595.3),
        ("n8000-g512", 512, 5703.9),
    ],
)
def test_the_mean_completion_time_of_the_common_traces_is_exact(
    data_dir: Path, trace: str, gpus: int, mean_jct_s: float
) -> None:
    workload = cotenant.load(data_dir / "traces" / "common" / f"common-{trace}.csv.gz")
    cluster = Cluster.uniform(gpus, gpus_per_node=gpus)
    seen = Starts()
    Loop(
        cluster=cluster,
        policy=Fifo(),
        executor=SimulatedExecutor(workload, cluster),
        observers=[seen],
    ).run()
    assert len(seen.ends) == len(workload)
    total = sum(seen.ends[job.id] - job.submit_s for job in workload.jobs())
    assert round(total / len(workload), 1) == mean_jct_s
