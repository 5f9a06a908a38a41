"""The included jobs: each trains, the same seed does the same, and each reports its steps."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.profiles.jobs.included import INCLUDED, JobOptions, build_step, find_included
from cotenant.profiles.jobs.steps import StepReader


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    pytest.importorskip("torch").set_num_threads(1)


def _options(name: str, **changes: object) -> JobOptions:
    batch = 64 if name == "embedding" else 2
    return JobOptions(**{"batch": batch, "seed": 3, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(INCLUDED))
def test_each_trains_and_the_same_seed_gives_the_same_losses(name: str) -> None:
    losses = []
    for seed in (3, 3, 4):
        step = build_step(name, _options(name, seed=seed))
        losses.append([step() for _ in range(3)])
    assert all(math.isfinite(loss) for run in losses for loss in run)
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert losses[0][0] != losses[0][1]


def test_the_loss_of_a_repeated_batch_falls() -> None:
    step = build_step("attention", _options("attention"))
    losses = [step() for _ in range(40)]  # four batches in turn
    assert sum(losses[-4:]) < sum(losses[:4])


def test_mixed_precision_gives_another_but_close_loss() -> None:
    whole = build_step("convolution", _options("convolution"))()
    mixed = build_step("convolution", _options("convolution", amp=True))()
    assert whole != mixed
    assert mixed == pytest.approx(whole, rel=0.05)


def test_a_wider_job_is_larger() -> None:
    import torch

    def parameters(scale: int) -> int:
        step = build_step("memory", _options("memory", scale=scale))
        (optimiser,) = next(
            cell.cell_contents for cell in step.__closure__ or () if isinstance(cell.cell_contents, list)
        )
        assert isinstance(optimiser, torch.optim.Adam)
        return sum(p.numel() for group in optimiser.param_groups for p in group["params"])

    assert parameters(1) == 3 * (1024 * 1024 + 1024)
    assert parameters(2) == 3 * (2048 * 2048 + 2048)


def test_what_cannot_be_built() -> None:
    with pytest.raises(UnknownNameError, match='did you mean "recurrent"'):
        find_included("recurent")
    with pytest.raises(ConfigError, match="batch 0"):
        build_step("memory", JobOptions(batch=0))
    with pytest.raises(ConfigError, match="cpu or cuda"):
        build_step("memory", JobOptions(batch=1, device="tpu"))


def test_as_a_program_it_reports_every_step(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    words = [sys.executable, "-m", "cotenant.profiles.jobs"]
    done = subprocess.run(
        [*words, "input", "--batch", "2", "--steps", "5", "--wait-ms", "20"],
        env={**os.environ, "COTENANT_STEPS": str(steps), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = StepReader(steps).read()
    assert len(found) == 5
    # The store answers after 20 ms, which is not computing.
    assert found[-1].end_ns - found[0].end_ns >= 4 * 20_000_000
    assert found[-1].cpu_ns is not None
    assert found[0].cpu_ns is not None
    wrong = subprocess.run([*words, "inputs"], capture_output=True, text=True, timeout=120, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith('error: no included job "inputs"; did you mean "input"?')


@pytest.mark.parametrize(
    "network", ["ResNet-18@CIFAR-10", "LM-PTB-small@PTB", "NeuMF@MovieLens", "VAE@MNIST"]
)
def test_a_network_of_the_zoo_trains_under_its_name_in_the_tables(network: str) -> None:
    job = find_included(f"zoo:{network}")
    assert f"{job.name}@{job.dataset}" == network
    step = build_step(f"zoo:{network}", JobOptions(batch=2, seed=1))
    losses = [step() for _ in range(3)]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[0] != losses[1]


def test_a_network_that_the_zoo_has_not() -> None:
    with pytest.raises(
        UnknownNameError, match='no network "ResNet-51@ImageNet"; did you mean "ResNet-50@ImageNet"'
    ):
        find_included("zoo:ResNet-51@ImageNet")
    with pytest.raises(ConfigError, match="have one size"):
        build_step("zoo:VAE@MNIST", JobOptions(batch=2, scale=2))
