"""What a set of CPU cores reaches: run as a process of its own, bound to them; prints one JSON object.

::

    python -m cotenant.profiles.corebench 0 1

Two things are timed, by the cores' own time, so that what others on the machine take from them
counts as little as it can, and the best of several tries is kept: products of square matrices
(numpy's own BLAS, one thread a core), and copies of arrays that no cache holds (one thread a
core; a copied byte counts twice, as it is read and written, which is how STREAM counts:
McCalpin, IEEE TCCA Newsletter, December 1995).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["COPY_MIB", "GEMM_SIZE", "THREADS", "TRIES", "measured"]

GEMM_SIZE = 1536
"""Rows and columns of the matrices."""
COPY_MIB = 256
"""Bytes copied at once, in MiB, over all cores."""
TRIES = 6
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables by which a matrix library is told how many threads to take."""


class _Clock:
    """Times work on some cores, and remembers how much of their time it got."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.wall_s = self.own_s = 0.0

    def best_s(self, work: Callable[[], object]) -> float:
        work()
        found = []
        for _ in range(TRIES):
            wall, own = time.perf_counter(), time.process_time()
            work()
            found.append((time.process_time() - own) / self.threads)
            self.own_s += found[-1]
            self.wall_s += time.perf_counter() - wall
        return min(found)


def measured(cores: Sequence[int]) -> dict[str, Any]:
    """Rates of these cores; this process must be bound to them and its library hold as many threads."""
    clock = _Clock(len(cores))
    rates = {"fp32": _gemm_flops("float32", clock), "fp64": _gemm_flops("float64", clock)}
    copied = _copy_bytes_per_s(clock)
    return {"flops": rates, "copy_bytes_per_s": copied, "busy_share": min(clock.own_s / clock.wall_s, 1.0)}


def _gemm_flops(kind: str, clock: _Clock) -> float:
    import numpy as np

    draw = np.random.default_rng(0)
    a, b = (draw.random((GEMM_SIZE, GEMM_SIZE)).astype(kind) for _ in range(2))
    into = np.empty_like(a)
    return 2.0 * GEMM_SIZE**3 / clock.best_s(lambda: np.matmul(a, b, out=into))


def _copy_bytes_per_s(clock: _Clock) -> float:
    import numpy as np

    size = COPY_MIB * 2**20 // 8 // clock.threads
    pairs = [(np.ones(size), np.zeros(size)) for _ in range(clock.threads)]
    with ThreadPoolExecutor(clock.threads) as pool:

        def copy() -> None:
            for one in [pool.submit(np.copyto, into, out) for out, into in pairs]:
                one.result()

        return 2.0 * 8 * size * clock.threads / clock.best_s(copy)


if __name__ == "__main__":
    _cores = [int(word) for word in sys.argv[1:]]
    os.sched_setaffinity(0, _cores)
    sys.stdout.write(json.dumps(measured(_cores)) + "\n")
