"""Forecasts of running times."""

from __future__ import annotations

import math

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.jobs import Job
from cotenant.model.ports import RuntimeForecast
from cotenant.model.workload import Workload
from cotenant.predictors.forecast import build_runtime
from cotenant.predictors.runtime import DeclaredRuntime, HistoryRuntime, NoisyRuntime, PerfectRuntime


def _job(i: int = 0, **fields: object) -> Job:
    return Job(**({"id": i, "name": f"job-{i}", "submit_s": 0.0} | fields))  # type: ignore[arg-type]


WORKLOAD = Workload(
    pl.DataFrame({"name": ["a", "b"], "submit_s": [0.0, 1.0], "duration_s": [100.0, 2000.0], "gpus": [1, 2]})
)


def test_history_starts_from_an_hour_or_the_owners_estimate() -> None:
    history = HistoryRuntime()
    assert history.predict_s(_job()).mean == pytest.approx(3600.0)
    assert history.predict_s(_job(estimate_s=60.0)).mean == pytest.approx(60.0)


def test_history_shrinks_each_group_towards_the_coarser_one_by_hand() -> None:
    history = HistoryRuntime()
    for seconds in (10.0, 1000.0):
        history.observe(_job(user="u", gpus=2, model="m"), seconds)
    # Mean log is log 100 in all, and in each finer group, so shrinking changes nothing.
    assert history.predict_s(_job(user="u", gpus=2, model="m")).mean == pytest.approx(100.0)
    # A stranger's job of the same shape, and of no known shape.
    assert history.predict_s(_job(user="v", gpus=2, model="m")).mean == pytest.approx(100.0)
    history.observe(_job(user="w", gpus=8, model="x"), 10_000.0)
    # All: (1 + 3 + 4) / 3 decades. Shape (2, m): (4 + 2 x 8/3) / (2 + 2) decades.
    whole = 8.0 / 3.0
    assert history.predict_s(_job(user="v")).mean == pytest.approx(10.0**whole)
    shape = (4.0 + 2.0 * whole) / 4.0
    assert history.predict_s(_job(user="v", gpus=2, model="m")).mean == pytest.approx(10.0**shape)
    owner = (4.0 + 2.0 * shape) / 4.0
    alike = (4.0 + 2.0 * owner) / 4.0
    assert history.predict_s(_job(user="u", gpus=2, model="m")).mean == pytest.approx(10.0**alike)


def test_history_narrows_with_evidence_and_covers_about_nine_in_ten() -> None:
    history = HistoryRuntime()
    first = history.predict_s(_job(user="u"))
    # Evenly spaced quantiles of a lognormal distribution with median 600 s and sigma 1.
    normal = [math.sqrt(2) * _erfinv(2 * (i + 0.5) / 200 - 1) for i in range(200)]
    drawn = [600.0 * math.exp(z) for z in normal]
    for seconds in drawn:
        history.observe(_job(user="u"), seconds)
    last = history.predict_s(_job(user="u"))
    assert last.mean == pytest.approx(600.0, rel=0.01)
    assert last.high / last.low < first.high / first.low
    inside = sum(last.low <= seconds <= last.high for seconds in drawn) / 200
    assert 0.87 <= inside <= 0.93


def _erfinv(y: float) -> float:
    low, high = -6.0, 6.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < y else (low, middle)
    return low


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("uvw"), st.integers(0, 3), st.floats(0, 1e9)), max_size=30),
    st.sampled_from("uvwx"),
)
def test_history_is_deterministic_and_always_gives_a_positive_range(
    seen: list[tuple[str, int, float]], user: str
) -> None:
    first, second = HistoryRuntime(), HistoryRuntime()
    for who, gpus, seconds in seen:
        first.observe(_job(user=who, gpus=gpus), seconds)
        second.observe(_job(user=who, gpus=gpus), seconds)
    found = first.predict_s(_job(user=user))
    assert found == second.predict_s(_job(user=user))
    assert 0 < found.low <= found.mean <= found.high < math.inf


def test_history_keeps_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.predictors.runtime._MAX_GROUPS", 5)
    history = HistoryRuntime()
    for i in range(50):
        history.observe(_job(user=f"u{i}", gpus=i), 100.0)
    assert len(history._alike) == len(history._user) == len(history._shape) == 5
    assert history.predict_s(_job(user="u49", gpus=49)).mean == pytest.approx(100.0)


def test_declared_believes_the_owner_and_else_learns() -> None:
    declared = DeclaredRuntime()
    found = declared.predict_s(_job(estimate_s=200.0))
    assert (found.low, found.mean, found.high) == (10.0, 200.0, 200.0)
    declared.observe(_job(), 50.0)
    assert declared.predict_s(_job()).mean == pytest.approx(50.0)


def test_noisy_is_true_times_an_error_that_belongs_to_the_name() -> None:
    noisy = NoisyRuntime([100.0, 100.0], ["a", "b"], 0.5, 3)
    swapped = NoisyRuntime([100.0, 100.0], ["b", "a"], 0.5, 3)
    assert noisy.predict_s(_job(0)) == swapped.predict_s(_job(1))
    assert noisy.predict_s(_job(0)) != noisy.predict_s(_job(1))
    assert NoisyRuntime([100.0], ["a"], 0.0).predict_s(_job(0)).mean == 100.0
    with pytest.raises(ConfigError, match="found -1"):
        NoisyRuntime([], [], -1.0)
    with pytest.raises(ConfigError, match="1 durations for 2 jobs"):
        NoisyRuntime([1.0], ["a", "b"])


def test_noisy_ranges_hold_the_truth_nine_times_in_ten() -> None:
    n = 4000
    noisy = NoisyRuntime([100.0] * n, [f"job-{i}" for i in range(n)], 0.7, 1)
    found = [noisy.predict_s(_job(i)) for i in range(n)]
    inside = sum(i.low <= 100.0 <= i.high for i in found) / n
    # Standard deviation sqrt(0.9 x 0.1 / 4000) = 0.0047.
    assert abs(inside - 0.9) < 0.02


def test_perfect_is_the_true_duration_and_labelled_an_oracle() -> None:
    perfect = PerfectRuntime([5.0, 7.0])
    found = perfect.predict_s(_job(1))
    assert (found.low, found.mean, found.high) == (7.0, 7.0, 7.0)
    assert perfect.describe()["oracle"] is True


@pytest.mark.parametrize("name", ["history", "declared", "noisy", "perfect"])
def test_each_registered_name_is_built_from_a_workload(name: str) -> None:
    forecast = build_runtime(name, WORKLOAD, 1)
    assert isinstance(forecast, RuntimeForecast)
    told = forecast.describe()
    assert told["kind"] == name
    assert told["oracle"] is (name == "perfect")
    assert msgspec.json.decode(msgspec.json.encode(told)) == told
    for job, behaviour in WORKLOAD.pairs():
        found = forecast.predict_s(job)
        assert 0 < found.low <= found.mean <= found.high
        if name == "perfect":
            assert found.mean == behaviour.duration_s
        forecast.observe(job, behaviour.duration_s)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownNameError, match='no runtime forecast "histroy"; did you mean "history"'):
        build_runtime("histroy", WORKLOAD)
