"""From repeats to normalised speeds: drift cancels, disturbances are set aside, intervals are honest."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.profiles.measure.estimate import estimate, least_disturbed, solo_speed
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.measure.worker import JobFailure


def _repeat(at_s: float, *, taken: float = 0.0, session: int = 1, **speeds: float) -> Repeat:
    members = tuple(Member(job=j, steps=50, seconds=1.0, speed=v, taken=taken) for j, v in speeds.items())
    return Repeat(session=session, at_s=at_s, jobs=tuple(speeds), members=members)


def test_a_ratio_of_two_speeds() -> None:
    found = estimate([_repeat(0, a=10.0), _repeat(1, b=4.0), _repeat(2, a=5.0, b=3.0)], disturbed_pct=5.0)
    (a, b) = found["a", "b"].sides
    assert (a.norm, b.norm) == (pytest.approx(0.5), pytest.approx(0.75))
    assert (a.solo, a.speed) == (pytest.approx(10.0), pytest.approx(5.0))
    assert a.low < 0.5 < a.high


def test_a_machine_that_grows_slower_slows_both() -> None:
    def rate(at: float) -> float:
        return math.exp(-at / 200.0)  # loses more than a third in 100 s

    repeats: list[Repeat] = []
    for at in range(0, 101, 20):
        repeats += [_repeat(at, a=10 * rate(at)), _repeat(at + 1, b=10 * rate(at + 1))]
        if at < 100:
            middle = at + 10
            repeats.append(_repeat(middle, a=6 * rate(middle), b=4 * rate(middle)))
    (a, b) = estimate(repeats, disturbed_pct=5.0)["a", "b"].sides
    assert a.norm == pytest.approx(0.6, rel=0.005)
    assert b.norm == pytest.approx(0.4, rel=0.005)
    # Against the runs alone of the first moment the ratio would be far off.
    assert 6 * rate(90) / 10 == pytest.approx(0.38, abs=0.01)


def test_speeds_of_one_session_are_never_divided_by_those_of_another() -> None:
    repeats = [
        _repeat(0, a=10.0),
        _repeat(1, b=10.0),
        _repeat(2, a=5.0, b=5.0),
        _repeat(0, session=2, a=20.0),
        _repeat(1, session=2, b=20.0),
        _repeat(2, session=2, a=10.0, b=10.0),
        # no run alone of c in its session: nothing to divide by
        _repeat(3, session=3, a=1.0, c=1.0),
    ]
    found = estimate(repeats, disturbed_pct=5.0)
    assert [s.norm for s in found["a", "b"].sides] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert found["a", "c"].sides == ()
    assert found["a", "c"].width_pct == math.inf


def test_disturbed_repeats_are_used_only_where_there_are_too_few_others() -> None:
    solos = [_repeat(0, a=10.0), _repeat(1, b=10.0)]
    clean = [_repeat(2 + i, a=5.0, b=5.0) for i in range(3)]
    bad = [_repeat(6, taken=0.3, a=2.0, b=2.0), _repeat(7, taken=0.2, a=4.0, b=4.0)]
    found = estimate([*solos, *clean, *bad], disturbed_pct=5.0)["a", "b"]
    assert (found.repeats, found.set_aside) == (3, 2)
    assert found.sides[0].norm == pytest.approx(0.5)
    # One clean one and the two best of three that are not.
    worse = _repeat(8, taken=0.4, a=1.0, b=1.0)
    assert least_disturbed([worse, *bad, clean[0]], 0.05) == [*bad, clean[0]]
    alone = estimate([*solos, bad[0]], disturbed_pct=5.0)["a", "b"]
    assert (alone.repeats, alone.set_aside) == (1, 0)
    assert alone.sides[0].norm == pytest.approx(0.2)


def test_copies_of_a_job_have_one_value() -> None:
    twice = Repeat(
        session=1,
        at_s=1,
        jobs=("a", "a"),
        members=tuple(Member(job="a", steps=9, seconds=1.0, speed=v) for v in (4.0, 9.0)),
    )
    sides = estimate([_repeat(0, a=12.0), twice], disturbed_pct=5.0)["a", "a"].sides
    assert [s.norm for s in sides] == [pytest.approx(0.5)] * 2  # geometric mean of 4 and 9 over 12


def test_a_failure_is_counted_and_gives_no_speed() -> None:
    failed = Repeat(
        session=1,
        at_s=3,
        jobs=("a", "b"),
        failures=(JobFailure(job="b", what="out of memory", detail="exit code 1: out of memory"),),
    )
    found = estimate([_repeat(0, a=1.0), _repeat(1, b=1.0), failed], disturbed_pct=5.0)["a", "b"]
    assert (found.failed, found.repeats, found.sides) == (1, 0, ())


def _noisy(sets: int, repeats: int, noise: float, seed: int) -> list[Repeat]:
    random_ = random.Random(seed)
    names = [f"j{i:02d}" for i in range(sets + 1)]
    found = [
        _repeat(float(k), **{n: 10.0 * math.exp(random_.gauss(0, noise) / 10)})
        for k in range(8)
        for n in names
    ]
    for i in range(sets):
        for k in range(repeats):
            speeds = {n: 5.0 * math.exp(random_.gauss(0, noise)) for n in (names[i], names[i + 1])}
            found.append(_repeat(k + 0.5, **speeds))
    return found


def test_intervals_hold_what_they_say() -> None:
    inside = total = 0
    for seed in range(40):
        for found in estimate(_noisy(20, 3, 0.02, seed), disturbed_pct=5.0).values():
            for side in found.sides:
                inside += side.low <= 0.5 <= side.high
                total += 1
    # 1,600 intervals of 95%; sides of one set are independent here.
    assert 0.92 <= inside / total <= 0.98


def test_an_outlier_is_set_aside() -> None:
    repeats = _noisy(8, 4, 0.01, 3)
    names = ("j00", "j01")
    clean = estimate(repeats, disturbed_pct=5.0)[names]
    spoilt = [*repeats, _repeat(2.5, j00=2.0, j01=2.0)]
    found = estimate(spoilt, disturbed_pct=5.0)[names]
    assert found.set_aside == clean.set_aside + 1
    assert found.sides[0].norm == pytest.approx(clean.sides[0].norm, rel=0.01)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 500), st.floats(-3, 3)), min_size=1, max_size=8), st.floats(0, 500))
def test_a_speed_alone_lies_between_those_seen(points: list[tuple[float, float]], at_s: float) -> None:
    values = [value for _, value in points]
    assert min(values) - 1e-9 <= solo_speed(points, at_s) <= max(values) + 1e-9


def test_a_time_far_from_every_run_alone_takes_the_nearest() -> None:
    assert solo_speed([(0.0, 1.0), (10.0, 2.0)], 1e7) == 2.0
