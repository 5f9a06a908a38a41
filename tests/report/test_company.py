"""Joining what was foretold with what happened: by hand, by the long way, and in any pieces."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.jobs import Job
from cotenant.model.placement import Share
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.colocate import Colocate
from cotenant.policies.packing import BestFit
from cotenant.report import followed
from cotenant.report.fold import MetricFold
from cotenant.report.metrics import RunMetrics
from cotenant.testing import FixedForecast, FixedTruth, Harness

SIDE = Share("spatial", GIB, 0)
KIND = DeviceType(name="V", memory_bytes=16 * GIB)


def folded(events: list[ev.Event]) -> RunMetrics:
    return MetricFold().see_all(events).result()


def told(found: RunMetrics) -> dict[str, object]:
    """The numbers of the forecast, those of device types as ``V:sides`` and so on."""
    numbers = {k.removeprefix("forecast_"): v for k, v in found.summary.items() if k.startswith("forecast_")}
    by_type = numbers.pop("by_type") or {}
    each = {f"{t}:{k.removeprefix('forecast_')}": v for t, own in by_type.items() for k, v in own.items()}
    return numbers | each


def log(
    *events: ev.Event, jobs: str = "abc", gpus: int = 1, milli: int = 0, **settings_: object
) -> list[ev.Event]:
    """A day on four devices of two nodes; job i is of the i-th model."""
    nodes = tuple(Node(name=f"n{i}", gpus=(("V", 2),)) for i in range(2))
    opened = ev.Opened(
        0.0, ev.SCHEMA, "0", 1, "p", {}, dict(settings_), Cluster(nodes=nodes, types=(KIND,)), {}, {}, {}
    )
    arrive = [
        ev.Submitted(0.0, Job(i, f"j{i}", 0.0, model=m, gpus=gpus, compute_milli=milli))
        for i, m in enumerate(jobs)
    ]
    return [opened, *arrive, *events]


def pair(mean: tuple[float, float], low: tuple[float, float], high: tuple[float, float]) -> ev.Foretold:
    return ev.Foretold(0.0, "V", ("a", "b"), mean, low, high, 1)


DAY = (
    ev.Started(0.0, 0, 1, (0,), SIDE),
    ev.Rated(0.0, 0, 0.5),  # alone on this type it would run at 0.5: seen at the end
    ev.Started(0.0, 1, 1, (0,), SIDE),
    ev.Rated(0.0, 0, 0.4),
    ev.Rated(0.0, 1, 0.3),
    pair((0.75, 0.5), (0.7, 0.4), (0.85, 0.55)),
    ev.Rated(3600.0, 0, 0.5),
    ev.Ended(3600.0, 1, 1, "done", 1080.0),
    ev.Ended(4600.0, 0, 1, "done", 1940.0),
    ev.Started(4600.0, 1, 2, (1,), SIDE),
    ev.Rated(4600.0, 1, 0.5),
    ev.Ended(4700.0, 1, 2, "done", 50.0),
)


def test_a_pair_by_hand() -> None:
    found = folded(log(*DAY, jobs="ab"))
    # a ran at 0.4 / 0.5 = 0.8 of its speed alone, b at 0.3 / 0.5 = 0.6; both for an hour.
    rows = found.foretold.select("model", "beside", "mean", "low", "high", "job_hours").rows()
    assert rows == [("a", ["b"], 0.75, 0.7, 0.85, 1.0), ("b", ["a"], 0.5, 0.4, 0.55, 1.0)]
    assert found.foretold["happened"].to_list() == pytest.approx([0.8, 0.6])
    expected = {
        "sides": 2,
        "error_mean": 0.075,  # (0.05 + 0.1) / 2
        "error_hours_mean": 0.075,
        "bias_mean": -0.075,  # both were foretold too slow
        "inside_share": 0.5,  # 0.6 lies above 0.55
        "inside_hours_share": 0.5,
        "width_mean": 0.15,
        "judged_share": 1.0,
    }
    of_type = {f"V:{k}": v for k, v in expected.items() if "hours" not in k and k != "judged_share"}
    assert told(found) == pytest.approx(expected | of_type)


def test_hours_weigh_and_sets_do_not() -> None:
    more = (
        ev.Started(5000.0, 2, 1, (2,), SIDE),
        ev.Rated(5000.0, 2, 0.5),
        ev.Started(5000.0, 1, 3, (2,), SIDE),
        ev.Rated(5000.0, 1, 0.25),
        ev.Rated(5000.0, 2, 0.25),
        ev.Foretold(5000.0, "V", ("b", "c"), (0.5, 0.9), (0.4, 0.8), (0.6, 1.0), 1),
        ev.Rated(15800.0, 2, 0.5),
        ev.Ended(15800.0, 1, 3, "done", 2700.0),
        ev.Ended(16000.0, 2, 1, "done", 2800.0),
    )
    numbers = told(folded(log(*DAY, *more)))
    # Sides: a|b off by .05 (1 h), b|a by .1 (1 h), b|c by 0 (3 h), c|b by .4 (3 h).
    assert numbers["sides"] == 4
    assert numbers["error_mean"] == pytest.approx((0.05 + 0.1 + 0.0 + 0.4) / 4)
    assert numbers["error_hours_mean"] == pytest.approx((0.05 + 0.1 + 0.0 + 3 * 0.4) / 8)
    assert numbers["bias_mean"] == pytest.approx((-0.05 - 0.1 + 0.0 + 0.4) / 4)
    assert numbers["inside_share"] == pytest.approx(2 / 4)
    assert numbers["inside_hours_share"] == pytest.approx((1 + 3) / 8)


def test_a_speed_alone_that_nobody_saw_is_not_guessed() -> None:
    numbers = told(folded(log(*DAY[:-3], jobs="ab")))
    # b never ran alone on a V: its side is not judged.
    assert numbers["sides"] == 1
    assert numbers["judged_share"] == pytest.approx(0.5)


def test_loading_and_saving_are_not_running() -> None:
    paused = [
        *DAY[:6],
        ev.Rated(1800.0, 0, 0.0),
        ev.Rated(2000.0, 0, 0.4),
        *DAY[6:],
    ]
    found = folded(log(*paused, jobs="ab"))
    assert found.foretold["happened"].to_list() == pytest.approx([0.8, 0.6])
    assert found.foretold["job_hours"].to_list() == pytest.approx([3400 / 3600, 1.0])


def test_a_job_that_moves_is_company_on_both_sides_until_it_has_left() -> None:
    moved = log(
        ev.Started(0.0, 0, 1, (0,), SIDE),
        ev.Rated(0.0, 0, 0.5),
        ev.Started(0.0, 1, 1, (1,), SIDE),
        ev.Rated(0.0, 1, 0.5),
        ev.Started(0.0, 2, 1, (1,), SIDE),
        ev.Rated(0.0, 1, 0.25),
        ev.Rated(0.0, 2, 0.25),
        ev.Foretold(0.0, "V", ("b", "c"), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)),
        ev.Moved(100.0, 1, 1, (0,), SIDE),  # c still has b beside it, a has it already
        ev.Rated(100.0, 1, 0.0),
        ev.Rated(100.0, 0, 0.4),
        ev.Foretold(100.0, "V", ("a", "b"), (0.8, 0.6), (0.8, 0.6), (0.8, 0.6)),
        ev.Released(110.0, 1, (1,)),
        ev.Rated(110.0, 2, 0.5),
        ev.Rated(120.0, 1, 0.3),
        ev.Ended(200.0, 1, 1, "done", 49.0),
        ev.Rated(200.0, 0, 0.5),
        ev.Started(200.0, 1, 2, (2,)),
        ev.Rated(200.0, 1, 0.5),
        ev.Ended(300.0, 1, 2, "done", 50.0),
    )
    found = folded(moved)
    seconds = [round(h * 3600.0) for h in found.foretold["job_hours"]]
    assert found.foretold["model"].to_list() == ["a", "b", "b", "c"]
    assert found.foretold["beside"].to_list() == [["b"], ["a"], ["c"], ["b"]]
    assert seconds == [100, 80, 100, 110]
    assert found.foretold["happened"].to_list() == pytest.approx([0.8, 0.6, 0.5, 0.5])
    assert told(found)["error_hours_mean"] == pytest.approx(0.0)


def test_a_gang_is_judged_by_its_slowest_device_and_without_the_price_of_its_spread() -> None:
    gang = log(
        ev.Started(0.0, 0, 1, (0, 1)),
        ev.Rated(0.0, 0, 0.5),
        ev.Ended(100.0, 0, 1, "done", 50.0),
        ev.Started(100.0, 1, 1, (0, 2), SIDE),  # two devices would fit one node: 0.8 of the speed
        ev.Rated(100.0, 1, 0.4),
        ev.Ended(200.0, 1, 1, "done", 40.0),
        ev.Started(200.0, 0, 2, (0, 1), SIDE),
        ev.Started(200.0, 1, 2, (0, 1), SIDE),
        ev.Started(200.0, 2, 1, (1, 3), SIDE),
        ev.Rated(200.0, 0, 0.2),
        ev.Rated(200.0, 1, 0.3),
        ev.Rated(200.0, 2, 0.1),
        ev.Foretold(200.0, "V", ("a", "b"), (0.5, 0.9), (0.4, 0.8), (0.7, 1.0)),
        ev.Foretold(200.0, "V", ("a", "b", "c"), (0.4, 0.8, 0.1), (0.2, 0.5, 0.0), (0.8, 0.9, 0.3)),
        ev.Ended(300.0, 0, 2, "done", 20.0),
        gpus=2,
        span_speed=0.8,
    )
    numbers = told(folded(gang))
    # a: 0.2 / 0.5 = 0.4, foretold min(0.5, 0.4); b: 0.3 / (0.4 / 0.8) = 0.6, foretold min(0.9, 0.8).
    assert numbers["sides"] is None  # neither ran in one set alone
    assert numbers["error_hours_mean"] == pytest.approx((0.0 + 0.2) / 2)
    assert numbers["inside_hours_share"] == pytest.approx(1.0)  # [.2, .7] and [.5, .9]
    assert numbers["judged_share"] == pytest.approx(2 / 3)  # nobody saw c alone


def test_a_speed_is_held_against_what_was_foretold_when_it_began() -> None:
    again = [*DAY[:6], ev.Foretold(1000.0, "V", ("a", "b"), (0.8, 0.6), (0.8, 0.6), (0.8, 0.6), 2), *DAY[6:]]
    assert folded(log(*again, jobs="ab")).foretold["version"].to_list() == [1, 1]
    before = [*DAY[:5], pair((0.1, 0.1), (0.0, 0.0), (0.2, 0.2)), *DAY[5:]]
    assert folded(log(*before, jobs="ab")).foretold["mean"].to_list() == [
        0.75,
        0.5,
    ]  # the later of one instant


@pytest.mark.parametrize("share", [Share("time-sliced", GIB, 0), Share("spatial", GIB, 0, 400)])
def test_turns_and_ceilings_are_not_judged(share: Share) -> None:
    import msgspec

    events = [msgspec.structs.replace(e, share=share) if isinstance(e, ev.Started) else e for e in DAY]
    assert told(folded(log(*events, jobs="ab")))["judged_share"] == 0.0
    assert told(folded(log(*DAY, jobs="ab", milli=300)))["judged_share"] == 0.0  # in declared fractions


def test_nobody_shares_or_no_speeds_are_told() -> None:
    events = log(ev.Started(0.0, 0, 1, (0,)), ev.Ended(5.0, 0, 1, "done", 5.0))
    assert set(told(folded(events)).values()) == {None}
    assert set(told(folded(log(*DAY, jobs="ab", rate_events=False))).values()) == {None}


def two_types() -> Cluster:
    types = (DeviceType(name="old", memory_bytes=16 * GIB), DeviceType(name="new", memory_bytes=16 * GIB))
    nodes = [Node(name=f"n{i}", gpus=((("old", "new")[i % 2], 2),)) for i in range(6)]
    return Cluster(nodes=tuple(nodes), types=types)


def busy_day(seed_jobs, policy, offset: float = 0.0):
    solo = {(m, t): s * k for m, s in (("a", 1.0), ("b", 0.7)) for t, k in (("old", 0.5), ("new", 1.25))}
    truth = FixedTruth({("a", ("b",)): 0.8, ("b", ("a",)): 0.55}, solo=solo, default=0.45)
    forecast = FixedForecast(
        {k: v + offset for k, v in truth.co.items()}, default=0.45 + offset, spread=0.0625
    )
    harness = Harness(
        two_types(), policy, truth=truth, forecast=forecast, settings=Settings(restore_s=3.0, max_sharers=3)
    )
    for i, (at_s, runs_s, model, gpus) in enumerate(seed_jobs):
        harness.submit(f"{i}", at_s=at_s, runs_s=runs_s, model=model, gpus=gpus, memory_bytes=5 * GIB)
    return harness.run(invariants=False)


DAYS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 90), st.sampled_from("ab"), st.sampled_from([1, 1, 1, 2])),
    min_size=2,
    max_size=40,
)


@settings(max_examples=40)
@given(DAYS, st.sampled_from([Colocate, BestFit]))
def test_a_perfect_forecast_is_always_right_and_a_wrong_one_off_by_as_much_as_it_is(jobs, policy) -> None:
    for offset in (0.0, 0.125):
        numbers = told(folded(busy_day(jobs, policy(), offset).events))
        if numbers["sides"] is not None:
            assert numbers["error_mean"] == pytest.approx(offset)
            assert numbers["bias_mean"] == pytest.approx(offset)
            assert numbers["inside_share"] == (offset == 0.0)
            assert numbers["width_mean"] == pytest.approx(0.125)
        if numbers["error_hours_mean"] is not None:
            assert numbers["error_hours_mean"] == pytest.approx(offset)
            assert numbers["inside_hours_share"] == (offset == 0.0)


def hours_the_long_way(events) -> dict[tuple[str, tuple[str, ...]], float]:
    """Job-seconds of running on one device by (model, models there), one instant after the other."""
    models, on, rate = {}, defaultdict(set), {}
    seconds: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
    last = 0.0
    for event in events:
        for jobs in on.values() if event.t > last else ():
            for job in jobs:
                if rate[job] > 0 and len(jobs) > 1:
                    seconds[models[job], tuple(sorted(models[j] for j in jobs))] += event.t - last
        last = event.t
        if isinstance(event, ev.Submitted):
            models[event.job.id] = event.job.model
        elif isinstance(event, ev.Started):
            rate[event.id] = 1.0
            for device in event.devices:
                on[device].add(event.id)
        elif isinstance(event, ev.Rated):
            rate[event.id] = event.rate
        elif isinstance(event, ev.Ended | ev.Suspended):
            for jobs in on.values():
                jobs.discard(event.id)
    return seconds


@settings(max_examples=40)
@given(DAYS)
def test_hours_beside_others_agree_with_the_long_way(jobs) -> None:
    events = busy_day([(a, r, m, 1) for a, r, m, _ in jobs], Colocate(min_gain=0.0, min_speed=0.1)).events
    walk = (fold := MetricFold().see_all(events)).result() and fold.company
    found: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
    if walk is not None:
        for (number, _), spent in walk.seconds.items():
            side = walk.sides[number]
            if side.sets[0][1]:
                found[side.model, side.sets[0][1]] += spent
    assert dict(found) == pytest.approx(dict(hours_the_long_way(events)))


@pytest.mark.parametrize("policy", ["colocate", "best-fit", "time-slice"])
@pytest.mark.parametrize("number", range(8))
def test_pieces_do_not_matter(policy: str, number: int) -> None:
    events = scenario(number, registry.load("policy", policy)).run(invariants=False).events
    whole = folded(events)
    bits = MetricFold()
    for i in range(0, len(events), 7):
        bits.see(events[i : i + 7])
        if i % 5 == 0 and i > 40:
            bits.result()
    assert told(bits.result()) == pytest.approx(told(whole), nan_ok=True)
    assert (
        bits.result()
        .foretold.drop("happened", "job_hours")
        .equals(whole.foretold.drop("happened", "job_hours"))
    )


def test_long_runs_on_many_nodes_are_followed_in_part_and_hours_stand_for_the_rest(monkeypatch) -> None:
    jobs = [(7 * i % 500, 20 + 13 * i % 70, "ab"[i * i % 3 == 1], 1 + (i % 5 == 0)) for i in range(600)]
    events = busy_day(sorted(jobs), Colocate(), 0.125).events
    whole = MetricFold().see_all(events)
    every = told(whole.result())
    monkeypatch.setattr(followed, "BUDGET", 60)
    for block in (500, 100_000):
        monkeypatch.setattr("cotenant.report.fold.BLOCK", block)
        part = MetricFold().see_all(events)
        numbers = told(part.result())
        assert part.company is not None
        assert whole.company is not None
        assert sum(bool(w) for w in part.company.followed._weights) == 4  # one node of each make, of six
        ran, all_ran = sum(part.company.seconds.values()), sum(whole.company.seconds.values())
        assert ran == pytest.approx(all_ran, rel=0.15)
        assert ran != all_ran
        assert numbers["error_hours_mean"] == pytest.approx(0.125)
        assert numbers["error_mean"] == pytest.approx(every["error_mean"])
        assert numbers["sides"] == every["sides"]


def test_a_job_that_moves_away_from_followed_nodes_is_nobodys_neighbour_any_more(monkeypatch) -> None:
    # At the third start every other node is let go of: the first job is on its way to one of those.
    monkeypatch.setattr(followed, "BUDGET", 2)
    events = log(
        ev.Started(0.0, 0, 1, (0,), SIDE),
        ev.Started(0.0, 1, 1, (0,), SIDE),
        ev.Rated(0.0, 1, 0.5),
        ev.Moved(10.0, 0, 1, (2,), SIDE),
        ev.Started(20.0, 2, 1, (1,), SIDE),
        ev.Rated(30.0, 1, 0.8),
        ev.Ended(110.0, 1, 1, "done", 79.0),
    )
    walk = (fold := MetricFold().see_all(events)).result() and fold.company
    assert walk is not None
    seconds: dict[str, float] = defaultdict(float)
    for (number, _), spent in walk.seconds.items():
        seconds[walk.sides[number].model] += spent
    # From 20 s on the node of b stands for both: 20 s count once, 90 s twice.
    assert seconds["b"] == 200.0
