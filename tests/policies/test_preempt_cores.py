"""Preemption where nodes are short of cores: who holds them gives way, whatever came before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.checks import scenarios
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
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


@pytest.mark.parametrize("cores_milli", [4000, 8000, 12000])
@pytest.mark.parametrize("numbers", [range(10), range(10, 20)], ids=["0-9", "10-19"])
@every
def test_where_cores_are_short_nothing_but_the_state_counts(
    make: Any, numbers: range, cores_milli: int
) -> None:
    def harness(number: int, *, drop: bool) -> Harness:
        made = scenarios.scenario(number, make, drop_indexes=drop)
        made.settings = msgspec.structs.replace(made.settings, min_quantum_s=60.0)
        nodes = tuple(msgspec.structs.replace(n, cpu_milli=cores_milli) for n in made.cluster.nodes)
        made.cluster = msgspec.structs.replace(made.cluster, nodes=nodes).check()
        for i, row in enumerate(made.rows):
            row["cpu_milli"] = 1000 * (1 + i % 4)
        return made

    for number in numbers:
        run = harness(number, drop=False).run()
        assert run.refusals() == []
        assert harness(number, drop=True).run(invariants=False).log == run.log


@every
def test_who_holds_the_cores_gives_way_although_devices_are_free(make: Any) -> None:
    """A node of four GPUs and 8 cores: one job has all cores and one GPU; a shorter one needs 2 cores."""
    node = Node(name="n0", gpus=(("V100", 4),), cpu_milli=8000)
    cluster = Cluster(nodes=(node,), types=(DeviceType(name="V100", memory_bytes=16 * GB),))
    h = Harness(cluster, make(), settings=FREE)
    h.submit("long", runs_s=5000.0, cpu_milli=8000, state_bytes=5 * GB)
    h.submit("short", at_s=200.0, runs_s=20.0, cpu_milli=2000)
    run = h.run()
    # long has attained 200 GPU-seconds and saves for 5 s; the free device that short is given stays its own.
    assert stops(run) == [(200.0, run.ids["long"], run.ids["short"])]
    assert run.starts("short") == [205.0]
    # Its 8 cores are free again once short has ended.
    assert run.starts("long") == [0.0, 225.0]
    assert run.refusals() == []


@every
def test_a_job_is_looked_at_again_when_the_cheapest_nodes_change(make: Any) -> None:
    """Only so many of the cheapest nodes are tried: once one of them is dearer, the next comes to its turn."""

    def harness(*, drop: bool) -> Harness:
        # 16 nodes whose one GPU is free, with too few cores, are cheaper than the one that would do.
        nodes = [Node(name=f"n{i}", gpus=(("V100", 1),), cpu_milli=1000) for i in range(16)]
        nodes.append(Node(name="n16", gpus=(("V100", 1),), cpu_milli=4000))
        cluster = Cluster(nodes=tuple(nodes), types=(DeviceType(name="V100", memory_bytes=16 * GB),))
        h = Harness(cluster, make(), settings=FREE, drop_indexes=drop)
        h.submit("long", runs_s=5000.0, cpu_milli=4000)
        h.submit("needy", at_s=200.0, runs_s=20.0, cpu_milli=4000)
        h.submit("small", at_s=300.0, runs_s=10.0, cpu_milli=1000)
        return h

    run = harness(drop=False).run()
    assert run.starts("small") == [300.0]
    assert stops(run) == [(300.0, run.ids["long"], run.ids["needy"])]
    assert harness(drop=True).run().log == run.log
