"""Suspended state in tiers: timing by hand, full tiers, shrinking tiers, and nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.engine.log import read_log
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import IllegalEventError
from cotenant.executors.transfers import Transfers
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.plan import EMPTY, Plan, Reason, Start, Stop
from cotenant.model.poolevents import Loaded, Spilled, Stored, TierResized
from cotenant.model.pools import StateTier
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.model.tiers import TierBooks
from cotenant.model.view import View
from cotenant.policies.srtf import Srtf
from cotenant.testing import Harness, HarnessRun

GB = 10**9


class Scripted:
    """Stops at set times, starts whatever fits in order of submission, except who is told to wait."""

    def __init__(self, stops: dict[float, tuple[int, ...]], hold_until_s: float = 0.0) -> None:
        self.stops, self.hold_until_s = stops, hold_until_s

    def decide(self, view: View) -> Plan:
        """Stop what is due, else start the first that fits."""
        due = self.stops.get(view.now, ())
        stops = [Stop(j) for j in due if j in view.running and view.running[j].status.name == "RUNNING"]
        told = view.memo or 0
        if stops and told < view.now + 1:
            return Plan(tuple(stops), memo=view.now + 1)
        wakes = [t for t in (*self.stops, self.hold_until_s) if t > view.now]
        for record in view.queue:
            if record.suspended and view.now < self.hold_until_s:
                continue
            devices = view.find(record)
            if devices is not None:
                return Plan((Start(record.id, devices),), again=True, wake_at_s=min(wakes, default=None))
        return Plan(wake_at_s=min(wakes)) if wakes else EMPTY


def _cluster(*tiers: StateTier, gpus: int = 2, **more: Any) -> Cluster:
    kind = DeviceType(name="gpu", memory_bytes=80 * GB)
    plain = Cluster.uniform(gpus, gpus_per_node=gpus, gpu_type=kind)
    return msgspec.structs.replace(plain, state_tiers=tiers, **more).check()


def _times(run: HarnessRun, kind: type) -> list[tuple[float, int]]:
    return [(e.t, e.id) for e in run.events if isinstance(e, kind)]


def test_one_job_saves_and_loads_at_the_speed_of_its_devices_where_the_tier_is_faster() -> None:
    # 20 GB at 1 GB/s (settings) although the tier has 4: saved 100 to 120. It goes on at 200: loaded
    # by 220, 10 s of warm-up, and 900 of 1,000 s are left: done at 230 + 900.
    cluster = _cluster(StateTier(name="host", bytes_per_s=4e9, capacity_bytes=50 * GB))
    h = Harness(cluster, Scripted({100.0: (0,)}, hold_until_s=200.0), settings=Settings(restore_s=10.0))
    h.submit("a", runs_s=1000.0, memory_bytes=20 * GB)
    run = h.run()
    assert _times(run, Stored) == [(100.0, 0)]
    assert _times(run, ev.Suspended) == [(120.0, 0)]
    assert _times(run, Loaded) == [(220.0, 0)]
    assert run.end_s("a") == 1130.0


def test_two_that_save_at_once_share_the_bandwidth_of_the_tier() -> None:
    # 10 and 20 GB at 1 GB/s in all: half each until 10 GB are over at 120 (10 of 20 left), then all
    # for the other: 130. Without sharing it would be 110 and 120.
    tier = StateTier(name="host", bytes_per_s=1e9)
    h = Harness(_cluster(tier), Scripted({100.0: (0, 1)}, hold_until_s=1e4))
    h.submit("a", runs_s=500.0, memory_bytes=10 * GB)
    h.submit("b", runs_s=500.0, memory_bytes=20 * GB)
    run = h.run()
    assert _times(run, ev.Suspended) == [(120.0, 0), (130.0, 1)]
    # Both load from 10,000 on: again 20 and 30 s, then 10 s of warm-up and 400 s of work.
    assert (run.end_s("a"), run.end_s("b")) == (10430.0, 10440.0)


def test_a_full_tier_spills_to_the_next_and_full_tiers_refuse() -> None:
    # 10 GB in host memory, 10 GB on NVMe, no room for the third: it is not stopped, and runs to its end.
    tiers = (
        StateTier(name="host", bytes_per_s=1e9, capacity_bytes=10 * GB),
        StateTier(name="nvme", bytes_per_s=1e9, capacity_bytes=15 * GB),
    )
    h = Harness(_cluster(*tiers, gpus=3), Scripted({100.0: (0, 1, 2)}, hold_until_s=1000.0))
    for name in "abc":
        h.submit(name, runs_s=500.0, memory_bytes=10 * GB)
    run = h.run()
    assert [(e.id, e.tier) for e in run.events if isinstance(e, Stored)] == [(0, 0), (1, 1)]
    (refused,) = run.refusals()
    assert (refused.id, refused.reason) == (2, Reason.STATE_ROOM)
    assert refused.facts == {"needs_bytes": 10 * GB, "free_bytes": {"host": 0, "nvme": 5 * GB}}
    assert run.end_s("c") == 500.0
    assert run.state.counts["done"] == 3
    assert run.state.books.tiers is not None
    assert run.state.books.tiers.held == [0, 0]


def test_a_tier_that_shrinks_moves_what_it_holds_to_later_tiers() -> None:
    # Suspended at 110. At 200 the tier is to have 5 GB: 10 GB go to the store at 0.1 GB/s: 100 s.
    # At 400 the job loads from there: 100 s, 10 s of warm-up, 400 s of work.
    tiers = (
        StateTier(name="host", bytes_per_s=1e9, capacity_bytes=10 * GB),
        StateTier(name="store", bytes_per_s=1e8),
    )
    h = Harness(_cluster(*tiers), Scripted({100.0: (0,)}, hold_until_s=400.0))
    h.submit("a", runs_s=500.0, memory_bytes=10 * GB)
    h.happen(TierResized(200.0, 0, 5 * GB, "test"))
    run = h.run()
    assert [(e.t, e.tier) for e in run.events if isinstance(e, Stored)] == [(100.0, 0), (200.0, 1)]
    assert _times(run, Spilled) == [(300.0, 0)]
    assert _times(run, Loaded) == [(500.0, 0)]
    assert run.end_s("a") == 910.0


def test_a_job_that_goes_on_during_its_spill_loads_from_where_its_state_still_is() -> None:
    # As above, but it goes on at 250: 10 s from host memory; the spill is given up.
    tiers = (
        StateTier(name="host", bytes_per_s=1e9, capacity_bytes=10 * GB),
        StateTier(name="store", bytes_per_s=1e8),
    )
    h = Harness(_cluster(*tiers), Scripted({100.0: (0,)}, hold_until_s=250.0))
    h.submit("a", runs_s=500.0, memory_bytes=10 * GB)
    h.happen(TierResized(200.0, 0, 0, "test"))
    run = h.run()
    assert _times(run, Spilled) == []
    assert [(e.t, e.tier) for e in run.events if isinstance(e, Loaded)] == [(260.0, 0)]
    assert run.end_s("a") == 670.0
    assert run.state.books.tiers is not None
    assert (run.state.books.tiers.held, run.state.books.tiers.limit) == ([0, 0], [0, None])


def test_state_with_nowhere_to_go_keeps_a_tier_from_shrinking_until_it_is_loaded() -> None:
    books = TierBooks((StateTier(name="host", bytes_per_s=1e9, capacity_bytes=100),), Settings())
    books.stored(7, 0, 60)
    books.complete(7)
    books.resized(0, 40)
    assert books.overflow(0) == [7]
    assert (books.held, books.limit, books.find(1)) == ([60], [60], -1)
    books.drop(7)
    assert (books.held, books.limit, books.find(40)) == ([0], [40], 0)
    assert books.errors() == []


def test_a_job_that_loses_its_device_while_it_loads_keeps_its_state() -> None:
    # Suspended 100 to 110 with 100 s of work done; loading from 200, its node fails at 205 and is back at 300:
    # it loads again, 10 s and 10 s of warm-up, and has 400 s left. Nothing is done twice.
    tier = StateTier(name="host", bytes_per_s=1e9, capacity_bytes=10 * GB)
    h = Harness(_cluster(tier), Scripted({100.0: (0,)}, hold_until_s=200.0))
    h.submit("a", runs_s=500.0, memory_bytes=10 * GB)
    h.happen(ev.NodeDown(205.0, 0, "test"))
    h.happen(ev.NodeUp(300.0, 0))
    run = h.run()
    assert [e.lost_s for e in run.of("a", ev.Ended)] == [0.0, 0.0]
    assert _times(run, Loaded) == [(310.0, 0)]
    assert run.end_s("a") == 720.0


def test_a_job_lost_while_it_saves_leaves_no_half_copy() -> None:
    tier = StateTier(name="host", bytes_per_s=1e9, capacity_bytes=10 * GB)
    h = Harness(_cluster(tier), Scripted({100.0: (0,)}))
    h.submit("a", runs_s=500.0, memory_bytes=10 * GB)
    h.happen(ev.NodeDown(105.0, 0, "test"))
    h.happen(ev.NodeUp(300.0, 0))
    run = h.run()
    assert run.of("a", ev.Suspended) == []
    assert run.end_s("a") == 800.0  # from its beginning
    assert run.state.books.tiers is not None
    assert run.state.books.tiers.copies == {}


def test_a_cancelled_job_frees_its_room() -> None:
    tier = StateTier(name="host", bytes_per_s=1e9, capacity_bytes=10 * GB)
    h = Harness(_cluster(tier), Scripted({100.0: (0,)}, hold_until_s=300.0))
    h.submit("a", runs_s=500.0, memory_bytes=10 * GB)
    h.happen(ev.CancelRequested(200.0, 0))
    run = h.run()
    assert run.state.books.tiers is not None
    assert (run.state.books.tiers.held, run.state.counts["cancelled"]) == ([0], 1)


def test_latency_and_state_of_no_size() -> None:
    # No state: saved in 2 s of latency, loaded in 2 s and 10 s of warm-up.
    h = Harness(
        _cluster(StateTier(name="host", bytes_per_s=1e9, latency_s=2.0)),
        Scripted({100.0: (0,)}, hold_until_s=200.0),
    )
    h.submit("a", runs_s=500.0)
    run = h.run()
    assert _times(run, ev.Suspended) == [(102.0, 0)]
    assert run.end_s("a") == 612.0


def test_transfers_divide_max_min_fairly() -> None:
    # 10 B/s for three, of whom one takes at most 2: 2, 4 and 4.
    told: list[tuple[float, int, int]] = []
    ways = Transfers(
        (StateTier(name="x", bytes_per_s=10.0),), lambda t, job, token: told.append((t, job, token))
    )
    ways.begin(0.0, 1, 0, 40, 100.0)
    ways.begin(0.0, 2, 0, 40, 2.0)
    ways.begin(0.0, 3, 0, 40, 100.0)
    assert {job: t for t, job, token in told if ways.valid(job, token)} == {1: 10.0, 2: 20.0, 3: 10.0}
    ways.end(5.0, 3)  # job 1 has 20 left and may take 8 now: until 7.5
    assert {job: t for t, job, token in told if ways.valid(job, token)} == {1: 7.5, 2: 20.0}


def test_events_of_tiers_are_illegal_where_there_are_none() -> None:
    state = State(Cluster.uniform(1), Settings())
    with pytest.raises(IllegalEventError, match="no state tiers"):
        state.apply(TierResized(0.0, 0, 1))


def _pooled(number: int, caps: tuple[int, int], resizes: list[tuple[int, int]], policy: Any) -> Harness:
    harness = scenario(number, policy)
    tiers = (
        StateTier(name="host", bytes_per_s=4e9, capacity_bytes=caps[0] * GIB, latency_s=0.5),
        StateTier(name="nvme", bytes_per_s=1e9, capacity_bytes=caps[1] * GIB),
    )
    harness.cluster = msgspec.structs.replace(harness.cluster, state_tiers=tiers)
    for t, size in resizes:
        harness.happen(TierResized(float(t), t % 2, size * GIB))
    return harness


@given(
    number=st.integers(0, 400),
    caps=st.tuples(st.integers(0, 40), st.integers(0, 60)),
    resizes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 60)), max_size=4),
)
@hypothesis_settings(max_examples=40, deadline=None)
def test_tiers_are_never_over_committed_and_nothing_is_lost(
    number: int,
    caps: tuple[int, int],
    resizes: list[tuple[int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Invariants (books, room, whole copies of all who wait) are checked after every event.
    run = _pooled(number, caps, resizes, Srtf).run()
    dropped = _pooled(number, caps, resizes, Srtf)
    dropped.drop_indexes = True
    assert dropped.run().log == run.log
    path: Path = tmp_path_factory.mktemp("log") / "events.jsonl"
    path.write_bytes(run.log)
    folded = State(_pooled(number, caps, resizes, Srtf).cluster, _pooled(number, caps, [], Srtf).settings)
    for event in read_log(path):
        folded.apply(event)
    assert picture(folded) == picture(run.state)
    for event in run.events:
        assert ev.decode_event(ev.encode_event(event)) == event


@pytest.mark.parametrize(
    "name", ["cotenant", "fair-share", "gandiva", "gittins", "horus", "las", "time-slice", "tong"]
)
@pytest.mark.parametrize("number", [1, 3, 14])
def test_policies_that_suspend_live_with_small_tiers(name: str, number: int) -> None:
    policy = registry.load("policy", name)
    run = _pooled(number, (20, 40), [], policy).run()
    dropped = _pooled(number, (20, 40), [], policy)
    dropped.drop_indexes = True
    assert dropped.run().log == run.log
    roomless = _pooled(number, (0, 0), [], policy).run()
    assert {e.size_bytes for e in roomless.events if isinstance(e, Stored)} <= {0}
    for one in (run, roomless):
        # Who still waits is kept from running by the cluster or a tenant's ceiling, and nobody's state is left over.
        down = not all(one.state.ledger.usable) or any(one.state.ledger.draining)
        limits = one.state.books.limits
        waiting = [r for r in one.state.records.values() if limits.get(r.job.tenant, 99) >= r.job.gpus]
        assert down or waiting == []
        assert one.state.books.tiers is not None
        assert down or one.state.books.tiers.copies.keys() <= one.state.records.keys()
