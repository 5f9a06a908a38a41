"""Light samples inside the run: when they come, what they tell, and that they only tell."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.engine.log import read_log
from cotenant.engine.picture import picture
from cotenant.engine.state import State
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.draws import normal
from cotenant.model.jobs import Job
from cotenant.model.ports import Interval
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.fifo import Fifo
from cotenant.policies.packing import BestFit
from cotenant.policies.srtf import Srtf
from cotenant.testing import FixedTruth, Harness, HarnessRun

Z90 = 1.6448536269514722
POLICIES = registry.names("policy")


def _alone(runs_s: float, *, noise: float = 0.0, seed: int = 0, **fields: Any) -> HarnessRun:
    h = Harness("1x1", Fifo(), settings=Settings(sample_s=30.0, sample_noise=noise), seed=seed)
    h.submit("a", runs_s=runs_s, **fields)
    return h.run()


def _times(run: HarnessRun, name: str) -> list[float]:
    return [e.t for e in run.of(name, ev.Sampled)]


# -- when ----------------------------------------------------------------------------------


def test_a_run_is_sampled_once_after_the_window_and_a_shorter_one_never() -> None:
    (told,) = _alone(100.0).of("a", ev.Sampled)
    assert told == ev.Sampled(30.0, 0, 1, 100.0, 100.0, 100.0)
    assert _times(_alone(29.0), "a") == []


def test_off_nothing_is_logged_and_the_first_line_does_not_speak_of_samples() -> None:
    h = Harness("1x1", Fifo())
    h.submit("a", runs_s=100.0)
    run = h.run()
    assert not any(isinstance(e, ev.Sampled) for e in run.events)
    first, sampled = (msgspec.json.decode(r.log.split(b"\n")[0]) for r in (run, _alone(100.0)))
    assert not any(name.startswith("sample") for name in first["settings"])
    assert sampled["settings"]["sample_s"] == 30.0


def test_the_window_begins_when_the_job_works_not_when_it_gets_its_devices() -> None:
    rules = Settings(sample_s=30.0, sample_noise=0.0, start_s=7.0)
    h = Harness("1x1", Fifo(), settings=rules)
    h.submit("a", runs_s=100.0)
    assert _times(h.run(), "a") == [37.0]


def _shared(truth: float, *, at_s: float, noise: float = 0.0) -> HarnessRun:
    rules = Settings(sample_s=30.0, sample_noise=noise)
    h = Harness(
        "1x1",
        BestFit(),
        settings=rules,
        truth=FixedTruth({("m", ("n",)): truth, ("n", ("m",)): 0.8}),
        memory_bytes=16 * GIB,
    )
    h.submit("a", model="m", memory_bytes=4 * GIB, compute_milli=0, runs_s=200.0)
    h.submit("b", at_s=at_s, model="n", memory_bytes=4 * GIB, compute_milli=0, runs_s=80.0)
    return h.run()


def test_new_company_begins_the_window_anew_and_what_is_measured_is_told() -> None:
    # a runs alone from 0: sampled at 30. b comes at 50 and works at 0.8: both sampled at 80, beside
    # each other. b ends at 150 (80 / 0.8 = 100 s); a is alone again and sampled at 180.
    run = _shared(0.5, at_s=50.0)
    assert [(e.t, e.work_s, e.co_speed) for e in run.of("a", ev.Sampled)] == [
        (30.0, 200.0, 0.0),
        (80.0, 200.0, 0.5),
        (180.0, 200.0, 0.0),
    ]
    assert [(e.t, e.work_s, e.co_speed) for e in run.of("b", ev.Sampled)] == [(80.0, 80.0, 0.8)]
    # 50 s alone, 100 s at half speed, 100 s alone: 200 s of work.
    assert run.end_s("a") == 250.0


def test_company_that_comes_inside_the_window_puts_the_sample_off() -> None:
    # At 20 the window of a begins anew: 50, not 30.
    assert _times(_shared(0.5, at_s=20.0), "a")[0] == 50.0


def test_company_that_changes_nothing_is_measured_too() -> None:
    told = _shared(1.0, at_s=50.0).of("a", ev.Sampled)
    assert [(e.t, e.co_speed) for e in told] == [(30.0, 0.0), (80.0, 1.0), (180.0, 0.0)]


def test_those_who_take_turns_measure_no_speed_beside_others() -> None:
    rules = Settings(sample_s=30.0, sample_noise=0.0)
    h = Harness("1x1", registry.load("policy", "time-slice")(), settings=rules, memory_bytes=16 * GIB)
    for name in "ab":
        h.submit(name, memory_bytes=4 * GIB, runs_s=100.0)
    run = h.run()
    assert run.of("a", ev.Sampled) and run.of("b", ev.Sampled)
    assert {e.co_speed for n in "ab" for e in run.of(n, ev.Sampled)} == {0.0}


def test_a_resumed_job_is_sampled_again_and_keeps_what_it_knew_while_it_waits() -> None:
    # SRTF: at 100, b (50 s) takes the device of a (5,000 s); nothing to save or load.
    rules = Settings(sample_s=30.0, sample_noise=0.0, restore_s=0.0, state_bytes_per_s=1e15)
    h = Harness("1x1", Srtf(margin_s=0.0), settings=rules)
    h.submit("a", runs_s=5000.0)
    h.submit("b", at_s=100.0, runs_s=50.0)
    run = h.run()
    assert run.start_s("b") == 100.0
    assert _times(run, "a") == [30.0, 180.0]  # it goes on at 150
    assert [e.attempt for e in run.of("a", ev.Sampled)] == [1, 1]


def test_what_was_told_outlives_a_lost_device_and_the_next_attempt_is_sampled_anew() -> None:
    rules = Settings(sample_s=30.0, sample_noise=0.0)
    h = Harness("1x1", Fifo(), settings=rules)
    h.submit("a", runs_s=1000.0)
    h.happen(ev.NodeDown(100.0, 0, "power"))
    h.happen(ev.NodeUp(200.0, 0))
    run = h.run()
    # Lost at 100 and begun anew at 200: sampled at 230, and done at 1,200.
    assert [(e.t, e.attempt, e.work_s) for e in run.of("a", ev.Sampled)] == [
        (30.0, 1, 1000.0),
        (230.0, 2, 1000.0),
    ]
    assert run.end_s("a") == 1200.0
    state = State(h.cluster, rules)
    for event in run.events:
        if event.t > 150.0:
            break
        state.apply(event)
    (waiting,) = state.queue
    assert waiting.remaining_at(150.0) == 1000.0 and waiting.remaining_range_at(150.0) == (1000.0, 1000.0)


# -- what ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_what_is_still_to_do_is_told_with_the_error_of_the_draw(seed: int) -> None:
    # Done at 30: 30 s of 1,000. The 970 to come are taken for 970 x exp(error).
    error = 0.05 * normal(seed, "sample", "0", "1", "0")
    first = _alone(1000.0, noise=0.05, seed=seed).of("a", ev.Sampled)[0]
    assert first.work_s == pytest.approx(30.0 + 970.0 * math.exp(error))
    assert first.low_s == pytest.approx(30.0 + 970.0 * math.exp(error - Z90 * 0.05))
    assert first.high_s == pytest.approx(30.0 + 970.0 * math.exp(error + Z90 * 0.05))


def test_a_run_that_outlives_what_was_told_is_told_anew_at_that_moment() -> None:
    seeds = [s for s in range(20) if normal(s, "sample", "0", "1", "0") < -0.5]
    assert seeds
    for seed in seeds:
        told = _alone(1000.0, noise=0.05, seed=seed).of("a", ev.Sampled)
        first, second = told[:2]
        assert second.t == pytest.approx(first.work_s)  # speed 1, from 0 on
        # Smoothed by 0.3: the second error is 0.7 of the first and 0.3 of a new draw.
        errors = [0.05 * normal(seed, "sample", "0", "1", str(i)) for i in (0, 1)]
        error = 0.7 * errors[0] + 0.3 * errors[1]
        assert second.work_s == pytest.approx(second.t + (1000.0 - second.t) * math.exp(error))
        assert abs(second.work_s - 1000.0) < abs(first.work_s - 1000.0)


def test_nine_in_ten_ranges_hold_the_declared_work() -> None:
    h = Harness("1x400", Fifo(), settings=Settings(sample_s=30.0))
    for i in range(400):
        h.submit(f"j{i}", runs_s=1000.0)
    run = h.run(invariants=False)
    firsts = [run.of(f"j{i}", ev.Sampled)[0] for i in range(400)]
    assert 345 <= sum(e.low_s <= 1000.0 <= e.high_s for e in firsts) <= 375


def test_a_failing_attempt_tells_what_the_job_declared_not_when_it_fails() -> None:
    run = _alone(300.0, failed_after_s=[100.0])
    assert [(e.t, e.attempt, e.work_s) for e in run.of("a", ev.Sampled)] == [
        (30.0, 1, 300.0),
        (130.0, 2, 300.0),
    ]


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_a_job_that_ends_early_had_declared_more_by_a_drawn_factor(outcome: str) -> None:
    factors = []
    for seed in range(40):
        run = _alone(100.0, outcome=outcome, seed=seed)
        factors.append(run.of("a", ev.Sampled)[0].work_s / 100.0)
    assert min(factors) >= 1.0 and max(factors) <= 20.0 + 1e-9
    # Ended at an even place of what was declared: the median factor is 1 / 0.525 = 1.9.
    assert 1.4 < sorted(factors)[20] < 2.8


def test_the_error_belongs_to_the_job_not_to_what_else_happens() -> None:
    def first(others: int) -> float:
        h = Harness("1x8", Fifo(), settings=Settings(sample_s=30.0), seed=3)
        h.submit("a", runs_s=1000.0)
        for i in range(others):
            h.submit(f"b{i}", at_s=1.0, runs_s=50.0)
        return float(h.run().of("a", ev.Sampled)[0].work_s)

    assert first(0) == first(5)


# -- folding -----------------------------------------------------------------------------------


def test_a_sample_replaces_the_prediction_and_its_range_narrows() -> None:
    state = State(Cluster.uniform(1), Settings())
    state.apply(ev.Submitted(0.0, Job(id=0, name="a", submit_s=0.0, estimate_s=900.0)))
    state.apply(ev.Started(0.0, 0, 1, (0,)))
    record = state.records[0]
    assert record.remaining_at(30.0) == 870.0
    assert record.remaining_range_at(30.0) == (0.0, math.inf)
    state.apply(ev.Sampled(30.0, 0, 1, 400.0, 380.0, 430.0))
    assert record.remaining_at(30.0) == 370.0
    assert record.remaining_range_at(30.0) == (350.0, 400.0)
    assert record.remaining_range_at(390.0) == (0.0, 40.0)
    # Outlived: as much again, 800 in all, as for every prediction; nothing shorter is likely.
    assert record.remaining_at(410.0) == 390.0
    assert record.remaining_range_at(410.0) == (0.0, 390.0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", range(6))
def test_folding_the_written_log_gives_the_state(policy: str, number: int, tmp_path: Path) -> None:
    harness = scenario(number, registry.load("policy", policy), samples=True)
    run = harness.run()
    (tmp_path / "events.jsonl").write_bytes(run.log)
    folded = State(harness.cluster, harness.settings)
    for event in read_log(tmp_path / "events.jsonl"):
        folded.apply(event)
    assert picture(folded) == picture(run.state)
    live, again = run.state.records, folded.records
    assert {i: r.sample for i, r in live.items()} == {i: r.sample for i, r in again.items()}


# -- samples only tell ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_do_not_depend_on_what_an_index_kept(policy: str) -> None:
    make, taken = registry.load("policy", policy), 0
    for number in range(8):
        kept = scenario(number, make, samples=True).run()
        fresh = scenario(number, make, samples=True, drop_indexes=True).run(invariants=False)
        assert kept.log == fresh.log
        taken += sum(isinstance(e, ev.Sampled) for e in kept.events)
    assert taken > 50


@settings(max_examples=40, deadline=None)
@given(number=st.integers(0, 10_000), policy=st.sampled_from(["fifo", "first-fit", "best-fit"]))
def test_samples_change_nothing_for_a_policy_that_reads_no_predictions(number: int, policy: str) -> None:
    make = registry.load("policy", policy)
    without = scenario(number, make).run(invariants=False)
    told = scenario(number, make, samples=True).run(invariants=False)
    rest = [e for e in told.events[1:-1] if not isinstance(e, ev.Sampled)]
    rules = without.state.settings
    if rules.round_s or rules.starts_per_event:
        return  # what may start at one instant depends on how many instants there are
    assert rest == without.events[1:-1]


def test_a_sampled_job_that_outlives_its_history_is_not_taken_for_twice_as_long() -> None:
    # History says 100 s; it runs 1,000. Without samples, srtf takes a to end at 400 when b (200 s)
    # comes at 210, and lets it go on. With a sample it knows of 790 s to come, and b goes first.
    class Says:
        def predict_s(self, job: Job) -> Interval:
            seconds = 100.0 if job.name == "a" else 200.0
            return Interval(seconds, seconds, seconds)

        def observe(self, job: Job, work_s: float) -> None:
            pass

        def describe(self) -> dict[str, Any]:
            return {"kind": "test"}

    def starts_b(sample_s: float) -> float | None:
        rules = Settings(sample_s=sample_s, sample_noise=0.0, restore_s=0.0, state_bytes_per_s=1e15)
        h = Harness("1x1", Srtf(margin_s=0.0), settings=rules, runtime=Says())
        h.submit("a", runs_s=1000.0)
        h.submit("b", at_s=210.0, runs_s=200.0)
        return h.run().start_s("b")

    assert starts_b(30.0) == 210.0
    late = starts_b(0.0)
    assert late is not None and late > 210.0


@pytest.mark.parametrize(
    ("name", "value"), [("sample_s", -1.0), ("sample_noise", 1.5), ("sample_s", math.inf)]
)
def test_settings_of_samples_are_checked(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings(**{name: value}).check()  # type: ignore[arg-type]
