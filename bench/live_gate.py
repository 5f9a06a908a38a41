"""What the runtime costs a training step, and whether a ceiling is kept.

::

    python -m bench.live_gate --seconds 20

Overhead at 100%: steps of an included job with the runtime attached (status file, order word, step gate open) and
without take turns in blocks in one process; the ratio is that of medians of CPU time a step, so that neighbours of
this machine count for little. Beside it the runtime's own calls are timed alone, which is the finer number. The budget
is 1.015% (GaiaGPU's figure for a full quota). Ceilings: the busy share of wall-clock time at 25, 50, 75%.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant import runtime
from cotenant.profiles.jobs.included import JobOptions, build_step

__all__ = ["main"]

BUDGET_PERCENT = 1.015


def _attached(folder: Path, step: Any, limit_milli: int) -> tuple[runtime.Run, runtime.StatusFile]:
    path = folder / f"status-{limit_milli}"
    status = runtime.StatusFile(path)
    status.reshare(limit_milli, limit_milli)
    os.environ["COTENANT_STATUS"] = str(path)
    run = runtime.attach(step.model, step.optimisers, data=step.batches, state=folder / "state")
    del os.environ["COTENANT_STATUS"]
    return run, status


def overhead(job: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Blocks with and without, in turn; then the calls alone."""
    step: Any = build_step(job, JobOptions(batch=2))
    run, _ = _attached(folder, step, 1000)
    for _ in range(20):
        step()
    times: dict[bool, list[float]] = {False: [], True: []}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for attached in (False, True):
            for _ in range(10):
                began = time.process_time_ns()
                step()
                if attached:
                    run.step()
                times[attached].append((time.process_time_ns() - began) / 1e3)
    without, with_ = (statistics.median(times[key]) for key in (False, True))
    calls = []
    for _ in range(200):
        began = time.process_time_ns()
        for _ in range(100):
            run.step()
        calls.append((time.process_time_ns() - began) / 1e5)
    call = statistics.median(calls)
    return {
        "job": job,
        "steps": len(times[True]),
        "step_us": round(without, 1),
        "with_runtime_us": round(with_, 1),
        "difference_percent": round(100 * (with_ / without - 1), 3),
        "call_us": round(call, 2),
        "call_percent_of_step": round(100 * call / without, 4),
    }


def share(job: str, limit_milli: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Busy share of wall-clock time under a ceiling."""
    step: Any = build_step(job, JobOptions(batch=2))
    for _ in range(5):
        step()
    run, status = _attached(folder, step, limit_milli)
    began = time.monotonic_ns()
    while time.monotonic_ns() - began < seconds * 1e9:
        step()
        run.step()
    wall = time.monotonic_ns() - began
    now = status.read()
    return {
        "job": job,
        "limit_milli": limit_milli,
        "busy_milli": round(1000 * now.busy_ns / wall),
        "steps": now.steps,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, a line of JSON each."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_gate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement of overhead")
    given = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        for job in ("convolution", "recurrent", "input"):
            print(json.dumps(overhead(job, given.seconds, Path(name)) | {"budget_percent": BUDGET_PERCENT}))
        for limit in (250, 500, 750):
            print(json.dumps(share("convolution", limit, given.seconds / 2, Path(name))))


if __name__ == "__main__":
    main()
