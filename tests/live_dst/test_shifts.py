"""Elastic jobs that are resized in place: one at a time on a calm machine, and whole hostile lives.

``COTENANT_SEEDS`` says how many lives each policy gets; ``make test-long`` has thousands.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cotenant import registry
from cotenant.checks.trials import main, trial
from cotenant.live.wishes import Wishes
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.ledger import Ledger
from cotenant.model.liveports import Progress
from cotenant.model.quantities import GIB

SEEDS = int(os.environ.get("COTENANT_SEEDS", "100"))
CHUNK = 10
Make = Callable[..., Any]


def _two(machine: Make, **nature: float) -> tuple[Any, int]:
    """A machine of two devices, and an elastic job that holds both."""
    m = machine(gpus=2)
    m.world.nature = msgspec.structs.replace(m.world.nature, **nature)
    a = m.submit("a", gpus=2, sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    return m, a


def test_grown_in_place_it_keeps_its_process(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    m.ask("resize", id=a, gpus=2)
    m.to(60.0)
    (resized,), (resettled,) = m.log(ev.Resized), m.log(ev.Resettled)
    assert (resized.in_place, resized.devices) == (True, (0, 1))
    assert (resettled.devices, resettled.again) == ((0, 1), False)
    assert len(m.launched) == 1
    assert (m.launched[0].least, m.launched[0].most) == (1, 2)
    assert m.process(a).launch.devices == (0, 1)
    assert m.log(ev.Rated) == []  # it went on working all the time
    assert m.state.records[a].serial == 1


def test_what_it_leaves_is_given_to_nobody_before_it_has_left(machine: Make) -> None:
    m, a = _two(machine)
    b = m.submit("b")
    m.ask("resize", id=a, gpus=1)
    m.to(60.0)
    (resettled,) = m.log(ev.Resettled)
    started = m.log(ev.Started)[-1]
    assert (started.id, started.devices) == (b, (1,))
    assert started.t == resettled.t > m.log(ev.Resized)[0].t
    assert m.runs() == [a, b]


def test_one_that_does_not_answer_saves_and_starts_again(machine: Make) -> None:
    m, a = _two(machine, never_settles=1.0)
    b = m.submit("b")
    m.ask("resize", id=a, gpus=1)
    m.to(60.0)
    assert m.state.ledger.leaving[a].devices == (1,)
    assert m.runs() == [a]
    m.to(260.0)
    (resettled,) = m.log(ev.Resettled)
    assert (resettled.again, resettled.detail) == (True, "no answer within 2m 2s")
    _, second, third = m.launched
    assert (second.id, second.devices, second.serial, second.resume) == (a, (0,), 2, True)
    assert (third.id, third.devices) == (b, (1,))
    assert m.runs() == [a, b]


def test_one_that_refuses_starts_again_at_once(machine: Make) -> None:
    m, a = _two(machine, refuses=1.0)
    m.ask("resize", id=a, gpus=1)
    m.to(40.0)
    (resettled,) = m.log(ev.Resettled)
    assert (resettled.again, resettled.detail) == (True, "they will not go")
    assert [launch.devices for launch in m.launched] == [(0, 1), (0,)]


def test_a_scheduler_that_takes_over_asks_again(machine: Make) -> None:
    m, a = _two(machine, never_settles=1.0)
    m.ask("resize", id=a, gpus=1)
    m.to(31.0)
    assert m.state.records[a].settling == (0, 1)
    m.world.nature = m.world.nature.kind()
    m.process(a).order = 0  # the order was lost with the scheduler that gave it
    m.begin()
    m.to(50.0)
    (resettled,) = m.log(ev.Resettled)
    assert (resettled.devices, resettled.again) == ((0,), False)
    assert len(m.launched) == 1
    assert m.log(ev.Restarted)[-1].adopted == (a,)


def test_it_is_not_resized_again_before_it_is_where_it_should_be(machine: Make) -> None:
    m = machine(gpus=3)
    m.world.nature = msgspec.structs.replace(m.world.nature, never_settles=1.0)
    a = m.submit("a", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 3})
    m.to(30.0)
    m.ask("resize", id=a, gpus=2)
    m.to(31.0)
    m.ask("resize", id=a, gpus=3)
    m.to(32.0)
    (refused,) = m.log(ev.Refused)
    assert (refused.decision, refused.reason) == ("resize", "still-resizing")
    assert m.state.records[a].place.devices == (0, 1)


@pytest.mark.parametrize("how", ["suspend", "cancel"])
def test_one_that_leaves_meanwhile_gives_all_back(machine: Make, how: str) -> None:
    m, a = _two(machine, never_settles=1.0)
    m.ask("resize", id=a, gpus=1)
    m.to(31.0)
    m.ask(how, id=a)
    b = m.submit("b", gpus=2, sharing="exclusive")
    m.to(60.0)
    assert m.log(ev.Resettled) == []
    assert m.runs() == [b]


def test_a_job_that_is_no_elastic_run_restarts(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a", suspend="restart", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    m.ask("resize", id=a, gpus=2)
    m.to(60.0)
    assert [event.in_place for event in m.log(ev.Resized)] == [False]
    assert [launch.devices for launch in m.launched] == [(0,), (0, 1)]


@pytest.mark.parametrize("saves", [True, False])
def test_one_that_restarts_saves_first_and_what_was_not_saved_is_not_told_as_kept(
    machine: Make, saves: bool
) -> None:
    m = machine()
    a = m.submit("a", suspend="restart", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 1})
    m.to(30.0)
    process = m.process(a)
    process.deaf = not saves
    m.ask("suspend", id=a)
    m.to(100.0)
    assert process.end is not None
    if saves:
        assert (process.end.outcome, process.end.code) == ("suspended", 85)
        assert m.log(ev.Suspended)[0].work_s == pytest.approx(30.0, abs=2.0)
    else:
        assert m.log(ev.Suspended) == []
        (ended,) = m.log(ev.Ended)
        assert (ended.outcome, ended.work_s, ended.final) == ("preempted", 0.0, False)
        assert ended.lost_s == pytest.approx(30.0, abs=7.5)


@pytest.mark.parametrize("way", ["restart", "runtime"])
def test_what_a_plain_job_keeps_is_told_as_its_own_affair(machine: Make, way: str) -> None:
    m = machine()
    a = m.submit("a", suspend=way)
    m.to(30.0)
    m.ask("suspend", id=a)
    m.to(60.0)
    (left,) = m.log(ev.Suspended)
    assert (left.own, left.work_s) == (way == "restart", pytest.approx(30.0, abs=2.0))
    m.ask("resume", id=a)
    m.to(80.0)
    m.world.restart()
    m.to(110.0)
    (lost,) = m.log(ev.Ended)
    assert (lost.outcome, lost.own) == ("lost", way == "restart")


def test_a_killed_process_is_told_once_also_by_a_scheduler_that_takes_over(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)

    def tell(killed: int) -> None:
        run = m.executor.runs[a]
        told = Progress(id=a, attempt=run.attempt, serial=run.serial, steps=5, killed=killed, killed_by=9)
        m.world._reports.append((m.world.now, 0, told))
        m.to(m.world.now + 5.0)

    tell(1)
    tell(1)
    m.begin()
    m.to(m.world.now + 1.0)
    tell(1)
    assert [(e.count, e.signal) for e in m.log(ev.ProcessKilled)] == [(1, 9)]
    tell(3)
    assert [e.count for e in m.log(ev.ProcessKilled)] == [1, 3]


def test_the_answers_to_two_resizes_of_one_moment_stand_in_the_log(machine: Make) -> None:
    m = machine(gpus=3)
    a = m.submit("a", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 3})
    m.to(30.0)
    m.ask("resize", id=a, gpus=2)
    m.ask("resize", id=a, gpus=3)
    m.to(32.0)
    wishes = Wishes()
    wishes.recall([event for _, event in m.disk.read()])
    assert wishes.wait(a, "k2", 0.0) == ""
    assert "earlier resize" in (wishes.wait(a, "k3", 0.0) or "")
    assert wishes.wait(a, "k9", 0.0) is None


def test_a_resize_for_which_there_is_no_room_names_the_drained_device(machine: Make) -> None:
    m = machine(gpus=2)
    a = m.submit("a", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    m.ask("drain", node=0, device=1)
    m.ask("resize", id=a, gpus=2)
    m.to(32.0)
    (refused,) = m.log(ev.Refused)
    assert (refused.reason, refused.facts["device"]) == ("device-unavailable", 1)


def test_a_resize_beyond_the_limit_of_its_tenant_counts_what_the_job_holds(machine: Make) -> None:
    kind = DeviceType(name="card", memory_bytes=24 * GIB)
    nodes = (Node(name="here", gpus=(("card", 2),)),)
    m = machine(cluster=Cluster(types=(kind,), nodes=nodes, tenants=(Tenant(name="ada", limit_gpus=1),)))
    a = m.submit("a", tenant="ada", sharing="exclusive", elastic={"min_gpus": 1, "max_gpus": 2})
    m.to(30.0)
    m.ask("resize", id=a, gpus=2)
    m.to(32.0)
    (refused,) = m.log(ev.Refused)
    facts = {"tenant": "ada", "limit_gpus": 1, "used_gpus": 1, "needs_gpus": 2}
    assert (refused.reason, refused.facts) == ("tenant-limit", facts)


# -- whole lives ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "cotenant"])
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_is_lost_doubled_or_over_committed(policy: str, first: int) -> None:
    failed = []
    for seed in range(first, min(first + CHUNK, SEEDS)):
        found = trial(seed, registry.load("policy", policy), elastic=True)
        if found.wrong:
            again = f"python -m cotenant.checks.trials --elastic --policy {policy} --seed {seed}"
            failed.append(f"{again}: {'; '.join(found.wrong[:3])}")
    gc.collect()  # each trial is a world of cycles
    assert failed == []


@pytest.mark.parametrize("policy", registry.names("policy"))
def test_every_policy_lives_with_resizes_that_take_their_time(policy: str) -> None:
    for seed in range(7000, 7003):
        assert trial(seed, registry.load("policy", policy), elastic=True).wrong == []


def test_devices_that_are_freed_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "keep", lambda self, job_id, place: None)
    for seed in range(40):
        wrong = trial(seed, registry.load("policy", "cotenant"), elastic=True).wrong
        if any("over-committed" in line for line in wrong):
            return
    pytest.fail("a scheduler that frees devices before their processes have left passes every trial")


def test_these_lives_meet_what_they_are_made_to_survive() -> None:
    met: Counter[str] = Counter()
    for seed in range(30):
        unsettled: set[int] = set()
        for _, event in trial(seed, registry.load("policy", "cotenant"), elastic=True).disk.read():
            if isinstance(event, ev.Resized) and event.in_place:
                unsettled.add(event.id)
            elif isinstance(event, ev.Resettled):
                unsettled.discard(event.id)
                met["restarts" if event.again else "in place"] += 1
                met["refused"] += event.detail == "they will not go"
                met["no answer"] += event.detail.startswith("no answer")
            elif isinstance(event, (ev.Ended, ev.Suspended)) and event.id in unsettled:
                unsettled.discard(event.id)
                met["left meanwhile"] += 1
            elif isinstance(event, ev.Restarted):
                met["scheduler died meanwhile"] += bool(unsettled)
    for what in (
        "in place",
        "restarts",
        "refused",
        "no answer",
        "left meanwhile",
        "scheduler died meanwhile",
    ):
        assert met[what] > 5, f"{what}: {met}"


def test_such_a_life_is_replayed_by_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--policy", "fifo", "--seed", "3", "--elastic"]) == 0
    said = capsys.readouterr().out
    assert '"e":"resettled"' in said
    assert said.endswith("nothing went wrong\n")
