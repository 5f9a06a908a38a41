"""Views, drafts and indexes: what a policy is shown, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.engine.loop import Loop
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import PolicyError, StaleViewError
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.placement import WHOLE, Placement, Share
from cotenant.model.plan import EMPTY, Hold, Plan, Reason, Refusal, Start, Stop
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings
from cotenant.model.view import HOOKS, Draft, Index, View
from cotenant.policies.fifo import Fifo
from cotenant.testing import Harness

SHARE = Share("spatial", 4 * GIB, 250)


def small_state(jobs: int = 6) -> State:
    """Two nodes of two devices of 16 GiB; jobs 0 and 1 run, the others wait."""
    state = State(
        Cluster.uniform(4, gpus_per_node=2, gpu_type=DeviceType(name="x", memory_bytes=16 * GIB)), Settings()
    )
    for i in range(jobs):
        job = Job(i, f"j{i}", 0.0, memory_bytes=4 * GIB, tenant="ab"[i % 2], cpu_milli=1000 * (i % 3))
        state.apply(ev.Submitted(0.0, job))
    state.apply(ev.Started(0.0, 0, 1, (0,), SHARE))
    state.apply(ev.Started(0.0, 1, 1, (3,)))
    return state


def deep_picture(state: State) -> dict[str, Any]:
    """The picture, and the index of the books besides."""
    ledger = state.ledger
    return {
        **picture(state),
        "index": (list(ledger.whole), list(ledger.free_count), ledger.index_errors()),
        "held": dict(ledger.held),
    }


TRIES = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(0, 5),
        st.sets(st.integers(0, 3), min_size=1, max_size=2),
        st.sampled_from([WHOLE, SHARE]),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(TRIES)
def test_a_draft_leaves_no_trace(tries: list[tuple[bool, int, set[int], Share]]) -> None:
    state = small_state()
    before = deep_picture(state)
    accepted = 0
    with View(state).draft() as draft:
        for start, number, devices, share in tries:
            record = state.records[number]
            place = tuple(sorted(devices))
            refusal = draft.start(record, place, share) if start else draft.stop(record)
            accepted += refusal is None
            assert state.ledger.index_errors() == []
        assert len(draft.decisions) == accepted
    assert deep_picture(state) == before


def test_a_draft_that_raises_leaves_no_trace() -> None:
    state = small_state()
    before = deep_picture(state)
    with pytest.raises(ValueError, match="changed my mind"), View(state).draft() as draft:
        draft.stop(state.records[0])
        draft.start(state.records[2], (0,))
        raise ValueError("changed my mind")
    assert deep_picture(state) == before


def test_a_draft_shows_what_was_tried_and_its_plan_is_carried_out() -> None:
    state = small_state()
    with View(state).draft() as draft:
        assert draft.find(state.records[2]) == (1,)
        assert draft.start(state.records[2], (1,)) is None
        assert draft.find(state.records[3]) == (2,)
        refusal = draft.start(state.records[3], (1,))
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.NO_CAPACITY
        assert draft.stop(state.records[1], beneficiary=3) is None
        assert draft.start(state.records[3], (3,)) is None
        assert [r.id for r in draft.pending()] == [4, 5]
        decisions = draft.decisions
    assert decisions == [Start(2, (1,)), Stop(1, True, 3), Start(3, (3,))]


class _Log(Index):
    """Notes every change it is told of."""

    def __init__(self, view: View, label: str = "") -> None:
        self.view, self.label = view, label
        self.seen: list[tuple[Any, ...]] = []

    def enqueued(self, record: JobRecord) -> None:
        self.seen.append(("enqueued", record.id))

    def dequeued(self, record: JobRecord) -> None:
        self.seen.append(("dequeued", record.id))

    def placed(self, record: JobRecord, place: Placement) -> None:
        self.seen.append(("placed", record.id, place.devices))

    def vacated(self, record: JobRecord, place: Placement) -> None:
        self.seen.append(("vacated", record.id, place.devices))

    def rated(self, record: JobRecord) -> None:
        self.seen.append(("rated", record.id, record.rate))

    def stopping(self, record: JobRecord) -> None:
        self.seen.append(("stopping", record.id))

    def sampled(self, record: JobRecord) -> None:
        self.seen.append(("sampled", record.id))

    def capacity(self, devices: tuple[int, ...]) -> None:
        self.seen.append(("capacity", devices))


def test_an_index_is_told_of_every_change() -> None:
    state = small_state()
    view = View(state)
    log = view.index(_Log)
    for event in (
        ev.Submitted(1.0, Job(6, "j6", 1.0)),
        ev.Started(1.0, 2, 1, (1,)),
        ev.Rated(2.0, 2, 0.5),
        ev.Sampled(2.2, 2, 1, 9.0, 8.0, 10.0),
        ev.PriorityChanged(2.5, 3, 4),
        ev.PriorityChanged(2.5, 2, 4),
        ev.Stopping(3.0, 2, 1),
        ev.Suspended(4.0, 2, 1, 2.0),
        ev.Rejected(5.0, 6, "left"),
        ev.Reserved(6.0, 2, (2,)),
        ev.Started(7.0, 2, 1, (2,), None, True),
        ev.DeviceDown(8.0, 1),
        ev.Drained(9.0, 1),
        ev.TenantLimitChanged(9.5, "a", 2),
        ev.Ended(10.0, 2, 1, "done", 5.0),
    ):
        state.apply(event)
    assert log.seen == [
        ("enqueued", 6),
        ("dequeued", 2),
        ("placed", 2, (1,)),
        ("rated", 2, 0.5),
        ("rated", 2, 0.5),
        ("sampled", 2),
        ("dequeued", 3),
        ("enqueued", 3),
        ("rated", 2, 0.5),
        ("rated", 2, 0.5),
        ("stopping", 2),
        ("vacated", 2, (1,)),
        ("enqueued", 2),
        ("dequeued", 6),
        ("capacity", (2,)),
        ("capacity", (2,)),
        ("dequeued", 2),
        ("placed", 2, (2,)),
        ("capacity", (1,)),
        ("capacity", (2, 3)),
        ("capacity", ()),
        ("vacated", 2, (2,)),
    ]


def test_an_index_is_one_for_each_kind_and_arguments_until_it_is_dropped() -> None:
    state = small_state()
    view = View(state)
    one, two = view.index(_Log), view.index(_Log, "other")
    assert view.index(_Log) is one
    assert view.index(_Log, "other") is two is not one
    before = {name: len(state.hooks[name]) for name in HOOKS}
    view.drop_indexes()
    assert {name: before[name] - len(state.hooks[name]) for name in HOOKS} == dict.fromkeys(HOOKS, 2)
    state.apply(ev.Started(1.0, 2, 1, (1,)))
    assert one.seen == two.seen == []
    assert view.index(_Log) is not one


class _Count(Index):
    """Waiting jobs by size, kept up to date."""

    def __init__(self, view: View) -> None:
        self.by_size: dict[int, int] = {}
        for record in view.queue:
            self.enqueued(record)

    def enqueued(self, record: JobRecord) -> None:
        self.by_size[record.job.gpus] = self.by_size.get(record.job.gpus, 0) + 1

    def dequeued(self, record: JobRecord) -> None:
        self.by_size[record.job.gpus] -= 1


class _Counting(Fifo):
    """FIFO that compares its index with the queue before each decision."""

    def decide(self, view: View) -> Plan:
        kept = {size: n for size, n in view.index(_Count).by_size.items() if n}
        true: dict[int, int] = {}
        for record in view.queue:
            true[record.job.gpus] = true.get(record.job.gpus, 0) + 1
        assert kept == true
        return super().decide(view)


@pytest.mark.parametrize("number", range(0, 60, 4))
def test_an_index_kept_up_to_date_equals_one_built_anew(number: int) -> None:
    kept = scenario(number, _Counting).run()
    anew = scenario(number, _Counting, drop_indexes=True).run()
    assert kept.log == anew.log


class _Keeper:
    """Keeps the view, or a draft on it, and reads it at the next call."""

    kept: list[Any]

    def __init__(self, what: str) -> None:
        self.kept, self.what = [], what

    def decide(self, view: View) -> Plan:
        if self.kept:
            old = self.kept[0]
            if self.what == "view":
                old.head()
            elif self.what == "now":
                _ = old.now
            elif self.what == "iterator":
                next(old, None)
            else:
                old.start(view.head(), (0,))
        self.kept.append(
            {
                "view": lambda: view,
                "now": lambda: view,
                "draft": view.draft,
                "iterator": lambda: _walk(view),
            }[self.what]()
        )
        return EMPTY


def _walk(view: View) -> Iterator[int]:
    for record in view.queue:
        yield record.id


@pytest.mark.parametrize("what", ["view", "now", "draft", "iterator"])
def test_a_view_read_after_its_decision_is_an_error_in_strict_tests(what: str) -> None:
    h = Harness("1x1", _Keeper(what), strict=True)
    h.submit("a")
    h.submit("b", at_s=5.0)
    with pytest.raises(StaleViewError, match="read after the decision"):
        h.run()
    loose = Harness("1x1", _Keeper("now"))
    loose.submit("a")
    loose.submit("b", at_s=5.0)
    loose.run()


@pytest.mark.parametrize("policy", registry.names("policy"))
def test_registered_policies_keep_no_view(policy: str) -> None:
    for number in (1, 5, 12):
        harness = scenario(number, registry.load("policy", policy))
        plain = harness.run(invariants=False).log
        harness.strict = True
        assert harness.run(invariants=False).log == plain


def test_random_numbers_depend_on_the_seed_and_the_version_alone() -> None:
    one, two = small_state(), small_state()
    assert View(one, seed=3).rng().random() == View(two, seed=3).rng().random()
    assert View(one, seed=3).rng().random() != View(one, seed=4).rng().random()
    two.apply(ev.Held(1.0, 2, Reason.NO_CAPACITY))
    assert View(one, seed=3).rng().random() != View(two, seed=3).rng().random()


def test_without_a_forecast_or_usage_the_view_says_what_to_do() -> None:
    view = View(small_state())
    with pytest.raises(RuntimeError, match="give one to Loop"):
        _ = view.forecast
    with pytest.raises(RuntimeError, match="usage_half_life_s"):
        _ = view.usage


def test_ceilings_are_told_before_a_start_is_tried() -> None:
    state = small_state()
    state.apply(ev.TenantLimitChanged(1.0, "a", 1))
    view = View(state)
    refusal = view.limit_refusal(state.records[2])
    assert refusal == Refusal(Reason.TENANT_LIMIT, {"tenant": "a", "limit_gpus": 1, "used_gpus": 1})
    assert view.limit_refusal(state.records[3]) is None
    state.apply(ev.TenantLimitChanged(1.0, "a", 0))
    refusal = view.limit_refusal(state.records[2])
    assert refusal is not None
    assert refusal.reason is Reason.TENANT_CAPACITY_ZERO
    state.apply(ev.TenantLimitChanged(1.0, "a", None))
    assert view.limit_refusal(state.records[2]) is None


def test_why_not_tells_never_from_not_now_and_from_pieces() -> None:
    state = small_state()
    for number, gpus in ((10, 2), (11, 3), (12, 5)):
        state.apply(ev.Submitted(0.0, Job(number, f"k{number}", 0.0, gpus=gpus)))
    view = View(state)
    # Devices 1 and 2 are free, on two nodes.
    assert view.why_not(state.records[10])[0] is Reason.FRAGMENTED
    assert view.why_not(state.records[11]) == (
        Reason.NO_CAPACITY,
        {"needs_gpus": 3, "free_gpus": 2, "largest_block_gpus": 1},
    )
    assert view.why_not(state.records[12]) == (Reason.NEVER_FITS, {"needs_gpus": 5, "cluster_gpus": 4})


class _Endless:
    """Asks to be called again for a decision that changes nothing."""

    def decide(self, view: View) -> Plan:
        head = view.head()
        return EMPTY if head is None else Plan((Hold(head.id, Reason.NO_CAPACITY),), again=True)


class _Toggler:
    """Reserves and releases for ever."""

    def decide(self, view: View) -> Plan:
        from cotenant.model.plan import Reserve

        head = view.head()
        if head is None:
            return EMPTY
        return Plan((Reserve(head.id, () if head.reserved else (0,)),), again=True)


def test_a_policy_cannot_spin_for_ever() -> None:
    h = Harness("1x1", _Endless())
    h.submit("a")
    assert h.run().reasons("a") == [Reason.NO_CAPACITY]
    h = Harness("1x1", _Toggler())
    h.submit("a")
    with pytest.raises(PolicyError, match=r"kept deciding at t=0 "):
        h.run()


def test_a_wake_up_call_is_forgotten_unless_it_is_asked_for_again() -> None:
    calls: list[float] = []

    class Once:
        def decide(self, view: View) -> Plan:
            calls.append(view.now)
            return Plan(wake_at_s=100.0) if view.now < 5.0 else EMPTY

    cluster = Cluster(types=(DeviceType(name="x"),), nodes=(Node(name="n", gpus=(("x", 1),)),))
    h = Harness(cluster, Once())
    h.submit("a")
    h.submit("b", at_s=2.0)
    Loop(cluster=cluster, policy=Once(), executor=SimulatedExecutor(h.workload(), cluster)).run()
    assert calls == [0.0, 2.0, 100.0]


def test_a_draft_belongs_to_the_view_it_was_made_from() -> None:
    view = View(small_state())
    assert isinstance(view.draft(), Draft)
    assert view.draft().view is view
