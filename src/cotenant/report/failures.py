"""Runs that the manifest names and that gave no result: failed, cut short, never begun, or gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotenant.report.tables import show

__all__ = ["failure_of", "failures", "torn_runs"]

_ERROR = "error.txt"


def failures(directory: Path, manifest: Mapping[str, Any], policy: str | None = None) -> list[str]:
    """A sentence for each run (of one policy, if given) that failed, never began, or lies there no more."""
    found = []
    for run in manifest.get("runs") or []:
        if not isinstance(run, dict) or (policy is not None and run.get("policy") != policy):
            continue
        line = _sentence(directory, run)
        if line is not None:
            found.append(line)
    return found


def failure_of(log: Path, manifest: Mapping[str, Any], directory: Path) -> str | None:
    """The sentence on the run that wrote this log; None if it did not fail."""
    for run in manifest.get("runs") or []:
        if isinstance(run, dict) and directory / str(run.get("folder")) == log.parent:
            return _sentence(directory, run)
    return None


def torn_runs(manifest: Mapping[str, Any]) -> list[str]:
    """Policy and seed of each run that was cut short."""
    runs = [run for run in manifest.get("runs") or [] if isinstance(run, dict)]
    return [
        f"{show(str(run.get('policy')))} seed {run.get('seed')}"
        for run in runs
        if run.get("status") == "interrupted"
    ]


def _sentence(directory: Path, run: Mapping[str, Any]) -> str | None:
    folder = directory / str(run.get("folder"))
    name, status = show(f"{run.get('policy')} seed {run.get('seed')}"), run.get("status")
    if status == "failed":
        # The message may end with the place as it was called when the run was started.
        message, _, place = str(run.get("error") or "").rpartition("; see ")
        if not place.endswith(_ERROR) or not message:
            message = str(run.get("error") or "no message was kept")
        where = f", see {folder / _ERROR}" if (folder / _ERROR).is_file() else ""
        message = message.removeprefix(f"policy {run.get('policy')} ")
        return f"{name} failed: {show(message)}{where}"
    if status == "pending":
        return f"{name} never began, so it has no result"
    if status in ("complete", "interrupted") and not folder.is_dir():
        return f"{name} is missing: {folder} is not there any more"
    return None
