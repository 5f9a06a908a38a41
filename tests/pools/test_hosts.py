"""Host pools: what nodes draw from them, what the link costs, and that they are never over-committed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cotenant.checks import scenarios
from cotenant.engine.state import State
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.placement import WHOLE, Placement
from cotenant.model.plan import Reason
from cotenant.model.pools import HostPool
from cotenant.model.quantities import GIB
from cotenant.model.rules import check_start
from cotenant.model.settings import Settings
from cotenant.policies.backfill import Backfill
from cotenant.policies.colocate import Colocate
from cotenant.policies.conservative import Conservative
from cotenant.policies.fgd import Fgd
from cotenant.policies.fifo import Fifo
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness

GB = 10**9
FAST = 1e30
"""A link that costs nothing."""


def _cluster(*pools: HostPool, nodes: int = 2, gpus: int = 2, cpus: int = 8) -> Cluster:
    kind = DeviceType(name="gpu", memory_bytes=80 * GB)
    made = tuple(
        Node(name=f"n{i}", gpus=(("gpu", gpus),), cpu_milli=cpus * 1000, host_memory_bytes=64 * GIB)
        for i in range(nodes)
    )
    return Cluster(nodes=made, types=(kind,), host_pools=pools).check()


def test_a_pool_recovers_a_device_that_its_node_has_no_cores_for() -> None:
    # Two nodes of 2 devices and 8 cores. Jobs of 1 device ask for 6, 6 and 3 cores: on their own nodes the third
    # finds 2 cores at each of two free devices, and waits. From a pool of 16 it gets 3 of the 4 left.
    def start_of_third(*pools: HostPool) -> float | None:
        h = Harness(_cluster(*pools), Fifo())
        for name, cores in (("a", 6), ("b", 6), ("c", 3)):
            h.submit(name, runs_s=100.0, cpu_milli=cores * 1000)
        return h.run().start_s("c")

    assert start_of_third() == 100.0
    assert start_of_third(HostPool(name="p")) == 0.0


def test_the_pool_is_the_bound_and_the_refusal_says_so() -> None:
    state = State(_cluster(HostPool(name="p", cpu_milli=10000)), Settings())
    h = Harness("1x1", Fifo())
    h.submit("a", cpu_milli=6000)
    h.submit("b", cpu_milli=6000)
    for event in [ev.Submitted(0.0, job) for job in h.workload().jobs()]:
        state.apply(event)
    state.apply(ev.Started(0.0, 0, 1, (0,)))
    assert state.ledger.free_cpu == [4000, 4000]
    refusal = check_start(state.books, state.records[1], (3,), WHOLE)
    assert refusal is not None
    assert (refusal.reason, refusal.facts["free_cpu_milli"]) == (Reason.HOST, 4000)
    state.apply(ev.Ended(1.0, 0, 1, "done", 1.0))
    assert state.ledger.free_cpu == [10000, 10000]


def test_a_gang_draws_once_from_a_pool_and_in_proportion_from_several() -> None:
    one = State(_cluster(HostPool(name="p"), nodes=3), Settings()).ledger
    assert list(one.host_parts(Placement((0, 1, 2)), 3000, 30)) == [(0, 3000, 30)]
    two = State(_cluster(HostPool(name="p", nodes=("n1", "n2")), nodes=3), Settings()).ledger
    # Node 0 has its own host; nodes 1 and 2 draw together, under the number of the first.
    assert list(two.host_parts(Placement((1, 2, 4)), 3000, 30)) == [(0, 1000, 10), (1, 2000, 20)]
    assert list(two.host_parts(Placement((), node=2), 500, 5)) == [(1, 500, 5)]
    assert two.free_cpu == [8000, 16000, 16000]


def test_a_job_larger_than_any_node_fits_a_pool_and_one_larger_than_the_pool_never_does() -> None:
    h = Harness(_cluster(HostPool(name="p", link_bytes_per_s=FAST, link_latency_s=0.0)), Fifo())
    h.submit("wide", runs_s=10.0, cpu_milli=12000)
    h.submit("wider", runs_s=10.0, cpu_milli=17000)
    h.submit("cpu-only", gpus=0, runs_s=10.0, cpu_milli=16000)
    run = h.run()
    assert run.end_s("wide") == 10.0
    (rejected,) = run.of("wider", ev.Rejected)
    assert (rejected.reason, rejected.facts["largest_node_cpu_milli"]) == ("never-fits", 16000)
    assert run.start_s("cpu-only") == 10.0


def test_the_link_slows_a_job_down_by_what_it_fetches() -> None:
    # 12 GB of host memory, 2 GB of it beside the device: 10 GB in each 10 s of work over 1 GB/s: 1 s of
    # waiting for each second of work, so half the speed. Two devices have two links and 4 GB beside them: 8 GB in
    # 10 s over 2 GB/s: 1 / 1.4. No host memory, no cost.
    pool = HostPool(name="p", link_bytes_per_s=1e9, link_latency_s=0.0, local_bytes=2 * GB, touch_s=10.0)
    h = Harness(_cluster(pool, nodes=1), Fifo(), settings=Settings())
    h.submit("one", runs_s=100.0, host_memory_bytes=12 * GB)
    h.submit("two", at_s=1000.0, gpus=2, runs_s=100.0, host_memory_bytes=12 * GB)
    h.submit("none", at_s=2000.0, runs_s=100.0)
    run = h.run()
    assert run.end_s("one") == 200.0
    assert run.end_s("two") == pytest.approx(1140.0)
    assert run.end_s("none") == 2100.0


def test_latency_and_remote_cores_count_too() -> None:
    # 4 cores send 0.25 GB/s each: 1 GB/s over a link of 2 GB/s: 0.5 s a second; and 1 GB is 1,000 blocks of 1 MB
    # at 0.5 ms each: 0.5 s more.
    pool = HostPool(
        name="p", link_bytes_per_s=2e9, link_latency_s=5e-4, core_bytes_per_s=2.5e8, block_bytes=10**6
    )
    assert pool.speed(0, 4000, 1) == pytest.approx(0.5)


def test_state_crosses_the_link() -> None:
    # 20 GB of state at the slower of 1 GB/s (settings) and the link's 0.5: 40 s instead of 20, each way.
    def resumed_work_s(bytes_per_s: float) -> float | None:
        pool = HostPool(name="p", link_bytes_per_s=bytes_per_s, link_latency_s=0.0)
        h = Harness(_cluster(pool, nodes=1, gpus=1), Srtf(), settings=Settings(restore_s=0.0))
        h.submit("long", runs_s=1000.0, memory_bytes=20 * GB)
        h.submit("short", at_s=100.0, runs_s=10.0)
        return h.run().end_s("long")

    assert resumed_work_s(1e12) == 1000.0 + 10.0 + 40.0
    assert resumed_work_s(5e8) == 1000.0 + 10.0 + 80.0


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ((HostPool(name="p", nodes=("x",)),), 'names node "x", which is not there'),
        ((HostPool(name="p"), HostPool(name="q", nodes=("n1",))), 'node "n1" is in host pools "p" and "q"'),
        ((HostPool(name="p", touch_s=0.0),), "touch_s must be positive"),
        ((HostPool(name="p", cpu_milli=-1),), "cpu_milli must be 0 or more"),
    ],
)
def test_pools_that_make_no_sense_are_refused(pools: tuple[HostPool, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _cluster(*pools)


@given(
    number=st.integers(0, 400),
    cores=st.integers(4, 40),
    share=st.integers(1, 4),
    policy=st.sampled_from([Fifo, Backfill, Conservative, Fgd, Colocate]),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_pools_are_never_over_committed_by_any_policy(
    number: int, cores: int, share: int, policy: Any
) -> None:
    def harness(*, drop: bool) -> Harness:
        made = scenarios.scenario(number, policy, drop_indexes=drop)
        names = tuple(node.name for node in made.cluster.nodes[:share])
        pool = HostPool(name="p", nodes=names, cpu_milli=cores * 1000, host_memory_bytes=64 * GIB)
        made.cluster = msgspec.structs.replace(made.cluster, host_pools=(pool,)).check()
        for i, row in enumerate(made.rows):
            row["cpu_milli"] = 1000 * (1 + i % 4)
        return made

    run = harness(drop=False).run()  # with all invariants after each event
    assert harness(drop=True).run().log == run.log
    assert run.refusals() == []


@pytest.mark.parametrize("number", range(8))
def test_suspending_policies_use_pools_too(number: int) -> None:
    # With a minimum quantum: reservations keep devices, not cores, so without one two jobs might take turns
    # at stopping each other.
    made = scenarios.scenario(number, Srtf)
    made.settings = msgspec.structs.replace(made.settings, min_quantum_s=60.0)
    made.cluster = msgspec.structs.replace(made.cluster, host_pools=(HostPool(name="p", cpu_milli=8000),))
    for i, row in enumerate(made.rows):
        row["cpu_milli"] = 1000 * (1 + i % 4)
    run = made.run()
    assert run.state.ledger.free_cpu[0] <= 8000
    assert run.refusals() == []
