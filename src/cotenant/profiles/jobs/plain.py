"""A training job that needs only NumPy: a dense network on made-up data, and perhaps a store that answers late.

``python -m cotenant.profiles.jobs.plain --steps 200`` keeps a core busy; with ``--wait-ms 8`` each batch comes
8 ms late, whoever computes meanwhile, as from a remote store: such a job and a busy one suit each other.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from cotenant.profiles.jobs.steps import step_hook

__all__ = ["main", "train"]

_INPUTS, _HIDDEN, _CLASSES = 256, 384, 10
_BUSY_BATCH, _LATE_BATCH = 1024, 64
_RATE = 0.05


def train(steps: int, wait_ms: float, seed: int) -> float:
    """Train so many steps (0: for ever); returns the last loss."""
    random = np.random.default_rng(seed)
    teacher = random.normal(size=(_INPUTS, _CLASSES)).astype(np.float32)
    first = random.normal(0.0, _INPUTS**-0.5, (_INPUTS, _HIDDEN)).astype(np.float32)
    second = random.normal(0.0, _HIDDEN**-0.5, (_HIDDEN, _CLASSES)).astype(np.float32)
    batch = _LATE_BATCH if wait_ms else _BUSY_BATCH
    report, loss, done = step_hook(), float("nan"), 0
    while not steps or done < steps:
        if wait_ms:
            time.sleep(wait_ms / 1000.0)
        inputs = random.normal(size=(batch, _INPUTS)).astype(np.float32)
        labels = np.argmax(inputs @ teacher, axis=1)
        hidden = np.maximum(inputs @ first, 0.0)
        scores = hidden @ second
        scores -= scores.max(axis=1, keepdims=True)
        parts = np.exp(scores)
        parts /= parts.sum(axis=1, keepdims=True)
        rows = np.arange(batch)
        loss = float(-np.log(parts[rows, labels] + 1e-9).mean())
        parts[rows, labels] -= 1.0
        back = (parts @ second.T) * (hidden > 0.0)
        second -= _RATE / batch * (hidden.T @ parts)
        first -= _RATE / batch * (inputs.T @ back)
        done += 1
        report()
    return loss


def main(argv: Sequence[str] | None = None) -> int:
    """Train; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cotenant.profiles.jobs.plain", description=__doc__)
    parser.add_argument("--steps", type=int, default=0, help="end after so many steps (default: never)")
    parser.add_argument("--wait-ms", type=float, default=0.0, help="how late each batch comes")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    loss = train(asked.steps, asked.wait_ms, asked.seed)
    print(f"final loss {loss:.4f} after {asked.steps} steps")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
