"""How long one ``decide`` takes while 10,000 jobs wait on 4,000 devices.

::

    python -m bench.decide --out results.jsonl

Jobs come all at once first, so that the queue is full, then one by one. Calls are timed from
the first instant after that, while at least the wanted number of jobs waits; what the first
instant took is told by itself, since indexes are built then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.measure import ONE_THREAD, ROOT, append, calibrate, machine, read
from bench.speed import available, options

__all__ = ["P99_BUDGET_MS", "WORST_BUDGET_MS", "main", "quantile", "time_policy"]

Row = dict[str, Any]

P99_BUDGET_MS = 0.1
WORST_BUDGET_MS = 20.0


class _Timed:
    """Passes everything on to a policy, and takes the time of each decision."""

    def __init__(self, policy: Any, pending: int, calls: int) -> None:
        self._policy, self._pending, self._calls = policy, pending, calls
        self.usage_half_life_s = getattr(policy, "usage_half_life_s", None)
        self.first_ms = 0.0
        self.times_ms: list[float] = []
        self.loop: Any = None

    def decide(self, view: Any) -> Any:
        """Decide, timed."""
        counts, now = len(view.queue) >= self._pending, view.now
        begun = time.perf_counter_ns()
        plan = self._policy.decide(view)
        took_ms = (time.perf_counter_ns() - begun) / 1e6
        if now <= 0.0:
            self.first_ms += took_ms
        elif counts and len(self.times_ms) < self._calls:
            self.times_ms.append(took_ms)
            if len(self.times_ms) >= self._calls:
                self.loop.stop()
        return plan


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of all values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(-(-int(share * 1000) * len(ordered) // 1000) - 1, 0)]


def time_policy(policy: str, *, pending: int, devices: int, calls: int, seed: int = 0) -> Row:
    """Time the decisions of one policy; see the module."""
    import polars as pl

    from bench.draw import draw
    from cotenant.engine.loop import Loop
    from cotenant.executors.simulated import SimulatedExecutor
    from cotenant.predictors.forecast import build_runtime, build_speeds
    from cotenant.runs.spec import build_policy, parse_policy

    # Enough for the queue to stay full: what starts at once, what must wait, what comes later.
    first = 2 * pending + 2 * devices
    jobs, cluster = draw(first + calls, devices, 1.0, seed=seed)
    start_s = jobs.frame["submit_s"][first - 1]
    jobs = jobs.with_frame(jobs.frame.with_columns((pl.col("submit_s") - start_s).clip(0.0)))
    truth, forecast = build_speeds(seed, forecast="contention", truth="modelled", cluster=cluster)
    timed = _Timed(build_policy(parse_policy(policy)), pending, calls)
    before_s = calibrate()
    timed.loop = Loop(
        cluster=cluster,
        policy=timed,
        executor=SimulatedExecutor(jobs, cluster, truth=truth),
        forecast=forecast,
        runtime=build_runtime("declared", jobs),
        seed=seed,
    )
    timed.loop.run()
    times = timed.times_ms
    return {
        "kind": "decide",
        "policy": policy,
        "pending": pending,
        "devices": devices,
        "seed": seed,
        "calls": len(times),
        "p50_ms": quantile(times, 0.5) if times else None,
        "p99_ms": quantile(times, 0.99) if times else None,
        "worst_ms": max(times, default=None),
        "first_instant_ms": timed.first_ms,
        "calibration_s": [before_s, calibrate()],
    }


def _apart(policy: str, given: argparse.Namespace) -> Row:
    """The same in a process of its own."""
    numbers = {"pending": given.pending, "devices": given.devices, "calls": given.calls, "seed": given.seed}
    command = [sys.executable, "-m", "bench.decide", "--child", policy, json.dumps(numbers)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            capture_output=True,
            text=True,
            timeout=given.budget_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"kind": "decide", "policy": policy, **numbers, "error": f"more than {given.budget_s} s"}
    if done.returncode:
        error = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"kind": "decide", "policy": policy, **numbers, "error": error}
    row: Row = json.loads(done.stdout)
    return row


def _say(row: Row) -> str:
    if not row.get("calls") or "p99_ms" not in row:
        return f"{row['policy']:>12}: {row.get('error', 'the queue never got that long')}"
    if row["p99_ms"] is None:
        return f"{row['policy']:>12}: the queue never got that long"
    met = row["p99_ms"] < P99_BUDGET_MS and row["worst_ms"] < WORST_BUDGET_MS
    return (
        f"{row['policy']:>12}: p50 {row['p50_ms'] * 1e3:.1f} us, p99 {row['p99_ms'] * 1e3:.1f} us, "
        f"worst {row['worst_ms']:.2f} ms over {row['calls']:,} calls; first instant "
        f"{row['first_instant_ms']:,.0f} ms; {'within' if met else 'OVER'} budget"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Time each policy."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--child"]:
        print(json.dumps(time_policy(words[1], **json.loads(words[2]))))
        return
    parser = options(argparse.ArgumentParser(prog="python -m bench.decide", description=__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--policies", nargs="+", metavar="NAME", help="all registered, if left out")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=4_000)
    parser.add_argument("--calls", type=int, default=20_000, help="decisions timed")
    given = parser.parse_args(words)
    same = {"pending": given.pending, "devices": given.devices, "seed": given.seed}
    known = {
        row["policy"]
        for row in read(given.out)
        if row.get("kind") == "decide" and "error" not in row and same.items() <= row.items()
    }
    facts = machine()
    for policy in given.policies or available():
        if policy in known:
            print(f"{policy:>12}: in {given.out} already")
            continue
        runs = [_apart(policy, given) for _ in range(given.repeat)]
        row = min(runs, key=lambda run: run.get("worst_ms") or float("inf"))
        append(given.out, [{**row, "machine": facts}])
        print(_say(row), flush=True)


if __name__ == "__main__":
    main()
