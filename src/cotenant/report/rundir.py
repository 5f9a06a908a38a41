"""The layout of a run directory.

::

    DIR/manifest.json
    DIR/runs/<policy>/seed-<k>/events.jsonl      the log, or events.jsonl.gz
                               metrics.json      summary
                               jobs.parquet      one row for each job
                               timeline.parquet  means over time
                               devices.parquet   residents and busy share by group of devices
                               segments.parquet  exact residents of the first devices
                               foretold.parquet  speeds foretold of jobs beside others, and what happened
    DIR/report.html, summary.csv, summary.parquet
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from cotenant.engine.log import read_log
from cotenant.errors import InputError
from cotenant.report.failures import failures
from cotenant.report.fold import MetricFold
from cotenant.report.metrics import RunMetrics
from cotenant.report.tables import plain_json

__all__ = ["Run", "fold_file", "load_manifest", "load_run", "load_runs", "save_metrics", "write_run_metrics"]

_FRAMES = ("jobs", "timeline", "devices", "segments")
_FORETOLD = "foretold"


class Run:
    """One run of a directory: where it lies, which policy and seed, and its metrics.

    ``complete`` is False for a run that was cut short; its log ends before its jobs do.
    """

    def __init__(self, path: Path, policy: str, seed: int, metrics: RunMetrics) -> None:
        self.path, self.policy, self.seed, self.metrics = path, policy, seed, metrics
        summary = metrics.summary
        self.complete = bool(summary.get("log_complete")) and not summary.get("interrupted")


def fold_file(path: Path, evidence: dict[str, float] | None = None) -> RunMetrics:
    """Metrics of a log.

    Raises
    ------
    LogError
        If the log cannot be read or makes no sense.
    """
    return MetricFold().see_all(read_log(path)).result(evidence)


def save_metrics(run_dir: Path, metrics: RunMetrics) -> None:
    """Write the metrics of one run beside its log."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "metrics.json").write_text(plain_json(metrics.summary), encoding="utf-8")
    metrics.write_jobs(run_dir / "jobs.parquet")
    for name in (*_FRAMES[1:], _FORETOLD):
        getattr(metrics, name).write_parquet(run_dir / f"{name}.parquet", compression="zstd")


def write_run_metrics(run_dir: Path, evidence: dict[str, float] | None = None) -> RunMetrics:
    """Fold the log of a run directory and write its metrics beside it.

    Raises
    ------
    InputError
        If the directory has no log.
    """
    metrics = fold_file(_log_of(run_dir), evidence)
    save_metrics(run_dir, metrics)
    return metrics


def _log_of(run_dir: Path) -> Path:
    for name in ("events.jsonl", "events.jsonl.gz"):
        if (run_dir / name).is_file():
            return run_dir / name
    raise InputError(
        f"{run_dir} has no events.jsonl; is it the directory of one run (runs/<policy>/seed-<k>)?"
    )


def load_run(run_dir: Path) -> RunMetrics:
    """Read the metrics of a run; fold its log first where they were not written yet.

    Raises
    ------
    InputError
        If there is neither, or a file cannot be read.
    """
    if not (run_dir / "metrics.json").is_file():
        return write_run_metrics(run_dir)
    try:
        summary: dict[str, Any] = json.loads((run_dir / "metrics.json").read_text(encoding="utf-8"))
        frames = [pl.read_parquet(run_dir / f"{name}.parquet") for name in _FRAMES]
        told = run_dir / f"{_FORETOLD}.parquet"  # folders of earlier versions have none
        foretold = pl.read_parquet(told) if told.is_file() else None
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{run_dir}: metrics cannot be read ({error}); delete metrics.json to redo them"
        ) from error
    jobs, timeline, devices, segments = frames
    return RunMetrics(jobs, timeline, summary, devices, segments, foretold=foretold)


def load_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a directory; empty if it has none.

    Raises
    ------
    InputError
        If it is not JSON.
    """
    path = directory / "manifest.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected an object, found {type(found).__name__}")
    return found


def load_runs(directory: Path) -> list[Run]:
    """All runs of a directory: policies in the manifest's order, else by name; seeds ascending.

    Runs that the manifest calls failed are left out.

    Raises
    ------
    InputError
        If there is no run.
    """
    manifest = load_manifest(directory)
    named = [run for run in manifest.get("runs") or [] if isinstance(run, dict)]
    failed = {str(run.get("folder")) for run in named if run.get("status") == "failed"}
    order: dict[str, str] = {}
    for run in named:
        order.setdefault(Path(str(run.get("folder"))).parent.name, str(run.get("policy")))
    for policy in manifest.get("policies") or []:
        order.setdefault(str(policy), str(policy))
    found = []
    for path in sorted((directory / "runs").glob("*/seed-*")):
        seed = path.name.removeprefix("seed-")
        if path.is_dir() and seed.isdigit() and path.relative_to(directory).as_posix() not in failed:
            found.append((path.parent.name, int(seed), path))
    if not found:
        told = "".join(f"\n{line}" for line in failures(directory, manifest))
        raise InputError(f"{directory} has no runs (looked for runs/<policy>/seed-<k> in it){told}")
    rank = {folder: i for i, folder in enumerate(order)}
    found.sort(key=lambda f: (rank.get(f[0], len(rank)), f[0], f[1]))
    return [Run(path, order.get(name, name), seed, load_run(path)) for name, seed, path in found]
