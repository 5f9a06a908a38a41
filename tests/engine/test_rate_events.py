"""The setting ``rate_events``: the world is the same, the log is shorter."""

from typing import Any

from cotenant.model import events as ev
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
