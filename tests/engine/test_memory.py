"""Memory of a long queue: what a blocked job costs, in everything that knows of it."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import polars as pl
import pytest

from cotenant import registry
from cotenant.engine.loop import Loop
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.quantities import GIB
from cotenant.model.workload import Workload
from cotenant.testing import FixedForecast, FixedTruth

_FEW, _MANY = 6_000, 18_000


def _workload() -> Workload:
    # One job takes all devices for ever; then jobs of 16 kinds arrive every second, all with names and lengths.
    count = _MANY + 2_000
    rest = range(1, count)
    frame = {
        "name": [f"job-{i:06}" for i in range(count)],
        "submit_s": [0.0, *(float(i) for i in rest)],
        "duration_s": [1e7, *(1000.0 + i for i in rest)],
        "estimate_s": [1e7, *(1000.5 + 7 * i % 1013 for i in rest)],
        "gpus": [8, *(1 + i % 2 for i in rest)],
        "memory_bytes": [32 * GIB, *((20 + i % 8) * GIB for i in rest)],
        "model": ["m", *(f"m{i % 4}" for i in rest)],
    }
    return Workload(pl.DataFrame(frame))


class _Watch:
    """Notes the memory in use when the queue has reached two lengths, then ends the run."""

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self.notes: list[tuple[int, int]] = []

    def see(self, events: list[Any]) -> None:
        """Look at the queue."""
        assert self.loop is not None
        waiting = self.loop.state.queue.count
        if len(self.notes) < 2 and waiting >= (_FEW, _MANY)[len(self.notes)]:
            gc.collect()
            self.notes.append((waiting, tracemalloc.get_traced_memory()[0]))
            if len(self.notes) == 2:
                self.loop.stop()


@pytest.mark.parametrize(("policy", "most"), [("fifo", 580), ("backfill", 590), ("colocate", 620)])
def test_a_blocked_job_costs_no_more_than_so_many_bytes(policy: str, most: int) -> None:
    """The job, its record, its label and numbers, and its places in queue, table and the policy's own lines."""
    workload, watch = _workload(), _Watch()
    kind = DeviceType(name="gpu", memory_bytes=32 * GIB)
    tracemalloc.start()
    try:
        cluster = Cluster.uniform(8, gpus_per_node=8, gpu_type=kind)
        watch.loop = loop = Loop(
            cluster=cluster,
            policy=registry.load("policy", policy)(),
            executor=SimulatedExecutor(workload, cluster, truth=FixedTruth()),
            forecast=FixedForecast(),
            observers=[watch],
        )
        loop.run()
    finally:
        tracemalloc.stop()
    (few, before), (many, after) = watch.notes
    assert (after - before) / (many - few) <= most
