"""Run one included job: ``python -m cotenant.profiles.jobs convolution --batch 16``.

With ``--steps`` it prints the loss of the last step, bit by bit in hexadecimal, too. The runtime is attached: under
cotenant the job tells how far it is, and a job that was suspended ends with the bits of one that was not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from cotenant import runtime
from cotenant.errors import CotenantError
from cotenant.profiles.jobs.included import INCLUDED, JobOptions, build_step, find_included
from cotenant.profiles.jobs.steps import step_hook


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cotenant.profiles.jobs",
        description="Train one of the included networks until stopped, or for a number of steps.",
        epilog="; ".join(f"{job.name}: {job.summary}" for job in INCLUDED.values()),
    )
    parser.add_argument("name", help="which job")
    parser.add_argument("--batch", type=int, default=None, help="batch size")
    parser.add_argument("--scale", type=int, default=1, help="multiplies the widths of layers")
    parser.add_argument("--steps", type=int, default=0, help="end after so many steps (default: never)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--every-s", type=float, default=0.0, help="save state this often, if there is a place"
    )
    parser.add_argument("--amp", action="store_true", help="mixed precision (bfloat16)")
    parser.add_argument("--wait-ms", type=float, default=0.0, help="input: extra time its store takes")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of PyTorch")
    device = os.environ.get("COTENANT_TORCH_DEVICE", "cpu")
    parser.add_argument("--device", default=device, help="cpu or cuda")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Train; returns the exit code."""
    asked = _parser().parse_args(argv)
    try:
        job = find_included(asked.name)
        options = JobOptions(
            batch=job.batch if asked.batch is None else asked.batch,
            scale=asked.scale,
            device=asked.device,
            amp=asked.amp,
            seed=asked.seed,
            wait_ms=asked.wait_ms,
        )
        step = build_step(asked.name, options)
        torch_threads(asked.threads)
        loss = train(step, asked.steps, asked.every_s)
    except CotenantError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    if asked.steps:
        print(f"final loss {loss!r} ({float(loss).hex()}) after {asked.steps} steps")  # noqa: T201
    return 0


def train(step: Any, steps: int, every_s: float) -> float:
    """Train so many steps in all (0: for ever), earlier lives of the job included; returns the last loss."""
    loss = _Last()
    run = runtime.attach(
        step.model,
        step.optimisers,
        data=step.batches,
        extra={"loss": loss},
        total_steps=steps,
        every_s=every_s,
    )
    report = step_hook()
    while not run.finished:
        loss.value = step()
        report()
        run.step()
    return loss.value


def torch_threads(count: int) -> None:
    """CPU threads that PyTorch may use."""
    import torch

    torch.set_num_threads(count)


class _Last:
    """The loss of the last step; saved, so that a job that had nothing left to do can still tell it."""

    value = float("nan")

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = state["value"]


if __name__ == "__main__":
    sys.exit(run())
