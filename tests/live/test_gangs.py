"""Gangs with a process for each device: real data-parallel training through the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import DEVICES, Scheduler, until

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(len(DEVICES) < 2, reason="needs two cores")

TRAINING = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) == (int(os.environ["LOCAL_RANK"]), 2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
step = 0
while step < int(sys.argv[1]):
    loss = model(torch.randn(8, 4)).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    step += 1
    if step == 3:
        with open(f"rank{rank}", "w") as file:
            file.write(str(os.getpid()))
    if int(sys.argv[1]) > 100:
        time.sleep(0.05)
total = sum(p.double().sum() for p in model.parameters())
print(f"rank {rank} of {size}: {total.item()!r}", flush=True)
# The group is left by all together: one that is gone early can abort the other in gloo.
dist.barrier()
dist.destroy_process_group()
# Without the rest of Python's own end: a thread of gloo may only then let go of the last tensors, and one that asks for
# the interpreter by that time aborts the process (seen on a busy machine: "terminate called without an active exception").
os._exit(0)
"""


def submitted(scheduler: Scheduler, folder: Path, steps: int) -> int:
    """By the command line; returns the number."""
    folder.mkdir()
    words = [
        "submit",
        "--gpus",
        "2",
        "--processes",
        "per-device",
        "--cwd",
        str(folder),
        "--name",
        f"ddp{steps}",
    ]
    command = [
        sys.executable,
        "-m",
        "cotenant",
        *words,
        "--state",
        str(scheduler.state),
        "--",
        sys.executable,
    ]
    done = subprocess.run(
        [*command, "-c", TRAINING, str(steps)], capture_output=True, text=True, timeout=180, check=True
    )
    assert "accepted" in done.stdout
    return int(done.stdout.split()[1])


def test_two_ranks_train_together_and_fall_together(scheduler: Scheduler, tmp_path: Path) -> None:
    first = submitted(scheduler, tmp_path / "first", 20)
    ended = scheduler.await_status(first, "done", "failed")
    assert ended["status"] == "done", scheduler.logs(first) + scheduler.logs(first, "stderr")
    lines = sorted(line for line in scheduler.logs(first).splitlines() if line.startswith("rank"))
    assert [line.partition(":")[0] for line in lines] == ["rank 0 of 2", "rank 1 of 2"]
    # Their gradients were averaged at each step, or their parameters would differ.
    assert len({line.partition(":")[2] for line in lines}) == 1
    second, folder = submitted(scheduler, tmp_path / "second", 10_000), tmp_path / "second"
    files = [folder / "rank0", folder / "rank1"]
    until(lambda: all(f.exists() and f.read_text() for f in files), scheduler.said)
    pids = [int(f.read_text()) for f in files]
    os.kill(pids[1], signal.SIGKILL)
    ended = scheduler.await_status(second, "failed")
    assert "signal 9" in ended["reason"] or ended["exit_code"] == -9
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"suspend": "runtime"}, "saves the state of one process"),
        ({"elastic": {"min_gpus": 1, "max_gpus": 2}}, "cannot be elastic"),
    ],
)
def test_what_a_gang_of_processes_cannot_do_is_refused(field: dict[str, Any], words: str) -> None:
    from cotenant.errors import ConfigError
    from cotenant.runs.jobfile import job_of

    with pytest.raises(ConfigError, match=words):
        job_of({"name": "a", "command": ["true"], "gpus": 2, "processes": "per-device", **field})


def test_a_gang_of_processes_goes_on_from_a_checkpoint_of_its_own() -> None:
    from cotenant.runs.jobfile import job_of

    asked, job = job_of({"name": "a", "command": ["true"], "gpus": 2, "processes": "per-device"})
    assert (asked.suspend, asked.processes, job.suspendable) == ("restart", "per-device", True)
