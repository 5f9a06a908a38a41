"""One cell, alone in its process: ``python -m bench.cell '{"policy": "fifo", ...}'`` prints one JSON line.

The whole of a simulation is done and counted: events are built, checked by the rules, encoded
and written to a file, reasons are kept, metrics are folded from the same events, and the
summary is made of them. Drawing the workload is not counted; starting Python and importing
what a run needs is counted by itself (``start_cpu_s``).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["main", "run_drawn", "run_trace"]

Row = dict[str, Any]


class _Most:
    """Notes the longest queue, by the events that lengthen and shorten it, and its own CPU time."""

    def __init__(self) -> None:
        from cotenant.model import events as ev

        self.waiting = self.most = 0
        self.cpu_s = 0.0
        self._up, self._down = (ev.Submitted, ev.Suspended), (ev.Started, ev.Rejected)
        self._ended = ev.Ended

    def see(self, events: list[Any]) -> None:
        """Take the next events."""
        begun = time.process_time()
        waiting, most, up, down = self.waiting, self.most, self._up, self._down
        for event in events:
            kind = type(event)
            if kind in up or (kind is self._ended and not event.final):
                waiting += 1
                if waiting > most:
                    most = waiting
            elif kind in down:
                waiting -= 1
        self.waiting, self.most = waiting, most
        self.cpu_s += time.process_time() - begun


def run_drawn(spec: Row) -> Row:
    """Draw a workload and run one policy on it.

    ``spec`` holds ``policy``, ``jobs``, ``devices``, ``load``, ``shape`` and ``seed``. Finding the
    longest queue belongs to the benchmark, not to a run: its CPU time is taken off.
    """
    from bench.draw import draw, offered_load
    from bench.measure import calibrate, peak_bytes
    from cotenant.engine.log import LogWriter
    from cotenant.engine.loop import Loop
    from cotenant.executors.simulated import SimulatedExecutor
    from cotenant.predictors.forecast import build_runtime, build_speeds
    from cotenant.report.fold import MetricFold
    from cotenant.runs.memory import tidy_memory
    from cotenant.runs.spec import build_policy, parse_policy

    policy = build_policy(parse_policy(spec["policy"]))
    start_cpu_s = time.process_time()
    jobs, cluster = draw(spec["jobs"], spec["devices"], spec["load"], shape=spec["shape"], seed=spec["seed"])
    before_s, drawn_bytes = calibrate(), peak_bytes()
    most, fold = _Most(), MetricFold()
    with tempfile.TemporaryDirectory() as folder:
        log = LogWriter(Path(folder) / "events.jsonl")
        begun, wall = time.process_time(), time.perf_counter()
        tidy_memory()  # as runs.single does
        truth, forecast = build_speeds(spec["seed"], forecast="contention", truth="modelled", cluster=cluster)
        executor = SimulatedExecutor(jobs, cluster, truth=truth)
        loop = Loop(
            cluster=cluster,
            policy=policy,
            executor=executor,
            forecast=forecast,
            runtime=build_runtime("declared", jobs),
            seed=spec["seed"],
            log=log,
            observers=[fold, most],
            header={"policy": spec["policy"], "truth": truth.describe()},
        )
        built = time.process_time()
        loop.run()
        looped = time.process_time()
        summary = fold.result(executor.source_hours).summary
        ended, wall_s = time.process_time(), time.perf_counter() - wall
        size = (Path(folder) / "events.jsonl").stat().st_size
    peak = peak_bytes()
    counts = loop.state.counts
    return {
        "start_cpu_s": start_cpu_s,
        "cpu_s": ended - begun - most.cpu_s,
        "build_cpu_s": built - begun,
        "loop_cpu_s": looped - built - most.cpu_s,
        "summary_cpu_s": ended - looped,
        "wall_s": wall_s,
        "peak_bytes": peak,
        "drawn_bytes": drawn_bytes,
        "events": log.events,
        "log_bytes": size,
        "done": counts["done"],
        "waiting_at_end": len(loop.state.queue),
        "offered_load": offered_load(jobs, cluster),
        "most_pending": most.most,
        "mean_jct_s": summary["jct_s_mean"],
        "preemptions": summary["preemptions"],
        "shared_share": summary["shared_share"],
        "calibration_s": [before_s, calibrate()],
    }


def run_trace(spec: Row) -> Row:
    """Run one policy on a trace file as ``cotenant simulate`` does, without the report page.

    ``cpu_s`` is everything since the process began: Python itself, imports, reading the trace,
    simulating, and writing log and tables.
    """
    from cotenant.runs.config import RunConfig
    from cotenant.runs.prepare import prepare
    from cotenant.runs.single import run_one
    from cotenant.runs.spec import build_policy, parse_policy

    prepared = prepare(RunConfig(trace=spec["trace"], policies=(spec["policy"],), gpus=spec["devices"]))
    policy = build_policy(parse_policy(spec["policy"]))
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_one(prepared, policy, label=spec["policy"], seed=spec["seed"], folder=Path(folder))
    cpu_s = time.process_time()
    from bench.measure import calibrate, peak_bytes

    peak = peak_bytes()
    if outcome.status != "complete":
        raise SystemExit(outcome.error)
    return {
        "jobs": len(prepared.workload),
        "cpu_s": cpu_s,
        "peak_bytes": peak,
        "log_bytes": outcome.log_bytes,
        "mean_jct_s": outcome.summary["jct_s_mean"],
        "calibration_s": [calibrate()],
    }


def main() -> None:
    """Run the cell that the argument describes."""
    from cotenant.runs.memory import frugal_frames

    frugal_frames()  # as the command line does
    spec = json.loads(sys.argv[1])
    print(json.dumps((run_trace if "trace" in spec else run_drawn)(spec)))


if __name__ == "__main__":
    main()
