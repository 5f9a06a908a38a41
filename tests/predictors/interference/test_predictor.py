"""The adaptive interference predictor keeps its contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.predictors.interference.compiled import CompiledWorld
from cotenant.predictors.interference.evaluate import judge, judge_by, write_predictions
from cotenant.predictors.interference.modelfile import card_of, load_predictor, read_card, save_predictor
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor, SidePrediction
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun

WORLD = ("made", "T4")
FAMILIES = {"alpha": 0.2, "beta": 0.4, "gamma": 0.6, "delta": 0.8, "omega": 1.0}
BATCHES = (8, 32)
JOBS = [JobConfig(model=f, family=f, batch=b) for f in FAMILIES for b in BATCHES]


def load_of(job: JobConfig) -> float:
    """What a job asks of the device; the truth of the made world."""
    return FAMILIES[job.model] * (0.8 if job.batch == 8 else 1.0)


def true_speed(job: JobConfig, others: Sequence[JobConfig]) -> float:
    return 1.0 / (1.0 + load_of(job) * sum(load_of(other) for other in others))


def run_of(*jobs: JobConfig, row: str = "", status: str = "ok") -> CoRun:
    sides = tuple(
        CoSide(job=job, speed=true_speed(job, jobs[:i] + jobs[i + 1 :]) if status == "ok" else None)
        for i, job in enumerate(jobs)
    )
    name = row or "+".join(job.label for job in jobs)
    return CoRun(
        row_id=name, source=WORLD[0], device_type=WORLD[1], sides=sides, status=status, device_mem_mib=16000.0
    )


def all_pairs(jobs: Sequence[JobConfig] = JOBS) -> Iterator[CoRun]:
    for i, one in enumerate(jobs):
        for two in jobs[i:]:
            yield run_of(one, two)


def solos(jobs: Sequence[JobConfig] = JOBS) -> list[SoloRun]:
    return [
        SoloRun(
            source=WORLD[0],
            device_type=WORLD[1],
            job=job,
            throughput=100.0 / load_of(job),
            unit="steps/s",
            gpu_util=100.0 * load_of(job),
            mem_util=60.0 * load_of(job),
            mem_mib=9000.0 * load_of(job),
        )
        for job in jobs
    ]


@pytest.fixture(scope="module")
def fitted() -> AdaptiveInterferencePredictor:
    return AdaptiveInterferencePredictor(zoo="small").fit(list(all_pairs()), solos())


def test_a_measured_pair_is_told_nearly_as_measured(fitted: AdaptiveInterferencePredictor) -> None:
    said = fitted.predict_set(WORLD, [JOBS[1], JOBS[9]])
    # beta... the first is alpha/b32 (0.2), the last omega/b32 (1.0): both 1 / 1.2.
    assert [s.mean for s in said] == pytest.approx([1 / 1.2, 1 / 1.2], abs=0.03)


def test_an_unseen_pair_is_told_better_than_by_the_average() -> None:
    out = {("beta", "delta"), ("gamma", "gamma"), ("alpha", "omega")}
    runs = list(all_pairs())
    left = [r for r in runs if tuple(sorted(s.job.model for s in r.sides)) not in out]
    asked = [r for r in runs if tuple(sorted(s.job.model for s in r.sides)) in out]
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(left, solos())
    report = judge("", asked, predictor.predict(asked))
    speeds = [s.speed for r in asked for s in r.sides if s.speed is not None]
    assert report.mae < 0.02
    assert report.mae < 0.5 * float(np.abs(np.array(speeds) - np.median(speeds)).mean())


def test_two_co_runs_sharpen_what_is_told_of_an_unseen_model() -> None:
    runs = list(all_pairs())
    # Its solo profile lies: it is told as light, but is the heaviest.
    lying = [s for s in solos() if s.job.model != "omega"]
    lying += [
        SoloRun(source="made", device_type="T4", job=job, throughput=500.0, unit="steps/s", gpu_util=20.0)
        for job in JOBS
        if job.model == "omega"
    ]
    left = [r for r in runs if all(s.job.model != "omega" for s in r.sides)]
    asked = [r for r in runs if sum(s.job.model == "omega" for s in r.sides) == 1]
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(left, lying)
    before = judge("", asked, predictor.predict(asked))
    for job in JOBS:
        if job.model == "omega":
            known = [j for j in JOBS if j.model != "omega"]
            chosen = predictor.suggest(job, WORLD, partners=known, count=2)
            assert len(set(chosen)) == 2 and set(chosen) <= set(known)
            predictor.observe([run_of(job, partner) for partner in chosen])
    after = judge("", asked, predictor.predict(asked))
    assert after.mae < 0.5 * before.mae


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(4)), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_the_order_of_neighbours_does_not_matter(order: list[int], chosen: list[int]) -> None:
    predictor = _shared()
    jobs = [JOBS[i] for i in chosen]
    plain = predictor.predict_set(WORLD, jobs)
    shuffled = predictor.predict_set(WORLD, [jobs[i] for i in order])
    for place, original in enumerate(order):
        assert shuffled[place].mean == pytest.approx(plain[original].mean, abs=1e-12)
        assert shuffled[place].low == pytest.approx(plain[original].low, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=4), st.integers(0, 9))
def test_predictions_lie_in_bounds_and_a_further_neighbour_never_helps(chosen: list[int], more: int) -> None:
    predictor = _shared()
    fewer = predictor.predict_set(WORLD, [JOBS[i] for i in chosen])
    for side in fewer:
        assert 0.02 <= side.low <= side.mean <= side.high <= 1.0
    if len(chosen) > 2:
        larger = predictor.predict_set(WORLD, [JOBS[i] for i in [*chosen, more]])
        for few, many in zip(fewer, larger, strict=False):
            assert many.mean <= few.mean + 1e-12


_SHARED: list[AdaptiveInterferencePredictor] = []


def _shared() -> AdaptiveInterferencePredictor:
    if not _SHARED:
        _SHARED.append(AdaptiveInterferencePredictor(zoo="small").fit(list(all_pairs()), solos()))
    return _SHARED[0]


def test_labels_are_not_read_when_predicting(fitted: AdaptiveInterferencePredictor) -> None:
    run = run_of(JOBS[0], JOBS[5])
    blind = CoRun(
        row_id="x", source=run.source, device_type=run.device_type,
        sides=tuple(CoSide(job=side.job) for side in run.sides), status="unmeasured",
    )  # fmt: skip
    assert fitted.predict([run]) == fitted.predict([blind])


def test_memory_decides_first(fitted: AdaptiveInterferencePredictor) -> None:
    # omega/b32 and delta/b32 hold 9,000 and 7,200 MiB: more than 98% of 16,000.
    heavy = [job for job in JOBS if job.batch == 32 and job.model in ("omega", "delta")]
    assert [side.fits for side in fitted.predict_set(WORLD, heavy)] == [False, False]
    light = [job for job in JOBS if job.batch == 32 and job.model in ("alpha", "beta")]
    assert [side.fits for side in fitted.predict_set(WORLD, light)] == [True, True]


def test_sizes_that_nobody_measured_follow_from_what_ran_and_what_died() -> None:
    def fate(one: JobConfig, two: JobConfig) -> str:
        return "failed" if load_of(one) + load_of(two) > 1.3 else "ok"

    pairs = [(a, b) for i, a in enumerate(JOBS) for b in JOBS[i:]]
    runs = [run_of(a, b, status=fate(a, b)) for a, b in pairs]
    asked, left = runs[::4], [r for i, r in enumerate(runs) if i % 4]
    bare = [SoloRun(source="made", device_type="T4", job=job) for job in JOBS]
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(left, bare)
    report = judge("", asked, predictor.predict(asked))
    assert report.precision is not None and report.precision > 0.8
    assert report.recall is not None and report.recall > 0.8


def test_where_nothing_tells_of_memory_neither_does_the_prediction() -> None:
    bare = [SoloRun(source="made", device_type="T4", job=job) for job in JOBS]
    runs = [run for run in all_pairs() if run.key != (JOBS[0], JOBS[1])]
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(runs, bare)
    told = predictor.predict_set(WORLD, [JOBS[0], JOBS[1]])
    assert [side.fits for side in told] == [None, None] and not told[0].memory_known
    # This very pair ran side by side, whatever its jobs need.
    assert [side.fits for side in predictor.predict_set(WORLD, [JOBS[3], JOBS[2]])] == [True, True]


def test_an_unheard_of_job_has_no_size_though_others_do(fitted: AdaptiveInterferencePredictor) -> None:
    stranger = JobConfig(model="stranger", batch=9999)
    sides = fitted.predict_set(WORLD, [stranger, JOBS[0]])
    assert [(side.fits, side.memory_known) for side in sides] == [(None, False), (None, True)]
    # Two that do not fit do not fit beside a stranger either: 9,000 and 7,200 MiB of 16,000.
    assert fitted.predict_set(WORLD, [stranger, JOBS[9], JOBS[7]])[0].fits is False
    fate = [run_of(a, b, status="failed" if load_of(a) + load_of(b) > 1.3 else "ok") for a in JOBS for b in JOBS if a <= b]  # fmt: skip
    learnt = AdaptiveInterferencePredictor(zoo="small").fit(fate)
    assert learnt.predict_set(WORLD, [stranger, stranger])[0].fits is None
    assert learnt.predict_set(("made", "H100"), [JOBS[0], JOBS[1]])[0].fits is None


def test_the_unknown_gets_wider_intervals(fitted: AdaptiveInterferencePredictor) -> None:
    def width(side: SidePrediction) -> float:
        return side.high - side.low

    known = fitted.predict_set(WORLD, [JOBS[2], JOBS[5]])
    stranger = fitted.predict_set(WORLD, [JobConfig(model="stranger"), JOBS[5]])
    elsewhere = fitted.predict_set(("made", "H100"), [JOBS[2], JOBS[5]])
    assert stranger[0].novelty == 3 and known[0].novelty == 0 and elsewhere[0].novelty >= 1
    assert width(stranger[0]) > 2 * width(known[0])
    assert width(elsewhere[0]) > width(known[0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10), min_size=3, max_size=4), st.booleans())
def test_a_larger_set_is_told_no_surer_than_its_least_sure_pair(chosen: list[int], far: bool) -> None:
    pool = [*JOBS, JobConfig(model="stranger")]
    jobs = [pool[i] for i in chosen]
    world = ("made", "H100") if far else WORLD
    predictor = _shared()
    whole = predictor.predict_set(world, jobs)[0]
    pairs = [predictor.predict_set(world, [jobs[0], other])[0] for other in jobs[1:]]
    # As far as the least speed there is, 0.02, leaves room.
    if whole.low > 0.02:
        assert 1 - whole.low / whole.mean >= max(1 - side.low / side.mean for side in pairs) - 1e-9
    if whole.high < 1.0:
        assert whole.high / whole.mean >= max(side.high / side.mean for side in pairs) - 1e-9


def test_speeds_above_alone_are_told_in_the_scale_of_labels_only() -> None:
    jobs = [JobConfig(model=name) for name in "abcd"]
    # Jobs that hardly use the device, measured with noise on either side of 1.
    runs = [
        CoRun(
            row_id=f"{i}{j}",
            source="made",
            device_type=WORLD[1],
            sides=(CoSide(job=one, speed=1.0 + noise), CoSide(job=two, speed=1.0 - noise / 2)),
        )
        for i, one in enumerate(jobs)
        for j, two in enumerate(jobs[i:])
        for noise in [0.08 if (i + j) % 2 else -0.04]
    ]
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(runs)
    sets = [(one, two) for one in jobs for two in jobs]
    real = [side for sides in predictor.predict_sets(WORLD, sets) for side in sides]
    labels = [side for sides in predictor.predict_sets(WORLD, sets, as_published=True) for side in sides]
    assert max(side.high for side in real) == 1.0
    assert max(side.mean for side in real) <= 1.0
    assert 1.0 < max(side.high for side in labels) <= 1.2
    # Three jobs are no surer for it, and no faster than alone either.
    assert all(side.high == 1.0 for side in predictor.predict_set(WORLD, jobs[:3]))


def test_tables_answer_as_the_models_do(fitted: AdaptiveInterferencePredictor) -> None:
    compiled = CompiledWorld(fitted, WORLD, JOBS)
    victim = np.array([0, 3, 7], np.intp)
    others = np.array([[5, -1, -1], [5, 9, -1], [1, 2, 8]], np.intp)
    mean, low, high = compiled.predict(victim, others)
    for i in range(3):
        jobs = [JOBS[victim[i]], *(JOBS[o] for o in others[i] if o >= 0)]
        said = fitted.predict_set(WORLD, jobs)[0]
        assert mean[i] == pytest.approx(said.mean, abs=1e-9)
        assert low[i] == pytest.approx(said.low, abs=1e-9)
        assert high[i] == pytest.approx(said.high, abs=1e-9)
    assert compiled.fits(np.array([[9, 7], [0, 1]], np.intp)).tolist() == [False, True]


def test_a_clipped_speed_counts_as_at_least_that() -> None:
    def clipped(run: CoRun) -> CoRun:
        sides = tuple(
            CoSide(job=s.job, speed=min(s.speed * 1.3, 1.0), censored=s.speed * 1.3 >= 1.0)
            for s in run.sides
            if s.speed is not None
        )
        return CoRun(row_id=run.row_id, source="made", device_type="T4", sides=sides)

    runs = [clipped(run) for run in all_pairs()]
    assert sum(side.censored for run in runs for side in run.sides) > 5
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(runs, solos())
    for sides in predictor.predict(runs):
        for side in sides:
            assert side.mean <= 1.0


def test_a_suspect_baseline_is_put_right_in_forecasts_and_kept_in_labels() -> None:
    def suspect(run: CoRun) -> CoRun:
        sides = tuple(
            CoSide(job=s.job, speed=s.speed * 1.25, suspect=True)
            if s.job.model == "alpha" and s.speed is not None
            else s
            for s in run.sides
        )
        return CoRun(row_id=run.row_id, source="made", device_type="T4", sides=sides)

    runs = [suspect(run) for run in all_pairs()]
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(runs, solos())
    pair = [JOBS[0], JOBS[2]]
    real = predictor.predict_set(WORLD, pair)[0].mean
    published = predictor.predict([run_of(*pair)])[0][0].mean
    # True: 1 / (1 + 0.16 * 0.32) = 0.951; published: 1.189.
    assert published == pytest.approx(1.189, abs=0.04)
    assert real < 1.03


def test_live_errors_lead_to_another_choice_only_when_they_grow() -> None:
    predictor = AdaptiveInterferencePredictor(zoo="small").fit(list(all_pairs()), solos())
    steady = [run_of(JOBS[i % 10], JOBS[(i * 3) % 10], row=f"s{i}") for i in range(12)]
    predictor.observe(steady)
    predictor.predict(steady[:1])
    assert not predictor.drifted(WORLD) and predictor.reselections == 0
    slow = [
        CoRun(
            row_id=f"d{i}", source="made", device_type="T4",
            sides=tuple(CoSide(job=s.job, speed=0.5 * s.speed) for s in run.sides if s.speed is not None),
        )
        for i, run in enumerate(steady)
    ]  # fmt: skip
    predictor.observe(slow)
    predictor.predict(steady[:1])
    assert predictor.reselections == 1


def test_a_saved_predictor_says_the_same_and_is_data(
    fitted: AdaptiveInterferencePredictor, tmp_path: Path
) -> None:
    path = tmp_path / "fit.json"
    card = save_predictor(fitted, path)
    again = load_predictor(path)
    asked = list(all_pairs())
    first, second = fitted.predict(asked), again.predict(asked)
    for one, two in zip(first, second, strict=True):
        assert [s.mean for s in one] == pytest.approx([s.mean for s in two], abs=1e-9)
        assert [s.low for s in one] == pytest.approx([s.low for s in two], abs=1e-9)
    assert read_card(path) == card == card_of(again)
    assert card["data"]["co_runs"] == {"made|T4": 55}
    whole = json.loads(path.read_text())
    whole["runs"][0]["sides"][0]["speed"] = 0.123
    path.write_text(json.dumps(whole))
    with pytest.raises(ConfigError, match="not those that its card names"):
        load_predictor(path)
    path.write_text('{"format": "other"}')
    with pytest.raises(ConfigError, match="no fitted predictor"):
        load_predictor(path)
    path.write_text('{"format": "cotenant-interference/1"}')
    with pytest.raises(ConfigError, match=r"another version of cotenant .*fit it again"):
        load_predictor(path)


def test_nothing_to_learn_from_and_unknown_zoos_are_refused() -> None:
    with pytest.raises(ConfigError, match="no usable speed"):
        AdaptiveInterferencePredictor().fit([])
    with pytest.raises(UnknownNameError, match="quick"):
        AdaptiveInterferencePredictor(zoo="quik")


def test_reports_are_the_sums_that_one_does_by_hand(tmp_path: Path) -> None:
    run = CoRun(
        row_id="r1", source="s", device_type="T4",
        sides=(CoSide(job=JOBS[0], speed=0.5), CoSide(job=JOBS[1], speed=0.8)),
    )  # fmt: skip
    died = CoRun(row_id="r2", source="s", device_type="K80", sides=run.sides, status="failed")
    said = [
        [SidePrediction(0.6, 0.55, 0.7, True, 0), SidePrediction(0.8, 0.7, 0.9, True, 0)],
        [SidePrediction(0.6, 0.5, 0.7, False, 0), SidePrediction(0.8, 0.7, 0.9, False, 0)],
    ]
    report = judge_by([run, died], said, ("source",))[0]
    assert report.name == "s" and report.sides == 2
    assert report.mae == pytest.approx(0.05) and report.mape == pytest.approx(0.1)
    assert report.coverage == 0.5 and report.width == pytest.approx(0.175)
    assert (report.precision, report.recall) == (1.0, 1.0)
    write_predictions(tmp_path / "p.csv", [run, died], said)
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[:2] == ["row_id,side,mean,low,high,fits", "r1,a,0.600000,0.550000,0.700000,1"]
    assert len(lines) == 5 and lines[-1].endswith(",0")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_handful_of_jobs_is_enough_to_begin_with(count: int) -> None:
    jobs = [JobConfig(model=f"m{i}", batch=8) for i in range(count)]
    runs = [run_tiny(a, b) for i, a in enumerate(jobs) for b in jobs[i:]]
    predictor = AdaptiveInterferencePredictor(zoo="all").fit(runs)
    said = predictor.predict_set(WORLD, [jobs[0], jobs[-1]])
    assert [side.mean for side in said] == pytest.approx([0.5, 0.5], abs=0.05)
    new = JobConfig(model="new")
    assert set(predictor.suggest(new, WORLD)) <= {*jobs, new}
    predictor.observe([run_tiny(*[jobs[i % count] for i in range(3)], speed=0.25)])
    # Three that halve each other in pairs: 1 / (1 + 1 + 1), drawn a little towards the 0.25 measured.
    three = predictor.predict_set(WORLD, [jobs[0], jobs[-1], jobs[0]])
    assert all(0.25 < side.mean < 0.36 for side in three)


def run_tiny(*jobs: JobConfig, speed: float = 0.5) -> CoRun:
    sides = tuple(CoSide(job=job, speed=speed) for job in jobs)
    return CoRun(row_id="+".join(j.model for j in jobs), source=WORLD[0], device_type=WORLD[1], sides=sides)


def test_what_was_measured_together_at_another_batch_size_is_told_more_surely() -> None:
    blocks = {("beta", "delta")}
    runs = list(all_pairs())
    one = [r for r in runs if tuple(sorted(s.job.model for s in r.sides)) in blocks]
    rest = [r for r in runs if r not in one]
    jobs = [side.job for side in one[0].sides]
    apart = AdaptiveInterferencePredictor(zoo="small").fit(rest, solos())
    together = AdaptiveInterferencePredictor(zoo="small").fit([*rest, *one[1:]], solos())
    assert {"-1", "0", "1"} <= set(apart.choices["made|T4"])
    wide, narrow = apart.predict_set(WORLD, jobs)[0], together.predict_set(WORLD, jobs)[0]
    assert narrow.high - narrow.low < wide.high - wide.low
    assert narrow.novelty == wide.novelty == 0
