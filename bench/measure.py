"""What all benchmarks share: the calibration loop, facts of the machine, files of results.

Nothing heavy is imported here: the process that starts the cells must stay small, because on
Linux a child's peak of resident memory is never less than its parent's at the fork.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["ONE_THREAD", "append", "calibrate", "machine", "peak_bytes", "read", "run_cell"]

Row = dict[str, Any]

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
ONE_THREAD = dict.fromkeys(_POOLS, "1")
ROOT = Path(__file__).resolve().parent.parent


class _Thing:
    __slots__ = ("left", "name")

    def __init__(self, name: int) -> None:
        self.name, self.left = name, 0.0


def calibrate(rounds: int = 3) -> float:
    """CPU seconds of a fixed loop in plain Python, the best of a few: how fast the machine is just now.

    It does what a simulator does: small objects, a dictionary, a list as a ring, floats and
    integer masks. Take numbers of two runs as comparable only as far as this one agrees.
    """
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        things: dict[int, _Thing] = {}
        ring, mask, total = [0.0] * 256, 0, 0.0
        for i in range(120_000):
            thing = things[i] = _Thing(i)
            mask = (mask << 1 | i & 1) & 0xFFFF_FFFF
            ring[i & 255] = thing.left = total + (mask & -mask).bit_length() * 0.5
            total += ring[(i * 7) & 255]
            if i >= 1024:
                del things[i - 1024]
            if total > 1e9:
                total = 0.0
        best = min(best, time.process_time() - begun)
    return best


def peak_bytes() -> int:
    """Most resident memory that this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> Row:
    """Facts about the machine that belong beside a number."""
    return {
        "cpus": os.cpu_count() or 0,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "architecture": platform.machine(),
    }


def read(path: Path) -> list[Row]:
    """Rows of a file of results; none if it is not there. A torn last line is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and line.strip()]


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        data = path.read_bytes()
        if not data.endswith(b"\n"):  # the writer of the last line was ended in the middle of it
            path.write_bytes(data[: data.rfind(b"\n") + 1])
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def run_cell(spec: Row, budget_s: float | None = None) -> Row:
    """Run one cell in a process of its own and return its row.

    ``status`` is ``ok``, ``over-budget`` if it was ended after ``budget_s`` of wall-clock
    time, or ``failed`` with the last line of its error.
    """
    command = [sys.executable, "-m", "bench.cell", json.dumps(spec)]
    env = {**os.environ, **ONE_THREAD}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=budget_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {**spec, "status": "over-budget", "budget_s": budget_s}
    if done.returncode:
        lines: Iterator[str] = reversed(done.stderr.strip().splitlines() or ["no message"])
        return {**spec, "status": "failed", "error": next(lines)}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return {**spec, "status": "ok", **found}
