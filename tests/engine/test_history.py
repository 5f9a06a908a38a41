"""A loop that goes on with a log is as one that ran on; what is not on disk was not carried out."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.engine.log import LogWriter
from cotenant.engine.loop import Loop
from cotenant.engine.picture import picture
from cotenant.errors import LogError, StoreError
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.policies.fifo import Fifo
from cotenant.predictors.recent import RecentRuntime
from cotenant.testing import Harness

POLICIES = ["fifo", "colocate", "cotenant", "gavel", "srtf"]


class _Idle:
    """An executor that nothing happens to; it keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def now(self) -> float:
        return 0.0

    def start(self, *what: Any) -> bool:
        self.calls.append(what)
        return False

    def wait(self, until: float) -> list[ev.Event]:
        return []

    def drain(self) -> list[ev.Event]:
        return []

    def idle(self) -> bool:
        return True

    def stop(self, job_id: int, suspend: bool) -> None:
        self.calls.append(job_id)

    cancel = forget = move = resize = stop
    running = dict


def _again(harness: Harness, events: list[ev.Event], policy: str, **more: Any) -> Loop:
    return Loop(
        cluster=harness.cluster,
        policy=registry.load("policy", policy)(),
        executor=_Idle(),
        settings=harness.settings,
        history=events,
        **{"header": {"policy": getattr(events[0], "policy", "")}, **more},
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", range(6))
def test_history_gives_the_state_the_memo_and_the_seed(policy: str, number: int) -> None:
    harness = scenario(number, registry.load("policy", policy))
    run = harness.run()
    loop = _again(harness, run.events, policy)
    assert loop.state.version == run.state.version + 1  # and that it restarted
    told, was = picture(loop.state), picture(run.state)
    del told["version"], was["version"]
    assert told == was
    assert loop.view.memo == run.state.memo
    assert loop.view.seed == number


def test_one_event_says_that_the_scheduler_restarted_and_none_is_written_twice() -> None:
    harness = scenario(1, Fifo)
    run = harness.run()
    log = LogWriter()
    seen: list[ev.Event] = []

    class Sees:
        recalled = 0

        def see(self, events: list[ev.Event]) -> None:
            seen.extend(events)

        def recall(self, events: list[ev.Event]) -> None:
            self.recalled += len(events)

    observer = Sees()
    _again(harness, run.events, "fifo", log=log, observers=[observer], durable=True).run()
    assert [type(e).__name__ for e in seen][:1] == ["Restarted"]
    assert not any(isinstance(e, (ev.Submitted, ev.Opened)) for e in seen)
    assert (observer.recalled, log.events) == (len(run.events), len(seen))


def test_another_policy_does_not_get_the_memo_of_the_one_before() -> None:
    harness = scenario(3, registry.load("policy", "gavel"))
    run = harness.run()
    assert run.state.memo is not None
    loop = Loop(
        cluster=harness.cluster,
        policy=Fifo(),
        executor=_Idle(),
        settings=harness.settings,
        history=run.events,
    )
    assert loop.view.memo is None


def test_the_forecast_of_running_times_has_learned_as_if_it_had_run_on() -> None:
    def teach() -> tuple[Harness, Any, RecentRuntime]:
        harness = scenario(4, registry.load("policy", "sjf"))
        harness.runtime = RecentRuntime()
        return harness, harness.run(), harness.runtime

    harness, run, taught = teach()
    again = RecentRuntime()
    _again(harness, run.events, "sjf", runtime=again)
    job = Job(999, "j1", 0.0)
    assert again.predict_s(job) == taught.predict_s(job)
    assert again.predict_s(job) != RecentRuntime().predict_s(job)


def test_what_was_foretold_is_not_told_again() -> None:
    for number in range(30):
        harness = scenario(number, registry.load("policy", "colocate"))
        run = harness.run()
        if any(isinstance(e, ev.Foretold) for e in run.events):
            loop = _again(harness, run.events, "colocate", forecast=harness.forecast)
            told = [e for e in run.events if isinstance(e, ev.Foretold)]
            known = loop._foretelling._known
            assert sum(len(k) for k in known) >= len(told)
            assert not loop._foretelling.due
            return
    pytest.fail("no scenario foretells anything")


def test_a_log_that_cannot_be_folded_says_where() -> None:
    harness = scenario(0, Fifo)
    events = harness.run().events
    with pytest.raises(LogError, match="begins with Closed"):
        _again(harness, [events[-1]], "fifo", header={})
    broken = [*events[:3], ev.Started(5.0, 999, 1, (0,))]
    with pytest.raises(LogError, match="event 4 of the log cannot be folded: Started for job 999"):
        _again(harness, broken, "fifo")
    other = Cluster(nodes=(), types=())
    with pytest.raises(LogError, match="the log is of devices"):
        Loop(cluster=other, policy=Fifo(), executor=_Idle(), history=events)


class _Full(LogWriter):
    def write(self, batch: list[ev.Event]) -> None:
        if any(isinstance(event, ev.Started) for event in batch):
            raise StoreError("no space is left on the disk")
        super().write(batch)


class _One(_Idle):
    """One job arrives; nothing may be asked once the log has failed."""

    def wait(self, until: float) -> list[ev.Event]:
        if self.calls:
            pytest.fail("it went on although its log cannot be written")
        return [ev.Submitted(1.0, Job(0, "a", 1.0))]


def test_a_log_that_cannot_be_written_ends_the_loop_before_it_acts() -> None:
    cluster = scenario(0, Fifo).cluster
    loop = Loop(cluster=cluster, policy=Fifo(), executor=_One(), log=_Full(), durable=True)
    with pytest.raises(StoreError, match="no space"):
        loop.run()


def test_every_instant_is_written_before_the_executor_goes_on() -> None:
    written: list[int] = []

    class Watches(SimulatedExecutor):
        def wait(self, until: float) -> list[ev.Event]:
            written.append(log.events)
            return super().wait(until)

    harness = Harness("1x1", Fifo())
    harness.submit("a", runs_s=5.0)
    harness.submit("b", runs_s=5.0)
    log = LogWriter()
    executor = Watches(harness.workload(), harness.cluster)
    loop = Loop(cluster=harness.cluster, policy=Fifo(), executor=executor, log=log, durable=True)
    loop.run()
    assert written == sorted(written)
    assert written[0] == 1  # opened
    assert written[1] == 5  # two submitted, one started, one held
    assert written[-1] == log.events
