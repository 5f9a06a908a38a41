"""Files that forecasts are read from are inputs of a run: hashed, found again, and refused if changed."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.predictors.interference.modelfile import save_predictor
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun
from cotenant.runs.result import Result

Run = Callable[..., subprocess.CompletedProcess[str]]

SPEEDS = {"ResNet-50": 0.5, "LM": 0.9, "CycleGAN": 0.6, "Transformer": 0.8}
JOBS = [JobConfig(model=name, family=name, batch=16) for name in SPEEDS]
SIMULATE = ("simulate", "jobs.csv", "-p", "colocate", "--gpus", "2", "--gpu-type", "V100")


@pytest.fixture
def fit_json(tmp_path: Path) -> Path:
    """A small fitted predictor, beside a trace of jobs whose models it knows."""
    runs: list[CoRun] = []
    for i, one in enumerate(JOBS):
        for two in JOBS[i:]:
            sides = tuple(CoSide(job=job, speed=SPEEDS[job.model]) for job in (one, two))
            runs.append(CoRun(row_id=f"r{len(runs)}", source="made", device_type="V100", sides=sides))
    solos = [SoloRun(source="made", device_type="V100", job=job, gpu_util=50.0) for job in JOBS]
    save_predictor(AdaptiveInterferencePredictor(zoo=("additive",)).fit(runs, solos), tmp_path / "fit.json")
    lines = [f"j{i},{i},{100 + i},1,{JOBS[i % 4].label}" for i in range(8)]
    (tmp_path / "jobs.csv").write_text("\n".join(["name,submit_s,duration_s,gpus,model", *lines]) + "\n")
    return tmp_path / "fit.json"


def inputs(folder: Path) -> dict[str, tuple[str, str]]:
    found = json.loads((folder / "manifest.json").read_text())["inputs"]
    return {item["role"]: (item["path"], item["sha256"]) for item in found}


def test_a_fitted_predictor_is_an_input_that_replay_finds_and_checks(inside: Run, fit_json: Path) -> None:
    done = inside(*SIMULATE, "--forecast", "adaptive:fit.json")
    assert done.returncode == 0, done.stderr
    out = fit_json.parent / "out"
    sha256 = hashlib.sha256(fit_json.read_bytes()).hexdigest()
    assert inputs(out)["forecast"] == ("fit.json", sha256)
    header = json.loads((out / "runs" / "colocate" / "seed-0" / "events.jsonl").read_text().split("\n")[0])
    assert (header["forecast"]["kind"], header["forecast"]["source"]) == ("adaptive", "fit.json")
    again = inside("replay", "out")
    assert (again.returncode, again.stdout) == (0, "colocate seed 0: identical\n")

    # Beside the manifest it is found, too.
    kept = fit_json.rename(out / "fit.json")
    assert inside("replay", "out").stdout == "colocate seed 0: identical\n"
    kept.rename(fit_json)

    fit_json.write_text(fit_json.read_text() + "\n")
    refused = inside("replay", "out")
    assert refused.returncode == 1
    assert "fit.json: the forecast changed since the run" in refused.stderr
    fit_json.unlink()
    gone = inside("replay", "out")
    assert gone.returncode == 1
    assert "the forecast fit.json is not there" in gone.stderr


@pytest.mark.parametrize(
    ("role", "base"),
    [
        ("forecast", "cotenant.predictors.contention:ContentionForecast"),
        ("runtime", "cotenant.predictors.recent:RecentRuntime"),
    ],
)
def test_a_forecast_of_ones_own_is_an_input_by_its_file(
    inside: Run, fit_json: Path, role: str, base: str
) -> None:
    module, name = base.split(":")
    own = fit_json.parent / "own.py"
    own.write_text(f"from {module} import {name}\n\n\nclass Own({name}):\n    pass\n")
    done = inside(*SIMULATE, f"--{role}", "own.py:Own")
    assert done.returncode == 0, done.stderr
    out = fit_json.parent / "out"
    assert inputs(out)[role] == ("own.py", hashlib.sha256(own.read_bytes()).hexdigest())
    kept = own.rename(out / "own.py")
    assert inside("replay", "out").stdout == "colocate seed 0: identical\n"
    kept.write_text(kept.read_text() + "\n")
    refused = inside("replay", "out")
    assert refused.returncode == 1
    assert f"own.py: the {role} changed since the run" in refused.stderr


def test_a_forecast_by_name_alone_is_no_file(inside: Run, fit_json: Path) -> None:
    assert inside(*SIMULATE, "--forecast", "lookup").returncode == 0
    assert set(inputs(fit_json.parent / "out")) == {"trace"}


def test_types_that_nobody_measured_are_warned_of_in_the_terminal_the_report_and_python(
    inside: Run, fit_json: Path
) -> None:
    out = fit_json.parent / "out"
    known = inside(*SIMULATE, "--forecast", "adaptive:fit.json")
    assert known.returncode == 0 and "warning" not in known.stderr
    assert json.loads((out / "manifest.json").read_text())["warnings"] == []

    here = ("simulate", "jobs.csv", "-p", "colocate", "--gpus", "2", "--gpu-type", "H100")
    done = inside(*here, "--forecast", "adaptive:fit.json", "--json")
    assert done.returncode == 0
    said = "forecast adaptive (fit.json): no co-run was measured on H100"
    assert f"warning: {said}" in done.stderr
    (line,) = json.loads(done.stdout)["warnings"]
    assert line.startswith(said)
    assert Result.open(out, policy="colocate", seed=0).warnings == [line]
    assert inside("report", "out").returncode == 0
    assert f'<p class="warn">{line}.</p>' in (out / "report.html").read_text(encoding="utf-8")
    # A forecast that has no such doubt warns of nothing.
    assert "warning" not in inside(*here, "--forecast", "lookup").stderr


def test_a_table_that_says_nothing_of_the_clusters_devices_is_told(inside: Run, fit_json: Path) -> None:
    pairs = [f"{{}},{one.label},{two.label},0.6,0.7" for i, one in enumerate(JOBS) for two in JOBS[i:]]
    for kind, told in (("V100", False), ("Some CPU x1", True)):
        lines = ["device_type,a,b,a_speed,b_speed", *(pair.format(kind) for pair in pairs)]
        (fit_json.parent / "pairs.csv").write_text("\n".join(lines) + "\n")
        done = inside(*SIMULATE, "--profiles", "pairs.csv", "--forecast", "lookup", "--json", "--force")
        assert done.returncode == 0, done.stderr
        warnings = json.loads(done.stdout)["warnings"]
        assert any("no pair was measured on V100 (known: Some CPU x1)" in one for one in warnings) == told
