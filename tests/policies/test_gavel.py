"""Gavel: the program, the rounds, who moves and who stays, and the contract on random days."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st
from scipy.optimize import linprog

from cotenant.checks import check_policy
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.settings import Settings
from cotenant.policies.gavel import Gavel
from cotenant.policies.published.gavel_lp import JobClass, equal_shares, max_min, merged
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun

FREE = Settings(restore_s=0.0, state_bytes_per_s=1e15)


def stops(run: HarnessRun) -> list[tuple[float, int, int]]:
    """(time, victim, beneficiary) of every stop."""
    return [(e.t, e.id, e.beneficiary) for e in run.events if isinstance(e, ev.Stopping)]


# -- the program -------------------------------------------------------------------------------


def test_the_published_allocation() -> None:
    """Section 4.1: speeds (4, 1), (3, 1), (2, 1) on one V100 and one K80; least 9% above equal shares."""
    jobs = tuple((JobClass(1, 1.0, (v, 1.0)), 1) for v in (4.0, 3.0, 2.0))
    shares = max_min(jobs, (1, 1))
    published = ((0.45, 0.0), (0.45, 0.09), (0.09, 0.91))
    for row, paper in zip(shares, published, strict=True):
        assert row == pytest.approx(paper, abs=0.006)
    # All three gain alike, the first 4 * 5/11 over (4 + 1) / 3 = 12/11.
    gains = [(x * v + y) / ((v + 1.0) / 3.0) for (x, y), v in zip(shares, (4.0, 3.0, 2.0), strict=True)]
    assert gains == pytest.approx([12 / 11] * 3)


def test_by_hand_gangs_and_weights() -> None:
    # One type, four devices. Weight 3 against 1: three quarters and one quarter of the GPU time, but
    # a job has no more than all of the time: with one device each, both run always.
    assert max_min(((JobClass(1, 1.0, (1.0,)), 1), (JobClass(1, 3.0, (1.0,)), 1)), (4,)) == ((1.0,), (1.0,))
    # Gangs of 4: 0.25 and 0.75 of the time.
    both = max_min(((JobClass(4, 1.0, (1.0,)), 1), (JobClass(4, 3.0, (1.0,)), 1)), (4,))
    assert [row[0] for row in both] == pytest.approx([0.25, 0.75])
    # A gang of 4 and four jobs of one device: the same GPU time for each job, 0.8 devices: the gang runs for
    # 0.2 of the time, the four for 0.8.
    mixed = max_min(((JobClass(1, 1.0, (1.0,)), 4), (JobClass(4, 1.0, (1.0,)), 1)), (4,))
    assert [row[0] for row in mixed] == pytest.approx([0.8, 0.2])


_SPEED = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 4.0])


@hyp(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2]), st.sampled_from([1.0, 3.0]), _SPEED, _SPEED),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
    st.tuples(st.integers(2, 5), st.integers(2, 5)),
)
def test_classes_lose_nothing_against_one_row_for_each_job(
    kinds: list[tuple[int, float, float, float]], counts: list[int], devices: tuple[int, int]
) -> None:
    classes = {}
    for (gpus, weight, fast, slow), count in zip(kinds, counts, strict=False):
        if fast or slow:
            classes[JobClass(gpus, weight, (fast, slow))] = count
    listed = tuple(sorted(classes.items()))
    shares = max_min(listed, devices)
    jobs = [kind for kind, count in listed for _ in range(count)]
    if not jobs:
        assert shares == ()
        return
    # The reference: a variable for each job and type, and the least.
    n = len(jobs)
    rows, bounds = [], []
    for i, job in enumerate(jobs):
        equal = sum(s * d for s, d in zip(job.speeds, devices, strict=True)) / sum(devices)
        row, whole = np.zeros(2 * n + 1), np.zeros(2 * n + 1)
        row[2 * i : 2 * i + 2] = [-s * job.gpus / job.weight / equal for s in job.speeds]
        row[-1], whole[2 * i : 2 * i + 2] = 1.0, 1.0
        rows += [row, whole]
        bounds += [0.0, 1.0]
    for kind in range(2):
        used = np.zeros(2 * n + 1)
        used[kind : 2 * n : 2] = [job.gpus for job in jobs]
        rows.append(used)
        bounds.append(float(devices[kind]))
    best = linprog(-np.eye(2 * n + 1)[-1], A_ub=np.array(rows), b_ub=bounds, method="highs").x[-1]
    least = min(
        job.gpus
        / job.weight
        * sum(s * x for s, x in zip(job.speeds, row, strict=True))
        * sum(devices)
        / sum(s * d for s, d in zip(job.speeds, devices, strict=True))
        for job, row in ((kind, row) for (kind, _), row in zip(listed, shares, strict=True))
    )
    assert least == pytest.approx(best, rel=1e-5)
    for kind in range(2):
        used_gpus = sum(k.gpus * c * row[kind] for (k, c), row in zip(listed, shares, strict=True))
        assert used_gpus <= devices[kind] + 1e-6
    assert all(sum(row) <= 1.0 + 1e-6 for row in shares)


def test_equal_shares_and_merging_by_hand() -> None:
    # Six devices for jobs that ask for twelve: half of the time, 4 : 2 over the types.
    assert equal_shares((4, 2), JobClass(1, 1.0, (1.0, 0.5)), 12) == pytest.approx((1 / 3, 1 / 6))
    assert equal_shares((4, 2), JobClass(1, 1.0, (1.0, 0.0)), 6) == pytest.approx((2 / 3, 0.0))
    alike = [JobClass(1, 1.0, (1.0, 0.3401 + 0.0001 * i)) for i in range(20)]
    assert len(set(merged(alike, 20))) == 20
    assert len(set(merged(alike, 5))) == 3  # 0.340, 0.341 and 0.342 in three digits
    assert len(set(merged(alike, 1))) == 1


# -- rounds --------------------------------------------------------------------------------------


def test_two_jobs_on_one_device_take_rounds_in_turn() -> None:
    h = Harness("1x1", Gavel(round_s=100.0), settings=FREE)
    h.submit("a", runs_s=200.0)
    h.submit("b", at_s=10.0, runs_s=150.0)
    run = h.run()
    # 100: b has had nothing, a gives way. 200: a was due 50 + 50 and had 100, b was due 95 and had 100;
    # with this round (100 + 50) / 200 against (95 + 50) / 200: a goes on, and ends at 300. b then runs to 350.
    assert stops(run) == [(100.0, 0, 1), (200.0, 1, 0)]
    assert (run.end_s("a"), run.end_s("b")) == (300.0, 350.0)


@pytest.mark.parametrize(
    ("stretch", "turns"),
    [(0.0, [100.0, 200.0, 300.0, 400.0, 500.0]), (0.5, [100.0, 200.0, 300.0, 400.0, 600.0])],
)
def test_rounds_of_old_jobs_are_longer(stretch: float, turns: list[float]) -> None:
    h = Harness("1x1", Gavel(round_s=100.0, stretch=stretch), settings=FREE)
    h.submit("a", runs_s=2000.0)
    h.submit("b", runs_s=2000.0)
    run = h.run()
    # They change places at each round. Half of the age is less than two rounds at 300, and two at 400.
    assert [t for t, _, _ in stops(run)][:5] == turns


def test_a_newcomer_ends_a_long_round() -> None:
    h = Harness("1x1", Gavel(round_s=100.0, stretch=0.5), settings=FREE)
    h.submit("a", runs_s=5000.0)
    h.submit("b", runs_s=5000.0)
    h.submit("c", at_s=2050.0, runs_s=10.0)
    run = h.run()
    # Rounds began at 400, 600, 900, 1300 and, for nine rounds, at 1900. The newcomer has had nothing: he starts at once.
    assert run.start_s("c") == 2050.0


def test_a_round_charges_what_the_settings_say() -> None:
    h = Harness("1x1", Gavel(round_s=100.0), settings=Settings(restore_s=7.0, state_bytes_per_s=1e9))
    h.submit("a", runs_s=150.0, state_bytes=3_000_000_000)
    h.submit("b", at_s=10.0, runs_s=50.0)
    run = h.run()
    # a saves from 100 to 103; b runs from 103 to 153; a loads (7 + 3 s), then its last 50 s.
    assert run.start_s("b") == 103.0
    assert run.end_s("b") == 153.0
    assert run.end_s("a") == 153.0 + 10.0 + 50.0
    why = next(e.why for e in run.events if isinstance(e, ev.Stopping))
    assert (why.rule, why.facts["price_s"]) == ("round-over", 13.0)


def _mixed(*tenants: Tenant) -> Cluster:
    types = (DeviceType(name="V100"), DeviceType(name="K80", speed=0.25))
    nodes = (Node(name="n0", gpus=(("V100", 1),)), Node(name="n1", gpus=(("K80", 1),)))
    return Cluster(nodes=nodes, types=types, tenants=tenants)


def test_time_on_each_type_follows_the_published_allocation() -> None:
    solo = {
        (m, t): s for m, v in zip("abc", (4.0, 3.0, 2.0), strict=True) for t, s in (("V100", v), ("K80", 1.0))
    }
    h = Harness(
        _mixed(),
        Gavel(round_s=10.0),
        settings=FREE,
        truth=FixedTruth(solo=solo),
        forecast=FixedForecast(solo=solo),
    )
    for name in "abc":
        h.submit(name, model=name, runs_s=2000.0)
    run = h.run()
    until, since = 1000.0, dict[int, tuple[float, int]]()
    had = np.zeros((3, 2))
    for event in run.events:
        if event.t > until:
            break
        if isinstance(event, ev.Started):
            since[event.id] = (event.t, event.devices[0])
        elif isinstance(event, ev.Suspended):
            began, kind = since.pop(event.id)
            had[event.id, kind] += event.t - began
    for job_id, (began, kind) in since.items():
        had[job_id, kind] += until - began
    published = np.array([[0.45, 0.0], [0.45, 0.09], [0.09, 0.91]])
    # A hundred rounds; what is left idle in a round is filled by who waits, so up to a few rounds differ.
    assert np.abs(had / until - published).max() < 0.06
    assert had.sum() == pytest.approx(2 * until)


@pytest.mark.parametrize(("weights", "expected"), [("tenants", 0.75), ("equal", 0.5), ("priorities", 0.2)])
def test_weights_divide_the_time(weights: str, expected: float) -> None:
    cluster = Cluster.uniform(1, tenants=(Tenant(name="big", weight=3.0), Tenant(name="small")))
    h = Harness(cluster, Gavel(round_s=10.0, weights=weights), settings=FREE)  # type: ignore[arg-type]
    h.submit("x", tenant="big", runs_s=5000.0, priority=1)
    h.submit("y", tenant="small", runs_s=5000.0, priority=4)
    run = h.run()
    until, on = 1000.0, 0.0
    began: float | None = None
    for event in run.events:
        if getattr(event, "id", None) != run.ids["x"] or event.t > until:
            continue
        if isinstance(event, ev.Started):
            began = event.t
        elif isinstance(event, ev.Suspended) and began is not None:
            on, began = on + event.t - began, None
    on += until - began if began is not None else 0.0
    assert on / until == pytest.approx(expected, abs=0.03)


def test_a_gang_gets_a_node_and_only_those_in_its_way_leave() -> None:
    h = Harness("2x2", Gavel(round_s=100.0), settings=FREE)
    for name in ("a", "b", "c"):
        h.submit(name, runs_s=1000.0)
    h.submit("gang", gpus=2, at_s=1.0, runs_s=50.0)
    run = h.run()
    # a and b share node 0, c is on node 1 beside an idle device: the gang takes node 1, c goes.
    assert stops(run) == [(100.0, 2, 3)]
    assert run.start_s("gang") == 100.0
    assert run.devices("gang") == (2, 3)
    assert run.starts("c") == [0.0, 150.0]


def test_who_cannot_save_is_never_stopped() -> None:
    h = Harness("1x1", Gavel(round_s=100.0), settings=FREE)
    h.submit("a", runs_s=450.0, suspendable=False)
    h.submit("b", at_s=10.0, runs_s=10.0)
    run = h.run()
    assert stops(run) == []
    assert run.start_s("b") == 450.0


def test_a_job_moves_to_the_type_that_suits_it_when_that_is_idle() -> None:
    h = Harness(_mixed(), Gavel(round_s=100.0), settings=FREE)
    h.submit("a", runs_s=30.0)
    h.submit("b", runs_s=100.0)
    run = h.run()
    # b starts on the K80, since the V100 is taken, and does 25 in 100 s. Then the V100 is idle: 75 s more.
    assert run.devices("b") == (1,)
    assert run.starts("b") == [0.0, 100.0]
    assert run.end_s("b") == 175.0
    rules = [e.why.rule for e in run.events if isinstance(e, ev.Stopping)]
    assert rules == ["round-moves"]


@pytest.mark.parametrize(
    "options", [{"round_s": 0.0}, {"weights": "none"}, {"max_classes": 0}, {"stretch": 1.0}]
)
def test_parameters_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="of gavel must"):
        Gavel(**options)  # type: ignore[arg-type]


def test_contract_with_short_rounds() -> None:
    """Rounds shorter than most jobs, so that much is stopped and moved."""
    check_policy(lambda: Gavel(round_s=30.0), first=40, scenarios=8)
