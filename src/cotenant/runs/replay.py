"""Run again what a manifest says, and compare the logs byte for byte: manifest, disk and new run."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import msgspec

from cotenant.errors import ConfigError, LogError, ReplayMismatchError
from cotenant.predictors.forecast import file_named
from cotenant.profiles.hashes import sha256_of
from cotenant.report.failures import failures, torn_runs
from cotenant.report.logstate import LogState, log_state
from cotenant.runs.config import RunConfig
from cotenant.runs.manifest import InputFile, Manifest, RunEntry, read_manifest
from cotenant.runs.many import Task, Watcher, run_tasks
from cotenant.runs.prepare import prepare
from cotenant.runs.single import EVENTS, Outcome

__all__ = ["Replayed", "first_difference", "not_replayed", "replay"]

_SHOWN_BYTES = 200


class Replayed(msgspec.Struct, kw_only=True):
    """What came of one run: identical, or where it first differs.

    Parameters
    ----------
    identical : bool
        The new log, the log on disk and the hash in the manifest are one and the same.
    log : {"as recorded", "changed", "missing"}
        The log on disk against the manifest.
    gives_recorded_hash : bool
        Whether the new run gave the log that the manifest names.
    """

    policy: str
    seed: int
    identical: bool
    difference: str = ""
    log: LogState = "as recorded"
    gives_recorded_hash: bool = False


def replay(path: Path, *, workers: int = 1, watcher: Watcher | None = None) -> list[Replayed]:
    """Run every complete run of a manifest again.

    Raises
    ------
    ConfigError
        If there is nothing to replay, or an input is missing.
    ReplayMismatchError
        If an input's bytes are not those that the manifest names.
    KeyboardInterrupt
        If it was interrupted: then nothing can be said.
    """
    manifest, folder = read_manifest(path)
    if manifest.config is None:
        raise ConfigError(
            f"{path}: this run was started from Python with objects in memory; it cannot be replayed"
        )
    config = _find_inputs(manifest, manifest.config, folder)
    entries = [run for run in manifest.runs if run.status == "complete"]
    if not entries:
        told = "".join(f"\n{line}" for line in not_replayed(path))
        raise ConfigError(f"{path}: no run in it is complete, so there is nothing to compare with{told}")
    with tempfile.TemporaryDirectory(prefix="cotenant-replay-") as name:
        fresh = Path(name)
        tasks = [Task(policy=e.policy, seed=e.seed, folder=str(fresh / e.folder)) for e in entries]
        outcomes, interrupted = run_tasks(config, prepare(config), tasks, workers, watcher or Watcher())
        if interrupted:
            raise KeyboardInterrupt
        return [
            _compare(entry, outcome, folder, fresh) for entry, outcome in zip(entries, outcomes, strict=True)
        ]


def not_replayed(path: Path) -> list[str]:
    """A sentence for each run of a manifest that `replay` leaves out: failed, cut short, never begun.

    Raises
    ------
    ConfigError
        If there is no manifest.
    """
    manifest, folder = read_manifest(path)
    left = [entry for entry in manifest.runs if entry.status in ("failed", "pending")]
    told = failures(folder, {"runs": [msgspec.to_builtins(entry) for entry in left]})
    torn = torn_runs({"runs": [msgspec.to_builtins(entry) for entry in manifest.runs]})
    return told + [f"{name} was cut short, so it is not compared" for name in torn]


def _compare(entry: RunEntry, outcome: Outcome, folder: Path, fresh: Path) -> Replayed:
    same = outcome.log_sha256 == entry.log_sha256
    state = log_state(folder / entry.folder, entry.log_sha256)
    found = Replayed(
        policy=entry.policy,
        seed=entry.seed,
        identical=same and state == "as recorded" and outcome.status == "complete",
        log=state,
        gives_recorded_hash=same,
    )
    if outcome.status != "complete":
        found.difference = outcome.error or outcome.status
    elif not found.identical:
        found.difference = _difference(found, folder / entry.folder / EVENTS, fresh / entry.folder / EVENTS)
    return found


def _difference(found: Replayed, old: Path, new: Path) -> str:
    where = f"\n{first_difference(old, new)}" if old.is_file() else ""
    if found.log == "as recorded":
        return where.lstrip("\n") or "another log than the (packed) one in the folder"
    word = "missing" if found.log == "missing" else "not the one that the manifest names"
    again = "yes" if found.gives_recorded_hash else "no"
    return f"the log on disk is {word}; a new run gives the manifest's hash: {again}{where}"


def first_difference(old: Path, new: Path) -> str:
    """The first line in which two logs differ, in words; says so if the old file was changed since.

    Raises
    ------
    LogError
        If one of them cannot be read.
    """
    try:
        with old.open("rb") as a, new.open("rb") as b:
            for number, (left, right) in enumerate(itertools.zip_longest(a, b), 1):
                if left != right:
                    at = _first_byte(left or b"", right or b"")
                    return f"event {number} differs:\n  was {_shown(left, at)}\n  now {_shown(right, at)}"
    except OSError as error:
        raise LogError(f"{error.filename}: cannot be read ({error.strerror})") from error
    return "the log file equals the replay, but not the hash in the manifest: the manifest was changed"


def _first_byte(left: bytes, right: bytes) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return sum(1 for _ in same)


def _shown(line: bytes | None, at: int) -> str:
    """The event's kind, and what stands around the byte in which it differs."""
    if line is None:
        return "nothing: the log ends before"
    text = line.rstrip(b"\n")
    if len(text) <= _SHOWN_BYTES:
        return text.decode(errors="replace")
    start = max(0, at - _SHOWN_BYTES // 3)
    return f"{text[:16].decode(errors='replace')}... {text[start : start + _SHOWN_BYTES].decode(errors='replace')}..."


def _find_inputs(manifest: Manifest, config: RunConfig, folder: Path) -> RunConfig:
    """Find each input by its path as given, or else beside the manifest, and check its bytes."""
    moved: dict[str, str] = {}
    for item in manifest.inputs:
        found = _locate(item, folder)
        if sha256_of(found) != item.sha256:
            raise ReplayMismatchError(
                f"{found}: the {item.role} changed since the run (sha256 was {item.sha256[:12]}..., "
                f"is {sha256_of(found)[:12]}...)"
            )
        told: str = getattr(config, item.role, None) or ""
        if told == item.path:
            moved[item.role] = str(found)
        elif item.role in ("forecast", "runtime") and file_named(told) == item.path:
            # The file is a part of the name: adaptive:fit.json, mine.py:Mine.
            moved[item.role] = told.replace(item.path, str(found), 1)
    return msgspec.structs.replace(config, **moved)


def _locate(item: InputFile, folder: Path) -> Path:
    given = Path(item.path)
    tries = [given, folder / given, folder / "inputs" / given.name, folder.parent / given]
    for place in tries:
        if place.is_file():
            return place
    raise ConfigError(
        f"the {item.role} {item.path} is not there; run replay in the folder where the run was started, "
        f"or put the file into {folder / 'inputs'}"
    )
