"""The predictor: choosing, intervals, saving, and tables of runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest

from cotenant.errors import ConfigError, MissingExtraError, UnknownNameError
from cotenant.predictors.resources.folds import balanced, family_folds, family_quantile
from cotenant.predictors.resources.learners import make_learner
from cotenant.predictors.resources.modelfile import load_predictor, save_predictor
from cotenant.predictors.resources.observations import Observation, doubted, observed
from cotenant.predictors.resources.predictor import UNFITTED_DOUBT, ResourcePredictor, out_of_fold
from cotenant.predictors.resources.roofline import rates_of
from cotenant.predictors.resources.validation import importance
from cotenant.predictors.resources.work import StepWork
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun

FEW = ("roofline", "roofline+linear", "linear")


def test_families_are_never_split() -> None:
    names = [f"f{i % 7}" for i in range(40)]
    judged = np.zeros(40, int)
    for seen, held in family_folds(names, 4):
        assert not {names[i] for i in seen} & {names[i] for i in held}
        judged[held] += 1
    assert judged.tolist() == [1] * 40


def test_quantiles_and_weights_count_families_alike() -> None:
    assert balanced(["a", "a", "a", "b"]).tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2.0])
    values = np.array([1.0] * 9 + [5.0])
    # Of the rows nine in ten are 1, of the families one in two.
    assert family_quantile(values, ["a"] * 9 + ["b"], 0.6) == 5.0


def test_fitted_on_what_a_roofline_made_it_predicts_unseen_families(made: ModuleType) -> None:
    predictor = ResourcePredictor(learners=FEW).fit(made.observations())
    fit = predictor.fits_["gpu_util"]
    assert fit.learner.startswith("roofline")
    assert fit.errors["roofline"] < 0.1 < fit.errors["linear"]
    assert (fit.rows, fit.families) == (36, 12)
    unseen = made.observations(families=20)[36:]
    said = predictor.predict([r.work for r in unseen], [r.rates for r in unseen])
    for forecast, row in zip(said, unseen, strict=True):
        assert forecast.iteration_s.mean == pytest.approx(row.iteration_s, rel=0.2)
        assert forecast.mem_mib.mean == pytest.approx(row.mem_mib, rel=0.1)
        assert forecast.gpu_util.low <= forecast.gpu_util.mean <= forecast.gpu_util.high <= 100.0


def test_what_the_roofline_gets_wrong_is_learnt(made: ModuleType) -> None:
    rows = [
        msgspec.structs.replace(
            r, mem_mib=(r.mem_mib or 0) * (1.5 if "convolution" in r.work.counts else 1.0)
        )
        for r in made.observations(families=12, batches=(8, 64))
    ]
    learners = ("roofline", "roofline+boosting")
    fit = ResourcePredictor(learners=learners, folds=4).fit(rows).fits_["mem_mib"]
    assert fit.learner == "roofline+boosting"
    assert fit.errors["roofline+boosting"] < 0.6 * fit.errors["roofline"]


@pytest.mark.parametrize("families", [1, 2, 3])
def test_few_families_fit_the_roofline_alone(made: ModuleType, families: int) -> None:
    predictor = ResourcePredictor().fit(made.observations(families=families, batches=(8,)))
    assert {fit.learner for fit in predictor.fits_.values()} == {"roofline"}
    assert {fit.families for fit in predictor.fits_.values()} == {families}
    assert predictor.fits_["iteration_s"].doubt >= UNFITTED_DOUBT["iteration_s"]
    assert predictor.efficiency_ != predictor.prior


def test_four_families_of_one_row_can_be_learnt_from(made: ModuleType) -> None:
    predictor = ResourcePredictor().fit(made.observations(families=4, batches=(8,)))
    assert set(predictor.fits_["iteration_s"].errors) == set(predictor.learners)


def test_no_interval_has_zero_width_however_alike_the_rows(made: ModuleType) -> None:
    rows = [
        msgspec.structs.replace(r, gpu_util=100.0, rates=rates_of("Some Core x1"))
        for r in made.observations(families=6)
    ]
    predictor = ResourcePredictor(learners=("roofline",)).fit(rows)
    assert predictor.fits_["gpu_util"].errors["roofline"] == 0.0
    known = predictor.predict([rows[0].work], [rows[0].rates])[0].gpu_util
    assert known.low < known.high == 100.0


def test_types_that_were_not_measured_have_wider_intervals(made: ModuleType) -> None:
    predictor = ResourcePredictor(learners=("roofline",)).fit(made.observations())
    works = [made.work(30, 16)] * 2
    seen, unseen = predictor.predict(works, [rates_of("V100"), rates_of("T4")])
    for name in ("iteration_s", "mem_mib"):
        one, other = (getattr(forecast, name) for forecast in (seen, unseen))
        assert other.high / other.low > one.high / one.low
    # Half width without a fit: 0.8 on the logarithm.
    assert unseen.iteration_s.high / unseen.iteration_s.mean == pytest.approx(np.exp(0.8))


def test_a_known_iteration_tells_who_waits(made: ModuleType) -> None:
    predictor = ResourcePredictor(learners=("roofline",)).fit(made.observations())
    row = made.observations()[2]
    seconds = row.iteration_s or 0.0
    same, waiting = (
        predictor.predict([row.work], [row.rates], iteration_s=[s])[0] for s in (seconds, 10 * seconds)
    )
    assert same.gpu_util.mean == pytest.approx(row.gpu_util, rel=0.1)
    assert waiting.gpu_util.mean == pytest.approx((row.gpu_util or 0) / 10, rel=0.15)
    assert waiting.iteration_s.low == waiting.iteration_s.high == 10 * seconds


def test_without_a_fit_every_catalogued_device_is_served(made: ModuleType) -> None:
    found = ResourcePredictor().predict([made.work(1, 32)] * 2, [rates_of("K80"), rates_of("H100")])
    assert found[0].iteration_s.mean > found[1].iteration_s.mean
    assert found[0].mem_mib.mean == pytest.approx(made.work(1, 32).memory_bytes / 2**20)
    assert found[0].mem_mib.high == pytest.approx(made.work(1, 32).memory_high_bytes / 2**20)


def test_the_order_of_rows_does_not_matter(made: ModuleType) -> None:
    rows = made.observations(families=5, batches=(8, 64))
    one = out_of_fold(rows, FEW, seed=3)["gpu_util"]["roofline+linear"]
    other = out_of_fold(rows[::-1], FEW, seed=3)["gpu_util"]["roofline+linear"]
    np.testing.assert_allclose(one, other[::-1], rtol=1e-4)


def test_saved_and_read_again_it_says_the_same(made: ModuleType, tmp_path: Path) -> None:
    rows = made.observations(families=6, batches=(8, 64), noise=0.2)
    predictor = ResourcePredictor(learners=(*FEW, "roofline+forest"), seed=5, folds=2).fit(rows)
    card = save_predictor(predictor, tmp_path / "m.json", rows=rows)
    again, notes = load_predictor(tmp_path / "m.json")
    assert notes == ()
    assert (card["licences"], card["device_types"]) == (["MIT"], ["V100"])
    works, rates = [made.work(30, 16)], [rates_of("T4")]
    assert again.predict(works, rates) == predictor.predict(works, rates)


def test_rates_that_differ_from_those_of_the_fit_are_told(made: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    rows = made.observations(families=5, batches=(8, 64))
    save_predictor(ResourcePredictor(learners=("linear",)).fit(rows), path, rows=rows)
    again, notes = load_predictor(path)
    assert notes == ()
    assert again.rates_ == {"V100": rates_of("V100")}
    saved = json.loads(path.read_text())
    assert saved["rates"][0]["bandwidth"] == rates_of("V100").bandwidth
    saved["rates"][0]["bandwidth"] *= 2
    saved["rates"][0]["matrix_flops"]["amp"] = 1e12
    # Memory is not in the rates that a fit depends on.
    saved["rates"][0]["memory_bytes"] = 1
    path.write_text(json.dumps(saved))
    (told,) = load_predictor(path)[1]
    assert told.startswith(
        "V100: the catalogue differs from when this was fitted (matrix products, bandwidth),"
    )
    # A type that is in nobody's catalogue any more.
    saved["rates"] = [saved["rates"][0] | {"name": "Z1"}]
    path.write_text(json.dumps(saved))
    assert load_predictor(path)[1][0].startswith(
        "Z1: the catalogue differs from when this was fitted (whether"
    )
    # Files from before rates were kept are read as they were.
    del saved["rates"]
    path.write_text(json.dumps(saved))
    assert load_predictor(path)[1] == ()


def test_a_file_that_was_changed_is_refused_or_told(made: ModuleType, tmp_path: Path) -> None:
    rows = made.observations(families=5)
    path = tmp_path / "m.json"
    save_predictor(ResourcePredictor(learners=("linear",)).fit(rows), path, rows=rows)
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"format": "other"}))
    with pytest.raises(ConfigError, match="fit it again"):
        load_predictor(path)
    changed = json.loads(json.dumps(saved))
    changed["targets"]["gpu_util"]["check"][0] += 1.0
    path.write_text(json.dumps(changed))
    assert load_predictor(path)[1][0].startswith("gpu_util: linear differs by 1")
    del changed["targets"]["gpu_util"]["y"][0]
    path.write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match="gpu_util"):
        load_predictor(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="no saved resource predictor"):
        load_predictor(path)


def test_of_equals_the_simplest_is_chosen(made: ModuleType) -> None:
    rows = [
        msgspec.structs.replace(r, mem_mib=1000.0) for r in made.observations(families=5, batches=(8, 64))
    ]
    fits = ResourcePredictor(learners=("forest", "boosting", "linear"), folds=2).fit(rows).fits_
    # All three say 1,000 MiB exactly.
    assert fits["mem_mib"].errors == {"forest": 0.0, "boosting": 0.0, "linear": 0.0}
    assert fits["mem_mib"].learner == "linear"


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_boosters_of_the_extra_learn_and_repeat_themselves(name: str, made: ModuleType) -> None:
    pytest.importorskip(name, reason="needs the extra boost")
    rows = [
        msgspec.structs.replace(r, mem_mib=(r.mem_mib or 0) * (1.5 if r.work.batch == 8 else 1.0))
        for r in made.observations(families=10)
    ]
    learners = ("roofline", f"roofline+{name}")
    one, two = (out_of_fold(rows, learners, folds=2)["mem_mib"] for _ in range(2))
    truth = np.log([r.mem_mib for r in rows])
    off = {learner: np.abs(answers - truth).mean() for learner, answers in one.items()}
    assert off[f"roofline+{name}"] < 0.8 * off["roofline"]
    np.testing.assert_array_equal(one[f"roofline+{name}"], two[f"roofline+{name}"])


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtraError, match="boost"):
        make_learner("xgboost", 0)


def test_one_family_in_twelve_that_waits_does_not_widen_all_intervals(made: ModuleType) -> None:
    def slowed(family: str) -> list[Observation]:
        return [
            msgspec.structs.replace(r, iteration_s=20 * (r.iteration_s or 0)) if r.family == family else r
            for r in made.observations(noise=0.1)
        ]

    def doubt(rows: list[Observation]) -> float:
        return ResourcePredictor(learners=("roofline",)).fit(rows).fits_["iteration_s"].doubt

    assert 0.1 < doubt(slowed("family3")) < 0.6
    # Of five families one is too many to be missed.
    few = [r for r in slowed("family3") if r.family in {f"family{i}" for i in range(5)}]
    assert doubt(few) > 1.5


def test_unknown_learners_are_named() -> None:
    with pytest.raises(UnknownNameError, match="roofline"):
        ResourcePredictor(learners=("rooflin",))


def test_parameters_follow_scikit_learns_convention() -> None:
    predictor = ResourcePredictor(seed=4, folds=3)
    assert predictor.get_params()["seed"] == 4
    assert predictor.set_params(folds=5).folds == 5
    assert predictor.seed == 4


def test_a_feature_that_decides_is_found(made: ModuleType) -> None:
    rows = [
        msgspec.structs.replace(r, mem_mib=float(100 * r.work.batch)) for r in made.observations(families=10)
    ]
    found = importance(rows, "mem_mib", "boosting", repeats=3)
    assert found[0][0] == "log_batch"
    assert found[0][1] > 0.3


@pytest.mark.parametrize(
    ("throughput", "unit", "seconds"),
    [(4.0, "steps/s", 0.25), (64.0, "images/s", 0.5), (64.0, "kwords/s", None), (None, "steps/s", None)],
)
def test_tables_are_read_in_their_units(throughput: float | None, unit: str, seconds: float | None) -> None:
    job = JobConfig(model="m", dataset="d", batch=32, family="F")
    run = SoloRun(source="s", device_type="V100", job=job, throughput=throughput, unit=unit, mem_mib=5.0)
    rows, unknown = observed([run], [StepWork(name="m@d", batch=32)])
    assert [(r.iteration_s, r.family, r.mem_mib) for r in rows] == [(seconds, "F", 5.0)]
    assert unknown == []


def test_of_runs_alone_that_were_too_slow_memory_is_taken_and_nothing_else() -> None:
    one, two = JobConfig(model="m", batch=8), JobConfig(model="m", batch=16)
    runs = [
        SoloRun(
            source=source,
            device_type="V100",
            job=job,
            throughput=4.0,
            unit="steps/s",
            gpu_util=50.0,
            mem_util=20.0,
            mem_mib=900.0,
        )
        for source, job in (("s", one), ("s", two), ("other", one))
    ]
    sides = (CoSide(job=one, speed=1.3, suspect=True), CoSide(job=two, speed=0.9))
    slow = doubted([CoRun(row_id="1", source="s", device_type="V100", sides=sides)])
    assert slow == {("s", "V100", one)}
    rows, _ = observed(runs, [StepWork(name="m", batch=8), StepWork(name="m", batch=16)], doubted=slow)
    found = [(r.source, r.work.batch, r.iteration_s, r.gpu_util, r.mem_util, r.mem_mib) for r in rows]
    assert found == [
        ("s", 8, None, None, None, 900.0),
        ("s", 16, 0.25, 50.0, 20.0, 900.0),
        ("other", 8, 0.25, 50.0, 20.0, 900.0),
    ]


def test_jobs_without_a_graph_are_named_and_those_on_many_devices_left_out() -> None:
    jobs = [
        JobConfig(model="m", batch=8),
        JobConfig(model="m", batch=8, amp=1),
        JobConfig(model="n", batch=8),
        JobConfig(model="m", batch=8, num_gpus=2),
    ]
    runs = [SoloRun(source="s", device_type="T4", job=job, throughput=1.0, unit="steps/s") for job in jobs]
    rows, unknown = observed(runs, [StepWork(name="m", batch=8)])
    assert [r.work.precision for r in rows] == ["fp32"]
    assert unknown == [("s", "m/b8+amp"), ("s", "n/b8")]
