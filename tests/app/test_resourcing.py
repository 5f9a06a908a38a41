"""``cotenant predict resources`` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.predictors.resources.work import zoo_works
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun
from cotenant.profiles.runsfile import read_solo_runs, write_co_runs, write_solo_runs

pytest.importorskip("torch", reason="graphs of networks need the extra torch")

SMALL = """
import torch
from torch import nn

def build(batch):
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10))
    return model, torch.randn(batch, 1024)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return f"{path}:build"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Runs of networks of the zoo whose steps take a second per TFLOP on a V100."""
    runs = [
        SoloRun(
            source="made",
            device_type="V100",
            job=JobConfig(model=name, dataset=dataset, batch=w.batch, family=name),
            throughput=1e12 / w.flops,
            unit="steps/s",
            gpu_util=90.0,
            mem_mib=2000.0,
            licence=licence,
        )
        for w in zoo_works()
        for name, _, dataset in [w.name.partition("@")]
        if name in {"ResNet-50", "AlexNet", "VGG-16", "Inception-v3"}
        and dataset
        and w.precision == "fp32"
        and w.batch in {16, 64}
        for licence in ["S-Lab License 1.0 (non-commercial)" if name == "AlexNet" else "MIT"]
    ]
    write_solo_runs(tmp_path / "solo_profiles.csv", runs)
    return tmp_path / "solo_profiles.csv"


def _run(*words: object) -> dict[str, object]:
    result = CliRunner().invoke(
        app, ["predict", "resources", *map(str, words), "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_types_differ_and_the_small_one_is_too_small(model: str) -> None:
    devices = _run(model, "-b", 65536, "--device", "K80,H100", "--optimiser", "adam")["devices"]
    assert isinstance(devices, list)
    k80, h100 = devices
    assert (k80["device_type"], h100["device_type"]) == ("K80", "H100")
    assert k80["iteration_s"]["mean"] > 3 * h100["iteration_s"]["mean"]
    for one in devices:
        for name in ("gpu_util", "mem_util", "iteration_s", "mem_mib"):
            assert one[name]["low"] <= one[name]["mean"] <= one[name]["high"]
    assert h100["verdict"] == "fits"


def test_a_measured_iteration_lowers_utilisation(model: str) -> None:
    alone = _run(model, "-b", 4096, "--device", "T4")["devices"]
    waits = _run(model, "-b", 4096, "--device", "T4", "--iteration", "30s")["devices"]
    assert isinstance(alone, list)
    assert isinstance(waits, list)
    assert waits[0]["iteration_s"]["mean"] == 30.0
    assert waits[0]["gpu_util"]["high"] < alone[0]["gpu_util"]["low"]


def test_fitted_saved_and_used_again(model: str, table: Path, tmp_path: Path) -> None:
    saved = tmp_path / "fit.json"
    result = CliRunner().invoke(app, ["predict", "resources", "--fit", str(table), "--save", str(saved)])
    assert result.exit_code == 0, result.output
    assert "must not be passed on" in result.stderr
    assert "iteration_s" in result.stdout
    there = _run(model, "-b", 512, "--device", "V100", "--fit", saved)
    direct = _run(model, "-b", 512, "--device", "V100", "--fit", table)
    assert there["devices"] == direct["devices"]


def test_the_table_of_co_runs_beside_it_says_which_runs_alone_were_too_slow(table: Path) -> None:
    before = _run("--fit", table)["fits"]
    jobs = [run.job for run in read_solo_runs(table)]
    sides = (CoSide(job=jobs[0], speed=1.4, suspect=True), CoSide(job=jobs[-1], speed=0.9))
    write_co_runs(
        table.parent / "pairs.csv", [CoRun(row_id="1", source="made", device_type="V100", sides=sides)]
    )
    for fit in (table, table.parent):
        result = CliRunner().invoke(app, ["predict", "resources", "--fit", str(fit), "--json"])
        assert "jobs that ran too slowly alone: 1;" in result.stderr
        after = json.loads(result.stdout)["fits"]
        counts = {name: (before[name]["rows"], after[name]["rows"]) for name in after}  # type: ignore[index]
        n = len(jobs)
        assert counts["gpu_util"] == counts["iteration_s"] == (n, n - 1)
        assert counts["mem_mib"] == (n, n)


def test_own_models_are_learnt_from_through_their_steps(model: str, tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    for batch in (16, 64):
        _run(model, "-b", batch, "--device", "V100", "--add-work", steps, "--name", "mine@here")
    assert len(steps.read_text().splitlines()) == 2
    runs = [
        SoloRun(
            source="own",
            device_type="V100",
            job=JobConfig(model="mine", dataset="here", batch=batch),
            mem_mib=3000.0,
        )
        for batch in (16, 64)
    ]
    table = tmp_path / "t.csv"
    write_solo_runs(table, runs)
    refused = CliRunner().invoke(app, ["predict", "resources", "--fit", str(table)])
    assert refused.exit_code == 1
    assert "--add-work" in refused.stderr
    assert _run("--fit", table, "--works", steps)["fits"]["mem_mib"]["rows"] == 2  # type: ignore[index]


def test_a_device_that_is_in_no_catalogue_can_be_asked_for_once_it_was_measured(
    model: str, tmp_path: Path
) -> None:
    runs = [
        SoloRun(
            source="own",
            device_type="Home Core x1",
            job=JobConfig(model=w.name.partition("@")[0], dataset="ImageNet", batch=w.batch),
            throughput=50e9 / w.flops,
            unit="steps/s",
            gpu_util=99.0,
        )
        for w in zoo_works()
        if w.name in {"AlexNet@ImageNet", "VGG-16@ImageNet"} and w.precision == "fp32" and w.batch <= 32
    ]
    write_solo_runs(tmp_path / "t.csv", runs)
    devices = _run(model, "-b", 64, "--device", "Home Core x1", "--fit", tmp_path / "t.csv")["devices"]
    assert isinstance(devices, list)
    # 3 * 2 * 64 * (1024 * 4096 + 4096 * 10) FLOPs, less the first layer's input, at some 50 GFLOP/s.
    assert 0.01 < devices[0]["iteration_s"]["mean"] < 0.1
    assert devices[0]["verdict"] == "memory of this type not known"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give a model"),
        (["--device", "A1000"], "A100"),
        (["--precision", "fp12"], "fp16"),
        (["--save", "x.json"], "--fit TABLE"),
        (["--fit", "none.json"], "No such file"),
        (["--fit", "none.csv"], "no such file"),
        (["--fit", "none"], "comes with the package: cpu"),
        (["--iteration", "0ms"], "--iteration 0ms: must be positive"),
        (["--iteration", "-3s"], "--iteration"),
        (["--iteration", "soon"], "--iteration soon: is no duration; write one such as 230ms, 90s"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, model: str) -> None:
    named = [model] if words else []
    result = CliRunner().invoke(app, ["predict", "resources", *named, *words])
    assert result.exit_code in {1, 2}
    assert told in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["cpu", "measured_cpu"])
def test_a_campaign_of_the_package_is_found_by_name_and_shows_its_own_type(name: str, model: str) -> None:
    devices = _run(model, "-b", 64, "--fit", name)["devices"]
    assert isinstance(devices, list)
    assert [one["device_type"] for one in devices] == ["AMD EPYC x1"]
    for target in ("gpu_util", "mem_mib", "iteration_s"):
        assert devices[0][target]["low"] < devices[0][target]["high"]


def test_a_fit_of_a_cpu_core_says_nothing_of_gpus(model: str) -> None:
    words = ["predict", "resources", model, "-b", "64", "--device", "K80", "--json"]
    result = CliRunner().invoke(app, [*words, "--fit", "cpu"])
    assert result.exit_code == 0, result.output
    assert "from rates alone: K80" in result.stderr
    assert json.loads(result.stdout)["devices"] == _run(model, "-b", 64, "--device", "K80")["devices"]


def test_types_that_the_fit_has_not_seen_are_named(model: str, table: Path) -> None:
    words = ["predict", "resources", model, "--device", "T4", "--fit", str(table)]
    assert "not measured, so with wider intervals: T4" in CliRunner().invoke(app, words).stderr


def test_two_families_fit_the_roofline_alone_and_it_is_said(table: Path, tmp_path: Path) -> None:
    runs = [run for run in read_solo_runs(table) if run.job.model in {"AlexNet", "VGG-16"}]
    by_model = {run.job.model: run for run in runs}
    few = tmp_path / "few.csv"
    write_solo_runs(few, list(by_model.values()))
    result = CliRunner().invoke(app, ["predict", "resources", "--fit", str(few)])
    assert result.exit_code == 0, result.output
    assert "needs at least 4 families of models, found 2" in " ".join(result.stderr.split())


def test_who_gave_the_iteration_is_not_told_to_give_it(model: str) -> None:
    words = ["predict", "resources", model, "--device", "T4"]
    assert "--iteration" in CliRunner().invoke(app, words).stdout
    assert "--iteration" not in CliRunner().invoke(app, [*words, "--iteration", "30ms"]).stdout
