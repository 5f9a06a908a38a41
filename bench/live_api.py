"""Durable submissions a second of a real scheduler, over HTTP, with many clients at once.

::

    python -m bench.live_api --clients 64 --seconds 4 --rounds 5

A scheduler is started on a temporary state folder and its node drained, so that nothing but accepting is
measured; each answer means that the job is on disk. Clients are plain sockets that keep their connection. On two
processors the clients take theirs from the scheduler: ``client_cpu_ms_a_job`` says how much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.live_noise import AHEAD, Load, cpu_s, go_ahead, spread

__all__ = ["main"]

JOB = {"name": "load", "command": ["true"], "gpus": 1, "gpu_compute": "10%"}


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str, str]:
    core = min(os.sched_getaffinity(0))
    words = ["up", "--state", str(folder), "--device", f"cpu:{core}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cotenant", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        told = folder / "daemon.json"
        if told.exists():
            return process, json.loads(told.read_text())["url"], (folder / "token").read_text().strip()
        time.sleep(0.05)
    raise SystemExit("the scheduler did not start")


class _Client:
    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = (
            f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        )

    async def open(self) -> None:
        self._in, self._out = await asyncio.open_connection(self._host, self._port)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """One request on the same connection."""
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._out.write(head.encode() + body)
        answer = await self._in.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return int(answer.split(b" ", 2)[1]), await self._in.readexactly(length)

    def close(self) -> None:
        self._out.close()


async def _load(
    url: str, token: str, clients: int, seconds: float, each: int, turn: int = 0
) -> dict[str, float]:
    until, spent, accepted, refused = time.perf_counter() + seconds, [], 0, 0

    async def one(number: int) -> None:
        nonlocal accepted, refused
        client, count = _Client(url, token), 0
        await client.open()
        while time.perf_counter() < until:
            jobs = [{"key": f"{turn}-{each}-{number}-{count}-{i}", "job": JOB} for i in range(each)]
            begun = time.perf_counter()
            status, body = await client.post("/v1/jobs", json.dumps({"jobs": jobs}).encode())
            spent.append(time.perf_counter() - begun)
            good = body.count(b'"id":') if status == 201 else 0
            accepted, refused, count = accepted + good, refused + each - good, count + 1
        client.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one(n) for n in range(clients)))
    lasted = time.perf_counter() - begun
    ordered = sorted(spent)
    return {
        "clients": clients,
        "jobs_a_request": each,
        "accepted": accepted,
        "refused": refused,
        "accepted_per_s": round(accepted / lasted, 1),
        "median_ms": round(1000 * statistics.median(ordered), 2),
        "p99_ms": round(1000 * ordered[int(0.99 * len(ordered))], 2),
    }


async def _drain(url: str, token: str) -> None:
    client = _Client(url, token)
    await client.open()
    status, body = await client.post("/v1/nodes/drain", b'{"key": "bench"}')
    client.close()
    if status != 202:
        raise SystemExit(body.decode())


def _measured(pid: int, url: str, token: str, each: int, given: argparse.Namespace) -> dict[str, Any]:
    turns, spent, own, load = [], [], [], Load()
    for turn in range(given.rounds):
        before, mine = cpu_s(pid), time.process_time()
        found = asyncio.run(_load(url, token, given.clients, given.seconds, each, turn))
        own.append(1000 * (time.process_time() - mine) / max(found["accepted"], 1))
        time.sleep(0.5)  # the loop takes up the last ones
        spent.append(1000 * (cpu_s(pid) - before) / max(found["accepted"], 1))
        turns.append(found)
    return {
        "jobs_a_request": each,
        "clients": given.clients,
        "refused": sum(found["refused"] for found in turns),
        "accepted_per_s": spread([found["accepted_per_s"] for found in turns], 0),
        "median_ms": spread([found["median_ms"] for found in turns]),
        "p99_ms": spread([found["p99_ms"] for found in turns]),
        # On a machine that others use, too, the time on a core says more than the clock.
        "scheduler_cpu_ms_a_job": spread(spent, 3),
        "client_cpu_ms_a_job": spread(own, 3),
        **load.told(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one line of JSON for each way of submitting."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_api", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ahead", action="store_true", help=AHEAD)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 50], help="jobs in each request")
    given = parser.parse_args(arguments)
    if given.ahead:
        go_ahead()
    with tempfile.TemporaryDirectory() as folder:
        for each in given.jobs:
            process, url, token = _start(Path(folder) / str(each))
            try:
                asyncio.run(_drain(url, token))
                print(json.dumps(_measured(process.pid, url, token, each, given)), flush=True)
            finally:
                process.terminate()
                process.wait(30)


if __name__ == "__main__":
    main()
