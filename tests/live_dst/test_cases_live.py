"""Cases C22, C38, C41-C43, C48, C53 and C60, and what else the live executor promises, one at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.liveports import AttemptStarted
from cotenant.model.plan import Reason
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.colocate import Colocate
from cotenant.policies.cotenant import Cotenant
from cotenant.policies.easyscale import EasyScale
from cotenant.policies.fifo import Fifo
from cotenant.policies.time_slice import TimeSlice
from cotenant.testing import FixedForecast

Make = Any


def ends(machine: Any) -> list[tuple[int, str, bool]]:
    return [(e.id, e.outcome, e.final) for e in machine.log(ev.Ended)]


def test_c22_the_job_goes_elsewhere_waits_with_the_reason_and_starts_by_itself(machine: Make) -> None:
    m = machine(gpus=2)
    m.world.foreign(0, 10 * GIB)
    m.to(5.0)
    first = m.submit("first", gib=16)
    second = m.submit("second", gib=16)
    m.to(10.0)
    assert m.state.records[first].place.devices == (1,)
    held = m.log(ev.Held)[-1]
    assert (held.id, held.reason) == (second, Reason.FOREIGN_USE)
    assert held.facts == {"device": 0, "foreign_bytes": 10 * GIB, "pids": [4242]}
    m.world.foreign(0, 0)
    m.to(40.0)
    assert m.runs() == [first, second]
    assert [e.attempt for e in m.log(ev.Started)] == [1, 1]


def test_c38_a_job_stopped_by_signal_keeps_its_memory_so_nobody_takes_it(machine: Make) -> None:
    m = machine()
    a = m.submit("a", gib=18, suspend="pause")
    b = m.submit("b", gib=12)
    m.to(5.0)
    m.ask("suspend", id=a)
    m.to(20.0)
    assert m.process(a).paused
    assert m.state.records[a].paused
    assert (m.state.records[a].rate, m.state.ledger.free_memory[0]) == (0.0, 0)
    assert m.runs() == [a]
    m.ask("resume", id=a)
    m.to(30.0)
    assert not m.process(a).paused
    assert b in m.state.records


@pytest.mark.parametrize("policy", [Fifo, EasyScale, Cotenant])
@pytest.mark.parametrize("grade", ["D1", "none"])
def test_c53_saved_state_of_a_strict_job_waits_for_its_device_type(
    machine: Make, policy: Any, grade: str
) -> None:
    types = tuple(DeviceType(name=name, memory_bytes=24 * GIB) for name in ("x", "y"))
    both = Cluster(types=types, nodes=(Node(name="here", gpus=(("x", 1), ("y", 1))),))
    m = machine(policy, cluster=both)
    m.loop.view._forecast = FixedForecast()
    elastic = {"min_gpus": 1, "max_gpus": 1, "determinism": grade}
    a = m.submit("a", sharing="exclusive", elastic=elastic, device_types=["x", "y"])
    m.to(20.0)
    assert m.state.records[a].place.devices == (0,)
    m.ask("suspend", id=a)
    m.to(100.0)
    b = m.submit("b", sharing="exclusive", device_types=["x"], runs_s=500.0)
    m.to(150.0)
    assert m.runs() == [b]
    m.ask("resume", id=a)
    m.to(200.0)
    if grade == "none":
        assert (m.runs(), m.state.records[a].place.devices) == ([a, b], (1,))
        return
    held = m.log(ev.Held)[-1]
    assert (held.id, held.reason) == (a, Reason.DETERMINISM)
    told = {"grade": "D1", "type": "x", "needs_gpus": 1, "free_gpus": 0, "free_types": ["y"]}
    assert held.facts == told
    m.begin().view._forecast = FixedForecast()  # whoever takes over knows it, too
    m.to(400.0)
    assert m.runs() == [b]
    m.to(900.0)
    assert (m.runs(), m.state.records[a].place.devices) == ([a], (0,))
    assert [(e.devices, e.resumed) for e in m.log(ev.Started) if e.id == a] == [((0,), False), ((0,), True)]


def test_a_job_that_is_suspended_while_it_starts_is_paused_once_it_runs(machine: Make) -> None:
    m = machine()
    m.world.nature.late_start = 1.0
    a = m.submit("a", gib=18, suspend="pause")
    m.to(0.01)
    assert m.process(a).state == "starting"
    m.ask("suspend", id=a)
    m.world.nature.late_start = 0.0
    m.to(200.0)
    assert m.log(ev.Refused) == []
    assert m.process(a).paused
    assert m.state.records[a].paused
    m.ask("resume", id=a)
    m.to(230.0)
    assert not m.process(a).paused
    assert m.runs() == [a]


def test_suspended_it_holds_nothing_and_goes_on_at_its_step_when_there_is_room(machine: Make) -> None:
    m = machine()
    a = m.submit("a", gib=18)
    b = m.submit("b", gib=12, runs_s=100.0)
    m.to(20.0)
    m.ask("suspend", id=a)
    m.to(40.0)
    assert m.runs() == [b]
    assert m.state.held[a].suspended
    done_s = m.world.saved[a]
    m.ask("resume", id=a)
    m.to(60.0)
    assert m.runs() == [b]
    m.to(200.0)
    assert m.runs() == [a]
    assert m.process(a).launch.resume
    assert m.process(a).work_s == done_s > 10.0
    assert m.process(a).launch.attempt == 1


def test_c41_the_next_job_starts_at_once_and_a_late_start_is_cleaned_up(machine: Make) -> None:
    m = machine()
    m.world.nature.late_start = 1.0
    a = m.submit("a")
    m.to(0.01)
    assert m.process(a).state == "starting"
    m.ask("cancel", id=a)
    b = m.submit("b")
    m.to(1.0)
    assert ends(m) == [(a, "cancelled", True)]
    assert [e.id for e in m.log(ev.Started)] == [a, b]
    m.world.nature.late_start = 0.0
    late = AttemptStarted(id=a, attempt=1, serial=1, pid=77, start_ticks=7)
    m.world.tell(late)
    m.to(100.0)
    assert m.runs() == [b]
    assert m.executor.stale >= 1
    assert all(e.id == b for e in m.log(ev.Launched))


def test_cancelled_before_anything_was_launched_it_leaves_no_trace_on_the_machine(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.ask("cancel", id=a)
    m.to(5.0)
    assert m.launched == []
    assert [e.reason for e in m.log(ev.Rejected)] == ["cancelled"]


def test_c42_each_process_gets_its_own_share_whatever_the_order_of_answers(machine: Make) -> None:
    m = machine(TimeSlice, memory_gib=32)
    m.world.nature.late = 1.0
    a = m.submit("a", gib=1)
    b = m.submit("b", gib=24)
    m.to(60.0)
    told = {launch.id: launch.share.memory_bytes for launch in m.launched}
    assert told == {a: GIB, b: 24 * GIB}
    books = {j: m.state.records[j].place.share.memory_bytes for j in (a, b)}
    assert books == told


def test_c42_a_start_without_a_place_in_the_books_is_ended(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.to(5.0)
    m.world.tell(AttemptStarted(id=a, attempt=1, serial=9, pid=5, start_ticks=5))
    m.to(40.0)
    assert [e.serial for e in m.log(ev.Launched)] == [1]
    assert m.executor.strays == {}
    assert m.runs() == [a]


def test_c43_a_gang_that_uses_them_is_lost_and_starts_again_on_what_is_left(machine: Make) -> None:
    m = machine(gpus=8)
    p0 = m.submit("p0", gpus=8)
    m.to(5.0)
    p1 = m.submit("p1", gpus=6)
    m.world.device(3, up=False)
    m.world.device(5, up=False)
    m.to(60.0)
    assert (p0, "lost", False) in ends(m)
    assert "device" in m.log(ev.Ended)[0].detail
    assert m.runs() in ([], [p1])
    if m.runs():
        assert {3, 5}.isdisjoint(m.process(p1).launch.devices)
    assert min(m.state.ledger.free_memory) >= 0
    m.world.device(3, up=True)
    m.world.device(5, up=True)
    m.ask("cancel", id=p1)
    m.to(200.0)
    assert m.runs() == [p0]
    assert m.process(p0).launch.attempt == 2


def test_c48_it_is_told_apart_restarted_once_and_is_not_its_users_failure(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.to(30.0)
    for _ in range(2):
        m.process(a).hangs_s = m.process(a).done_s(m.world.now)
        m.to(m.world.now + 800.0)
    lost, failed = m.log(ev.Ended)
    assert (lost.outcome, lost.final, lost.detail) == ("lost", False, "no progress for 10m")
    assert (failed.outcome, failed.final) == ("failed", True)
    assert failed.detail == "no progress for 10m, for the second time"


def test_c48_after_a_restart_of_the_scheduler_it_is_still_the_second_time(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.to(30.0)
    m.process(a).hangs_s = m.process(a).done_s(m.world.now)
    m.to(900.0)
    m.begin()
    m.to(950.0)
    m.process(a).hangs_s = m.process(a).done_s(m.world.now)
    m.to(1700.0)
    assert ends(m) == [(a, "lost", False), (a, "failed", True)]


def test_c60_who_falls_with_a_neighbour_uses_no_retry(machine: Make) -> None:
    m = machine(Colocate, memory_gib=24)
    m.loop.view._forecast = FixedForecast(default=0.95)
    a = m.submit("a", gpu_compute="50%", retries=0)
    b = m.submit("b", gpu_compute="50%", retries=0)
    m.to(10.0)
    assert m.runs() == [a, b]
    assert m.state.records[a].place.devices == m.state.records[b].place.devices
    m.world._end(m.process(a), "failed", signal=11)
    m.world._end(m.process(b), "failed", code=1)
    m.to(15.0)
    assert ends(m) == [(a, "failed", True), (b, "lost", False)]
    assert m.log(ev.Ended)[0].code == -11
    assert m.log(ev.Ended)[1].detail.startswith("failed by neighbour: job 0")
    assert m.runs() == [b]


def test_c60_cancelling_one_leaves_the_other_running(machine: Make) -> None:
    m = machine(Colocate, memory_gib=24)
    m.loop.view._forecast = FixedForecast(default=0.95)
    a = m.submit("a", gpu_compute="50%")
    b = m.submit("b", gpu_compute="50%")
    m.to(10.0)
    m.ask("cancel", id=a)
    m.to(20.0)
    assert m.runs() == [b]
    assert len(m.process(b).launch.command) == 1
    assert [e.serial for e in m.log(ev.Launched)] == [1, 1]


def test_running_jobs_are_adopted_without_being_touched(machine: Make) -> None:
    m = machine(gpus=2)
    jobs = [m.submit(name) for name in "ab"]
    m.to(10.0)
    pids = [m.process(j).pid for j in jobs]
    m.begin()
    m.to(20.0)
    (restarted,) = m.log(ev.Restarted)
    assert (restarted.adopted, restarted.asked, restarted.killed, restarted.epoch) == ((0, 1), (), (), 2)
    assert [m.process(j).pid for j in jobs] == pids
    assert len(m.launched) == 2


def test_written_but_never_launched_it_is_launched_under_the_same_serial(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.world.nature.lost_call = 1.0
    m.launch = lambda launch: None  # the scheduler dies before it acts
    m.to(0.0)
    m.to(1.0)
    assert m.world.processes == {}
    del m.launch
    m.begin()
    m.to(5.0)
    assert m.log(ev.Restarted)[0].asked == (a,)
    assert [(launch.serial, launch.epoch) for launch in m.launched] == [(1, 2)]
    assert m.runs() == [a]


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [("done", ("done", True)), ("failed", ("failed", True)), ("lost", ("lost", False))],
)
def test_what_ended_while_nobody_looked_has_its_own_end(
    machine: Make, outcome: str, ended: tuple[str, bool]
) -> None:
    m = machine()
    a = m.submit("a")
    m.to(10.0)
    m.world._end(m.process(a), outcome)
    m.world._reports.clear()
    m.begin()
    m.to(20.0)
    assert ends(m) == [(a, *ended)]
    assert m.runs() == ([a] if not ended[1] else [])


def test_who_ended_for_good_is_forgotten_by_the_host_also_where_a_scheduler_died_before(
    machine: Make,
) -> None:
    m = machine()
    done, cancelled = (m.submit(name, runs_s=20.0) for name in ("done", "cancelled"))
    waits = m.submit("waits")
    m.ask("cancel", id=cancelled)
    m.to(40.0)
    assert sorted(m.forgotten) == [done, cancelled]
    # Its end is told again to whoever comes next, if it was not forgotten.
    m.forgotten.clear()
    m.begin()
    assert m.process(done).end is not None
    m.world._reports.append((m.world.now, 0, m.process(done).end))
    m.to(45.0)
    assert m.forgotten == [done]
    assert m.state.live(waits) is not None


def test_what_runs_and_should_not_is_ended_and_said(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.to(10.0)
    m.world.may_run = lambda job, serial: True
    m.world.launch(msgspec.structs.replace(m.launched[0], id=55, devices=(), serial=4))
    m.world.poll(1.0)
    m.world._reports.clear()
    m.begin()
    m.to(20.0)
    assert m.log(ev.Restarted)[0].killed == ((55, 4),)
    assert m.runs() == [a]


def test_a_cancellation_that_was_written_and_not_carried_out_is_carried_out(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.to(10.0)
    m.stop = lambda *what: None
    m.ask("cancel", id=a)
    m.to(12.0)
    assert m.runs() == [a]
    del m.stop
    m.begin()
    m.to(20.0)
    assert ends(m) == [(a, "cancelled", True)]
    assert m.runs() == []


def test_the_machine_restarts_and_every_job_goes_on(machine: Make) -> None:
    m = machine(gpus=2)
    jobs = [m.submit(name) for name in "abc"]
    m.to(10.0)
    m.world.restart()
    m.begin()
    m.to(60.0)
    assert m.runs() == jobs[:2]
    assert ends(m) == [(0, "lost", False), (1, "lost", False)]


def test_a_job_starts_once_those_before_it_ended_well(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a", runs_s=20.0)
    b = m.submit("b", after=[a])
    m.to(10.0)
    assert m.runs() == [a]
    assert m.state.held[b].hold == Reason.AWAITS_JOBS
    m.begin()
    m.to(40.0)
    assert m.runs() == [b]


def test_it_fails_with_what_it_waits_for_and_takes_others_with_it(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a")
    b = m.submit("b", after=[a])
    c = m.submit("c", after=[b])
    m.to(10.0)
    m.ask("cancel", id=a)
    m.to(20.0)
    told = [(e.id, e.reason, e.facts) for e in m.log(ev.Rejected)]
    assert told == [(b, "dependency-failed", {"after": a}), (c, "dependency-failed", {"after": b})]


def test_jobs_that_take_turns_are_stopped_by_signal_and_one_turn_runs_at_a_time(machine: Make) -> None:
    m = machine(TimeSlice, settings=Settings(slice_s=10.0, min_quantum_s=0.0))
    a, b = m.submit("a", gib=8), m.submit("b", gib=8)
    m.to(5.0)
    seen = []
    for t in (8.0, 16.0, 27.0, 36.0):
        m.to(t)
        assert m.runs() == [a, b]
        seen.append([j for j in (a, b) if not m.process(j).paused])
    assert sorted(map(tuple, seen)) == [(a,), (a,), (b,), (b,)]
    assert {m.state.records[j].rate for j in (a, b)} == {0.5}
    c = m.submit("c", gib=9)
    m.to(60.0)
    assert c not in m.runs()  # paused or not, a and b are in memory


def test_a_resized_share_reaches_the_process_without_stopping_it(machine: Make) -> None:
    m = machine()
    a = m.submit("a")
    m.to(5.0)
    m.ask("resize", id=a, compute_milli=300)
    m.to(8.0)
    assert m.process(a).launch.share.compute_milli == 300
    assert len(m.launched) == 1


def test_an_elastic_job_goes_on_with_more_devices_where_it_was(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a", suspend="restart", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    m.ask("resize", id=a, gpus=2)
    m.to(60.0)
    first, second = m.launched
    assert (first.devices, second.devices, second.resume, second.serial) == ((0,), (0, 1), True, 2)
    assert m.log(ev.Rated)[0].rate == 0.0


def test_work_is_counted_in_steps_times_what_a_step_takes_alone(machine: Make) -> None:
    m = machine()
    m.submit("a", runs_s=100.0)
    m.to(200.0)
    (done,) = m.log(ev.Ended)
    assert done.outcome == "done"
    assert done.work_s == pytest.approx(100.0, abs=7.5)  # told every 7 s
    sampled = m.log(ev.Sampled)[0]
    assert (sampled.work_s, sampled.co_speed) == (100.0, 0.0)


def test_what_was_away_or_used_before_a_restart_is_so_only_if_it_still_is(machine: Make) -> None:
    m = machine(gpus=3)
    m.world.device(0, up=False)
    m.world.foreign(1, 10 * GIB)
    m.world.foreign(2, 12 * GIB)
    m.to(30.0)
    m.world.down.clear()  # put right while no scheduler looked
    del m.world.outside[1]
    m.world._reports.clear()
    m.world._heap.clear()
    m.begin()
    m.to(35.0)
    assert m.state.ledger.usable == [False, True, True]  # the host may still say so
    m.to(60.0)
    assert m.state.ledger.usable == [True, True, True]
    assert list(m.state.ledger.foreign) == [2]


def test_a_display_on_the_only_card_keeps_no_job_from_it(machine: Make) -> None:
    m = machine(memory_gib=24)
    m.world.foreign(0, GIB)
    a = m.submit("a", gib=16)
    m.to(10.0)
    assert m.runs() == [a]
    assert m.state.ledger.foreign_bytes(0) == GIB
    m.ask("cancel", id=a)
    m.to(20.0)
    assert m.state.ledger.free_memory[0] == 23 * GIB


def test_who_takes_turns_and_makes_no_steps_in_its_own_is_found_too(machine: Make) -> None:
    m = machine(TimeSlice, settings=Settings(slice_s=10.0, min_quantum_s=0.0))
    a, b = m.submit("a"), m.submit("b")
    m.to(40.0)
    m.process(a).hangs_s = m.process(a).done_s(m.world.now)
    m.to(1000.0)
    assert ends(m) == []  # half of that time was not its turn
    m.to(1400.0)
    assert ends(m) == [(a, "lost", False)]
    assert m.runs() == [a, b]
