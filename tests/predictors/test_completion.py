"""Light samples, and when a job will finish."""

from __future__ import annotations

import math
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model.ports import Interval
from cotenant.predictors.completion import Completion
from cotenant.predictors.sampling import LightSampler, StepSample, median_of, ranks


def test_five_iterations_warm_up_and_twenty_are_measured() -> None:
    sampler = LightSampler()
    sampler.begin(0.0)
    now, found = 0.0, None
    for step in range(25):
        now += 2.0 if step < 5 else 0.5
        assert found is None
        found = sampler.step(now)
    assert found == StepSample(0.5, 0.5, 0.5, 20)
    # The sample was work: all 25 iterations count.
    assert sampler.steps == 25


def test_thirty_seconds_are_enough_where_iterations_are_slow() -> None:
    sampler = LightSampler()
    sampler.begin(100.0)
    found = [sampler.step(100.0 + 4.0 * n) for n in range(1, 9)]
    assert found[:7] == [None] * 7
    assert found[7] == StepSample(4.0, 4.0, 4.0, 3)


def test_a_warm_up_that_fills_the_time_is_told() -> None:
    sampler = LightSampler(limit_s=10.0)
    sampler.begin(0.0)
    assert sampler.step(12.0) == StepSample(12.0, 12.0, 12.0, 1, False)


def test_sampling_starts_over_when_neighbours_change() -> None:
    sampler = LightSampler(warmup=0, measured=2)
    sampler.begin(0.0)
    assert [sampler.step(t) for t in (1.0, 2.0)][-1] == StepSample(1.0, 1.0, 1.0, 2)
    sampler.begin(2.0)
    assert [sampler.step(t) for t in (4.0, 6.0)][-1] == StepSample(2.0, 2.0, 2.0, 2)
    assert sampler.steps == 4


def test_a_clock_that_runs_backwards_is_refused() -> None:
    sampler = LightSampler()
    sampler.begin(5.0)
    with pytest.raises(ConfigError, match="use a monotonic clock"):
        sampler.step(4.0)


@pytest.mark.parametrize("n", range(1, 60))
def test_ranks_hold_the_median_nine_times_in_ten_and_waste_nothing(n: int) -> None:
    def missed(rank: int) -> float:
        return 2 * sum(comb(n, k) for k in range(rank + 1)) / 2**n

    rank = ranks(n)
    assert missed(rank) <= 0.1 or rank == 0
    assert missed(rank + 1) > 0.1


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_the_median_lies_in_its_range(values: list[float]) -> None:
    middle, low, high = median_of(values)
    assert min(values) <= low <= middle <= high <= max(values)


def test_alone_then_beside_a_neighbour_then_measured_again() -> None:
    job = Completion(1_000, Interval(2.0, 1.0, 4.0))
    assert job.finish(0.0).basis == "history"
    job.sampled(StepSample(1.0, 0.98, 1.02, 20))
    job.progress(100)
    alone = job.finish(100.0)
    # 900 iterations of 1 s from second 100 on.
    assert (alone.at_s, alone.earliest_s, alone.basis) == (1000.0, 100 + 900 * 0.98, "sample")
    job.neighbours(Interval(0.8, 0.7, 0.9))
    beside = job.finish(100.0)
    assert beside.at_s == pytest.approx(100 + 900 / 0.8)
    assert beside.basis == "carried over"
    # Doubts in quadrature: ln(1.02) and ln(0.8 / 0.7).
    up = math.exp(math.hypot(math.log(1.02), math.log(0.8 / 0.7)))
    assert beside.latest_s == pytest.approx(100 + 900 / 0.8 * up)
    job.sampled(StepSample(1.3, 1.28, 1.32, 20))
    assert job.finish(100.0).at_s == 100 + 900 * 1.3
    assert job.measured_speed(1.0) == pytest.approx(1 / 1.3)


def test_later_samples_are_smoothed_by_three_tenths() -> None:
    job = Completion(10, Interval(1.0, 1.0, 1.0))
    job.sampled(StepSample(1.0, 0.9, 1.1, 20))
    job.sampled(StepSample(2.0, 1.9, 2.1, 20))
    assert job.iteration_s()[0].mean == pytest.approx(1.3)


def test_back_to_the_old_neighbours_the_measurement_holds_again() -> None:
    job = Completion(10, Interval(1.0, 1.0, 1.0))
    alone = Interval(1.0, 1.0, 1.0)
    job.sampled(StepSample(1.5, 1.4, 1.6, 20))
    job.neighbours(Interval(0.5, 0.5, 0.5))
    assert job.measured_speed(1.5) is None
    job.neighbours(alone)
    assert job.iteration_s() == (Interval(1.5, 1.4, 1.6), "sample")


@given(st.floats(0.05, 1.0), st.floats(0.0, 0.5), st.floats(0.01, 10.0))
def test_slower_neighbours_never_bring_the_end_nearer(speed: float, drop: float, each: float) -> None:
    job = Completion(100, Interval(each, each / 2, each * 2))
    job.sampled(StepSample(each, each, each, 20))
    before = job.finish(0.0).at_s
    job.neighbours(Interval(speed * (1 - drop), speed * (1 - drop) / 2, 1.0))
    after = job.finish(0.0)
    assert after.at_s >= before * (1 - 1e-12)
    assert after.earliest_s <= after.at_s <= after.latest_s


@pytest.mark.parametrize(
    "bad", [Interval(1.0, 2.0, 3.0), Interval(0.0, 0.0, 1.0), Interval(1.0, 0.5, math.inf)]
)
def test_intervals_out_of_order_are_refused(bad: Interval) -> None:
    with pytest.raises(ConfigError, match="0 < low <= mean <= high"):
        Completion(10, bad)


def test_progress_that_goes_back_or_beyond_is_refused() -> None:
    job = Completion(10, Interval(1.0, 1.0, 1.0))
    job.progress(5)
    for done in (4, 11):
        with pytest.raises(ConfigError, match=rf"progress {done} must lie in 5\.\.10"):
            job.progress(done)
