"""Run files: a simulation described in TOML or YAML."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cotenant.runs.config import RunConfig
from cotenant.traces.documents import read_document

__all__ = ["read_run_file"]

_PATHS = ("trace", "cluster", "profiles", "incidents", "devices")


def read_run_file(path: Path) -> RunConfig:
    """Read a run file; paths in it are relative to its own folder.

    Raises
    ------
    ConfigError
        Naming file, line where known, the key, and what is allowed.
    """
    config = read_document(path).convert(RunConfig)
    moved = {
        name: str(path.parent / value) for name in _PATHS if (value := getattr(config, name)) is not None
    }
    return msgspec.structs.replace(config, **moved).check()
