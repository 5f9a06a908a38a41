"""The live store: durable submissions a second with concurrent clients, and events a second read back.

::

    python -m bench.live_store --out results.jsonl
    python -m bench.live_store --store postgresql://user@/database?host=/run/postgresql

Each client is a thread that submits one job at a time and waits until it is on disk, as requests of the
API do. How long the disk takes to keep a block (``fsync_ms``) stands beside each number, for it bounds them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.live_noise import Load
from bench.measure import append, calibrate, machine
from bench.speed import options
from cotenant.live.store import SqlStore, open_store
from cotenant.model.events import Event, Held, Rated, Started, Submitted
from cotenant.model.jobs import Job
from cotenant.model.liveports import Request
from cotenant.model.plan import Reason

__all__ = ["BUDGET_SUBMITS_S", "fsync_ms", "main", "replays", "submits"]

Row = dict[str, Any]

BUDGET_SUBMITS_S = 1000
"""Jobs accepted and on disk each second, with concurrent clients."""
CLIENTS = (1, 10, 100)
BODY = {
    "name": "ResNet-50 lr=0.1",
    "command": ["python", "train.py", "--epochs", "90", "--lr", "0.1"],
    "gpus": 1,
    "gpu_memory": "6GiB",
    "gpu_compute": "40%",
    "env": {"DATA": "/data/imagenet", "SEED": "1"},
    "cwd": "/home/user/project",
}


def fsync_ms(folder: Path, times: int = 50) -> float:
    """Median milliseconds until a block added to a file is on disk."""
    found = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1000


def submits(store: SqlStore, clients: int, seconds: float, mark: str) -> Row:
    """Let clients submit for some seconds; jobs a second, and milliseconds that one took."""
    took: list[float] = []
    gate = threading.Barrier(clients + 1)
    end = [0.0]

    def client(number: int) -> None:
        gate.wait()
        count = 0
        while (begun := time.perf_counter()) < end[0]:
            request = Request(key=f"{mark}-{clients}-{number}-{count}", tenant="t", kind="submit", body=BODY)
            store.accept([request], 0.0)
            took.append(time.perf_counter() - begun)
            count += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    begun, before_s = time.perf_counter(), time.process_time()
    end[0] = begun + seconds
    gate.wait()
    for thread in threads:
        thread.join()
    wall, spent_s = time.perf_counter() - begun, time.process_time() - before_s
    took.sort()
    return {
        "bench": "live-submit",
        "clients": clients,
        "jobs": len(took),
        "jobs_per_s": len(took) / wall,
        "cpu_ms_a_job": 1000 * spent_s / len(took),
        "p50_ms": took[len(took) // 2] * 1000,
        "p99_ms": took[len(took) * 99 // 100] * 1000,
    }


def replays(store: SqlStore, events: int) -> Row:
    """Write a log of so many events in batches of eight, as the loop does, and read it back."""
    lease = store.acquire("bench", 60.0)
    if lease is None:
        raise SystemExit("the store is led by another process; name an empty one")
    before = store.count()
    begun = time.perf_counter()
    for n in range(0, events, 8):
        t, job = float(n), n // 8
        batch: list[Event] = [
            Submitted(t, Job(job, f"job-{job}", t, model="ResNet-50", memory_bytes=6 << 30)),
            Held(t, job, Reason.NO_CAPACITY),
            Started(t, job, 0, (job % 8,)),
            *(Rated(t, job, 0.5 + 0.01 * k) for k in range(5)),
        ]
        store.append(lease, batch, 0)
    written_s = time.perf_counter() - begun
    begun = time.perf_counter()
    found = sum(1 for _ in store.read(before))
    read_s = time.perf_counter() - begun
    store.release(lease)
    return {
        "bench": "live-replay",
        "events": found,
        "written_per_s": events / written_s,
        "read_per_s": found / read_s,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and keep the results."""
    parser = options(argparse.ArgumentParser(prog="python -m bench.live_store", description=__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--store", help="a PostgreSQL URL; left out: a SQLite file in a temporary folder")
    parser.add_argument("--clients", nargs="+", type=int, default=CLIENTS)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args(arguments)
    facts, load = {**machine(), "calibration_s": calibrate()}, Load()
    best = 0.0
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        facts["fsync_ms"] = fsync_ms(Path(folder))
        store = open_store(given.store or Path(folder) / "cotenant.db")
        facts["database"] = store.engine.dialect.name
        for clients in given.clients:
            row = {**submits(store, clients, given.seconds, str(time.time_ns())), **facts}
            best = max(best, row["jobs_per_s"])
            append(given.out, [row])
            print(
                f"{clients:4} clients: {row['jobs_per_s']:8,.0f} jobs/s, {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, "
                f"{row['cpu_ms_a_job']:.3f} ms of processor time each"
            )
        row = {**replays(store, given.events), **facts}
        append(given.out, [row])
        print(f"log: {row['written_per_s']:,.0f} events/s written, {row['read_per_s']:,.0f} events/s read")
        print(f"fsync {facts['fsync_ms']:.2f} ms, calibration {facts['calibration_s']:.3f} s, {load.told()}")
        store.close()
    met = best >= BUDGET_SUBMITS_S
    print(
        f"budget: {BUDGET_SUBMITS_S:,} jobs/s accepted and on disk: {'met' if met else 'MISSED'} ({best:,.0f})"
    )
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
