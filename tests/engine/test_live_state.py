"""What users ask of jobs, use from outside, and real processes: folded by the state, answered by the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cotenant import registry
from cotenant.checks.invariants import check_invariants
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import IllegalEventError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement, Share
from cotenant.model.plan import Reason, Refusal
from cotenant.model.quantities import GIB
from cotenant.model.records import Status
from cotenant.model.settings import Settings
from cotenant.model.shape import why_not
from cotenant.policies.fifo import Fifo
from cotenant.report.reasons import meaning, remedy
from cotenant.testing import FixedForecast, Harness

CLUSTER = Cluster(
    types=(DeviceType(name="x", memory_bytes=24 * GIB),), nodes=(Node(name="n", gpus=(("x", 2),)),)
)
HALF = Share("spatial", 8 * GIB, 500, 1000)


class Scene:
    """A state whose invariants are checked after every event."""

    def __init__(self) -> None:
        self.state = State(CLUSTER, Settings())
        self.state.go_live()
        self.t = 0.0

    def apply(self, *events: ev.Event) -> Any:
        for event in events:
            follows = self.state.appliers[type(event)](event)
            check_invariants(self.state, event)
        return follows

    def submit(self, *ids: int, **fields: Any) -> None:
        fields = {"memory_bytes": 8 * GIB, **fields}
        for job_id in ids:
            self.apply(ev.Submitted(0.0, Job(job_id, f"j{job_id}", 0.0, **fields)))

    def waiting(self) -> list[int]:
        return [record.id for record in self.state.queue]


def test_a_held_job_is_in_no_queue_and_no_policy_sees_it_until_it_is_resumed() -> None:
    s = Scene()
    s.submit(0, 1, 2)
    assert s.apply(ev.SuspendRequested(1.0, 0)) is None
    assert (s.waiting(), sorted(s.state.records)) == ([1, 2], [1, 2])
    assert s.state.held[0].status == Status.HELD
    assert s.state.held[0].hold == Reason.HELD_BY_USER
    s.apply(ev.PriorityChanged(2.0, 0, 5), ev.ResumeRequested(3.0, 0))
    assert (s.waiting(), s.state.held) == ([0, 1, 2], {})
    assert s.state.records[0].queued_s == 3.0


def test_a_running_job_leaves_when_held_and_is_not_started_again() -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.Started(0.0, 0, 1, (0,)))
    assert s.apply(ev.SuspendRequested(1.0, 0)) == "leave"
    s.apply(ev.Stopping(1.0, 0, 1), ev.Suspended(4.0, 0, 1, 3.0))
    assert (s.waiting(), s.state.held[0].suspended) == ([], True)
    assert s.state.ledger.free_memory == [24 * GIB, 24 * GIB]
    s.apply(ev.ResumeRequested(9.0, 0))
    assert s.waiting() == [0]
    assert s.state.records[0].suspended


def test_what_cannot_save_its_state_is_refused_and_not_held() -> None:
    s = Scene()
    s.submit(0, suspendable=False)
    s.apply(ev.Started(0.0, 0, 1, (0,)))
    assert s.apply(ev.SuspendRequested(1.0, 0)) == Refusal(Reason.NOT_SUSPENDABLE)
    assert not s.state.records[0].held


def test_resumed_before_it_has_left_it_returns_to_the_queue() -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.Started(0.0, 0, 1, (0,)), ev.SuspendRequested(1.0, 0), ev.Stopping(1.0, 0, 1))
    s.apply(ev.ResumeRequested(2.0, 0), ev.Suspended(3.0, 0, 1, 1.0))
    assert s.waiting() == [0]


def test_a_held_job_can_be_cancelled_and_is_counted_once() -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.SuspendRequested(1.0, 0), ev.Rejected(2.0, 0, "cancelled"))
    assert (s.state.counts["submitted"], s.state.counts["cancelled"], s.state.held) == (1, 1, {})


def test_a_job_that_awaits_others_is_held_until_they_have_ended() -> None:
    s = Scene()
    s.submit(0, 1)
    s.apply(ev.Awaited(0.0, 1, (0,)))
    assert (s.waiting(), s.state.held[1].hold) == ([0], Reason.AWAITS_JOBS)
    s.apply(ev.SuspendRequested(1.0, 1), ev.Awaited(2.0, 1))
    assert (s.waiting(), s.state.held[1].hold) == ([0], Reason.HELD_BY_USER)
    s.apply(ev.ResumeRequested(3.0, 1))
    assert s.waiting() == [0, 1]
    with pytest.raises(IllegalEventError, match="awaits others"):
        s.apply(ev.Awaited(4.0, 7, (0,)))


def test_a_waiting_job_asks_for_something_else() -> None:
    s = Scene()
    s.submit(0)
    assert s.apply(ev.ResizeRequested(1.0, 0, memory_bytes=5 * GIB, gpus=2)) is None
    record = s.state.records[0]
    assert (record.job.memory_bytes, record.job.gpus, record.shape.gpus) == (5 * GIB, 2, 2)
    refused = s.apply(ev.ResizeRequested(2.0, 0, gpus=3))
    assert refused == Refusal(Reason.NEVER_FITS, {"needs_gpus": 3, "cluster_gpus": 2})
    assert record.job.gpus == 2


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({"compute_milli": 300}, Share("spatial", 8 * GIB, 300, 1000)),
        ({"compute_limit_milli": 700}, Share("spatial", 8 * GIB, 500, 700)),
        ({"memory_bytes": 20 * GIB}, Share("spatial", 20 * GIB, 500, 1000)),
    ],
)
def test_a_running_job_gets_another_share(asked: dict[str, int], share: Share) -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.Started(0.0, 0, 1, (0,), HALF))
    assert s.apply(ev.ResizeRequested(1.0, 0, **asked)) == Placement((0,), share)


def test_a_share_that_does_not_fit_beside_others_is_refused_and_nothing_changes() -> None:
    s = Scene()
    s.submit(0, 1)
    s.apply(ev.Started(0.0, 0, 1, (0,), HALF), ev.Started(0.0, 1, 1, (0,), HALF))
    before = picture(s.state)
    refused = s.apply(ev.ResizeRequested(0.0, 0, compute_milli=501))
    assert refused == Refusal(Reason.COMPUTE, {"device": 0, "needs_milli": 501, "free_milli": 500})
    refused = s.apply(ev.ResizeRequested(0.0, 0, memory_bytes=17 * GIB))
    facts = {"device": 0, "needs_bytes": 17 * GIB, "free_bytes": 16 * GIB}
    assert refused == Refusal(Reason.MEMORY, facts)
    assert picture(s.state) == before


def test_an_elastic_job_grows_onto_free_devices_once_its_process_is_known() -> None:
    s = Scene()
    s.submit(0, min_gpus=1, max_gpus=2)
    s.apply(ev.Started(0.0, 0, 1, (1,)))
    asked = ev.ResizeRequested(1.0, 0, gpus=2)
    assert s.apply(asked) == Refusal(Reason.STILL_STARTING, {"serial": 1})
    s.apply(ev.Launched(1.0, 0, 1, 1, 40, 7))
    assert s.apply(asked) == Placement((0, 1))
    s.apply(ev.Resized(1.0, 0, 1, (0, 1)))
    assert s.state.records[0].serial == 2


def test_only_the_process_of_the_present_place_can_be_launched() -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.Started(0.0, 0, 1, (0,)), ev.Suspended(1.0, 0, 1, 1.0))
    with pytest.raises(IllegalEventError, match="does not run"):
        s.apply(ev.Launched(2.0, 0, 1, 1))
    s.apply(ev.Started(3.0, 0, 1, (0,), None, True))
    with pytest.raises(IllegalEventError, match="its place has serial 2"):
        s.apply(ev.Launched(4.0, 0, 1, 1))
    s.apply(ev.Launched(4.0, 0, 1, 2, 9, 9))
    assert s.state.records[0].process == ev.Launched(4.0, 0, 1, 2, 9, 9)


def test_paused_a_job_holds_its_memory_and_does_no_work() -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.Started(0.0, 0, 1, (0,), HALF), ev.Paused(10.0, 0, 1))
    record = s.state.records[0]
    assert (record.paused, record.rate, record.work_at(99.0)) == (True, 0.0, 10.0)
    assert s.state.ledger.free_memory[0] == 16 * GIB
    s.apply(ev.Paused(20.0, 0, 1, paused=False), ev.Rated(20.0, 0, 0.5))
    assert (record.paused, record.work_at(30.0)) == (False, 15.0)


def test_c22_its_memory_is_kept_and_whole_devices_are_refused() -> None:
    s = Scene()
    s.submit(0, 1, memory_bytes=16 * GIB)
    s.apply(ev.ForeignUse(0.0, 0, 10 * GIB, (4711,)))
    record, ledger = s.state.records[0], s.state.ledger
    assert ledger.free_memory == [14 * GIB, 24 * GIB]
    assert ledger.tightest(0, 1) == (1,)
    s.apply(ev.Started(1.0, 1, 1, (1,)))
    reason, facts = why_not(ledger, record.shape)
    assert reason == Reason.FOREIGN_USE
    assert facts == {"device": 0, "foreign_bytes": 10 * GIB, "pids": [4711]}
    assert "outside" in meaning(reason)
    assert "starts by itself" in remedy(reason)
    s.apply(ev.ForeignUse(2.0, 0))
    assert ledger.tightest(0, 1) == (0,)
    assert not ledger.impaired


def test_c22_who_comes_beside_takes_what_is_left_and_never_less_than_nothing_is_offered() -> None:
    s = Scene()
    s.submit(0, 1)
    s.apply(ev.ForeignUse(0.0, 0, 10 * GIB, (1,)), ev.Started(1.0, 0, 1, (0,), HALF))
    assert s.state.ledger.free_memory[0] == 6 * GIB
    s.apply(ev.ForeignUse(2.0, 0, 20 * GIB, (1,)))
    assert s.state.ledger.free_memory[0] == 0
    s.apply(ev.Suspended(3.0, 0, 1, 1.0))
    assert s.state.ledger.free_memory[0] == 4 * GIB
    s.apply(ev.ForeignUse(4.0, 0))
    assert s.state.ledger.free_memory[0] == 24 * GIB


def test_c22_it_comes_and_goes_while_a_job_has_the_whole_device() -> None:
    s = Scene()
    s.submit(0)
    s.apply(ev.Started(0.0, 0, 1, (0,)), ev.ForeignUse(1.0, 0, GIB, (1,)))
    assert s.state.ledger.free_memory[0] == 0
    s.apply(ev.Suspended(2.0, 0, 1, 1.0))
    assert s.state.ledger.free_memory[0] == 23 * GIB
    s.apply(ev.ForeignUse(3.0, 0))
    assert s.state.ledger.free_memory[0] == 24 * GIB


def test_live_turns_stay_in_memory_so_they_must_fit_together() -> None:
    s = Scene()
    s.submit(0, 1, memory_bytes=16 * GIB)
    share = Share("time-sliced", 16 * GIB, 0)
    s.apply(ev.Started(0.0, 0, 1, (0,), share))
    from cotenant.model.rules import check_start

    refusal = check_start(s.state.books, s.state.records[1], (0,), share)
    assert refusal == Refusal(Reason.MEMORY, {"device": 0, "needs_bytes": 16 * GIB, "free_bytes": 8 * GIB})


def _run(incidents: Sequence[ev.Event]) -> Any:
    h = Harness(CLUSTER, Fifo())
    h.submit("a", runs_s=100.0, memory_bytes=8 * GIB)
    h.submit("b", runs_s=50.0, memory_bytes=8 * GIB)
    h.submit("c", runs_s=10.0, memory_bytes=8 * GIB)
    for event in incidents:
        h.happen(event)
    return h.run()


def test_the_loop_suspends_what_its_user_holds_and_goes_on_when_told_in_simulation_too() -> None:
    run = _run([ev.SuspendRequested(10.0, 0, "k1"), ev.ResumeRequested(200.0, 0, "k2")])
    kinds = [type(e).__name__ for e in run.events if getattr(e, "id", -1) == 0]
    assert kinds[:3] == ["Started", "SuspendRequested", "Stopping"]
    starts = [e.t for e in run.events if isinstance(e, ev.Started) and e.id == 0]
    assert starts == [0.0, 200.0]
    assert run.end_s("a") > 200.0
    stopping = next(e for e in run.events if isinstance(e, ev.Stopping))
    assert stopping.why.rule == "asked-by-owner"


def test_the_loop_says_what_it_refuses_to_a_user() -> None:
    run = _run([ev.ResizeRequested(5.0, 0, gpus=2), ev.ResizeRequested(6.0, 77, gpus=2)])
    refused = [e for e in run.events if isinstance(e, ev.Refused)]
    assert [(e.id, e.decision, e.reason) for e in refused] == [(0, "resize", Reason.MALFORMED)]


def test_a_resize_of_a_running_job_is_answered_at_the_same_instant() -> None:
    run = _run([ev.ResizeRequested(5.0, 0, compute_milli=300)])
    resized = next(e for e in run.events if isinstance(e, ev.Resized))
    assert (resized.t, resized.share) == (5.0, Share("spatial", 8 * GIB, 300, 1000))


@pytest.mark.parametrize("policy", ["horus", "srtf", "fgd", "cotenant"])
def test_who_asks_for_something_else_is_in_every_queue_once(policy: str) -> None:
    """Queues look late whether an entry still holds; an entry of what was asked before must not come to life."""
    h = Harness(CLUSTER, registry.load("policy", policy)(), forecast=FixedForecast(default=0.9))
    h.submit("long-a", runs_s=100.0, memory_bytes=20 * GIB)
    h.submit("long-b", runs_s=100.0, memory_bytes=20 * GIB)
    for name in "cde":
        h.submit(name, at_s=1.0, runs_s=10.0, memory_bytes=8 * GIB)
    for t, asked in ((10.0, 6), (20.0, 8), (30.0, 21), (40.0, 8)):
        h.happen(ev.ResizeRequested(t, 3, memory_bytes=asked * GIB))
    h.happen(ev.ResizeRequested(50.0, 0, memory_bytes=22 * GIB))
    run = h.run()
    done = [e.id for e in run.events if isinstance(e, ev.Ended)]
    assert sorted(done) == [0, 1, 2, 3, 4]
