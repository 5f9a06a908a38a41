"""Measured speeds become a table and a new forecast; nothing changes while a policy decides."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cotenant.live.knowledge import LiveForecast, first_forecast
from cotenant.live.learning import LearningLoop, Measured, MeasuredSet
from cotenant.live.refit import co_runs_of, fit, known_jobs
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.ports import Interval
from cotenant.profiles.shipped import shipped_campaign

CORE = "AMD EPYC x1"
SHARE = Share("spatial", 1 << 30, 0)
MODELS = ("convolution/b8", "attention/b8", "memory/b2", "separable/b16")


def cluster() -> Cluster:
    return Cluster.uniform(2, gpu_type=DeviceType(name=CORE, memory_bytes=8 << 30))


def opened() -> ev.Opened:
    return ev.Opened(0.0, 1, "0", 0, "cotenant", {}, {}, cluster(), {}, {}, {})


def pair(first: int, one: str, two: str, speed: float, t: float = 10.0) -> list[ev.Event]:
    """Two jobs side by side on device 0, the first of them sampled."""
    return [
        ev.Submitted(t, Job(first, f"a{first}", t, model=one)),
        ev.Submitted(t, Job(first + 1, f"b{first}", t, model=two)),
        ev.Started(t, first, 1, (0,), SHARE),
        ev.Started(t, first + 1, 1, (0,), SHARE),
        ev.Sampled(t + 30.0, first, 1, 100.0, 90.0, 110.0, speed),
        ev.Ended(t + 40.0, first, 1, "done", 40.0),
        ev.Ended(t + 40.0, first + 1, 1, "done", 40.0),
    ]


def folded(events: list[ev.Event]) -> Measured:
    found = Measured()
    for event in [opened(), *events]:
        found.see(event)
    return found


def test_a_sample_beside_others_joins_the_table_with_whom_it_was_beside() -> None:
    found = folded([*pair(0, "A", "B", 0.6), *pair(2, "A", "B", 0.8, 100.0)])
    (one,) = found.sets()
    assert (one.device_type, one.models) == (CORE, ("A", "B"))
    assert one.speeds == {"A": (2, pytest.approx(0.7))}


def test_jobs_without_a_model_and_jobs_alone_teach_nothing() -> None:
    alone = [
        ev.Submitted(0.0, Job(9, "c", 0.0, model="A")),
        ev.Started(0.0, 9, 1, (1,), SHARE),
        ev.Sampled(30.0, 9, 1, 100.0, 90.0, 110.0, 0.9),
    ]
    assert folded([*pair(0, "A", "", 0.6), *alone]).sets() == []


def test_a_measurement_is_news_when_its_error_has_halved() -> None:
    events = [event for n in range(5) for event in pair(2 * n, "A", "B", 0.5, 100.0 * n)]
    assert folded(events).fresh == 2  # at the first and at the fourth


def test_sets_keep_the_configurations_that_the_package_measured_and_its_scale() -> None:
    runs, solos = shipped_campaign("cpu")
    known = known_jobs(runs, solos)
    one = MeasuredSet(device_type=CORE, models=MODELS[:2], speeds={MODELS[0]: (1, 0.4)})
    (run,) = co_runs_of([one], known, {CORE: "cpu-core"})
    assert (run.source, run.device_type) == ("cpu-core", CORE)
    assert run.sides[0].job == known[MODELS[0]]
    assert (run.sides[0].speed, run.sides[1].speed, run.sides[1].label_ok) == (0.4, None, False)


def test_a_fit_moves_the_forecast_towards_what_was_measured(tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = first_forecast("adaptive", cluster(), state).co_speed("new-net/b4", ("other-net/b4",), CORE)
    sets = [
        MeasuredSet(device_type=CORE, models=("new-net/b4", "other-net/b4"), speeds={"new-net/b4": (4, 0.93)})
    ]
    import msgspec

    (state / "learned" / "measured.json").write_bytes(msgspec.json.encode(sets))
    fit(state / "learned")
    after = first_forecast("adaptive", cluster(), state).co_speed("new-net/b4", ("other-net/b4",), CORE)
    assert abs(after.mean - 0.93) < 0.1 < abs(before.mean - 0.93)
    assert (state / "learned" / "pairs.csv").is_file()


class Fixed:
    def __init__(self, speed: float) -> None:
        self.speed, self.version = speed, 1

    def solo_speed(self, model: str, device_type: str) -> float:
        return 1.0

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        return Interval(self.speed, self.speed, self.speed)

    def describe(self) -> dict[str, object]:
        return {"kind": "fixed"}


def test_a_forecast_that_is_offered_answers_only_once_it_is_taken() -> None:
    live = LiveForecast(Fixed(0.4))
    live.offer(Fixed(0.9))
    assert (live.co_speed("A", ("B",), CORE).mean, live.version) == (0.4, 1)
    assert live.take() is True
    assert (live.co_speed("A", ("B",), CORE).mean, live.version) == (0.9, 2)
    assert live.take() is False


def test_after_enough_news_a_fit_runs_beside_and_is_taken_between_two_instants(tmp_path: Path) -> None:
    woken: list[bool] = []
    live = LiveForecast(Fixed(0.5))
    loop = LearningLoop(tmp_path, cluster(), live, lambda: woken.append(True), least_between_s=0.0)
    loop.recall([opened(), *pair(0, MODELS[0], MODELS[1], 0.4)])
    loop.see([])
    assert loop.fits == 0
    news = [pair(2 + 2 * n, MODELS[n], MODELS[(n + 1) % 4], 0.45, 100.0 * n) for n in range(1, 4)]
    loop.see([event for events in news for event in events])
    end = time.monotonic() + 300.0
    while not woken and time.monotonic() < end:
        time.sleep(0.05)
    assert woken == [True]
    assert live.describe() == {"kind": "fixed"}
    loop.see([])
    assert live.version == 2
    assert live.describe()["kind"] == "adaptive"
