"""Forecasts that learn from what light samples measured."""

from __future__ import annotations

import math

import pytest

from cotenant.checks import check_forecast
from cotenant.checks.policies import ContractError
from cotenant.model.ports import Forecast, Interval, LearnsSpeeds
from cotenant.predictors.adaptive import AdaptiveForecast, config_of
from cotenant.predictors.contention import ContentionForecast
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.predictors.live import LiveSpeeds
from cotenant.predictors.lookup import LookupForecast
from cotenant.profiles.kinds import kind_names
from cotenant.profiles.runs import CoRun, CoSide
from cotenant.profiles.table import CoRunTable, PairRow
from cotenant.testing import FixedForecast

KINDS = [name for name in kind_names()[:26] if not name.startswith("Recommendation")]
PAIRS = [(a, b) for i, a in enumerate(KINDS[:8]) for b in KINDS[i + 1 : 8]]


def test_it_is_time_to_learn_when_ten_sets_are_new_and_later_half_as_many_again() -> None:
    live = LiveSpeeds()
    due = []
    for i in range(60):
        if live.add(("A", (f"B{i}",), "V100"), 0.5):
            due.append(i + 1)
            live.take()
    # 10; then 10 more (half of 10 is less); 10 again (half of 20); then 15, half of 30; 22.5 of 45.
    assert due == [10, 20, 30, 45]


def test_a_set_is_new_again_at_its_4th_and_16th_sample_and_its_mean_is_told() -> None:
    live = LiveSpeeds()
    query = ("A", ("B",), "V100")
    new = []
    for i in range(1, 65):
        live.add(query, 0.1 * i)
        if told := live.take():
            new.append((i, told[query]))
    assert [i for i, _ in new] == [1, 4, 16, 64]
    assert new[1][1] == pytest.approx(0.25)  # (0.1 + 0.2 + 0.3 + 0.4) / 4
    assert live.learnt(query) == (64, 1.0)  # 3.25 on the average, which no job can run at beside others


def _lookup() -> LookupForecast:
    return LookupForecast(CoRunTable([PairRow("c", "V100", a, b, 0.6, 0.7) for a, b in PAIRS]))


def _teach(forecast: LearnsSpeeds, query: tuple[str, tuple[str, ...], str], speed: float) -> None:
    """This set, and nine that nobody asks about, so that the batch is full."""
    forecast.learn(*query, speed)
    for i in range(9):
        forecast.learn(f"other-{i}", ("another",), "K80", 0.5)


def test_lookup_takes_what_it_knew_of_a_pair_for_one_more_measurement() -> None:
    forecast = _lookup()
    a, b = PAIRS[0]
    assert forecast.co_speed(a, (b,), "V100").mean == pytest.approx(0.6)
    forecast.learn(a, (b,), "V100", 0.4)
    assert forecast.version == 1 and forecast.co_speed(a, (b,), "V100").mean == pytest.approx(0.6)
    _teach(forecast, (a, (b,), "V100"), 0.3)
    # Measured twice, 0.35 on the average: (0.6 + 2 x 0.35) / 3.
    assert forecast.version == 2
    assert forecast.co_speed(a, (b,), "V100").mean == pytest.approx(1.3 / 3)
    assert forecast.co_speed(b, (a,), "V100").mean == pytest.approx(0.7)


def test_lookup_blends_a_larger_set_with_its_composition_and_narrows() -> None:
    forecast = _lookup()
    a, b, c = KINDS[:3]
    query = (a, tuple(sorted((b, c))), "V100")
    before = forecast.co_speed(*query)
    _teach(forecast, query, 0.25)
    after = forecast.co_speed(*query)
    assert after.mean == pytest.approx((before.mean + 0.25) / 2)
    assert after.mean - after.low <= (before.mean - before.low) / math.sqrt(2) + 1e-9
    assert forecast.co_speeds([query]) == [after]


def test_a_measured_speed_above_alone_is_taken_for_alone() -> None:
    forecast = _lookup()
    a, b = PAIRS[0]
    _teach(forecast, (a, (b,), "V100"), 1.15)
    assert forecast.co_speed(a, (b,), "V100").mean == pytest.approx(0.8)


def _adaptive() -> AdaptiveForecast:
    runs = [
        CoRun(
            row_id=f"{a}-{b}",
            source="c",
            device_type="V100",
            sides=(CoSide(job=config_of(a), speed=0.8), CoSide(job=config_of(b), speed=0.8)),
        )
        for a, b in PAIRS
    ]
    return AdaptiveForecast(AdaptiveInterferencePredictor(zoo="small").fit(runs))


def test_adaptive_learns_what_one_job_does_to_the_others() -> None:
    forecast = _adaptive()
    culprit, others = KINDS[0], KINDS[1:8]
    said = [forecast.co_speed(o, (culprit,), "V100").mean for o in others]
    assert all(s == pytest.approx(0.8, abs=0.05) for s in said)
    for i in range(2):
        for other in others:
            forecast.learn(other, (culprit,), "V100", 0.3)
        for j in range(3):
            forecast.learn(others[i], (others[j + 2],), "V100", 0.8)
    assert forecast.version == 2
    now = [forecast.co_speed(o, (culprit,), "V100").mean for o in others]
    assert max(now) < 0.7
    assert len(forecast.predictor.runs) == len(PAIRS) + 10


def test_what_is_said_counts_as_one_more_measurement_of_a_set() -> None:
    live = LiveSpeeds()
    query, said = ("A", ("B", "C"), "V100"), Interval(0.8, 0.6, 0.9)
    for speed in (0.4, 0.5, 0.6):
        live.add(query, speed)
    assert live.blended(query, said) == said  # not learnt yet
    live.add(query, 0.5)
    live.take()
    found = live.blended(query, said)
    # (0.8 + 4 x 0.5) / 5, and the range narrower by the root of 5.
    assert found.mean == pytest.approx(0.56)
    assert found.low == pytest.approx(0.56 - 0.2 / math.sqrt(5))
    assert found.high == pytest.approx(0.56 + 0.1 / math.sqrt(5))


def test_adaptive_learns_a_set_of_three_from_one_of_its_jobs() -> None:
    forecast = _adaptive()
    a, b, c = KINDS[:3]
    _teach(forecast, (a, tuple(sorted((b, c))), "V100"), 0.2)
    learnt = next(run for run in forecast.predictor.runs if len(run.sides) == 3)
    assert [side.speed for side in learnt.sides if side.usable] == [0.2]
    assert sorted(side.job.model for side in learnt.sides) == sorted(config_of(m).model for m in (a, b, c))


def test_who_learns() -> None:
    learning: list[Forecast] = [_lookup(), _adaptive()]
    assert all(isinstance(forecast, LearnsSpeeds) for forecast in learning)
    assert not isinstance(ContentionForecast(0), LearnsSpeeds)


def test_the_contract_finds_a_forecast_that_learns_without_saying_so() -> None:
    class Sly(FixedForecast):
        def learn(self, model: str, beside: tuple[str, ...], device_type: str, speed: float) -> None:
            self.default *= 0.9

    with pytest.raises(ContractError, match="but not the version"):
        check_forecast(Sly(default=0.9), ["a", "b", "c"], ["V100"])
