"""Least attained service: levels, demotion to the second, promotion of the starving."""

from __future__ import annotations

import pytest

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.settings import Settings
from cotenant.policies.las import Las
from cotenant.testing import Harness, HarnessRun

FREE = Settings(restore_s=0.0)


def stops(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, victim, beneficiary) of every eviction."""
    return [(e.t, e.id, e.beneficiary) for e in run.events if isinstance(e, ev.Stopping)]


def test_two_levels_by_hand() -> None:
    h = Harness("1x1", Las(levels=(100.0,)), settings=FREE)
    h.submit("a", runs_s=250.0)
    h.submit("b", at_s=50.0, runs_s=120.0)
    h.submit("c", at_s=230.0, runs_s=10.0)
    run = h.run()
    # a sinks at 100 and gives way to b. b sinks at 200, level with a: it stays, and ends at
    # 220. a goes on with 150 left; c, new, stops it from 230 to 240.
    assert stops(run) == [(100.0, 0, 1), (230.0, 0, 2)]
    assert run.end_s("b") == 220.0
    assert run.end_s("c") == 240.0
    assert run.starts("a") == [0.0, 220.0, 240.0]
    assert run.end_s("a") == 380.0


def test_service_counts_devices_times_seconds() -> None:
    # Four devices attain 100 GPU-seconds in 25 s.
    h = Harness("1x4", Las(levels=(100.0,)), settings=FREE)
    h.submit("gang", gpus=4, runs_s=1000.0)
    h.submit("p", at_s=1.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == [(25.0, 0, 1)]


def test_three_levels_stop_only_those_below() -> None:
    h = Harness("1x2", Las(levels=(100.0, 200.0)), settings=FREE)
    h.submit("a", runs_s=1000.0)
    h.submit("b", at_s=120.0, runs_s=1000.0)
    h.submit("c", at_s=210.0, runs_s=5.0)
    run = h.run()
    # At 210 a has attained 210 (level 2), b 90 (level 0).
    assert stops(run) == [(210.0, 0, 2)]


def test_service_attained_before_an_eviction_is_kept() -> None:
    h = Harness("1x1", Las(levels=(100.0, 200.0)), settings=FREE)
    h.submit("a", runs_s=300.0)
    h.submit("b", at_s=150.0, runs_s=20.0)
    h.submit("c", at_s=180.0, runs_s=150.0)
    run = h.run()
    # a: 150 s on level 0 and 1, stopped for b (150-170), then goes on; c comes new at 180 and
    # stops it after 160 s. c sinks to level 1 at 280, as low as a: it ends at 330.
    assert stops(run) == [(150.0, 0, 1), (180.0, 0, 2)]
    assert run.starts("a") == [0.0, 170.0, 330.0]
    assert run.end_s("a") == 330.0 + 140.0


@pytest.mark.parametrize(("knob", "starts_a"), [(0.0, [0.0, 460.0]), (2.0, [0.0, 370.0, 560.0])])
def test_a_job_that_starves_is_promoted_for_one_run(knob: float, starts_a: list[float]) -> None:
    h = Harness("1x1", Las(levels=(100.0,), promote_knob=knob), settings=FREE)
    h.submit("a", runs_s=300.0)
    for name, at_s in (("b", 100.0), ("c", 150.0), ("d", 250.0), ("e", 310.0)):
        h.submit(name, at_s=at_s, runs_s=90.0)
    run = h.run()
    # a sinks at 100 after 100 s, while b, c, d run until 370. With the knob at 2 it is promoted
    # once it has waited 200 s, at 300: it goes before e at 370, sinks again at 470, and ends
    # its last 100 s after e, at 660. Without, e goes first, and a runs its 200 s from 460.
    assert run.starts("a") == starts_a
    assert run.end_s("a") == 660.0


def test_a_promoted_job_stops_one_on_a_lower_level_without_any_other_event() -> None:
    h = Harness("1x1", Las(levels=(100.0,), promote_knob=3.0), settings=FREE)
    h.submit("a", runs_s=1000.0)
    h.submit("b", at_s=120.0, runs_s=5000.0)
    run = h.run()
    # b stops a at 120 and sinks at 220. a ran 120 s: promoted at 120 + 3 x 120.
    assert stops(run)[:2] == [(120.0, 0, 1), (480.0, 1, 0)]


def test_levels_must_ascend() -> None:
    with pytest.raises(ConfigError, match="levels must be ascending and positive"):
        Las(levels=(200.0, 100.0))
    with pytest.raises(ConfigError, match="promote_knob must be zero"):
        Las(promote_knob=-1.0)


def test_levels_can_be_given_as_text() -> None:
    assert Las.from_strings({"levels": "60/600", "promote_knob": "8"}).get_params() == {
        "levels": (60.0, 600.0),
        "promote_knob": 8.0,
    }
