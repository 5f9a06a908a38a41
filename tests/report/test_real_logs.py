"""Logs of the real engine: the online fold, the file, and books that balance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cotenant.engine.log import LogWriter, read_log
from cotenant.engine.loop import Loop
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload
from cotenant.registry import load
from cotenant.report.explain import explain
from cotenant.report.fold import MetricFold
from cotenant.report.rundir import fold_file


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_online_and_from_the_file_and_the_books_balance(tmp_path: Path, policy: str):
    rng = np.random.default_rng(5)
    jobs = 300
    frame = pl.DataFrame(
        {
            "name": [f"j{i}" for i in range(jobs)],
            "submit_s": np.cumsum(rng.exponential(30.0, jobs)),
            "duration_s": rng.exponential(400.0, jobs) + 1.0,
            "gpus": rng.choice([1, 2, 4], jobs),
            "memory_bytes": [1 << 30] * jobs,
        }
    )
    gpu = DeviceType(name="g", memory_bytes=16 << 30, power_w=300.0, idle_w=50.0)
    cluster = Cluster.uniform(16, gpus_per_node=8, gpu_type=gpu)
    rules, fold, log = Settings(), MetricFold(), LogWriter(tmp_path / "events.jsonl")
    executor = SimulatedExecutor(Workload(frame), cluster, truth=None, settings=rules)
    header = {"policy": policy}
    loop = Loop(
        cluster=cluster,
        policy=load("policy", policy)(),
        executor=executor,
        settings=rules,
        seed=0,
        log=log,
        observers=[fold],
        header=header,
    )
    loop.run()
    log.close()
    online, stored = fold.result(), fold_file(tmp_path / "events.jsonl")
    assert stored.summary == online.summary
    assert stored.jobs.equals(online.jobs)
    s = online.summary
    assert s["jobs_finished"] == s["jobs_submitted"] == jobs
    # Nobody shares here: each busy second does a second of work, and nothing else is useful.
    assert s["gpu_hours_useful"] == pytest.approx(s["gpu_hours_busy"], rel=1e-9)
    done = online.jobs.sort("name")["work_s"].to_numpy()
    assert done == pytest.approx(frame.sort("name")["duration_s"].to_numpy())
    width = online.timeline["width_s"]
    assert (online.timeline["queue_jobs"] * width).sum() == pytest.approx(
        online.jobs["queued_s"].sum(), abs=1e-3
    )
    held = (online.jobs["run_s"] * online.jobs["gpus"]).sum()
    assert s["gpu_hours_allocated"] == pytest.approx(held / 3600)
    assert (s["preemptions"] > 0) == (policy == "las")  # srtf knows no running times here
    worst = online.jobs.sort("wait_s", "id")["id"][-1]
    told = explain(tmp_path / "events.jsonl", worst)
    assert told.outcome == "done"
    first = told.waits[0]
    assert first.end_s - first.start_s == pytest.approx(s["longest_wait_s"])
    assert sum(1 for _ in read_log(tmp_path / "events.jsonl")) == s["events"]
