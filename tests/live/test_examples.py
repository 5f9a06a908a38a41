"""The job files and scripts in ``examples`` are what the guide says: valid, and they run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.app.livesubmit import bodies_of
from cotenant.model.quantities import MIB
from cotenant.runs.jobfile import job_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _jobs(name: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    monkeypatch.chdir(EXAMPLES.parent)
    return bodies_of([str(EXAMPLES / name)], {})


def test_the_training_job_asks_for_a_part_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    (body,) = _jobs("train.toml", monkeypatch)
    asked, job = job_of(body)
    assert (job.name, job.gpus, job.compute_milli, job.memory_bytes) == ("train", 1, 400, 600 * MIB)
    assert body["cwd"] == str(EXAMPLES)
    assert asked.suspend == "runtime"


def test_the_sweep_is_six_jobs_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = _jobs("sweep.toml", monkeypatch)
    assert [body["name"] for body in bodies] == [
        f"lr{lr}-seed{seed}" for lr in (0.1, 0.01, 0.001) for seed in (1, 2)
    ]
    assert bodies[3]["command"][1:] == ["train.py", "--steps", "3000", "--lr", "0.01", "--seed", "2"]  # type: ignore[index]


def test_the_dependent_job_needs_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    (body,) = _jobs("evaluate.toml", monkeypatch)
    _, job = job_of(body)
    assert (job.gpus, job.cpu_milli) == (0, 1000)


def test_the_scripts_train_and_evaluate(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example trains with PyTorch")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [name for name in env if name.startswith("COTENANT_")]:
        del env[name]

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=EXAMPLES,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    model = str(tmp_path / "model.pt")
    told = run("train.py", "--steps", "300", "--save", model)
    assert told.startswith("300 steps, loss 0.")
    # A hidden linear map is learnt by then; guessing gives 0.1.
    assert float(run("evaluate.py", model).removeprefix("accuracy ")) > 0.9
