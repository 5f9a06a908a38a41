"""Peak memory of N logical workers on one process, for N = 1 to 16, in both orders, and of plain accumulation.

Each N is a process of its own that takes three steps with SGD and momentum; told is its largest resident size, and how
much that is above the one of N = 1. ``blocks`` has max_processes = min(N, 4): with the same max_processes it
must not grow with N.

Run with ``python -m bench.elastic_memory [--model large] [--workers 1 2 4 8 16] [--orders plain sequence blocks]``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import torch

from bench.elastic_models import MODELS
from bench.elastic_overhead import plain, turns

_STEPS, _MOST = 3, 16


def peak(name: str, order: str, workers: int) -> None:
    """In a process of its own: its peak memory, in MB."""
    torch.set_num_threads(1)
    most = min(workers, 4) if order == "blocks" else None
    # As many samples for every N: they would count as memory, too.
    spare = _MOST // workers
    steps = (
        plain(name, _STEPS, workers=workers, spare=spare)
        if order == "plain"
        else turns(name, order, _STEPS, workers=workers, most=most, spare=spare)
    )
    for _ in range(_STEPS):
        next(steps)
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"model": name, "order": order, "workers": workers, "peak_mb": round(kib / 1024)}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="large")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--orders", nargs="+", default=["plain", "sequence", "blocks"])
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak(options.model, options.peak[0], int(options.peak[1]))
        return
    for order in options.orders:
        base = 0
        for workers in options.workers:
            command = ["-m", "bench.elastic_memory", "--model", options.model, "--peak", order, str(workers)]
            done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True)
            row = json.loads(done.stdout)
            base = base or row["peak_mb"]
            row["above_first_percent"] = round(100 * (row["peak_mb"] / base - 1), 1)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
