"""Limiter, controllers and their simulation: arithmetic by hand, and properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.shares.controller import Controller, Quota, Reading, next_share
from cotenant.shares.figures import judge_share
from cotenant.shares.limiter import DeviceModel, TokenBucket
from cotenant.shares.simulation import Container, run_shares

SMALL = DeviceModel(sms=10, threads_per_sm=256)  # step = 10² · 256 / 256 · gap / 10 = 10 · gap


def test_the_pool_is_threads_times_multiprocessors_times_32():
    assert SMALL.pool == 256 * 10 * 32


@given(share=st.floats(0, 1e7), limit=st.floats(1, 100), used=st.floats(0, 100), sms=st.integers(1, 132))
def test_a_share_stays_between_nothing_and_the_pool_and_moves_towards_the_limit(share, limit, used, sms):
    device = DeviceModel(sms=sms)
    share = min(share, device.pool)
    moved = next_share(device, share, limit, used)
    assert 0.0 <= moved <= device.pool
    assert moved >= share if used <= limit else moved <= share


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 500)), max_size=30))
def test_a_balance_never_exceeds_the_pool_and_an_open_bucket_is_not_negative(moves):
    bucket = TokenBucket(300.0)
    for give, amount in moves:
        if give:
            bucket.add(amount)
        elif bucket.open:
            bucket.spend(amount)
        assert bucket.balance <= 300.0
        assert bucket.open == (bucket.balance >= 0)
        assert bucket.balance >= -500.0  # one launch may overdraw, a second may not begin


def test_hard_mode_sets_the_balance_directly_while_a_container_starts_up_alone():
    controller, bucket = Controller(SMALL, Quota(quota=40.0)), TokenBucket(SMALL.pool)
    before = controller.share
    controller.wake(Reading(0.0, 0.0, 1), bucket)
    # gap 40 > 20: 10 · 40 · 2 · 40 / 41 above the share, which itself stays
    assert bucket.balance == pytest.approx(before + 400.0 * 80.0 / 41.0)
    assert controller.share == before
    controller.wake(Reading(10.0, 10.0, 1), bucket)  # above a tenth of the quota: an ordinary step
    assert controller.share == pytest.approx(before + 300.0 * 60.0 / 41.0)


def test_elastic_mode_takes_what_is_idle_and_gives_it_back_when_another_comes():
    controller, bucket = Controller(SMALL, Quota(quota=30.0, mode="elastic")), TokenBucket(SMALL.pool)
    start = controller.share
    controller.wake(Reading(30.0, 30.0, 1), bucket)
    assert controller.limit == 100.0
    for _ in range(5):
        controller.wake(Reading(30.0, 30.0, 1), bucket)
    assert controller.share > start
    controller.wake(Reading(30.0, 40.0, 2), bucket)
    assert controller.limit == 30.0
    for _ in range(29):
        controller.wake(Reading(30.0, 40.0, 2), bucket)
    assert controller.limit == pytest.approx(33.0)  # 60% idle: a tenth of the quota more, once in 30 wake-ups
    for _ in range(30):
        controller.wake(Reading(33.0, 97.0, 2), bucket)
    assert controller.limit == pytest.approx(33.0)  # 3% idle is not enough


def test_the_papers_rule_moves_by_a_hundredth_of_the_quota():
    controller, bucket = Controller(SMALL, Quota(quota=30.0, mode="paper")), TokenBucket(SMALL.pool)
    controller.wake(Reading(30.0, 80.0, 1), bucket)  # 10 points are free
    assert controller.limit == pytest.approx(30.3)
    controller.wake(Reading(31.0, 95.0, 2), bucket)  # nothing is free, and it has its own
    assert controller.limit == pytest.approx(30.0)
    controller.wake(Reading(20.0, 95.0, 2), bucket)  # nothing is free, but it lacks its own
    assert controller.limit == pytest.approx(30.3)


@pytest.mark.parametrize(("quota", "limit"), [(0, 100), (50, 40), (50, 120)])
def test_quotas_out_of_range_are_refused(quota, limit):
    with pytest.raises(ConfigError, match="quota"):
        Quota(quota=quota, limit=limit).check()


def test_without_a_limiter_a_container_has_the_whole_device_and_two_alternate():
    alone = run_shares((Container(quota=None, kernel_s=0.01, sigma=0.0),), 10.0)
    assert alone.used[0][-1] == pytest.approx(100.0)
    assert alone.kernels[0] in (
        999,
        1000,
    )  # 10 s of kernels of 10 ms; the last may end after the clock's error
    two = run_shares([Container(quota=None, kernel_s=s, sigma=0.0) for s in (0.01, 0.03)], 20.0)
    # Turn by turn: device time goes by the length of kernels, 1 to 3.
    assert two.busy_s[1] / two.busy_s[0] == pytest.approx(3.0, rel=0.02)


@settings(max_examples=12, deadline=None)
@given(first=st.integers(10, 80), kernel_ms=st.sampled_from([2, 5, 20]), seed=st.integers(0, 1000))
def test_quotas_are_kept_within_two_points_where_kernels_are_short(first, kernel_ms, seed):
    quotas = (float(first), 95.0 - first)
    group = [Container(quota=Quota(quota=q), kernel_s=kernel_ms / 1000.0) for q in quotas]
    trace = run_shares(group, 60.0, seed=seed)
    for used, quota in zip(trace.used, quotas, strict=True):
        assert abs(judge_share(trace.times_s, used, quota).error) < 2.0
    for at_once in zip(*trace.used, strict=True):
        assert math.fsum(at_once) <= 100.0 + 1e-6
    assert math.fsum(trace.busy_s) <= 60.0 + 1.0


def test_equal_seeds_give_equal_traces_and_others_differ():
    group = (Container(quota=Quota(quota=40.0)), Container(quota=Quota(quota=60.0)))
    one, same, other = (run_shares(group, 5.0, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_long_kernels_make_shares_swing():
    def swing(kernel_s: float) -> float:
        group = [Container(quota=Quota(quota=q), kernel_s=kernel_s) for q in (30.0, 70.0)]
        trace = run_shares(group, 60.0)
        return judge_share(trace.times_s, trace.used[0], 30.0).swing

    assert swing(0.4) > 5 * swing(0.005)


def test_a_quota_changed_in_flight_takes_effect():
    changed = Container(quota=Quota(quota=30.0), becomes=(30.0, Quota(quota=50.0)))
    trace = run_shares((changed,), 70.0)
    assert abs(judge_share(trace.times_s, trace.used[0], 30.0, until_s=30.0, tail_s=10.0).error) < 2.0
    assert abs(judge_share(trace.times_s, trace.used[0], 50.0, since_s=30.0).error) < 2.0


def test_figures_of_a_ramp_by_hand():
    # 0 to 60 in steps of 10, one each 0.12 s, then 40 for ever; target 40.
    used = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0] + [40.0] * 493
    times = [0.12 * i for i in range(1, 501)]
    kept = judge_share(times, used, 40.0, tail_s=30.0)
    assert kept.overshoot == 20.0
    assert kept.error == 0.0
    assert kept.swing == 0.0
    # A mean over 42 readings within 5 of 40: the first one lacks 40+30+20+10 and has 10+20 more: (1680 - 70) / 42 = 38.3.
    assert kept.converge_s == pytest.approx(times[41])
    assert judge_share(times, used, 90.0).converge_s is None
