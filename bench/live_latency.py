"""What the live scheduler costs and how fast it is, with real processes on this machine.

``python -m bench.live_latency`` prints, each with its budget in docs/live-figures.md:

- submit to start on an idle device, beyond the start of a process (a process started by hand is taken off),
- durable submissions a second through the API with concurrent clients,
- a standby's takeover with 1,000 jobs,
- CPU time of the daemon with 100 running jobs.

Each is measured several times; beside it stand processor time, spread, and how busy the machine was meanwhile.
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
from pathlib import Path
from typing import Any

import httpx

from bench.live_noise import AHEAD, Load, as_others, cpu_s, go_ahead, spread
from bench.live_store import fsync_ms
from cotenant.live.statedir import DaemonFile, read_daemon

Row = dict[str, Any]
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


class Daemon:
    """A ``cotenant up`` in a state folder of its own."""

    def __init__(self, state: Path, *options: str) -> None:
        self.state = state
        self.options = options
        self.token = ""
        self.told: DaemonFile | None = None
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *more: str, wait: bool = True) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "cotenant", "up", "--state", str(self.state), *self.options, *more]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.processes.append(process)
        if wait:
            self.wait_for(process)
        return process

    def wait_for(self, process: subprocess.Popen[bytes]) -> float:
        while True:
            told = read_daemon(self.state)
            if told is not None and told.pid == process.pid:
                break
            if process.poll() is not None:
                raise SystemExit(f"cotenant up ended with {process.returncode}")
            time.sleep(0.002)
        self.told = told
        self.token = (self.state / "token").read_text().strip()
        return time.monotonic()

    def client(self) -> httpx.Client:
        assert self.told is not None
        return httpx.Client(
            base_url=self.told.url, headers={"authorization": f"Bearer {self.token}"}, timeout=60.0
        )

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for claim in self.state.glob("jobs/*/serial-*/claim"):
            pid = json.loads(claim.read_text()).get("pid", 0)
            if pid:
                subprocess.run(["pkill", "-KILL", "-s", str(pid)], check=False)


def body(key: str, command: list[str], **fields: Any) -> dict[str, Any]:
    return {"jobs": [{"key": key, "job": {"name": key, "command": command, **fields}}]}


def latency(state: Path, rounds: int) -> Row:
    """Milliseconds from the call to the first instruction of the job, beside a process started by hand, by turns.

    ``way_ms`` says when what had happened (files' times): answered, decided (the shepherd was told what to start),
    claimed (the shepherd runs), begun.
    """
    daemon = Daemon(state, "--policy", "fifo", "--device", f"cpu:{CORES[0]}")
    code = ["sh", "-c", "cut -d' ' -f1 /proc/uptime >/dev/null; date +%s.%N"]
    way: dict[str, list[float]] = {name: [] for name in ("answered", "decided", "claimed", "begun")}
    alone, load, jobs_cpu_s = [], Load(), 0.0
    try:
        process = daemon.start()
        with daemon.client() as client:
            client.post("/v1/jobs", json=body("first", code)).raise_for_status()
            time.sleep(1.0)  # what is loaded at the first job
            before = cpu_s(process.pid), _children_s(process.pid)
            for number in range(rounds):
                begun = time.time()
                out = subprocess.run(
                    code, capture_output=True, text=True, check=True, preexec_fn=as_others
                ).stdout
                alone.append(1000.0 * (float(out) - begun))
                begun = time.time()
                job = client.post("/v1/jobs", json=body(f"l{number}", code)).json()["jobs"][0]["id"]
                way["answered"].append(1000.0 * (time.time() - begun))
                folder = state / "jobs" / str(job) / "serial-1"
                while not (folder / "exit.json").exists():
                    time.sleep(0.01)
                for name, file in (("decided", "spec.json"), ("claimed", "claim")):
                    way[name].append(1000.0 * ((folder / file).stat().st_mtime - begun))
                way["begun"].append(1000.0 * (float((folder / "stdout.log").read_text()) - begun))
                jobs_cpu_s += json.loads((folder / "exit.json").read_text())["cpu_s"]
                time.sleep(0.25)
        spent = cpu_s(process.pid) - before[0], _children_s(process.pid) - before[1] - jobs_cpu_s
    finally:
        daemon.end()
    beyond = [took - by_hand for took, by_hand in zip(way["begun"], alone, strict=True)]
    return {
        "beyond_process_start_ms": spread(beyond),
        "process_start_ms": spread(alone),
        "way_ms": {name: spread(values) for name, values in way.items()},
        "scheduler_cpu_ms_a_job": round(1000.0 * spent[0] / rounds, 1),
        "shepherd_cpu_ms_a_job": round(1000.0 * spent[1] / rounds, 1),
        **load.told(),
    }


def _children_s(pid: int) -> float:
    """Processor time of the scheduler's own processes: those that bear shepherds, and all that they waited for."""
    found = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
        found += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def submits(state: Path, clients: int, each: int, rounds: int) -> Row:
    """Accepted durable submissions a second; the node is drained, so that only submission is measured."""
    daemon = Daemon(state, "--policy", "fifo", "--forecast", "contention")

    async def one(who: int, jobs: int, calls: int, turn: int) -> None:
        """A client that costs little: one connection, requests as bytes."""
        assert daemon.told is not None
        host, _, port = daemon.told.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in range(calls):
            many = [body(f"s{turn}-{jobs}-{who}-{number}-{i}", ["true"])["jobs"][0] for i in range(jobs)]
            data = json.dumps({"jobs": many}).encode()
            head = (
                f"POST /v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {daemon.token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            )
            writer.write(head.encode() + data)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
            length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            found = json.loads(await reader.readexactly(length))["jobs"]
            assert all("id" in job for job in found), found
        writer.close()

    async def rate(jobs: int, calls: int, turn: int) -> float:
        begun = time.monotonic()
        await asyncio.gather(*(one(who, jobs, calls, turn) for who in range(clients)))
        return clients * calls * jobs / (time.monotonic() - begun)

    load = Load()
    sizes = {1: each, 10: each // 5, 100: max(each // 25, 1)}
    rates: dict[int, list[float]] = {jobs: [] for jobs in sizes}
    spent: dict[int, list[float]] = {jobs: [] for jobs in sizes}
    sent = 0
    try:
        process = daemon.start()
        with daemon.client() as client:
            client.post("/v1/nodes/drain", json={"key": "drain"}).raise_for_status()
            for turn in range(rounds):
                for jobs, calls in sizes.items():
                    before = cpu_s(process.pid)
                    rates[jobs].append(asyncio.run(rate(jobs, calls, turn)))
                    sent += clients * calls * jobs
                    while client.get("/v1/status").json()["counts"]["submitted"] < sent:
                        time.sleep(0.05)  # the loop takes up what is on disk
                    spent[jobs].append(1000.0 * (cpu_s(process.pid) - before) / (clients * calls * jobs))
        return {
            **{f"{n}_a_request_per_s": spread(found, 0) for n, found in rates.items()},
            **{f"{n}_a_request_cpu_ms_a_job": spread(found, 3) for n, found in spent.items()},
            "clients": clients,
            "fsync_ms": round(fsync_ms(state), 2),
            **load.told(),
        }
    finally:
        daemon.end()


def takeover(state: Path, jobs: int, rounds: int) -> Row:
    """Seconds from kill -9 of the leader until the standby's API answers, with so many jobs in the log."""
    daemon = Daemon(state, "--policy", "fifo")
    found, load = [], Load()
    try:
        leader = daemon.start()
        with daemon.client() as client:
            for begin in range(0, jobs, 500):
                many = [
                    body(f"t{begin + i}", ["sleep", "3600"])["jobs"][0] for i in range(min(500, jobs - begin))
                ]
                client.post("/v1/jobs", json={"jobs": many}).raise_for_status()
            while client.get("/v1/status").json()["counts"]["submitted"] < jobs:
                time.sleep(0.1)
        for turn in range(rounds):
            standby = daemon.start("--standby", wait=False)
            while (state / "daemon.log").read_text().count("standing by") <= turn:
                time.sleep(0.1)
            time.sleep(1.0)
            leader.kill()
            begun = time.monotonic()
            leader.wait()
            daemon.wait_for(standby)
            with daemon.client() as client:
                seen = client.get("/v1/status").json()["counts"]["submitted"]
            found.append(time.monotonic() - begun)
            assert seen == jobs, seen
            leader = standby
        return {"takeover_s": spread(found, 2), "jobs": jobs, **load.told()}
    finally:
        daemon.end()


def cost(state: Path, jobs: int, windows: int, seconds: float) -> Row:
    """CPU time of the daemon with so many running jobs that sleep, as a share of one core, in windows of some seconds."""
    daemon = Daemon(state, "--policy", "cotenant", "--device", f"cpu:{CORES[0]}")
    found, load = [], Load()
    try:
        process = daemon.start()
        with daemon.client() as client:
            many = [body(f"c{i}", ["sleep", "3600"], gpus=0)["jobs"][0] for i in range(jobs)]
            client.post("/v1/jobs", json={"jobs": many}).raise_for_status()
            while (counts := client.get("/v1/status").json()["counts"])["running"] < jobs:
                print("running:", counts["running"], file=sys.stderr)
                time.sleep(1.0)
            settled = -1
            while settled != (settled := client.get("/v1/status").json()["events"]):
                time.sleep(5.0)  # every process has been started and has told so
        for _ in range(windows):
            begun, before = time.monotonic(), cpu_s(process.pid)
            time.sleep(seconds)
            found.append(100.0 * (cpu_s(process.pid) - before) / (time.monotonic() - begun))
        mean = round(statistics.mean(found), 2)
        return {
            "daemon_percent_of_a_core": {"mean": mean, **spread(found, 2)},
            "running_jobs": jobs,
            **load.told(),
        }
    finally:
        daemon.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["latency", "submits", "takeover", "cost"])
    parser.add_argument("--jobs", type=int, default=1000, help="in the log at a takeover")
    parser.add_argument("--running", type=int, default=100, help="running jobs whose cost is measured")
    parser.add_argument(
        "--rounds", type=int, help="jobs of latency (40), turns of submits (5), takeovers (5)"
    )
    parser.add_argument("--ahead", action="store_true", help=AHEAD)
    asked = parser.parse_args()
    if asked.ahead:
        go_ahead()
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        for what in asked.what:
            state = Path(folder) / what
            if what == "latency":
                found = latency(state, asked.rounds or 40)
            elif what == "submits":
                found = submits(state, 32, 100, asked.rounds or 5)
            elif what == "takeover":
                found = takeover(state, asked.jobs, asked.rounds or 5)
            else:
                found = cost(state, asked.running, 6, 5.0)
            print(json.dumps({what: found}), flush=True)


if __name__ == "__main__":
    main()
