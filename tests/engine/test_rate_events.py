"""The setting ``rate_events``: the world is the same, the log is shorter."""

from typing import Any

from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.packing import BestFit
from cotenant.testing import FixedTruth, Harness, HarnessRun


def _run(rate_events: bool, **settings: Any) -> HarnessRun:
    truth = FixedTruth({("m", ("m",)): 0.5}, solo={("m", "gpu"): 0.8})
    rules = Settings(rate_events=rate_events, start_s=5.0, **settings)
    h = Harness("1x1", BestFit(), truth=truth, settings=rules, memory_bytes=16 * GIB)
    for name in "ab":
        h.submit(name, model="m", memory_bytes=8 * GIB, compute_milli=0, runs_s=80.0)
    h.submit("c", model="m", memory_bytes=16 * GIB, runs_s=80.0)
    return h.run()


def test_without_rate_events_every_job_ends_as_before() -> None:
    # a and b start at 0, work from 5 on at 0.8 x 0.5 = 0.4: end at 205. c: 210 to 310 at 0.8.
    told, untold = _run(True), _run(False)
    for run in (told, untold):
        assert [run.end_s(n) for n in "abc"] == [205.0, 205.0, 310.0]
    assert sum(isinstance(e, ev.Rated) for e in told.events) >= 6
    assert not any(isinstance(e, ev.Rated) for e in untold.events)
    rest = [e for e in told.events[1:-1] if not isinstance(e, ev.Rated)]
    assert rest == untold.events[1:-1]


def _quiet_state(**settings: Any) -> State:
    return State(
        Cluster(
            nodes=(Node(name="n", gpus=(("gpu", 2),)),),
            types=(DeviceType(name="gpu", memory_bytes=16 * GIB),),
        ),
        Settings(rate_events=False, restore_s=10.0, state_bytes_per_s=1e9, **settings),
    )


def test_without_rate_events_no_work_counts_while_a_job_starts_up_or_loads() -> None:
    state = _quiet_state(start_s=5.0)
    job = Job(id=0, name="a", submit_s=0.0, memory_bytes=20 * 10**9, estimate_s=100.0)
    state.apply(ev.Submitted(0.0, job))
    state.apply(ev.Started(0.0, 0, 1, (0,)))
    record = state.records[0]
    # It starts up until 5.
    assert [record.work_at(t) for t in (0.0, 5.0, 35.0)] == [0.0, 0.0, 30.0]
    assert [record.remaining_at(t) for t in (0.0, 5.0, 35.0)] == [100.0, 100.0, 70.0]
    state.apply(ev.Stopping(35.0, 0, 1, True))
    state.apply(ev.Suspended(55.0, 0, 1, 30.0))
    assert record.work_at(90.0) == 30.0
    # To load 20 GB takes 20 s, and to warm up 10.
    state.apply(ev.Started(100.0, 0, 1, (1,), None, True))
    assert [record.work_at(t) for t in (100.0, 129.0, 140.0)] == [30.0, 30.0, 40.0]
    # A move saves for 20 s and then loads for 30; what was loaded before the first ended would be lost.
    state.apply(ev.Moved(140.0, 0, 1, (0,)))
    assert [record.work_at(t) for t in (140.0, 190.0, 195.0)] == [40.0, 40.0, 45.0]
    state.apply(ev.Released(160.0, 0, (1,)))
    state.apply(ev.Resized(195.0, 0, 1, (0, 1)))
    assert [record.work_at(t) for t in (195.0, 245.0, 246.0)] == [45.0, 45.0, 46.0]
    state.apply(ev.Resized(246.0, 0, 1, (0, 1)))  # the same devices: nothing to load
    assert record.work_at(250.0) == 50.0
