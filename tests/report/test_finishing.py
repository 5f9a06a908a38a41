"""When a job will finish, as told at its samples and carried over to new company."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.ports import Interval
from cotenant.report.explain import Explanation, explain
from cotenant.report.finishing import Finishing

SHARED = Share("spatial", 1 << 30, 400, 1000)
TURNS = Share("time-sliced", 1 << 30, 0, 1000)


def _told(tmp_path: Path, *events: ev.Event) -> Explanation:
    cluster = Cluster(nodes=(Node(name="n", gpus=(("V100", 2),)),), types=(DeviceType(name="V100"),))
    opened = ev.Opened(0.0, 1, "0", 0, "p", {}, {}, cluster, {}, {}, {})
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in (opened, *events)))
    return explain(path, "a")


def _steps(told: Explanation, *kinds: str) -> list[tuple[float, str]]:
    return [(step.t, step.text) for step in told.steps if step.what in kinds]


def _shared_story(share: Share = SHARED) -> list[ev.Event]:
    """a alone, sampled at 30; b from 100 to 400 beside it; both sampled at 130."""
    return [
        ev.Submitted(0.0, Job(0, "a", 0.0, model="m")),
        ev.Started(0.0, 0, 1, (0,), share),
        ev.Sampled(30.0, 0, 1, 1000.0, 900.0, 1100.0),
        ev.Submitted(100.0, Job(1, "b", 100.0, model="n")),
        ev.Started(100.0, 1, 1, (0,), share),
        ev.Rated(100.0, 0, 0.5),
        ev.Rated(100.0, 1, 0.8),
        ev.Foretold(100.0, "V100", ("m", "n"), (0.6, 0.7), (0.5, 0.6), (0.7, 0.8)),
        ev.Sampled(130.0, 0, 1, 1000.0, 990.0, 1010.0, 0.5 if share is SHARED else 0.0),
        ev.Ended(400.0, 1, 1, "done", 240.0),
        ev.Rated(400.0, 0, 1.0),
        ev.Closed(500.0, 10, 2, 1, running=1),
    ]


def test_samples_and_changes_of_company_tell_when_it_will_finish(tmp_path: Path) -> None:
    steps = _steps(_told(tmp_path, *_shared_story()), "sampled", "foreseen")
    # 30 s done of 1,000: 970 s to go, between 870 and 1,070.
    assert steps[0] == (
        30.0,
        "Sampled after 30s: will finish at 00:16:40 (between 00:15:00 and 00:18:20) if its company stays.",
    )
    # At 100, 900 s are left alone; at 0.6 of that speed it takes 1,500: 1,600 s after the start.
    at_s, text = steps[1]
    assert at_s == 100.0
    assert text.startswith(
        "New company, beside which 0.60 (0.50 to 0.70) of its speed alone is foretold: will finish at 00:26:40 "
    )
    # At 130: 100 + 30 x 0.5 = 115 s are done, 885 to go at half speed: 130 + 1,770 = 1,900.
    assert steps[2] == (
        130.0,
        "Sampled after 2m 10s: will finish at 00:31:40 (between 00:31:20 and 00:32:00) if its company "
        "stays. Beside its neighbours it runs at 0.50 of its speed alone.",
    )
    # At 400: 115 + 270 x 0.5 = 250 s done, 750 to go, alone: 1,150.
    at_s, text = steps[3]
    assert at_s == 400.0
    assert text.startswith("Alone on its devices now: will finish at 00:19:10 ")
    assert len(steps) == 4


def test_those_who_take_turns_are_not_carried_over(tmp_path: Path) -> None:
    steps = _steps(_told(tmp_path, *_shared_story(TURNS)), "foreseen")
    assert steps == []


def test_without_a_word_of_the_forecast_nothing_is_carried_over(tmp_path: Path) -> None:
    story = [e for e in _shared_story() if not isinstance(e, ev.Foretold)]
    assert [t for t, _ in _steps(_told(tmp_path, *story), "foreseen")] == [400.0]


def test_a_job_without_samples_is_explained_as_before(tmp_path: Path) -> None:
    story = [e for e in _shared_story() if not isinstance(e, ev.Sampled)]
    assert _steps(_told(tmp_path, *story), "sampled", "foreseen") == []


def test_carried_over_doubts_add_in_quadrature_on_the_scale_of_logarithms() -> None:
    finishing = Finishing()
    finishing.see(ev.Started(0.0, 0, 1, (0,)))
    first = finishing.sampled(ev.Sampled(0.0, 0, 1, 100.0, 80.0, 125.0))
    assert first is not None and (first.earliest_s, first.at_s, first.latest_s) == pytest.approx(
        (80, 100, 125)
    )
    found = finishing.carried(0.0, Interval(0.5, 0.4, 0.625))
    assert found is not None and found.basis == "carried over" and found.at_s == pytest.approx(200.0)
    # Both doubts are a factor of 1.25 either way.
    factor = math.exp(math.sqrt(2.0) * math.log(1.25))
    assert (found.earliest_s, found.latest_s) == pytest.approx((200.0 / factor, 200.0 * factor))


def test_a_new_attempt_forgets_what_the_last_one_told() -> None:
    finishing = Finishing()
    finishing.see(ev.Started(0.0, 0, 1, (0,)))
    finishing.sampled(ev.Sampled(30.0, 0, 1, 100.0, 80.0, 125.0))
    finishing.see(ev.Ended(50.0, 0, 1, "failed", 50.0, 50.0, False))
    assert finishing.carried(60.0, None) is None
    finishing.see(ev.Started(60.0, 0, 2, (0,)))
    found = finishing.sampled(ev.Sampled(90.0, 0, 2, 100.0, 80.0, 125.0))
    assert found is not None and found.at_s == pytest.approx(160.0)


def test_a_sample_of_a_job_that_has_done_more_than_it_foresaw_tells_no_time(tmp_path: Path) -> None:
    log = [
        *_shared_story()[:2],
        ev.Sampled(40.0, 0, 1, 32.0, 30.0, 34.0),
        ev.Closed(50.0, 4, 1, 0, running=1),
    ]
    (told,) = _steps(_told(tmp_path, *log), "sampled")
    assert told[1] == (
        "Sampled after 40s: has done 40s of work, more than the 32s that were foreseen, so when it finishes is "
        "not known from this."
    )
