"""The training of cases C49, C50 and C53: a small model on numbered samples with noise; notes what each step read.

Each process appends to files in the folder ``notes``: the numbers and the noise of a worker's batch at a step, and after
each step the number of processes, the learning rate, the loss and a digest of the parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cotenant import elastic


class Numbered(torch.utils.data.Dataset[Any]):
    """Sample i is i, with noise from all three generators."""

    def __init__(self, size: int) -> None:
        self.x = torch.randn(size, 6, generator=torch.Generator().manual_seed(2))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(1) + random.random() + float(np.random.rand())
        return index, noise, self.x[index] + 0.1 * noise, int(self.x[index].sum() > 0)


def main(options: dict[str, Any]) -> None:
    notes = Path(options["notes"])
    warnings.filterwarnings(
        "ignore", "This DataLoader will create 4 worker processes"
    )  # more than cores: meant
    if "instructions" in options:  # as if on another kind of device
        torch.backends.cpu.get_cpu_capability = lambda: options["instructions"]
    if "errors" in options:
        sys.stderr = Path(options["errors"]).open("w", buffering=1)  # noqa: SIM115 - until the process ends
    run = elastic.Run(
        workers=options["workers"],
        seed=1,
        state=options.get("state"),
        least=options.get("least", "statistical"),
    )
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    data = Numbered(options["samples"])
    model, loader = run.prepare(model, data, options["batch"], num_workers=options.get("loaders", 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    run.keep(optimizer, scheduler)
    for step in run.steps(loader, epochs=1):
        wait(options.get("holds", {}).get(str(step.number)))
        for numbers, noise, x, y in step:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            step.note(loss=loss.item())
            write(notes / f"read-{os.getpid()}", step.number, numbers.tolist(), noise.flatten().tolist())
        optimizer.step()
        optimizer.zero_grad()
        digest = hashlib.sha256(
            b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        ).hexdigest()
        rate = scheduler.get_last_lr()[0]
        write(notes / f"done-{os.getpid()}", step.number, run.processes, rate, step.mean("loss"), digest)
        scheduler.step()
        if step.number + 1 == options.get("suspend"):
            os.kill(os.getpid(), signal.SIGTERM)
    Path(notes, f"grade-{os.getpid()}").write_text(str(run.grade))


def write(path: Path, *values: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


def wait(path: str | None) -> None:
    """Until this file is there."""
    deadline = time.monotonic() + 200.0
    while path is not None and not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
