"""Who waits: by the size of the job, and the jobs that waited longest, with the command that says why."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.quantities import format_duration

if TYPE_CHECKING:
    from cotenant.report.rundir import Run

__all__ = ["by_size", "find_log", "longest", "size_rows", "why_command", "why_failed"]

LONGEST = 5


def by_size(policies: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """For each class of size and each policy: jobs of one run, and mean wait in seconds over seeds."""
    from cotenant.report.jobtable import SIZE_CLASSES

    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for size in SIZE_CLASSES:
        for name, runs in policies.items():
            groups = [g for run in runs if (g := (run.metrics.summary.get("by_size") or {}).get(size))]
            waits = [g["wait_s_mean"] for g in groups if g.get("wait_s_mean") is not None]
            if groups:
                mean = math.fsum(waits) / len(waits) if waits else None
                found.setdefault(size, {})[name] = {"jobs": groups[0]["jobs"], "wait_s_mean": mean}
    return found


def longest(run: Run, count: int = LONGEST) -> list[tuple[str, float]]:
    """Names of the jobs that were longest in the queue, suspensions included, and for how many seconds."""
    jobs = run.metrics.jobs.sort(["queued_s", "id"], descending=[True, False]).head(count)
    return [(name, seconds) for name, seconds in jobs.select("name", "queued_s").iter_rows() if seconds > 0]


def size_rows(policies: Mapping[str, Sequence[Run]]) -> list[tuple[str, ...]]:
    """Rows of a table: GPUs asked for, jobs, and the mean wait under each policy."""
    rows = []
    for size, own in by_size(policies).items():
        jobs = next(iter(own.values()))["jobs"]
        waits = [(own.get(name) or {}).get("wait_s_mean") for name in policies]
        rows.append((size, f"{jobs:,}", *("n/a" if w is None else format_duration(w) for w in waits)))
    return rows


def why_command(run: Run, folder: Path, policy: str, name: str) -> str:
    """What to type to learn why this job waited."""
    words = ["cotenant", "explain", str(folder), "--policy", policy, "--seed", str(run.seed)]
    return shlex.join([*words, *(["--"] if name.startswith("-") else []), name])


def find_log(path: Path, policy: str | None, seed: int | None) -> Path:
    """The log that was meant: a file, the folder of one run, or a run folder with a choice in it.

    Raises
    ------
    ConfigError
        If there is none, or it takes a policy to choose one.
    UnknownNameError
        If the folder has no such policy.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise ConfigError(f"{path}: no such file or folder")
    logs = sorted(path.glob("events.jsonl*"))
    if logs:
        return logs[0]
    runs = _runs(path)
    _check_failed(path, policy, seed, runs)
    policies = list(dict.fromkeys(label for label, _, _ in runs))
    if not runs:
        raise ConfigError(f"{path} holds 0 logs; give a folder written by cotenant simulate -o")
    if policy is None and len(policies) > 1:
        raise ConfigError(
            f"{path} holds {len(runs)} logs; name the policy with --policy (and --seed): {', '.join(policies)}"
        )
    chosen = policy or policies[0]
    if chosen not in policies:
        raise UnknownNameError(f"policy in {path}:", chosen, policies)
    seeds = {number: log for label, number, log in runs if label == chosen}
    if seed is not None and seed not in seeds:
        raise ConfigError(f"{path}: {chosen} has no seed {seed}; it has {', '.join(map(str, sorted(seeds)))}")
    return seeds[min(seeds) if seed is None else seed]


def why_failed(log: Path) -> str | None:
    """The sentence on the run that wrote this log, if its manifest calls it failed; else None."""
    from cotenant.report.failures import failure_of
    from cotenant.report.rundir import load_manifest

    top = log.absolute().parents
    if len(top) < 4:
        return None
    # As it was named, if it was named whole: the sentence is shorter then.
    directory = log.parents[3] if len(log.parents) > 3 else top[3]
    where = directory / log.absolute().relative_to(top[3])
    return failure_of(where, load_manifest(directory), directory)


def _check_failed(path: Path, policy: str | None, seed: int | None, runs: Sequence[Any]) -> None:
    # A run that failed before its first event has no log: say so, not that there is no such policy.
    from cotenant.report.failures import failures
    from cotenant.report.rundir import load_manifest

    if any((policy in (None, label)) and (seed in (None, number)) for label, number, _ in runs):
        return
    manifest = load_manifest(path)
    entries = [e for e in manifest.get("runs") or [] if isinstance(e, dict)]
    chosen = [e for e in entries if policy in (None, e.get("policy")) and seed in (None, e.get("seed"))]
    told = failures(path, {"runs": chosen})
    if told:
        raise ConfigError("\n".join(told))


def _runs(path: Path) -> list[tuple[str, int, Path]]:
    """Policy, seed and log of every run in a folder that has a log."""
    from cotenant.report.rundir import load_manifest

    entries: Any = load_manifest(path).get("runs") or []
    labels = {str(e.get("folder")): str(e.get("policy")) for e in entries if isinstance(e, dict)}
    found = []
    for log in sorted(path.glob("runs/*/seed-*/events.jsonl*")):
        folder, seed = log.parent.relative_to(path).as_posix(), log.parent.name.removeprefix("seed-")
        if seed.isdigit():
            found.append((labels.get(folder, log.parent.parent.name), int(seed), log))
    order = list(labels)
    return sorted(found, key=lambda f: (_rank(order, f[2].parent.relative_to(path).as_posix()), f[1]))


def _rank(order: Sequence[str], folder: str) -> int:
    return order.index(folder) if folder in order else len(order)
