"""One policy, one seed: run it and write its folder."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import CotenantError
from cotenant.profiles.hashes import sha256_of
from cotenant.profiles.wholefile import write_whole
from cotenant.runs.blame import sentence
from cotenant.runs.control import Control
from cotenant.runs.manifest import Status
from cotenant.runs.memory import tidy_memory
from cotenant.runs.prepare import Prepared
from cotenant.runs.spec import params_of
from cotenant.runs.world import World, build_world

__all__ = ["ERROR", "EVENTS", "JOBS", "METRICS", "TIMELINE", "Outcome", "run_one"]

EVENTS = "events.jsonl"
METRICS = "metrics.json"
JOBS = "jobs.parquet"
TIMELINE = "timeline.parquet"
ERROR = "error.txt"


class Outcome(msgspec.Struct, kw_only=True):
    """How a run ended. ``summary`` is empty where no metrics could be computed."""

    policy: str
    seed: int
    status: Status
    log_sha256: str = ""
    log_bytes: int = 0
    error: str = ""
    exit_code: int = 0
    summary: dict[str, Any] = {}


def run_one(
    prepared: Prepared,
    policy: Any,
    *,
    label: str,
    seed: int,
    folder: Path,
    control: Control | None = None,
    caught: list[Exception] | None = None,
) -> Outcome:
    """Run one policy with one seed; log, metrics and tables are written to ``folder``.

    An error that the policy raises ends this run only: the outcome says ``failed``, the log
    as far as it was written stays, and ``error.txt`` holds the traceback. The exception
    itself is appended to ``caught``.
    """
    control = control or Control()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        summary = _simulate(prepared, policy, label=label, seed=seed, folder=folder, control=control)
        status: Status = "interrupted" if control.interrupted else "complete"
        outcome = Outcome(policy=label, seed=seed, status=status, summary=summary)
    except Exception as problem:
        # A policy is anybody's code; whatever it raises must not take the other runs along.
        text = sentence(policy, label, problem)
        code = problem.exit_code if isinstance(problem, CotenantError) else 1
        if caught is not None:
            caught.append(problem)
        elif not isinstance(problem, CotenantError):
            text += f"; see {folder / ERROR}"
        outcome = _failed(label, seed, folder, text, code)
    log = folder / EVENTS
    if log.is_file():
        outcome.log_sha256, outcome.log_bytes = sha256_of(log), log.stat().st_size
    return outcome


def _failed(label: str, seed: int, folder: Path, text: str, code: int) -> Outcome:
    write_whole(folder / ERROR, traceback.format_exc().encode())
    return Outcome(policy=label, seed=seed, status="failed", error=text, exit_code=code)


def _simulate(
    prepared: Prepared, policy: Any, *, label: str, seed: int, folder: Path, control: Control
) -> dict[str, Any]:
    from cotenant.engine.log import LogWriter
    from cotenant.engine.loop import Loop
    from cotenant.executors.simulated import SimulatedExecutor
    from cotenant.report.fold import MetricFold
    from cotenant.report.rundir import save_metrics

    world = build_world(prepared, seed)
    tidy_memory()
    executor = SimulatedExecutor(
        world.workload,
        prepared.cluster,
        truth=world.truth,
        settings=prepared.settings,
        incidents=prepared.incidents,
        seed=seed,
    )
    fold, log = MetricFold(), LogWriter(folder / EVENTS)
    loop = Loop(
        cluster=prepared.cluster,
        policy=policy,
        executor=executor,
        forecast=world.forecast,
        runtime=world.runtime,
        settings=prepared.settings,
        seed=seed,
        log=log,
        observers=[fold, control],
        header=_header(world, policy, label),
    )
    control.attach(loop)
    try:
        loop.run()
    finally:
        log.close()
    metrics = fold.result(executor.source_hours)
    save_metrics(folder, metrics)
    return metrics.summary


def _header(world: World, policy: Any, label: str) -> dict[str, Any]:
    """What the first line of the log says beside the cluster and the settings."""
    return {
        "policy": label,
        "params": params_of(policy),
        "workload": {"name": world.workload.name, "jobs": len(world.workload)},
        "truth": world.truth.describe() if world.truth is not None else {"kind": "none"},
    }
