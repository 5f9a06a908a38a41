"""What the live scheduler costs and how fast it is, with real processes on this machine.

``python -m bench.live_latency`` prints, each with its budget in docs/live.md:

- submit to start on an idle device, beyond the start of a process (a process started by hand is taken off),
- durable submissions a second through the API with concurrent clients,
- a standby's takeover with 1,000 jobs,
- CPU time of the daemon with 100 running jobs.
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

from cotenant.live.statedir import DaemonFile, read_daemon

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


def latency(state: Path, rounds: int) -> dict[str, float]:
    """Milliseconds from the call to the first instruction of the job, and of a process started by hand."""
    daemon = Daemon(state, "--policy", "fifo", "--device", f"cpu:{CORES[0]}")
    found, alone = [], []
    code = ["sh", "-c", "cut -d' ' -f1 /proc/uptime >/dev/null; date +%s.%N"]
    try:
        daemon.start()
        with daemon.client() as client:
            for number in range(rounds):
                begun = time.time()
                out = subprocess.run(code, capture_output=True, text=True, check=True).stdout
                alone.append(1000.0 * (float(out) - begun))
                begun = time.time()
                job = client.post("/v1/jobs", json=body(f"l{number}", code)).json()["jobs"][0]["id"]
                while client.get(f"/v1/jobs/{job}").json()["status"] != "done":
                    time.sleep(0.01)
                out = client.get(f"/v1/jobs/{job}/logs").text
                found.append(1000.0 * (float(out) - begun))
                time.sleep(0.2)
    finally:
        daemon.end()
    beyond = statistics.median(found) - statistics.median(alone)
    return {
        "submit_to_start_ms": round(statistics.median(found), 1),
        "process_start_ms": round(statistics.median(alone), 1),
        "beyond_process_start_ms": round(beyond, 1),
        "worst_ms": round(max(found), 1),
    }


def submits(state: Path, clients: int, each: int) -> dict[str, float]:
    """Accepted durable submissions a second; the node is drained, so that only submission is measured."""
    daemon = Daemon(state, "--policy", "fifo", "--forecast", "contention")

    async def one(who: int, jobs: int, calls: int) -> None:
        """A client that costs little: one connection, requests as bytes."""
        assert daemon.told is not None
        host, _, port = daemon.told.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in range(calls):
            many = [body(f"s{jobs}-{who}-{number}-{i}", ["true"])["jobs"][0] for i in range(jobs)]
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

    async def rate(jobs: int, calls: int) -> float:
        begun = time.monotonic()
        await asyncio.gather(*(one(who, jobs, calls) for who in range(clients)))
        return round(clients * calls * jobs / (time.monotonic() - begun))

    try:
        daemon.start()
        with daemon.client() as client:
            client.post("/v1/nodes/drain", json={"key": "drain"}).raise_for_status()
        return {
            "one_a_request_per_s": asyncio.run(rate(1, each)),
            "ten_a_request_per_s": asyncio.run(rate(10, each // 5)),
            "hundred_a_request_per_s": asyncio.run(rate(100, max(each // 25, 1))),
        }
    finally:
        daemon.end()


def takeover(state: Path, jobs: int) -> dict[str, float]:
    """Seconds from kill -9 of the leader until the standby's API answers, with so many jobs in the log."""
    daemon = Daemon(state, "--policy", "fifo")
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
        standby = daemon.start("--standby", wait=False)
        while "standing by" not in (state / "daemon.log").read_text():
            time.sleep(0.1)
        time.sleep(1.0)
        leader.kill()
        begun = time.monotonic()
        leader.wait()
        daemon.wait_for(standby)
        with daemon.client() as client:
            seen = client.get("/v1/status").json()["counts"]["submitted"]
        took = time.monotonic() - begun
        assert seen == jobs, seen
        return {"takeover_s": round(took, 2), "jobs": jobs}
    finally:
        daemon.end()


def cost(state: Path, jobs: int, seconds: float) -> dict[str, float]:
    """CPU time of the daemon over some seconds with so many running jobs that sleep, as a share of one core."""
    daemon = Daemon(state, "--policy", "cotenant", "--device", f"cpu:{CORES[0]}")
    tick = os.sysconf("SC_CLK_TCK")

    def used(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

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
        begun, before = time.monotonic(), used(process.pid)
        time.sleep(seconds)
        share = (used(process.pid) - before) / (time.monotonic() - begun)
        return {"daemon_percent_of_a_core": round(100.0 * share, 2), "running_jobs": jobs}
    finally:
        daemon.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["latency", "submits", "takeover", "cost"])
    parser.add_argument("--jobs", type=int, default=1000, help="in the log at a takeover")
    parser.add_argument("--running", type=int, default=100, help="running jobs whose cost is measured")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        for what in asked.what:
            state = Path(folder) / what
            if what == "latency":
                found = latency(state, 20)
            elif what == "submits":
                found = submits(state, 32, 100)
            elif what == "takeover":
                found = takeover(state, asked.jobs)
            else:
                found = cost(state, asked.running, 30.0)
            print(json.dumps({what: found}), flush=True)


if __name__ == "__main__":
    main()
