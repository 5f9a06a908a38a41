"""How well shares hold on real processes, and what that costs.

    python bench/live_shares.py [--quick] [--json FILE]

Busy jobs on one core, under each back end that works here: time until a job that had borrowed is down to its
part after a neighbour came, error in the steady state, overshoot, time from ``reshare`` to its effect; what a
quota of 100% costs; and what shepherds cost that have nothing to do. Points are hundredths of the core. Run as root, it goes before everything else on
its core, so that what others do there is not measured; otherwise the machine must be quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cotenant.executors.local.devices import DeviceInfo
from cotenant.executors.local.host import LocalHost
from cotenant.executors.local.trees import TreeClock
from cotenant.model.liveports import AttemptEnded, AttemptStarted, Launch
from cotenant.model.placement import Share
from cotenant.shares.backends.base import Backend, Want
from cotenant.shares.backends.detect import for_cores
from cotenant.shares.backends.plain import DutyCycleBackend, StepGate
from cotenant.shares.figures import judge_share

# The kernel weighs whole sessions against each other ("autogroup") before it looks at niceness.
FIRST = "import os\nif os.getuid() == 0:\n    os.nice(-19)\n    f = '/proc/self/autogroup'\n    if os.path.exists(f): open(f, 'w').write('-19')\n"
BUSY = FIRST + "while True: pass"
# Bursts of 0.7 s that nothing interrupts, then a tenth of a second of sleep: long kernels, in small.
BURSTS = (
    FIRST
    + "import time\nwhile True:\n    end = time.process_time() + 0.7\n    while time.process_time() < end: pass\n    time.sleep(0.1)"
)
GATED = FIRST + (
    "import itertools, time\nfrom cotenant import runtime\nrun = runtime.attach(total_steps=10**9)\n"
    "for _ in run.steps(itertools.repeat(0)):\n    end = time.perf_counter() + {step}\n"
    "    while time.perf_counter() < end: pass"
)
WORK = (
    FIRST
    + "import time\nb = time.perf_counter()\nfor _ in range({n}): pass\nprint(time.process_time(), time.perf_counter() - b)"
)
EVERY_S = 0.12


def device() -> DeviceInfo:
    core = max(os.sched_getaffinity(0))
    return DeviceInfo(
        device=0, name=f"cpu:{core}", uuid=f"cpu:{core}", kind="cpu", memory_bytes=4 << 30, cores=(core,)
    )


class Bench:
    """One host, one core."""

    def __init__(self, backend: Backend) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="cotenant-bench-")
        self.host = LocalHost(self.folder.name, [device()], epoch=1, cores=[backend], watch_s=1e6)
        parents = getattr(backend, "_parents", {})
        if "cpu" in parents:
            parents["cpu"].mkdir(exist_ok=True)
            (parents["cpu"] / "cpu.shares").write_text("262144")
        self.clocks: dict[int, TreeClock] = {}
        self.samples: dict[int, list[tuple[float, float]]] = {}

    def start(self, number: int, code: str, guaranteed: int, limit: int) -> float:
        share = Share("spatial", 0, guaranteed, limit)
        began = time.monotonic()
        self.host.launch(
            Launch(
                id=number,
                attempt=1,
                serial=0,
                epoch=1,
                devices=(0,),
                share=share,
                command=(sys.executable, "-S", "-c", code),
            )
        )
        while True:
            for report in self.host.poll(1.0):
                if isinstance(report, AttemptStarted) and report.id == number:
                    took = time.monotonic() - began
                    attempt = next(a for a in self.host._attempts.values() if a.id == number)
                    self.clocks[number] = TreeClock(attempt.shepherd)
                    self.clocks[number].read()
                    self.samples[number] = []
                    return took

    def run(self, seconds: float, since: float) -> None:
        """Let time pass, and note the use of each over each interval."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = {n: clock.read(refresh=False) for n, clock in self.clocks.items()}
            began = time.monotonic()
            until = began + EVERY_S
            while (now := time.monotonic()) < until:
                self.host.poll(until - now)
            passed = time.monotonic() - began
            for number, clock in self.clocks.items():
                used = (clock.read(refresh=False) - before[number]) / passed * 100.0
                self.samples[number].append((time.monotonic() - since, used))

    def close(self) -> None:
        for found in self.host.running():
            self.host.stop(found.id, found.attempt, found.serial, "kill")
        while self.host.running():
            self.host.poll(0.5)
        self.host.close()
        self.folder.cleanup()


def smooth(samples: list[tuple[float, float]], wide: int = 8) -> tuple[list[float], list[float]]:
    """Means over about a second."""
    times = [samples[i][0] for i in range(wide - 1, len(samples))]
    return times, [
        statistics.fmean(v for _, v in samples[i - wide + 1 : i + 1]) for i in range(wide - 1, len(samples))
    ]


def figures(samples: list[tuple[float, float]], target: float, since: float) -> dict[str, float | None]:
    """Convergence of the one-second mean into 5 points, overshoot after that, error and swing of the last 8 s."""
    times, values = smooth([s for s in samples if s[0] >= since])
    first = next(
        (i for i in range(len(values)) if all(abs(v - target) <= 5.0 for v in values[i : i + 8])), None
    )
    kept = judge_share(times, values, target, since_s=times[0], tail_s=8.0)
    after = values[first:] if first is not None else values
    return {
        "converged_s": None if first is None else round(times[first] - since, 2),
        "error_points": round(kept.error, 2),
        "overshoot_points": round(max(abs(v - target) for v in after), 2),
        "swing_points": round(kept.swing, 2),
    }


def sharers(
    backend: Backend, sizes: list[tuple[int, int]], targets: list[float], seconds: float, code: str = BUSY
) -> dict[str, Any]:
    """The first runs alone; the others come after 4 s."""
    bench = Bench(backend)
    try:
        began = time.monotonic()
        bench.start(0, BUSY, *sizes[0])
        bench.run(4.0, began)
        alone = statistics.fmean(v for _, v in bench.samples[0][-15:])
        since = time.monotonic() - began
        for number, size in enumerate(sizes[1:], 1):
            bench.start(number, code, *size)
        bench.run(seconds, began)
        found = {f"job {n}": figures(bench.samples[n], target, since) for n, target in enumerate(targets)}
        return {"alone": round(alone, 1), **found}
    finally:
        bench.close()


def gated(step_s: float, seconds: float) -> dict[str, Any]:
    """Two jobs with our runtime in them on a device that only the gate holds: 30 and 20 lent, against 50."""
    card = DeviceInfo(device=0, name="gpu0", uuid="GPU-0", kind="nvidia", memory_bytes=1 << 30)
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        host = LocalHost(folder, [card], epoch=1, gpus=[StepGate()], watch_s=1e6)
        for number, share in enumerate([Share("spatial", 0, 300, 1000), Share("spatial", 0, 500, 500)]):
            words = (sys.executable, "-c", GATED.format(step=step_s))
            host.launch(
                Launch(id=number, attempt=1, serial=0, epoch=1, devices=(0,), share=share, command=words)
            )
            host.poll(2.0)
        while any(a.allowed != 500 or not (r := a.reading()) or not r.steps for a in host._attempts.values()):
            wait_s(host, 0.25)
        wait_s(host, 2.0)
        before = {a.id: a.reading() for a in host._attempts.values()}
        passed = wait_s(host, seconds)
        used = {
            a.id: (a.reading().busy_ns - before[a.id].busy_ns) / 1e7 / passed for a in host._attempts.values()
        }
        for found in host.running():
            host.stop(found.id, found.attempt, found.serial, "kill")
        while host.running():
            host.poll(0.5)
        host.close()
    return {f"job {n} error_points": round(value - 50.0, 2) for n, value in used.items()}


def wait_s(host: LocalHost, seconds: float) -> float:
    """Let the host work; returns what really passed."""
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        host.poll(left)
    return time.monotonic() - began


def reshared(backend: Backend) -> dict[str, Any]:
    """A job alone is cut from 80 to 30 points; how soon the tenth of a second shows it."""
    bench = Bench(backend)
    try:
        began = time.monotonic()
        bench.start(0, BUSY, 800, 800)
        bench.run(3.0, began)
        at = time.monotonic() - began
        bench.host.reshare(0, 1, 0, Share("spatial", 0, 300, 300))
        call_s = time.monotonic() - began - at
        bench.run(5.0, began)
        return {"call_ms": round(call_s * 1e3, 2), **figures(bench.samples[0], 30.0, at)}
    finally:
        bench.close()


def work(backend: Backend | None, loops: int, guaranteed: int = 1000) -> tuple[float, float]:
    """CPU and wall seconds of a fixed piece of work, as the job itself saw them."""
    bench = Bench(backend or DutyCycleBackend())
    try:
        share = Share("spatial", 0, guaranteed, guaranteed) if backend else Share()
        bench.host.launch(
            Launch(
                id=0,
                attempt=1,
                serial=0,
                epoch=1,
                devices=(0,),
                share=share,
                command=(sys.executable, "-S", "-c", WORK.format(n=loops)),
            )
        )
        while not any(isinstance(r, AttemptEnded) for r in bench.host.poll(10.0)):
            pass
        cpu, wall = Path(bench.folder.name, "jobs/0/serial-0/stdout.log").read_text().split()
        return float(cpu), float(wall)
    finally:
        bench.close()


def overhead(backend: Backend, rounds: int, loops: int) -> dict[str, float]:
    """A quota of 100% against none, in turns; the least of each, since others use the machine, too."""
    plain, held = [], []
    for _ in range(rounds):
        plain.append(work(None, loops))
        held.append(work(backend, loops))
    cpu = min(c for c, _ in held) / min(c for c, _ in plain)
    wall = min(w for _, w in held) / min(w for _, w in plain)
    return {"least_cpu_ratio": round(cpu, 4), "least_wall_ratio": round(wall, 4), **inside(backend)}


ALTERNATE = (
    FIRST
    + """
import json, statistics, sys, time
groups, loops = json.loads(sys.argv[1]), range(400_000)
took = {name: [] for name in groups}
def work():
    begun = time.process_time()
    for _ in loops: pass
    return time.process_time() - begun
for turn in range(240):
    for name in sorted(groups, reverse=turn % 2 == 1):
        for path in groups[name]: open(path, "w").write(str(os.getpid()))
        took[name].append(work())
ratios = [a / b for a, b in zip(took["inside"], took["outside"])]
print(json.dumps([statistics.median(ratios), 1.2533 * statistics.stdev(ratios) / len(ratios) ** 0.5]))
"""
)


def inside(backend: Backend) -> dict[str, float]:
    """One process that goes in and out of a group with a quota of 100%: the same work, pair by pair."""
    want = Want(key="99.0", share=Share("spatial", 1 << 30, 1000, 1000), cores=device().cores)
    paths = [Path(path) for path in backend.apply(want).procs]
    if not paths:
        return {}
    groups = {
        "inside": [str(p) for p in paths],
        "outside": [str(p.parent.parent.parent / p.name) for p in paths],
    }
    try:
        words = [
            "taskset",
            "-c",
            str(device().cores[0]),
            sys.executable,
            "-S",
            "-c",
            ALTERNATE,
            json.dumps(groups),
        ]
        ratio, error = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    finally:
        backend.remove("99.0")
    return {"paired_cpu_ratio": round(ratio, 5), "its_standard_error": round(error, 5)}


def idle_shepherds(count: int, seconds: float) -> dict[str, float]:
    """Jobs that sleep: what their shepherds and the host cost."""
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        host = LocalHost(folder, [device()], epoch=1, cores=[DutyCycleBackend()], watch_s=1e6)
        began = time.monotonic()
        for number in range(count):
            host.launch(Launch(id=number, attempt=1, serial=0, epoch=1, command=("sleep", "3600")))
        started = 0
        while started < count:
            started += sum(isinstance(r, AttemptStarted) for r in host.poll(5.0))
        all_s = time.monotonic() - began
        shepherds = [a.shepherd for a in host._attempts.values()]
        before = sum(time.clock_gettime((~pid << 3) | 2) for pid in shepherds)
        own, at = time.process_time(), time.monotonic()
        while time.monotonic() - at < seconds:
            host.poll(1.0)
        passed = time.monotonic() - at
        used = sum(time.clock_gettime((~pid << 3) | 2) for pid in shepherds) - before
        host_used = time.process_time() - own
        pss = [_rollup(pid, "Pss") for pid in shepherds]
        for number in range(count):
            host.stop(number, 1, 0, "kill")
        while host.running():
            host.poll(1.0)
        host.close()
    return {
        "shepherds": count,
        "start_all_s": round(all_s, 2),
        "shepherds_core_percent": round(100 * used / passed, 3),
        "host_core_percent": round(100 * host_used / passed, 3),
        "own_memory_mib_each": round(statistics.fmean(pss) / 1024, 2),
    }


def _rollup(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def latency(rounds: int) -> dict[str, float]:
    """From ``launch`` to its report; the shepherd's start is in it, the job's own is not."""
    bench = Bench(DutyCycleBackend())
    try:
        took = [1e3 * bench.start(n, "pass", 1000, 1000) for n in range(rounds)]
        return {"median_ms": round(statistics.median(took), 1), "most_ms": round(max(took), 1)}
    finally:
        bench.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    seconds, rounds = (8.0, 3) if asked.quick else (16.0, 9)
    exec(FIRST)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    found: dict[str, Any] = {
        "launch": latency(10),
        "idle": idle_shepherds(20 if asked.quick else 100, seconds),
    }
    found["step gate"] = {f"steps of {step} s": gated(step, seconds) for step in (0.02, 0.3)}
    backends = {b.name: b for b in [*for_cores("cotenant-bench"), DutyCycleBackend()]}
    for name, backend in backends.items():
        found[name] = {
            "2 sharers": sharers(backend, [(300, 1000), (500, 500)], [50.0, 50.0], seconds),
            "2 sharers, long bursts": sharers(
                backend, [(300, 1000), (400, 400)], [60.0, 40.0], seconds, BURSTS
            ),
            "3 sharers": sharers(backend, [(200, 1000), (300, 300), (400, 400)], [30.0, 30.0, 40.0], seconds),
            "4 sharers": sharers(
                backend, [(100, 1000), (200, 200), (300, 300), (250, 250)], [25.0, 20.0, 30.0, 25.0], seconds
            ),
            "reshare": reshared(backend),
            "quota of 100%": overhead(backend, rounds, 20_000_000),
        }
        print(name, json.dumps(found[name], indent=2), flush=True)
    print(json.dumps({k: found[k] for k in ("launch", "idle", "step gate")}, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
