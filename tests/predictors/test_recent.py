"""Quantiles of the latest alike jobs, and ranges that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model.jobs import Job
from cotenant.predictors.recent import RecentRuntime, name_stem


def job(number: int, name: str = "train-1", user: str = "u", gpus: int = 1, **other: object) -> Job:
    return Job(id=number, name=name, submit_s=0.0, user=user, gpus=gpus, **other)  # type: ignore[arg-type]


def taught(durations: list[float], **other: object) -> RecentRuntime:
    forecast = RecentRuntime()
    for number, duration in enumerate(durations):
        forecast.observe(job(number, f"train-{number}", **other), duration)
    return forecast


def test_runs_of_one_script_are_alike_whatever_their_number() -> None:
    assert name_stem("exp12-seed3") == name_stem("exp7-seed40") == "exp-seed"
    assert name_stem("resnet") != name_stem("bert")


def test_the_median_of_two_humps_is_one_of_them_and_not_between() -> None:
    # Seven crashes after 10 s and three full runs of 10,000 s: a lognormal's median is 79 s.
    forecast = taught([10.0, 10_000.0, 10.0, 10.0, 10_000.0, 10.0, 10.0, 10_000.0, 10.0, 10.0])
    assert forecast.quantile_s(job(99), 0.5) == pytest.approx(10.0)
    found = forecast.predict_s(job(99))
    assert 10.0 < found.mean < 10_000.0
    assert found.low == pytest.approx(10.0)
    assert found.high == pytest.approx(10_000.0)


def test_newer_runs_weigh_more() -> None:
    forecast = taught([100.0] * 20 + [5_000.0] * 20)
    assert forecast.quantile_s(job(99), 0.5) == pytest.approx(5_000.0)


def test_another_users_jobs_matter_little() -> None:
    forecast = taught([60.0] * 30, user="quick")
    for number in range(30):
        forecast.observe(job(100 + number, "sim", user="slow"), 86_400.0)
    assert forecast.quantile_s(job(1, user="quick"), 0.5) == pytest.approx(60.0)
    assert forecast.quantile_s(job(1, "sim", user="slow"), 0.5) == pytest.approx(86_400.0)


def test_before_anything_ended_the_owners_estimate_is_the_centre() -> None:
    forecast = RecentRuntime()
    small, large = (forecast.predict_s(job(n, estimate_s=e)) for n, e in enumerate((60.0, 86_400.0)))
    assert large.mean / small.mean == pytest.approx(86_400 / 60)
    assert small.low < 60.0 < small.high


def test_nine_in_ten_fall_inside_also_when_the_world_changes() -> None:
    rng = np.random.default_rng(3)
    forecast, inside = RecentRuntime(), []
    for number in range(4000):
        centre = 5.0 if number < 2000 else 8.0
        duration = float(np.exp(rng.normal(centre, 1.0)))
        found = forecast.predict_s(job(number, user=f"u{number % 5}"))
        inside.append(found.low <= duration <= found.high)
        forecast.observe(job(number, user=f"u{number % 5}"), duration)
    # Of 3,500 ranges at 90% the share inside lies within 0.90 +- 4 x 0.005 + the step's wobble.
    assert np.mean(inside[500:]) == pytest.approx(0.9, abs=0.03)


def test_a_half_life_or_quantile_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="half_life_jobs must be positive, found 0"):
        RecentRuntime(half_life_jobs=0.0)
    with pytest.raises(ConfigError, match=r"lies in \[0, 1\] and elapsed time is not negative, found 1.5"):
        RecentRuntime().quantile_s(job(0), 1.5)


@given(st.lists(st.floats(1e-6, 1e9), max_size=60), st.floats(0.0, 1e7))
def test_ranges_are_in_order_and_positive(durations: list[float], estimate: float) -> None:
    forecast = taught(durations)
    found = forecast.predict_s(job(999, estimate_s=estimate))
    assert 0.0 < found.low <= found.mean <= found.high < math.inf


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.predictors.recent._MAX_GROUPS", 7)
    forecast = RecentRuntime()
    for number in range(100):
        forecast.observe(job(number, user=f"u{number}"), 10.0)
    assert len(forecast._groups) == 7
