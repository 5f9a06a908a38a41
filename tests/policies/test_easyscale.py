"""EasyScale: rounds of increments, types and grades, taking back, undoing; all numbers by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.checks import check_policy
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.plan import Plan, Reason, Start
from cotenant.model.settings import Settings
from cotenant.model.workers import divide
from cotenant.policies.easyscale import EasyScale
from cotenant.policies.elastic.workplan import Increment, Planner, Room
from cotenant.report.explain import explain
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun

SOLO = {("m", "fast"): 2.0, ("m", "slow"): 1.0}
TRUTH, FORECAST = FixedTruth(solo=SOLO), FixedForecast(solo=SOLO)
RULES = Settings(
    elastic_speed="workers",
    mixed_types=True,
    gang_span="any",
    restore_s=20.0,
    state_bytes_per_s=1e15,
    span_speed=1.0,
)


def cluster(fast: int, slow: int) -> Cluster:
    nodes = [Node(name=k, gpus=((k, n),)) for k, n in (("fast", fast), ("slow", slow)) if n]
    return Cluster(nodes=tuple(nodes), types=(DeviceType(name="fast", speed=2.0), DeviceType(name="slow")))


def day(
    where: Cluster, policy: EasyScale | None = None, rules: Settings = RULES, **options: object
) -> Harness:
    return Harness(where, policy or EasyScale(), settings=rules, truth=TRUTH, forecast=FORECAST, **options)  # type: ignore[arg-type]


def elastic(h: Harness, name: str, workers: int, **fields: object) -> None:
    given_ = {"gpus": workers, "min_gpus": 1, "max_gpus": workers, "model": "m", "job_class": "opportunistic"}
    h.submit(name, **(given_ | fields))  # type: ignore[arg-type]


def sizes(run: HarnessRun, name: str) -> list[tuple[float, int, str]]:
    """When a job got how many devices, and by what rule."""
    found = run.of(name, ev.Started) + run.of(name, ev.Resized)
    return [(e.t, len(e.devices), e.why.rule) for e in sorted(found, key=lambda e: e.t)]


def test_a_job_doubles_each_round_until_each_worker_has_a_device() -> None:
    h = day(cluster(0, 8))
    elastic(h, "a", 8, runs_s=100.0)
    run = h.run()
    assert sizes(run, "a") == [
        (0.0, 1, "elastic-start"),
        (60.0, 2, "increment"),
        (120.0, 4, "increment"),
        (180.0, 8, "increment"),
    ]
    # 60 s at 1/8, 40 at 1/4, 40 at 1/2 (20 of each minute go to restarting): 7.5 + 10 + 20 of 100; 62.5 more at
    # full speed from 200 s on.
    assert run.end_s("a") == pytest.approx(262.5)


def test_the_gain_of_the_first_increment_is_told() -> None:
    h = day(cluster(0, 8))
    elastic(h, "a", 8, runs_s=100.0)
    first = h.run().of("a", ev.Resized)[0]
    assert first.why.facts == {
        "type": "slow",
        "gpus_before": 1,
        "gpus_after": 2,
        "gain_per_gpu": 1.0,
        "waste_share": 0.0,
    }


def test_what_would_be_wasted_is_not_taken() -> None:
    # Three workers: a second device is worth 1.5 / 1 at a quarter wasted, a third 3 / 1.5. With a bound of 20 %
    # the second is refused, and as a job at most doubles, it stays on one.
    for most, sizes_ in ((0.3, [1, 2, 3]), (0.2, [1])):
        h = day(cluster(0, 4), EasyScale(most_waste=most))
        elastic(h, "a", 3, runs_s=1000.0)
        assert [n for _, n, _ in sizes(h.run(), "a")] == sizes_


def test_a_mix_of_types_only_where_the_grade_permits_it() -> None:
    # One of each is free. The graded job may not mix, so it takes the fast one and stays; the other begins on the
    # slow one and adds the fast one: 3 workers at capability 3, nothing is wasted.
    for grade, policy, devices in (
        ("D2", EasyScale(), {0, 1}),
        ("none", EasyScale(), {0, 1}),
        ("D1", EasyScale(), {0}),
        ("D0", EasyScale(), {0}),
        ("D2", EasyScale(hetero=False), {0}),
    ):
        where = Cluster(
            nodes=(Node(name="n", gpus=(("fast", 1), ("slow", 1))), Node(name="m", gpus=(("slow", 3),))),
            types=(DeviceType(name="fast", speed=2.0), DeviceType(name="slow")),
        )
        h = day(where, policy)
        h.submit("other", gpus=3, runs_s=5000.0, device_types=["slow"], priority=9, model="m")
        elastic(h, "a", 3, runs_s=400.0, determinism=grade)
        run = h.run()
        last = (run.of("a", ev.Resized) or run.of("a", ev.Started))[-1]
        used = {"fast" if d == 0 else "slow" for d in last.devices}
        assert used == {"fast", "slow"} if len(devices) == 2 else used == {"fast"}
        assert not run.refusals()


def test_increments_go_where_a_device_gains_most() -> None:
    # At 60 s two devices are left. a (4 workers on one) would gain 1 for each of one more, b (8 on two) 1/2 for each
    # of two more. a is first and takes one; b's two are no longer there in this round. In the next it takes what is left.
    h = day(cluster(0, 9))
    h.submit("x", gpus=4, runs_s=5000.0, model="m")
    elastic(h, "b", 8, runs_s=500.0, min_gpus=2)
    elastic(h, "a", 4, runs_s=500.0)
    run = h.run()
    assert sizes(run, "a")[:2] == [(0.0, 1, "elastic-start"), (60.0, 2, "increment")]
    assert sizes(run, "b")[0] == (0.0, 2, "elastic-start")
    # Three devices for 8 workers are 3 rounds instead of 4: a gain of a third, a ninth wasted.
    assert sizes(run, "b")[1] == (120.0, 3, "increment")


def test_jobs_without_devices_come_first() -> None:
    # b arrives when a could take all: it starts at once, and a gets only the rest.
    h = day(cluster(0, 4))
    elastic(h, "a", 4, runs_s=1000.0)
    elastic(h, "b", 4, runs_s=1000.0, at_s=60.0)
    run = h.run()
    assert run.start_s("b") == 60.0
    assert sizes(run, "a")[1] == (60.0, 2, "increment")
    assert sizes(run, "b")[1] == (120.0, 2, "increment")


def test_a_guaranteed_job_takes_back_and_its_like_comes_back() -> None:
    # a holds all four slow devices from 120 s on (1, 2, 4). At 200 s g needs two of them: a keeps the lower two. Fast
    # ones are free from 250 s on, but a waits 300 s for slow ones, which g returns at 400 s; at 420 s it has them.
    h = day(cluster(2, 4))
    h.submit("x", gpus=2, runs_s=500.0, device_types=["fast"], model="m", priority=1)
    elastic(h, "a", 4, runs_s=2000.0, determinism="D2")
    h.submit("g", gpus=2, runs_s=200.0, device_types=["slow"], model="m", at_s=200.0)
    run = h.run()
    assert sizes(run, "a")[:5] == [
        (0.0, 1, "elastic-start"),
        (60.0, 2, "increment"),
        (120.0, 4, "increment"),
        (200.0, 2, "given-back"),
        (420.0, 4, "increment"),
    ]
    assert run.start_s("g") == 200.0
    assert {e.why.facts.get("type") for e in run.of("a", ev.Resized) if e.t == 420.0} == {"slow"}
    assert not run.refusals()


def test_after_its_patience_it_takes_other_types() -> None:
    h = day(cluster(2, 4), EasyScale(patience_s=100.0))
    h.submit("x", gpus=2, runs_s=500.0, device_types=["fast"], model="m", priority=1)
    elastic(h, "a", 4, runs_s=2000.0, determinism="D2")
    h.submit("g", gpus=2, runs_s=800.0, device_types=["slow"], model="m", at_s=200.0)
    run = h.run()
    after = next(e for e in run.of("a", ev.Resized) if e.t > 200.0)
    assert (after.t, after.why.facts["type"]) == (300.0, "fast")


def test_a_waiting_gang_is_not_starved_by_growth() -> None:
    # g asks for all four; an elastic job gives way down to its least. Here a holds one, its least, so g waits for its end; meanwhile a does not grow onto the devices g waits for.
    h = day(cluster(0, 4))
    elastic(h, "a", 4, runs_s=100.0)
    h.submit("g", gpus=4, runs_s=100.0, model="m", at_s=30.0)
    run = h.run()
    assert [n for _, n, _ in sizes(run, "a")] == [1]
    assert run.reasons("g") == [Reason.NO_CAPACITY]
    assert run.start_s("g") == run.end_s("a") == pytest.approx(400.0)


def test_slow_devices_are_exchanged_for_fast_ones() -> None:
    # Two workers on two slow devices from 60 s on. At 300 s two fast ones are free: two of each are more than it has
    # workers for, so it takes both and gives the slow ones back: twice as fast, a half for each device added.
    h = day(cluster(2, 2))
    h.submit("x", gpus=2, runs_s=580.0, device_types=["fast"], model="m", priority=1)
    elastic(h, "a", 2, runs_s=2000.0)
    run = h.run()
    last = run.of("a", ev.Resized)[-1]
    assert (last.t, last.devices, last.why.facts["gain_per_gpu"]) == (300.0, (0, 1), 0.5)


def test_slower_by_measurement_is_given_back_and_not_tried_again() -> None:
    # p takes node 0, x one device of node 1, a the other. p ends at 30 s, q takes one device of node 0. The other is
    # free, and two devices on two nodes run at 0.3 of 1/2, which is less than the 1/4 of one. Measured at 80 s, undone.
    where = Cluster.uniform(4, gpus_per_node=2, gpu_type=DeviceType(name="slow"))
    rules = Settings(
        elastic_speed="workers", gang_span="any", restore_s=20.0, state_bytes_per_s=1e15, span_speed=0.3
    )
    h = day(where, rules=rules)
    h.submit("p", gpus=2, runs_s=30.0, model="m")
    h.submit("x", gpus=1, runs_s=9000.0, model="m")
    h.submit("q", gpus=1, runs_s=9000.0, model="m", at_s=30.0)
    elastic(h, "a", 4, runs_s=100.0)
    run = h.run()
    # 60 s at 1/4, 15 of 100 done; then 20 s, twice, and the rest at 1/4 again.
    assert [(t, n, rule) for t, n, rule in sizes(run, "a")] == [
        (0.0, 1, "elastic-start"),
        (60.0, 2, "increment"),
        (80.0, 1, "no-faster"),
    ]
    assert run.end_s("a") == pytest.approx(100.0 + 85.0 * 4.0)


def test_parameters_out_of_range_are_refused() -> None:
    for bad in ({"most_waste": 1.5}, {"round_s": 0.0}, {"patience_s": -1.0}):
        with pytest.raises(ConfigError, match="easyscale"):
            EasyScale(**bad)  # type: ignore[arg-type]


# -- contract ----------------------------------------------------------------------------


def test_contract() -> None:
    check_policy(EasyScale, scenarios=12)


def elastic_day(number: int, *, drop: bool = False) -> Harness:
    """Elastic and fixed jobs of all grades and both classes, on two types, with failures."""
    rng = np.random.default_rng((77, number))
    rules = Settings(
        elastic_speed=("linear", "workers")[number % 2],  # type: ignore[arg-type]
        mixed_types=bool(rng.random() < 0.7),
        gang_span=str(rng.choice(["any", "larger-than-node", "never"])),  # type: ignore[arg-type]
        restore_s=float(rng.choice([0.0, 20.0])),
        state_bytes_per_s=1e15,
        span_speed=float(rng.choice([1.0, 0.8, 0.3])),
        min_quantum_s=float(rng.choice([0.0, 100.0])),
        round_s=float(rng.choice([0.0, 60.0])),
        rate_events=bool(rng.random() < 0.8),
    )
    nodes = [
        Node(
            name=f"n{i}", gpus=((str(rng.choice(["fast", "slow"])), 4),), cpu_milli=int(rng.choice([0, 8000]))
        )
        for i in range(3)
    ]
    where = Cluster(nodes=tuple(nodes), types=(DeviceType(name="fast", speed=2.0), DeviceType(name="slow")))
    h = day(where, EasyScale(hetero=bool(rng.random() < 0.8)), rules, drop_indexes=drop)
    for i in range(int(rng.integers(2, 25))):
        fields = {
            "at_s": float(rng.choice([0.0, 10.0, 60.0, 333.0])) * (i % 5),
            "runs_s": float(rng.choice([1.0, 100.0, 2000.0])),
            "job_class": str(rng.choice(["guaranteed", "opportunistic"])),
            "determinism": str(rng.choice(["none", "D0", "D1", "D2"])),
            "cpu_milli": int(rng.choice([0, 0, 2000])),
            "priority": int(rng.choice([0, 0, 3])),
        }
        if rng.random() < 0.7:
            elastic(h, f"e{i}", int(rng.choice([2, 3, 4])), **fields)
        else:
            h.submit(f"f{i}", gpus=int(rng.choice([1, 2, 4])), model="m", **fields)
    if rng.random() < 0.5:
        h.happen(ev.NodeDown(200.0, 0, "power"))
        h.happen(ev.NodeUp(900.0, 0))
    return h


@pytest.mark.parametrize("number", range(24))
def test_elastic_days_keep_every_invariant_and_need_no_index(number: int) -> None:
    run = elastic_day(number).run()
    assert run.log == elastic_day(number, drop=True).run().log
    assert not run.refusals()
    assert not run.state.records  # everybody ended
    kinds = {i: run.state.ledger.layout.device_type[i] for i in range(12)}
    grades = {e.job.id: e.job.determinism for e in run.events if isinstance(e, ev.Submitted)}
    saved: dict[int, set[int]] = {}
    for event in run.events:
        if isinstance(event, ev.Started | ev.Resized) and grades[event.id] in {"D0", "D1"} and event.devices:
            on = {kinds[d] for d in event.devices}
            assert len(on) == 1
            if isinstance(event, ev.Resized) or event.resumed:
                assert on == saved[event.id]
            saved[event.id] = on


# -- the planner against brute force -------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(2, 6),
    st.sampled_from([0.1, 0.3, 1.0]),
)
def test_increments_are_the_best_of_all(
    fast: int, slow: int, free_fast: int, free_slow: int, workers: int, most_waste: float
) -> None:
    held = fast + slow
    if not 0 < held <= workers:
        return
    found = proposals(fast, slow, free_fast, free_slow, workers, most_waste)
    speeds, have, free = (2.0, 1.0), (fast, slow), (free_fast, free_slow)

    def performance(counts: tuple[int, int]) -> tuple[float, float]:
        division = divide(tuple((n, c) for n, c in zip(counts, speeds, strict=True) if n), workers)
        return division.performance, division.waste_share

    for kind in (0, 1):
        kept, any_ = [], []
        for more in range(1, min(held, workers, free[kind]) + 1):
            for slow_left in range(slow + 1) if kind == 0 else (slow,):
                counts = (fast + more, slow_left) if kind == 0 else (fast, slow + more)
                if sum(counts) > workers:
                    continue
                after, waste = performance(counts)
                gain = (after / performance(have)[0] - 1.0) / more
                if gain > 1e-9 and waste <= most_waste:
                    any_.append(gain)
                    if slow_left == slow:
                        kept.append((gain, more))
        mine = [i for i in found if i.kind == kind]
        assert len(mine) <= 1
        assert mine or not kept  # what needs no exchange is found
        for one in mine:
            counts = [fast, slow]
            counts[kind] += one.more
            for type_, number in one.less:
                counts[type_] -= number
            assert 0 < sum(counts) <= workers
            after, waste = performance((counts[0], counts[1]))
            assert one.gain == pytest.approx((after / performance(have)[0] - 1.0) / one.more)
            assert one.waste_share == pytest.approx(waste) and waste <= most_waste
            assert max(kept, default=(0.0, 0)) <= (one.gain + 1e-12, 99)
            assert one.gain <= max(any_) + 1e-12


def proposals(
    fast: int, slow: int, free_fast: int, free_slow: int, workers: int, most_waste: float
) -> list[Increment]:
    """What a job on so many devices of each type proposes while so many are free."""
    where = Cluster(
        nodes=(
            Node(name="f", gpus=(("fast", fast + free_fast),)) if fast + free_fast else Node(name="f"),
            Node(name="s", gpus=(("slow", slow + free_slow),)) if slow + free_slow else Node(name="s"),
        ),
        types=(DeviceType(name="fast", speed=2.0), DeviceType(name="slow")),
    )
    told: list[list[Increment]] = []

    class Asked(EasyScale):
        def decide(self, view):  # type: ignore[no-untyped-def]
            if view.running and not told:
                planner = Planner(view, hetero=True, most_waste=most_waste)
                told.append(planner.increments(next(iter(view.running.values())), Room(view), workers))
            return Once().decide(view)

    class Once:
        def decide(self, view):  # type: ignore[no-untyped-def]
            head = view.head()
            if head is None:
                return Plan()
            devices = (*range(fast), *range(fast + free_fast, fast + free_fast + slow))
            return Plan((Start(head.id, devices),), again=True)

    h = day(where, Asked())
    h.submit("a", runs_s=10.0, gpus=1, min_gpus=1, max_gpus=workers, model="m")
    h.run()
    return told[0]


def test_explain_says_why_it_grew_and_gave_back(tmp_path: Path) -> None:
    h = day(cluster(0, 4))
    elastic(h, "a", 4, runs_s=2000.0)
    h.submit("g", gpus=2, runs_s=200.0, model="m", at_s=200.0)
    log = tmp_path / "events.jsonl"
    log.write_bytes(h.run().log)
    text = explain(log, "a").text
    assert "raise a job's throughput most for each device" in text
    assert "a waiting job with a guarantee needs them" in text
    assert "Measured: speed 0.5 after 20 s of saving and loading; it was 1 before the change." in text
