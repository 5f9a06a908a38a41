"""Ours: by hand, the bound on waits on random clusters, and the cases of starvation and preemption."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.checks.policies import check_policy
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord, Status
from cotenant.model.settings import Settings
from cotenant.policies.cotenant import Cotenant
from cotenant.policies.queues.levels import GRID_S, level, level_of, level_until_s
from cotenant.report.rulewords import RULE_WORDS
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun

FREE = Settings(restore_s=0.0)
NEVER = FixedForecast(default=0.1)
"""Nobody suits anybody."""
WELL = {("m", ("m",)): 0.9, ("m", ("m", "m")): 0.7, ("m", ("m", "m", "m")): 0.3}
"""Two run at 0.9 each, three at 0.7: the third gains 0.7 - 2 x 0.2 = 0.3; the fourth 0.3 - 3 x 0.4 < 0."""


def make(shape: str | Cluster, policy: Cotenant | None = None, **options: Any) -> Harness:
    options = {"settings": FREE, "forecast": NEVER, "memory_bytes": 32 * GIB, **options}
    return Harness(shape, policy or Cotenant(quantum_s=60.0), **options)


def stops(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, victim, beneficiary) of every stop."""
    return [(e.t, e.id, e.beneficiary) for e in run.events if isinstance(e, ev.Stopping)]


def moves(run: HarnessRun) -> list[tuple[float, int, tuple[int, ...]]]:
    return [(e.t, e.id, e.devices) for e in run.events if isinstance(e, ev.Moved)]


def shared(h: Harness, name: str, **fields: Any) -> None:
    h.submit(name, model="m", memory_bytes=GIB, **fields)


def test_a_newcomer_takes_the_place_of_a_job_that_has_had_its_quantum() -> None:
    h = make("1x1")
    h.submit("long", runs_s=10_000.0)
    h.submit("short", at_s=600.0, runs_s=300.0)
    run = h.run()
    assert (run.start_s("short"), run.end_s("short")) == (600.0, 900.0)
    assert run.starts("long") == [0.0, 900.0]
    assert run.end_s("long") == 10_300.0


def test_nobody_is_stopped_within_its_quantum() -> None:
    h = make("1x1")
    h.submit("long", runs_s=10_000.0)
    h.submit("short", at_s=20.0, runs_s=300.0)
    # The quantum of the first ends at 60.
    assert h.run().start_s("short") == 60.0


def test_the_quantum_counts_from_when_a_job_works() -> None:
    # Saving and loading take 100 s each, five quanta. Overdue all the time, the two change places without
    # a turn, and each works its quantum before it must leave: so both end.
    h = make("1x1", Cotenant(quantum_s=20.0, longest_wait_s=50.0, turn_s=0.0))
    for k in range(2):
        h.submit(f"j{k}", at_s=float(k), runs_s=60.0, state_bytes=100_000_000_000)
    run = h.run()
    assert run.start_s("j1") == 120.0  # the first works from 0 to 20 and saves until 120
    # The second saves from 140 to 240; then each loads for 100 s, works for 20 and saves for 100.
    assert run.starts("j0") == [0.0, 240.0, 680.0]
    assert run.starts("j1") == [120.0, 460.0, 800.0]
    assert (run.end_s("j0"), run.end_s("j1")) == (800.0, 920.0)  # each has worked three quanta


def test_a_job_that_was_stopped_takes_only_the_place_of_a_higher_level() -> None:
    # Level 7 holds 3,840 to 7,680 device-seconds; both are there, so the first goes on at the end of the second.
    h = make("1x1")
    h.submit("a", runs_s=6000.0)
    h.submit("b", at_s=100.0, runs_s=5000.0)
    run = h.run()
    assert run.starts("b") == [100.0]
    assert run.starts("a") == [0.0, 5100.0]
    assert len(stops(run)) == 1


def test_company_that_pays_is_joined_and_that_which_does_not_is_refused() -> None:
    h = make("1x1", Cotenant(quantum_s=600.0), forecast=FixedForecast(WELL), truth=FixedTruth(WELL))
    for k in range(4):
        shared(h, f"j{k}", at_s=float(k), runs_s=50.0)
    run = h.run()
    assert [run.start_s(f"j{k}") for k in range(3)] == [0.0, 1.0, 2.0]
    # The fourth waits until one has ended: 1 s alone, 1 s at 0.9, 48.1 s of work at 0.7.
    assert run.start_s("j3") == pytest.approx(2.0 + 48.1 / 0.7)


def test_the_low_end_of_the_interval_counts_as_far_as_doubt_says() -> None:
    starts = {}
    for doubt in (0.0, 1.0):
        # Mean 0.6, low end 0.1: below the floor of 0.2.
        h = make("1x1", Cotenant(doubt=doubt), forecast=FixedForecast(default=0.6, spread=0.5))
        shared(h, "a", runs_s=50.0)
        shared(h, "b", runs_s=50.0)
        starts[doubt] = h.run().start_s("b")
    assert starts == {0.0: 0.0, 1.0: 50.0}


def test_doubt_counts_by_class() -> None:
    # Mean 0.6, low end 0.1: the low end counts for guaranteed jobs, the mean for opportunistic ones.
    starts = {}
    for one in ("guaranteed", "opportunistic"):
        for two in ("guaranteed", "opportunistic"):
            h = make("1x1", Cotenant(doubt=1.0), forecast=FixedForecast(default=0.6, spread=0.5))
            shared(h, "a", runs_s=50.0, job_class=one)
            shared(h, "b", runs_s=50.0, job_class=two)
            run = h.run()
            starts[one[0] + two[0]] = max(run.start_s("a") or 0.0, run.start_s("b") or 0.0)
    assert starts == {"gg": 50.0, "go": 50.0, "og": 50.0, "oo": 0.0}


def test_one_gives_way_and_its_neighbours_stay() -> None:
    h = make("1x1", forecast=FixedForecast(WELL), truth=FixedTruth(default=1.0))
    shared(h, "small", runs_s=1000.0)
    shared(h, "large", runs_s=100_000.0)
    shared(h, "middle", runs_s=10_000.0)
    shared(h, "new", at_s=100.0, runs_s=200.0)
    run = h.run()
    assert run.start_s("new") == pytest.approx(100.0 + GIB / 1e9)  # the state of the largest is saved
    assert stops(run)[0][1:] == (0, 3)
    assert run.starts("small") == [0.0] and run.starts("middle") == [0.0]


def test_opportunistic_jobs_give_way_before_guaranteed_ones_of_a_higher_level() -> None:
    h = make("1x2")
    h.submit("guaranteed", runs_s=100_000.0)
    h.submit("opportunistic", runs_s=5000.0, job_class="opportunistic")
    h.submit("new", at_s=100.0, runs_s=100.0)
    assert [s[1] for s in stops(h.run())] == [1]


def test_a_job_moves_to_free_devices_if_that_pays_for_the_move() -> None:
    halves = FixedTruth({("m", ("m",)): 0.6})
    h = make(
        "1x2", settings=Settings(restore_s=10.0), forecast=FixedForecast({("m", ("m",)): 0.6}), truth=halves
    )
    h.submit("0", runs_s=100.0, sharing="exclusive")
    shared(h, "a", runs_s=1000.0)
    shared(h, "b", runs_s=1000.0)
    run = h.run()
    # At 100 the device of the first is free; one of the two gains some hundred seconds for a dozen.
    assert moves(run) == [(100.0, 1, (0,))]


def test_company_in_which_one_is_too_slow_is_parted_and_not_formed_again() -> None:
    told, true = FixedForecast({("m", ("m",)): 0.9}), FixedTruth({("m", ("m",)): 0.1})
    h = make("1x1", Cotenant(quantum_s=60.0), forecast=told, truth=true)
    shared(h, "a", runs_s=1000.0)
    shared(h, "b", at_s=5.0, runs_s=1000.0)
    run = h.run()
    why = [e.why.rule for e in run.events if isinstance(e, ev.Stopping)]
    assert why[0] == "not-as-foretold"
    together = [e for e in run.events if isinstance(e, ev.Started) and e.why.rule == "best-partners"]
    assert len(together) == 1
    # Suspended at once, the second goes on when the first has ended.
    end_s = run.end_s("a")
    assert end_s is not None and end_s < 1010.0


def test_levels_double_and_stop_at_the_top() -> None:
    assert [level_of(s) for s in (1.0, 59.9, 60.0, 120.0, 240.0)] == [1, 1, 2, 3, 4]
    assert level_of(1e9, 5) == 5


@hyp(max_examples=100, deadline=None)
@given(
    predicted_s=st.floats(1.0, 1e6),
    done_s=st.floats(0.0, 1e6),
    rate=st.floats(0.01, 2.0),
    rated_s=st.floats(0.0, 1e5),
    gpus=st.integers(1, 16),
    top=st.integers(2, 30),
)
def test_a_level_stays_until_it_is_looked_at_next(
    predicted_s: float, done_s: float, rate: float, rated_s: float, gpus: int, top: int
) -> None:
    record = _record(gpus)
    record.predicted_s, record.work_s, record.rate, record.rated_s = predicted_s, done_s, rate, rated_s
    until = level_until_s(record, rated_s, top)
    here = level(record, rated_s, top)
    end = min(until, rated_s + 5e6)
    for share in (0.01, 0.3, 0.7, 0.99):
        now = rated_s + share * (end - rated_s)
        if now < (end // GRID_S) * GRID_S:
            assert level(record, now, top) == here


def _record(gpus: int) -> Any:
    record = JobRecord.of(Job(id=0, name="a", submit_s=0.0, gpus=gpus), None, 0.0, 1.0)  # type: ignore[arg-type]
    record.status = Status.RUNNING
    return record


# -- the longest wait ----------------------------------------------------------------------


@hyp(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 4), st.floats(0.0, 3000.0), st.floats(1.0, 6000.0), st.integers(0, 2)),
        min_size=5,
        max_size=40,
    ),
    nodes=st.integers(1, 2),
    elastic=st.booleans(),
)
def test_the_job_that_waits_longest_starts_in_time(
    jobs: list[tuple[int, float, float, int]], nodes: int, *, elastic: bool
) -> None:
    quantum_s, longest_s, save_s, load_s, turn_s = 60.0, 400.0, 5.0, 5.0, 90.0
    policy = Cotenant(quantum_s=quantum_s, longest_wait_s=longest_s, turn_s=turn_s)
    h = make(f"{nodes}x4", policy, forecast=FixedForecast(WELL), truth=FixedTruth(WELL))
    for k, (gpus, at_s, runs_s, priority) in enumerate(jobs):
        h.submit(
            f"j{k}", gpus=gpus, at_s=at_s, runs_s=runs_s, priority=priority, model="m",
            memory_bytes=GIB, state_bytes=5_000_000_000,
            min_gpus=1 if elastic and k % 2 else 0, max_gpus=gpus + 2 if elastic and k % 2 else 0,
        )  # fmt: skip
    # A job that is just being given another size saves and loads once more.
    load_s += (save_s + load_s) * elastic
    lines = {True: Line(), False: Line()}
    for event in h.run().events:
        if isinstance(event, ev.Submitted):
            lines[True].waiting[event.job.id] = event.t
        elif isinstance(event, ev.Suspended):
            lines[False].waiting[event.id] = event.t
        elif isinstance(event, ev.Started):
            line = lines[event.id in lines[True].waiting]
            began = line.waiting.pop(event.id)
            if event.id == line.first:
                # At most one of the other line goes before: loading and its turn, and for each of the two what
                # is being emptied for others, loading and the quantum, and its own saving.
                late_s = event.t - max(line.since, began + longest_s)
                assert late_s <= load_s + turn_s + 2 * (load_s + quantum_s + 2 * save_s) + 1e-6
        for line in lines.values():
            line.look(event.t)


class Line:
    """Who waits, who of them has waited longest, and since when."""

    def __init__(self) -> None:
        self.waiting: dict[int, float] = {}
        self.first, self.since = -1, 0.0

    def look(self, t: float) -> None:
        head = min(self.waiting, key=lambda j: (self.waiting[j], j), default=-1)
        if head != self.first:
            self.first, self.since = head, t


def test_of_those_that_were_stopped_one_at_a_time_has_its_turn() -> None:
    # Two low ones are stopped for two high ones at 60; both are overdue at 1,060 and want one of two
    # devices each. One has 500 s from then; after that the other.
    h = make("1x2", Cotenant(quantum_s=60.0, longest_wait_s=1000.0, turn_s=500.0))
    for name in "ab":
        h.submit(name, runs_s=10_000.0)
    for name in "cd":
        h.submit(name, at_s=60.0, runs_s=10_000.0, priority=1)
    run = h.run()
    assert run.starts("a")[:2] == [0.0, 1060.0]
    assert run.starts("b")[:2] == [0.0, 1560.0]


def test_a_turn_is_shorter_for_a_job_that_holds_more_than_an_eighth_of_the_devices() -> None:
    # It holds all 16 devices, eight times an eighth: a turn of 500 s instead of 4,000.
    h = make("1x16", Cotenant(quantum_s=60.0, longest_wait_s=1000.0, turn_s=4000.0))
    h.submit("low", gpus=16, runs_s=50_000.0)
    h.submit("high", gpus=16, at_s=60.0, runs_s=50_000.0, priority=1)
    run = h.run()
    # Overdue 1,000 s after it was stopped; after its turn the other goes before it by priority.
    assert run.starts("low")[:2] == [0.0, 1060.0]
    assert run.starts("high")[:2] == [60.0, 1560.0]


def test_an_overdue_job_leaves_those_whom_it_suits() -> None:
    # Two run at 0.9 each, three at 0.7. The device has room for two of 12 GiB: one of them must go, not both.
    h = make("1x1", Cotenant(quantum_s=60.0, longest_wait_s=300.0), forecast=FixedForecast(WELL))
    for name, priority in (("a", 1), ("b", 1), ("low", 0)):
        h.submit(name, runs_s=10_000.0, model="m", memory_bytes=12 * GIB, priority=priority)
    run = h.run()
    why = {e.id: e.why.rule for e in run.events if isinstance(e, ev.Stopping) and e.beneficiary == 2}
    assert why == {1: "overdue-first"}  # the younger
    began = run.start_s("low")
    assert (
        began is not None and 300.0 <= began <= 300.0 + 12 * GIB / 1e9 + 1e-6
    )  # saving what the first holds
    assert all(e.id != 0 for e in run.events if isinstance(e, ev.Stopping) and e.t <= began)


def test_what_it_decides_is_told_in_words() -> None:
    # Of every rule that a busy cluster brings out.
    h = make("1x2", Cotenant(quantum_s=60.0, longest_wait_s=300.0), forecast=FixedForecast(WELL))
    for k in range(12):
        shared(h, f"j{k}", at_s=50.0 * k, runs_s=900.0 * (1 + k % 3), gpus=1 + (k % 4 == 0), priority=k % 2)
    rules = {e.why.rule for e in h.run().events if isinstance(e, ev.Stopping | ev.Reserved | ev.Moved)}
    assert {"room-made", "gives-way", "longest-wait", "overdue-first"} <= rules
    assert [rule for rule in rules if rule and rule not in RULE_WORDS] == []


def test_a_gang_that_is_overdue_is_not_kept_out_by_room_that_is_made_for_one_after_the_other() -> None:
    # Every 10 s somebody comes for whom a device is emptied within 15 s: at no time is none of the four kept.
    h = make("1x4", Cotenant(quantum_s=20.0, longest_wait_s=200.0), forecast=NEVER)
    for k in range(4):
        h.submit(f"first{k}", runs_s=5000.0, priority=1, state_bytes=15_000_000_000)
    h.submit("gang", at_s=1.0, gpus=4, runs_s=30.0, state_bytes=15_000_000_000)
    for k in range(100):
        h.submit(f"s{k:03}", at_s=10.0 * (k + 1), runs_s=5000.0, priority=1, state_bytes=15_000_000_000)
    start_s = h.run().start_s("gang")
    # Overdue at 201; two savings and a quantum: 50 s at most.
    assert start_s is not None and 201.0 <= start_s <= 251.0


# -- tenants ----------------------------------------------------------------------------------


def flooded(half_life_s: float) -> HarnessRun:
    """One tenant has held both devices for an hour and has forty newcomers waiting when another submits one."""
    policy = Cotenant(quantum_s=600.0, fair_half_life_s=half_life_s, longest_wait_s=0.0)
    h = make("1x2", policy)
    for k in range(2):
        h.submit(f"first{k}", runs_s=4000.0, tenant="flood", suspendable=False)
    for k in range(40):
        h.submit(f"f{k:02}", at_s=3000.0 + k, runs_s=500.0, tenant="flood")
    h.submit("one", at_s=3500.0, runs_s=500.0, tenant="small")
    return h.run()


def test_a_tenant_that_floods_the_queue_does_not_starve_another() -> None:
    # Both devices are free at 4,000. With tenants alike, twenty pairs of 500 s go first; else none does.
    assert flooded(0.0).start_s("one") == 4000.0 + 20 * 500.0
    assert flooded(7200.0).start_s("one") == 4000.0


@pytest.mark.parametrize(("weight", "first"), [(1.0, "b1"), (0.25, "a1")])
def test_a_tenant_of_more_weight_may_use_more(weight: float, first: str) -> None:
    # At 1,500 a has had the device for 1,000 s and b for 500: b goes first, unless it may have a quarter only.
    tenants = (Tenant(name="a"), Tenant(name="b", weight=weight))
    h = make(
        Cluster(nodes=(Node(name="n", gpus=(("gpu", 1),)),), types=(DeviceType(name="gpu"),), tenants=tenants)
    )
    for name in "ab":
        h.submit(f"{name}0", runs_s=1000.0, tenant=name, suspendable=False)
    for name in "ab":
        h.submit(f"{name}1", at_s=1500.0, runs_s=30.0, tenant=name)
    run = h.run()
    assert min(("a1", "b1"), key=lambda n: run.start_s(n) or 0.0) == first


# -- cases -----------------------------------------------------------------------------------


def test_a_word_that_it_does_not_know_is_refused_and_the_log_says_what_placed_a_job() -> None:
    # Case C25: it packs only where no device is free.
    with pytest.raises(ConfigError, match=r'"?dout"?.*did you mean "?doubt'):
        Cotenant.from_strings({"dout": "1"})
    placed = {}
    for gpus in (8, 1):
        h = make(f"1x{gpus}", forecast=FixedForecast(default=0.9))
        for k in range(3):
            h.submit(f"j{k}", runs_s=10.0, model="m", memory_bytes=GIB, compute_milli=200)
        starts = [e for e in h.run().events if isinstance(e, ev.Started)]
        placed[gpus] = [(e.devices, e.why.rule) for e in starts]
    assert placed[8] == [((k,), "free-devices") for k in range(3)]
    assert placed[1] == [((0,), "free-devices"), ((0,), "best-partners"), ((0,), "best-partners")]


@pytest.mark.parametrize("gap_s", [0.0, 1.0])
def test_five_tens_go_into_four_twenty_threes(gap_s: float) -> None:
    # Case C26.
    h = make("1x4", forecast=FixedForecast(default=0.9), memory_bytes=23 * GIB)
    for k in range(5):
        h.submit(f"j{k}", at_s=gap_s * k, runs_s=50.0, model="m", memory_bytes=10 * GIB)
    run = h.run()
    assert [run.start_s(f"j{k}") for k in range(5)] == [gap_s * k for k in range(5)]


def test_two_shares_are_two_devices() -> None:
    # Case C28: one device is empty, half of the other is used.
    h = make("1x2", forecast=FixedForecast(default=0.9))
    h.submit("half", runs_s=500.0, model="m", memory_bytes=GIB, compute_milli=500)
    h.submit("two", at_s=1.0, gpus=2, runs_s=50.0, model="m", memory_bytes=GIB, compute_milli=500)
    (devices,) = {e.devices for e in h.run().events if isinstance(e, ev.Started) and len(e.devices) > 1}
    assert devices == (0, 1)


def test_gangs_never_hold_a_part() -> None:
    # Case C30.
    h = make("4x1", settings=Settings(restore_s=0.0, gang_span="any"))
    h.submit("a", gpus=4, runs_s=600.0)
    h.submit("b", gpus=4, runs_s=600.0)
    run = h.run()
    # b waits for a's quantum (60 s), both have the same level: a goes on when b has ended.
    assert run.start_s("b") == 60.0
    assert run.end_s("b") == 660.0
    assert run.end_s("a") == 1200.0


def test_a_gang_larger_than_the_cluster_is_rejected_and_stops_nobody() -> None:
    # Case C32.
    h = make("1x4")
    h.submit("runs", gpus=4, runs_s=1000.0)
    h.submit("five", gpus=5, at_s=100.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == []
    assert run.end_s("runs") == 1000.0


def test_the_big_job_finds_an_empty_node() -> None:
    # Case C33.
    h = make("1x8", Cotenant(quantum_s=600.0, longest_wait_s=3600.0))
    for k in range(8):
        h.submit(f"first{k}", runs_s=60.0 * (60 + 5 * k))
    h.submit("B", gpus=8, at_s=60.0, runs_s=600.0)
    for k in range(100):
        h.submit(f"s{k:03}", at_s=300.0 * (k + 1), runs_s=3600.0)
    # The quanta of all eight end at 600, and it came before the small ones.
    assert h.run().start_s("B") == 600.0


def test_what_is_freed_is_kept_until_the_last_victim_has_saved() -> None:
    # Case C36.
    # Saving takes 5 s and 60 s.
    h = make("1x4")
    h.submit("wA", gpus=2, runs_s=10_000.0, state_bytes=5_000_000_000)
    h.submit("wB", gpus=2, runs_s=10_000.0, state_bytes=60_000_000_000)
    h.submit("p", gpus=4, at_s=100.0, runs_s=100.0, priority=1)
    run = h.run()
    assert [(t, victim) for t, victim, _ in stops(run)] == [(100.0, 0), (100.0, 1)]
    assert run.start_s("p") == 160.0
    assert all(t >= 260.0 for name in ("wA", "wB") for t in run.starts(name)[1:])


def test_no_preemption_without_a_place_and_one_victim_only() -> None:
    # Case C37.
    h = make("11x1")
    for k in range(11):
        h.submit(f"j{k:02}", runs_s=46_800.0)
    h.submit("p1", at_s=1000.0, runs_s=100.0, priority=5, device_types=["absent"])
    h.submit("p2", at_s=1000.0, runs_s=100.0, priority=5)
    run = h.run()
    assert len(stops(run)) == 1
    assert run.start_s("p2") == 1000.0


def test_stopped_is_not_gone() -> None:
    # Case C38.
    h = make("1x1", settings=Settings(restore_s=0.0))
    h.submit("a", runs_s=1000.0, memory_bytes=18 * GIB, state_bytes=18_000_000_000, model="m")
    h.submit("b", at_s=100.0, runs_s=50.0, memory_bytes=12 * GIB, model="m")
    run = h.run()
    # a saves 18 s, then b has the device; a loads 18 s and goes on where it was.
    assert run.start_s("b") == 118.0
    assert run.starts("a") == [0.0, 168.0]
    assert run.end_s("a") == 168.0 + 18.0 + 900.0


# -- the contract ---------------------------------------------------------------------------


def test_the_contract_holds_without_turns_where_loading_takes_longer_than_the_quantum() -> None:
    check_policy(
        lambda: Cotenant(quantum_s=20.0, longest_wait_s=100.0, turn_s=0.0, doubt=1.0), scenarios=1, first=115
    )


@pytest.mark.parametrize("first", [0, 40, 95])
def test_the_contract_holds_with_short_quanta_and_short_patience(first: int) -> None:
    check_policy(
        lambda: Cotenant(quantum_s=20.0, longest_wait_s=100.0, turn_s=60.0, doubt=1.0),
        scenarios=4,
        first=first,
    )


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min_speed must lie in \[0, 1\], found 2.0"):
        Cotenant(min_speed=2.0)
    with pytest.raises(ConfigError, match="quantum_s"):
        Cotenant(quantum_s=-1.0)


# -- sets outside of what was predicted -----------------------------------------------------


def misjudged(true: float, **settings: float) -> HarnessRun:
    """Two jobs for which 0.9 each is predicted, and that run at ``true``."""
    told, truth = FixedForecast({("m", ("m",)): 0.9}), FixedTruth({("m", ("m",)): true})
    rules = Settings(restore_s=0.0, **settings)
    h = make("1x1", Cotenant(quantum_s=60.0), settings=rules, forecast=told, truth=truth)
    shared(h, "a", runs_s=1000.0)
    shared(h, "b", at_s=5.0, runs_s=1000.0)
    return h.run()


def test_a_set_that_is_slower_than_predicted_and_does_not_pay_is_parted_in_time() -> None:
    run = misjudged(0.5, undo_after_s=60.0)
    (stop,) = [e for e in run.events if isinstance(e, ev.Stopping)]
    assert (stop.t, stop.id, stop.beneficiary, stop.why.rule) == (65.0, 1, 0, "outside-prediction")
    # They are slow alike; the first of them is named.
    assert stop.why.facts == {
        "slowest": "a", "speed": 0.5, "predicted": 0.9, "predicted_low": 0.9, "predicted_high": 0.9,
    }  # fmt: skip
    # 5 s alone and 60 s at half speed: 35 s of 1,000 are done; for as long as the other saves, it stays at half speed.
    assert run.end_s("a") == pytest.approx(65.0 + 965.0 + 0.5 * GIB / 1e9)
    assert len([e for e in run.events if isinstance(e, ev.Started) and e.why.rule == "best-partners"]) == 1


@pytest.mark.parametrize(("true", "after_s"), [(0.5, 0.0), (0.6, 60.0)])
def test_a_set_stays_that_pays_or_where_nothing_is_to_be_undone(true: float, after_s: float) -> None:
    assert stops(misjudged(true, undo_after_s=after_s)) == []


def test_when_a_set_is_undone_does_not_depend_on_what_is_kept_between_calls() -> None:
    told = []
    for dropped in (False, True):
        h = make(
            "1x2",
            settings=Settings(restore_s=0.0, undo_after_s=30.0),
            forecast=FixedForecast({("m", ("m",)): 0.9}),
            truth=FixedTruth({("m", ("m",)): 0.5}),
            drop_indexes=dropped,
        )
        for k in range(6):
            shared(h, f"j{k}", at_s=10.0 * k, runs_s=500.0 + k)
        told.append([(e.t, type(e).__name__, getattr(e, "id", -1)) for e in h.run().events])
    assert any(kind == "Stopping" for _, kind, _ in told[0])
    assert told[0] == told[1]


def test_whom_isolation_keeps_apart_is_not_told_that_sharing_would_slow_it() -> None:
    h = make("1x2", Cotenant(quantum_s=10_000.0), forecast=FixedForecast(WELL))
    for number in (0, 1):
        shared(h, f"theirs{number}", runs_s=1000.0, sharing="same-owner", tenant="a")
    shared(h, "stranger", at_s=10.0, runs_s=100.0, sharing="same-owner", tenant="b")
    shared(h, "mine", at_s=20.0, runs_s=100.0, sharing="same-owner", tenant="a")
    run = h.run()
    held = {e.id: e.reason for e in run.events if isinstance(e, ev.Held)}
    assert held == {2: Reason.ISOLATION}, "the one who may share does"


def test_whom_only_the_forecast_keeps_apart_is_told_so() -> None:
    h = make("1x1", Cotenant(quantum_s=10_000.0))
    shared(h, "there", runs_s=1000.0, sharing="same-owner", tenant="a")
    shared(h, "mine", at_s=10.0, runs_s=100.0, sharing="same-owner", tenant="a")
    assert [e.reason for e in h.run().events if isinstance(e, ev.Held)] == [Reason.SLOWDOWN]
