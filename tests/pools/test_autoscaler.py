"""Rules that resize pools: devices by the queue, tiers by what they hold; delays, bounds, and replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.engine.autoscaler import autoscaled
from cotenant.engine.log import read_log
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import ConfigError
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.poolevents import TierResized
from cotenant.model.pools import Scaling, StateTier
from cotenant.model.settings import Settings
from cotenant.policies.fifo import Fifo
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness, HarnessRun

GB = 10**9


def _cluster(nodes: int, *rules: Scaling, tiers: tuple[StateTier, ...] = ()) -> Cluster:
    kind = DeviceType(name="gpu", memory_bytes=80 * GB)
    plain = Cluster.uniform(2 * nodes, gpus_per_node=2, gpu_type=kind)
    return msgspec.structs.replace(plain, scaling=rules, state_tiers=tiers).check()


def _nodes(run: HarnessRun) -> list[tuple[float, str, int]]:
    return [(e.t, type(e).__name__, e.node) for e in run.events if isinstance(e, (ev.NodeUp, ev.NodeDown))]


def test_nodes_come_for_the_queue_after_the_delay_and_go_when_idle() -> None:
    # 3 nodes of 2, at least 1. At 60 the rule sees 5 devices asked for and 2 there: both others are ordered and
    # are up at 180. Jobs of 100 s: two end at 130, the rest start at 130 (2) and 180 (1).
    rule = Scaling(of="gpus", least=1, most=3, every_s=60.0, delay_s=120.0, idle_s=120.0)
    h = Harness(_cluster(3, rule), Fifo())
    for i in range(5):
        h.submit(f"j{i}", at_s=30.0, runs_s=100.0)
    h.submit("late", at_s=1000.0, runs_s=10.0)
    run = h.run()
    assert _nodes(run)[:2] == [(0.0, "NodeDown", 1), (0.0, "NodeDown", 2)]
    assert _nodes(run)[2:4] == [(180.0, "NodeUp", 1), (180.0, "NodeUp", 2)]
    assert [run.start_s(f"j{i}") for i in range(5)] == [30.0, 30.0, 130.0, 130.0, 180.0]
    # Node 2 never had work: seen empty at 180, it goes at 300. Node 0 was left at 230 and is seen empty at 240: it
    # goes at 360, and node 1 (left at 280) is the one that stays.
    assert _nodes(run)[4:] == [(300.0, "NodeDown", 2), (360.0, "NodeDown", 0)]
    assert run.state.counts["done"] == 6


def test_bounds_hold_and_no_job_is_lost() -> None:
    rule = Scaling(of="gpus", least=1, most=2, every_s=10.0, delay_s=0.0, idle_s=20.0)
    h = Harness(_cluster(4, rule), Fifo())
    for i in range(30):
        h.submit(f"j{i}", at_s=7.0 * i, runs_s=50.0 + i)
    run = h.run()
    up = 4
    for _, what, _ in _nodes(run):
        up += 1 if what == "NodeUp" else -1
        assert up >= 1
    assert max(node for _, what, node in _nodes(run) if what == "NodeUp") == 1
    assert run.state.counts["done"] == 30
    assert [e for e in run.events if isinstance(e, ev.Ended) and e.outcome != "done"] == []


def test_a_job_that_no_bound_allows_does_not_keep_the_run_going() -> None:
    rule = Scaling(of="gpus", least=1, most=1)
    h = Harness(_cluster(2, rule), Fifo(), settings=Settings(gang_span="any"))
    h.submit("gang", gpus=4, runs_s=10.0)
    run = h.run()
    assert len(run.state.queue) == 1


def _suspending(rule: Scaling, capacity: int) -> HarnessRun:
    """One device; a long job of 10 GB gives way to a short one of 100 s at 100, then to another at 1,000."""
    tiers = (
        StateTier(name="host", bytes_per_s=1e9, capacity_bytes=capacity),
        StateTier(name="store", bytes_per_s=1e8),
    )
    kind = DeviceType(name="gpu", memory_bytes=80 * GB)
    cluster = msgspec.structs.replace(Cluster.uniform(1, gpu_type=kind), state_tiers=tiers, scaling=(rule,))
    h = Harness(cluster.check(), Srtf())
    h.submit("long", runs_s=5000.0, memory_bytes=10 * GB)
    h.submit("short", at_s=100.0, runs_s=100.0)
    h.submit("short2", at_s=1000.0, runs_s=100.0)
    run = h.run()
    assert run.state.counts["done"] == 3
    return run


def _sizes(run: HarnessRun) -> list[tuple[float, int]]:
    return [(e.t, e.capacity_bytes) for e in run.events if isinstance(e, TierResized)]


def test_a_tier_grows_by_its_fill_after_the_delay_and_shrinks_when_little_is_held() -> None:
    # 10 of 10 GB are held from 100 on: at 120 the rule orders 20 GB for 150. The state leaves at about 220. Less than
    # 30% is held from 240 on: at 300 the tier is halved, at its least.
    rule = Scaling(
        of="host", rule="fill", least=10 * GB, most=20 * GB, every_s=60.0, delay_s=30.0, idle_s=60.0
    )
    assert _sizes(_suspending(rule, 10 * GB))[:2] == [(150.0, 20 * GB), (300.0, 10 * GB)]


def test_a_tier_grows_where_states_find_no_room() -> None:
    # Nothing fits into 5 GB, so nothing is held; the hit rate of the one state is 0: 10 GB are there from 180.
    # The second state, at 1,000, fits.
    rule = Scaling(
        of="host",
        rule="fill",
        least=5 * GB,
        most=40 * GB,
        every_s=60.0,
        delay_s=60.0,
        idle_s=1e6,
        hit_rate=0.9,
    )
    run = _suspending(rule, 5 * GB)
    assert _sizes(run)[0] == (180.0, 10 * GB)
    assert [e.tier for e in run.events if type(e).__name__ == "Stored"] == [1, 0]


def test_a_tier_keeps_what_was_held_lately() -> None:
    # From 40 GB down to the least at once; 10 GB held at 120: 12.5 GB until 240 (when the state has left, the most
    # of the last 60 s is still 10 GB only up to the look at 240).
    rule = Scaling(
        of="host", rule="retention", least=11 * GB, most=40 * GB, every_s=60.0, delay_s=0.0, retention_s=60.0
    )
    sizes = _sizes(_suspending(rule, 40 * GB))
    assert sizes[:2] == [(0.0, 11 * GB), (120.0, 12_500_000_000)]
    assert sizes[2][1] == 11 * GB


def test_what_the_rules_did_is_in_the_log(tmp_path: Path) -> None:
    rule = Scaling(of="gpus", least=1, most=3, every_s=60.0, delay_s=120.0, idle_s=120.0)
    h = Harness(_cluster(3, rule), Srtf())
    for i in range(20):
        h.submit(f"j{i}", at_s=20.0 * i, runs_s=300.0)
    run = h.run()
    assert {e.cause for e in run.events if isinstance(e, ev.NodeDown)} == {"autoscaling"}
    path = tmp_path / "events.jsonl"
    path.write_bytes(run.log)
    folded = State(h.cluster, h.settings)
    for event in read_log(path):
        folded.apply(event)
    assert picture(folded) == picture(run.state)
    h.drop_indexes = True
    assert h.run().log == run.log


def test_without_rules_the_executor_is_the_executor_itself() -> None:
    h = Harness("1x1", Fifo())
    h.submit("a")
    executor = SimulatedExecutor(h.workload(), h.cluster)
    assert autoscaled(State(h.cluster, h.settings), executor) is executor


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Scaling(of="tape", least=1, most=2), "is no pool; there are: gpus"),
        (Scaling(of="gpus", least=0, most=2), "bounds 0 to 2"),
        (Scaling(of="gpus", least=1, most=9), "bounds 1 to 9"),
        (Scaling(of="gpus", least=1, most=2, rule="fill"), 'goes by queue, found "fill"'),
        (Scaling(of="gpus", least=1, most=2, every_s=0.0), "every_s must be positive"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rule: Scaling, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _cluster(2, rule)


def test_an_executor_that_cannot_be_resized_is_refused() -> None:
    stiff: Any = object()
    cluster = _cluster(2, Scaling(of="gpus", least=1, most=2))
    with pytest.raises(ConfigError, match="cannot resize it"):
        autoscaled(State(cluster, Settings()), stiff)
