"""The included jobs: each trains, the same seed does the same, and each reports its steps."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.profiles.jobs.included import INCLUDED, JobOptions, build_step, find_included
from cotenant.profiles.jobs.steps import StepReader
from cotenant.runtime import StatusFile
from cotenant.runtime.statusfile import ORDER_SUSPEND, STATE_SAVED


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
        (optimiser,) = step.optimisers  # type: ignore[attr-defined]
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
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = StepReader(steps).read()
    assert len(found) == 5
    # The store answers after 20 ms, which is not computing.
    assert found[-1].end_ns - found[0].end_ns >= 4 * 20_000_000
    assert found[-1].cpu_ns is not None
    assert found[0].cpu_ns is not None
    wrong = subprocess.run([*words, "inputs"], capture_output=True, text=True, timeout=600, check=False)
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


def _program(folder: Path, *words: str) -> tuple[subprocess.Popen[str], StatusFile]:
    """An included job under a status file, with a place for its state."""
    status = StatusFile(folder / "status")
    process = subprocess.Popen(
        [sys.executable, "-m", "cotenant.profiles.jobs", *words],
        env={
            **os.environ,
            "COTENANT_STATUS": str(folder / "status"),
            "COTENANT_STATE": str(folder / "state"),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, status


def _finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def test_suspended_as_a_program_it_ends_with_the_same_loss(tmp_path: Path) -> None:
    asked = ["input", "--batch", "2", "--steps", "400"]
    (tmp_path / "whole").mkdir()
    code, whole, err = _finish(_program(tmp_path / "whole", *asked)[0])
    assert (code, err) == (0, "")
    assert whole.startswith("final loss ")
    assert whole.endswith(" after 400 steps\n")
    process, status = _program(tmp_path, *asked)
    while status.read().steps < 3 and process.poll() is None:
        time.sleep(0.002)
    status.give_order(ORDER_SUSPEND)
    code, out, err = _finish(process)
    assert (code, out, err) == (85, "", "")
    done = status.read()
    assert 3 <= done.steps < 400
    assert done.state_step == done.steps
    assert done.flags & STATE_SAVED
    status.give_order(0)
    code, out, err = _finish(_program(tmp_path, *asked)[0])
    assert (code, out, err) == (0, whole, "")
    assert status.read().steps == 400


@pytest.mark.parametrize("name", sorted(INCLUDED))
def test_each_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    from cotenant import runtime

    def train(steps: int, state: Path | None, stop: int = 0) -> list[float]:
        step: Any = build_step(name, _options(name))
        run = runtime.attach(step.model, step.optimisers, data=step.batches, total_steps=steps, state=state)
        losses = []
        while not run.finished and run.done != stop - 1:
            losses.append(step())
            run.step()
        if stop:
            losses.append(step())
            run.done += 1
            assert run.save()
        return losses

    whole = train(6, None)
    assert train(6, tmp_path, stop=3) + train(6, tmp_path) == whole
