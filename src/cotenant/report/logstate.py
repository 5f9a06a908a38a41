"""Is the log of a run still the one that its manifest names?

Tables are read from files made beside the log when the run ended; so a log that was emptied,
changed or deleted since would otherwise go unnoticed.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

__all__ = ["LogState", "log_state", "log_warnings"]

LogState = Literal["as recorded", "changed", "missing"]


def log_state(run_dir: Path, sha256: str) -> LogState:
    """Compare the log in a run's folder with the hash that the manifest gives.

    A log that was packed since (``events.jsonl.gz``) counts by what it unpacks to.
    """
    plain, packed = run_dir / "events.jsonl", run_dir / "events.jsonl.gz"
    if plain.is_file():
        with plain.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        return "as recorded" if found == sha256 else "changed"
    if not packed.is_file():
        return "missing"
    whole = hashlib.sha256()
    try:
        with gzip.open(packed, "rb") as stream:
            while piece := stream.read(1 << 20):
                whole.update(piece)
    except (OSError, EOFError):
        return "changed"
    return "as recorded" if whole.hexdigest() == sha256 else "changed"


def log_warnings(directory: Path, manifest: Mapping[str, Any]) -> list[str]:
    """A sentence for each run whose log is missing, or is not the one that the manifest names."""
    said = []
    for run in manifest.get("runs") or []:
        sha256 = run.get("log_sha256") if isinstance(run, dict) else None
        if not sha256:
            continue
        state = log_state(directory / str(run.get("folder")), str(sha256))
        if state == "missing":
            what = "its log is missing"
        elif state == "changed":
            what = "its log is not the one that the manifest names (changed since the run)"
        else:
            continue
        said.append(
            f"{run.get('policy')} seed {run.get('seed')}: {what}; the numbers are those that the run wrote. "
            "cotenant replay tells whether a new run gives the log of the manifest."
        )
    return said
