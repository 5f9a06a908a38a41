"""A small elastic training to try: the same parameters, bit for bit, on any number of processes.

``python -m cotenant.elastic.example --steps 200``, or on several processes
``cotenant run --elastic 1:3 --control wanted -- python -m cotenant.elastic.example --steps 200``.
The last line is a digest of the parameters: compare it between runs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant.errors import MissingExtraError

__all__ = ["main", "train"]

_BATCH, _WORKERS, _MOST = 8, 6, 6


def train(steps: int, *, state: Path | None = None, pace_s: float = 0.0) -> str:
    """Train a small classifier with dropout and batch normalisation on six logical workers.

    Parameters
    ----------
    steps : int
    state : path, optional
        Folder of checkpoints: a run that was stopped goes on from there.
    pace_s : float
        Least time of a step, in seconds: to have time to watch.

    Returns
    -------
    str
        SHA-256 of the parameters after the last step; empty on all processes but one.

    Raises
    ------
    MissingExtraError
        Without PyTorch.
    """
    try:
        import torch
        from torch import nn
        from torch.utils.data import TensorDataset
    except ImportError:
        raise MissingExtraError("elastic training", "torch") from None
    from cotenant import elastic

    run = elastic.Run(workers=_WORKERS, max_processes=_MOST, seed=0, state=state)
    x = torch.randn(steps * _BATCH * _WORKERS, 16)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    model: Any = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, loader = run.prepare(model, data, batch_size=_BATCH)
    run.keep(optimizer=optimizer)
    for step in run.steps(loader, epochs=1):
        began = time.monotonic()
        for inputs, labels in step:
            nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(max(0.0, pace_s - (time.monotonic() - began)))
    if not run.first:
        return ""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def main(words: Sequence[str] | None = None) -> int:
    """Train, and print the digest on the first process."""
    parser = argparse.ArgumentParser(prog="python -m cotenant.elastic.example", description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--state", type=Path, help="folder of checkpoints")
    parser.add_argument("--pace", type=float, default=0.0, help="least seconds of a step")
    asked = parser.parse_args(words)
    if asked.steps < 1:
        parser.error(f"--steps {asked.steps}: at least 1")
    digest = train(asked.steps, state=asked.state, pace_s=asked.pace)
    if digest:
        sys.stdout.write(f"{asked.steps} steps, parameters {digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
