"""A real job that saves after every step and is killed without warning; and objects of other kinds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cotenant import runtime
from cotenant.profiles.jobs.included import JobOptions, build_step
from cotenant.runtime import StatusFile
from cotenant.runtime.statefiles import list_states, verify


def test_killed_while_saving_it_goes_on_from_a_whole_state_to_the_same_loss(memory_path: Path) -> None:
    step = build_step("input", JobOptions(batch=2))
    whole = [step() for _ in range(250)][-1]
    status = StatusFile(memory_path / "status")
    env = {
        **os.environ,
        "COTENANT_STATUS": str(memory_path / "status"),
        "COTENANT_STATE": str(memory_path / "state"),
        "OMP_NUM_THREADS": "1",
    }
    words = [sys.executable, "-m", "cotenant.profiles.jobs", "input", "--batch", "2", "--steps", "250"]
    job = subprocess.Popen([*words, "--every-s", "1e-6", "--wait-ms", "50"], env=env)
    while status.read().steps < 20 and job.poll() is None:
        time.sleep(0.001)
    job.send_signal(signal.SIGKILL)
    assert job.wait(60) == -signal.SIGKILL
    states = list_states(memory_path / "state")
    # One, or two if it died between the new one and deleting the old one: each is whole.
    assert 1 <= len(states) <= 2
    for state in states:
        verify(state)
    assert 19 <= states[0].step <= status.read().steps < 250
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == f"final loss {whole!r} ({whole.hex()}) after 250 steps\n"
    assert [path.name[:4] for path in (memory_path / "state").iterdir()].count("tmp-") <= 1


def _adversaries(state: Path | None, steps: int, total: int, seed: int = 0) -> tuple[list[Any], runtime.Run]:
    """Two networks with an optimiser each, a scaler, averaged weights, and a generator of NumPy."""
    torch.manual_seed(seed)
    networks = {"generator": nn.Linear(4, 4), "critic": nn.Linear(4, 1)}
    optimizers = [torch.optim.Adam(network.parameters(), lr=0.01) for network in networks.values()]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    mean = torch.optim.swa_utils.AveragedModel(networks["generator"])
    noise = np.random.default_rng(seed)
    run = runtime.attach(
        networks,
        optimizers,
        scaler=scaler,
        extra={"mean": mean, "noise": noise},
        total_steps=total,
        state=state,
    )
    while run.done < steps:
        made = networks["generator"](torch.from_numpy(noise.standard_normal((3, 4), dtype=np.float32)))
        scaler.scale(networks["critic"](made + 0.1 * torch.randn(3, 4)).square().mean()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        mean.update_parameters(networks["generator"])
        run.step()
    if steps < total:
        assert run.save()
    tensors = [t for one in (*networks.values(), mean) for t in one.state_dict().values()]
    return [t.detach().clone() for t in tensors] + [scaler.get_scale(), noise.integers(1 << 60)], run


@pytest.mark.parametrize("stop", [1, 4])
def test_several_networks_a_scaler_averages_and_generators(stop: int, tmp_path: Path) -> None:
    whole, _ = _adversaries(None, 10, 10)
    assert whole[-2] == 64.0  # grew three times in ten steps
    _adversaries(tmp_path, stop, 10)
    again, run = _adversaries(tmp_path, 10, 10, seed=5)
    assert run.resumed
    for one, other in zip(whole, again, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
