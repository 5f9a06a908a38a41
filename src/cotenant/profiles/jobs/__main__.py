"""Run one included job: ``python -m cotenant.profiles.jobs convolution --batch 16``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

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
    except CotenantError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    import torch

    torch.set_num_threads(asked.threads)
    report = step_hook()
    done = 0
    while not asked.steps or done < asked.steps:
        step()
        report()
        done += 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
