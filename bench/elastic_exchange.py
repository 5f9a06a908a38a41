"""Time to sum a gradient over processes, in ms: median of several, buffers kept.

Run with ``python -m bench.elastic_exchange [--megabytes 100] [--repeats 7] [--order blocks]``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch
from torch import distributed as dist

from cotenant.elastic.exchange import Group
from cotenant.elastic.gradients import share
from cotenant.elastic.memory import Memory
from cotenant.elastic.reduction import staging


def member(rank: int, size: int, store: Any, arguments: argparse.Namespace) -> None:
    """One process: a worker each, the same gradient at every step."""
    torch.set_num_threads(1)
    width = arguments.megabytes * 250_000 // 10
    parameters = [torch.nn.Parameter(torch.zeros(width)) for _ in range(10)]
    group = Group(store, rank, size, lambda: False)
    staged = staging(parameters, arguments.order, share(size, size), group, Memory())
    times = []
    for _ in range(arguments.repeats + 2):
        staged.begin()
        for parameter in parameters:
            parameter.grad = torch.ones(width)
        group.largest(torch.zeros(1, dtype=torch.int64))
        started = time.perf_counter()
        staged.ended(rank)
        staged.finish(staged.total(), size)
        times.append(1000 * (time.perf_counter() - started))
        for parameter in parameters:
            parameter.grad = None
    if rank == 0:
        kept = times[2:]
        print(
            f"{size} processes: {statistics.median(kept):.0f} ms ({min(kept):.0f} to {max(kept):.0f})",
            flush=True,
        )


def main() -> None:
    """Two, then four processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--order", choices=["blocks", "sequence", "ddp"], default="blocks")
    arguments = parser.parse_args()
    for size in (2, 4):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        pids = []
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                member(rank, size, dist.TCPStore("127.0.0.1", store.port, is_master=False), arguments)
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
