"""The world's arithmetic, by hand."""

import pytest

from cotenant.checks import check_executor
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.params import Params
from cotenant.model.placement import Share
from cotenant.model.plan import EMPTY, Move, Plan, Reserve, Resize, Start, Stop
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.policies.fifo import Fifo
from cotenant.testing import FixedTruth, Harness

HALF = Share("spatial", 8 * GIB, 0)


class Script(Params):
    """Decides what the test says, at the times it says."""

    def __init__(self, **plans: object) -> None:
        self.plans: dict[float, list[object]] = {}

    def decide(self, view: View) -> Plan:
        done = view.memo or 0
        due = [(t, d) for t, ds in sorted(self.plans.items()) for d in ds]
        now = tuple(d for t, d in due[done:] if t <= view.now)
        later = [t for t, _ in due[done:] if t > view.now]
        wake = min(later) if later else None
        if not now and wake is None:
            return EMPTY
        return Plan(now, memo=done + len(now), wake_at_s=wake)


def scripted(cluster: Cluster | str, plans: dict[float, list[object]], **options: object) -> Harness:
    policy = Script()
    policy.plans = plans
    return Harness(cluster, policy, **options)


def test_two_sharers_slow_each_other_only_while_together() -> None:
    # a alone 0-10 (10 of 100 done), with b at 0.5 from 10. b has 20 s of work at 0.8: done at 35.
    # a has done 10 + 25 x 0.5 = 22.5 by then and needs 77.5 more: ends at 112.5.
    truth = FixedTruth({("ma", ("mb",)): 0.5, ("mb", ("ma",)): 0.8})
    h = scripted(
        "1x1", {0.0: [Start(0, (0,), HALF)], 10.0: [Start(1, (0,), HALF)]}, truth=truth, memory_bytes=16 * GIB
    )
    h.submit("a", runs_s=100.0, model="ma", memory_bytes=8 * GIB)
    h.submit("b", at_s=10.0, runs_s=20.0, model="mb", memory_bytes=8 * GIB)
    run = h.run()
    assert run.end_s("b") == pytest.approx(35.0)
    assert run.end_s("a") == pytest.approx(112.5)
    assert [(e.t, e.rate) for e in run.of("a", ev.Rated)] == [(10.0, 0.5), (35.0, 1.0)]


def test_a_gang_runs_at_its_slowest_device() -> None:
    # Devices 0 and 1 hold gang g; s sits beside it on device 1 only and slows it to 0.4.
    truth = FixedTruth({("mg", ("ms",)): 0.4, ("ms", ("mg",)): 1.0})
    h = scripted(
        "1x2", {0.0: [Start(0, (0, 1), HALF), Start(1, (1,), HALF)]}, truth=truth, memory_bytes=16 * GIB
    )
    h.submit("a-gang", gpus=2, runs_s=40.0, model="mg", memory_bytes=8 * GIB)
    h.submit("b-single", runs_s=1000.0, model="ms", memory_bytes=8 * GIB)
    assert h.run().end_s("a-gang") == pytest.approx(40.0 / 0.4)


def test_time_slices_share_the_device_and_pay_for_switching() -> None:
    # Two residents, slice 60 s, switch 0.6 s: each runs at 60/60.6/2.
    sliced = Share("time-sliced", 8 * GIB, 0)
    h = scripted("1x1", {0.0: [Start(0, (0,), sliced), Start(1, (0,), sliced)]}, memory_bytes=8 * GIB)
    h.submit("a", runs_s=60.0, memory_bytes=8 * GIB)
    h.submit("b", runs_s=60.0, memory_bytes=8 * GIB)
    run = h.run()
    assert run.end_s("a") == pytest.approx(60.0 * 2 * 60.6 / 60)
    assert run.end_s("a") == run.end_s("b")


def test_suspending_saves_waits_and_resumes_where_it_was() -> None:
    # 4 GiB of state at 1 GiB/s: 4 s to save, 10 + 4 s to restore. Runs 0-30, saves 30-34,
    # resumes at 50, works again from 64 with 70 left: ends at 134.
    settings = Settings(state_bytes_per_s=float(GIB), restore_s=10.0)
    h = scripted("1x1", {0.0: [Start(0, (0,))], 30.0: [Stop(0)], 50.0: [Start(0, (0,))]}, settings=settings)
    h.submit("a", runs_s=100.0, state_bytes=4 * GIB)
    run = h.run()
    assert [e.t for e in run.of("a", ev.Suspended)] == [34.0]
    assert run.of("a", ev.Suspended)[0].work_s == 30.0
    assert run.starts("a") == [0.0, 50.0]
    assert run.of("a", ev.Started)[1].resumed
    assert run.end_s("a") == pytest.approx(134.0)


def test_killing_loses_work_since_the_last_checkpoint() -> None:
    # Checkpoints every 20 s of work: killed at 50, 40 s are kept, 10 lost. Restarted at 60
    # (10 s of restore), 60 left: ends at 130.
    settings = Settings(checkpoint_s=20.0, restore_s=10.0)
    h = scripted(
        "1x1",
        {0.0: [Start(0, (0,))], 50.0: [Stop(0, suspend=False)], 60.0: [Start(0, (0,))]},
        settings=settings,
    )
    h.submit("a", runs_s=100.0)
    run = h.run()
    first = run.of("a", ev.Ended)[0]
    assert (first.outcome, first.work_s, first.lost_s, first.final) == ("preempted", 40.0, 10.0, False)
    assert run.end_s("a") == pytest.approx(130.0)


def test_migration_holds_both_places_until_saved() -> None:
    # 5 s to save, 2 + 5 s to restore: moved at 20, old device free at 25, works from 32: ends at 112.
    settings = Settings(state_bytes_per_s=float(GIB), restore_s=2.0)
    h = scripted(
        "2x1",
        {0.0: [Start(0, (0,))], 20.0: [Move(0, (1,))], 22.0: [Start(1, (0,))], 25.0: [Start(1, (0,))]},
        settings=settings,
    )
    h.submit("a", runs_s=100.0, state_bytes=5 * GIB)
    h.submit("b", runs_s=1.0)
    run = h.run()
    assert [e.reason.value for e in run.refusals()] == ["no-capacity"]
    assert [(e.t, e.devices) for e in run.of("a", ev.Released)] == [(25.0, (0,))]
    assert run.start_s("b") == 25.0
    assert run.end_s("a") == pytest.approx(112.0)


def test_a_second_move_is_not_ended_by_the_first() -> None:
    # Moved at 0 (saved by 10), killed at 1, started again at 2, moved at 3 (saved by 13).
    settings = Settings(state_bytes_per_s=float(GIB), restore_s=0.0)
    plans: dict[float, list[object]] = {
        0.0: [Start(0, (0,)), Move(0, (1,))],
        1.0: [Stop(0, suspend=False)],
        2.0: [Start(0, (0,))],
        3.0: [Move(0, (1,))],
    }
    h = scripted("2x1", plans, settings=settings)
    h.submit("a", runs_s=50.0, state_bytes=10 * GIB)
    assert [(e.t, e.devices) for e in h.run().of("a", ev.Released)] == [(13.0, (0,))]


def test_an_elastic_job_runs_in_proportion_to_its_devices() -> None:
    # 100 s of work on 2 devices; on 1 from the start: speed 0.5. Grown to 2 at 40 (20 done),
    # 10 s of restart, then 80 s: ends at 130.
    h = scripted("1x2", {0.0: [Start(0, (0,))], 40.0: [Resize(0, (0, 1))]}, settings=Settings(restore_s=10.0))
    h.submit("a", gpus=2, min_gpus=1, max_gpus=2, runs_s=100.0)
    assert h.run().end_s("a") == pytest.approx(130.0)


def test_a_ceiling_binds_when_it_is_set_and_goes_when_lifted() -> None:
    # Ceiling 250 of 1000 for 40 s: 10 s of work; then free: 90 more: ends at 130.
    low = Share("spatial", 8 * GIB, 0, 250)
    h = scripted("1x1", {0.0: [Start(0, (0,), low)], 40.0: [Resize(0, (0,), HALF)]}, memory_bytes=16 * GIB)
    h.submit("a", runs_s=100.0, memory_bytes=8 * GIB)
    assert h.run().end_s("a") == pytest.approx(130.0)


def test_spreading_a_gang_that_fits_one_node_costs_speed() -> None:
    settings = Settings(gang_span="any", span_speed=0.8)
    h = scripted("2x2", {0.0: [Start(0, (0, 2))]}, settings=settings)
    h.submit("a", gpus=2, runs_s=80.0)
    assert h.run().end_s("a") == pytest.approx(100.0)
    # A gang larger than a node has to span: no penalty.
    h = scripted("2x2", {0.0: [Start(0, (0, 1, 2))]}, settings=settings)
    h.submit("a", gpus=3, runs_s=80.0)
    assert h.run().end_s("a") == pytest.approx(80.0)


def test_slow_devices_run_slowly_and_mixed_gangs_at_the_slowest() -> None:
    types = (DeviceType(name="x", speed=0.5), DeviceType(name="y", speed=1.0))
    cluster = Cluster(nodes=(Node(name="n", gpus=(("x", 1), ("y", 1))),), types=types)
    h = scripted(cluster, {0.0: [Start(0, (0,))]})
    h.submit("a", runs_s=10.0)
    assert h.run().end_s("a") == pytest.approx(20.0)
    h = scripted(cluster, {0.0: [Start(0, (0, 1))]}, settings=Settings(mixed_types=True, gang_span="any"))
    h.submit("a", gpus=2, runs_s=10.0)
    run = h.run()
    # No type has two devices, so on this cluster the gang never fits one type.
    assert run.of("a", ev.Rejected)[0].reason == "never-fits"


def test_failing_attempts_are_tried_again_as_in_the_trace() -> None:
    h = Harness("1x1", Fifo())
    h.submit("a", runs_s=9.0, failed_after_s=[3.0, 4.0])
    run = h.run()
    assert [(e.t, e.outcome, e.final) for e in run.of("a", ev.Ended)] == [
        (3.0, "failed", False),
        (7.0, "failed", False),
        (16.0, "done", True),
    ]


def test_a_lost_node_requeues_its_jobs_and_spares_the_others() -> None:
    h = Harness("2x1", Fifo())
    h.submit("a", runs_s=100.0)
    h.submit("b", runs_s=100.0)
    h.happen(ev.NodeDown(50.0, 0))
    h.happen(ev.NodeUp(60.0, 0))
    run = h.run()
    assert run.end_s("b") == 100.0
    # Without checkpoints a starts again at 60 from the beginning.
    assert run.starts("a") == [0.0, 60.0]
    assert run.end_s("a") == 160.0


def test_a_job_that_leaves_or_is_cancelled_while_waiting_ends_once() -> None:
    h = Harness("1x1", Fifo())
    h.submit("a", runs_s=100.0)
    h.submit("b", at_s=1.0, runs_s=5.0, leave_s=30.0)
    h.submit("c", at_s=2.0, runs_s=5.0, leave_s=500.0)
    h.happen(ev.CancelRequested(40.0, 2))
    h.happen(ev.CancelRequested(50.0, 0))
    run = h.run()
    assert [(e.t, e.reason) for e in run.of("b", ev.Rejected)] == [(30.0, "left")]
    assert [(e.t, e.reason) for e in run.of("c", ev.Rejected)] == [(40.0, "cancelled")]
    ended = run.of("a", ev.Ended)[0]
    assert (ended.t, ended.outcome, ended.work_s) == (50.0, "cancelled", 50.0)


def test_reserved_devices_wait_for_their_owner() -> None:
    h = scripted(
        "1x2", {0.0: [Start(0, (0,)), Reserve(1, (0, 1))], 5.0: [Start(2, (1,))], 10.0: [Start(1, (0, 1))]}
    )
    h.submit("a", runs_s=10.0)
    h.submit("b", gpus=2, runs_s=1.0)
    h.submit("c", runs_s=1.0)
    run = h.run()
    assert [(e.id, e.reason.value) for e in run.refusals()] == [(2, "reserved")]
    assert run.start_s("b") == 10.0
    assert run.state.ledger.reserved == {}


def test_the_minimum_quantum_protects_what_has_just_started() -> None:
    settings = Settings(min_quantum_s=60.0)
    h = scripted(
        "1x1",
        {0.0: [Start(0, (0,))], 59.0: [Stop(0)], 60.0: [Stop(0)], 61.0: [Start(0, (0,))]},
        settings=settings,
    )
    h.submit("a", runs_s=100.0)
    run = h.run()
    assert [e.reason.value for e in run.refusals()] == ["minimum-quantum"]
    assert len(run.of("a", ev.Suspended)) == 1


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (Settings(), [0.0, 0.0, 0.0]),
        (Settings(starts_per_event=1), [0.0, 1.0, 2.0]),
        (Settings(round_s=60.0), [0.0, 0.0, 0.0]),
        (Settings(decision_latency_s=3.0), [0.0, 0.0, 0.0]),
    ],
)
def test_settings_that_published_simulators_leave_unsaid(settings: Settings, starts: list[float]) -> None:
    h = Harness("1x3", Fifo(), settings=settings)
    for name in "abc":
        h.submit(name, runs_s=100.0)
    run = h.run()
    assert [run.start_s(n) for n in "abc"] == starts
    late = settings.decision_latency_s
    assert [run.end_s(n) for n in "abc"] == [s + late + 100.0 for s in starts]


def test_rounds_delay_what_arrives_between_them() -> None:
    h = Harness("1x1", Fifo(), settings=Settings(round_s=60.0))
    h.submit("a", at_s=61.0, runs_s=10.0)
    assert h.run().start_s("a") == 120.0


def test_the_simulated_executor_keeps_the_contract_of_executors() -> None:
    h = Harness("1x1", Fifo())
    h.submit("a", runs_s=50.0)
    check_executor(lambda: SimulatedExecutor(h.workload(), h.cluster))
