"""The manifest: all that is needed to understand a run directory and to repeat it.

It names no host, no user and no time of day, so that two machines write the same.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from cotenant import __version__
from cotenant.errors import ConfigError
from cotenant.profiles.hashes import sha256_of
from cotenant.runs.config import RunConfig
from cotenant.runs.folders import KIND, MANIFEST, write_json

__all__ = [
    "InputFile",
    "Manifest",
    "RunEntry",
    "library_versions",
    "new_manifest",
    "read_manifest",
    "write_manifest",
]

SCHEMA = 1
_DEPENDENCIES = ("altair", "msgspec", "numpy", "polars", "scikit-learn", "scipy")

Status = Literal["pending", "complete", "interrupted", "failed"]


class InputFile(msgspec.Struct, kw_only=True, frozen=True):
    """A file that was read: its role, its path as given, and its bytes by hash."""

    role: str
    path: str
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, role: str, path: str) -> InputFile:
        """Hash a file."""
        return cls(role=role, path=path, sha256=sha256_of(Path(path)), size_bytes=Path(path).stat().st_size)


class RunEntry(msgspec.Struct, kw_only=True):
    """One policy with one seed. ``log_sha256`` is empty until the run has written its log."""

    policy: str
    seed: int
    folder: str
    status: Status = "pending"
    log_sha256: str = ""
    log_bytes: int = 0
    error: str = ""


class Manifest(msgspec.Struct, kw_only=True):
    """What ``manifest.json`` holds.

    ``command`` is what was typed. ``policies`` are as written, ``params`` all their
    parameters, defaults included. ``warnings`` say what makes the results doubtful. ``config`` is None when the run was started from Python with objects in memory; such a
    run can be read, but not replayed.
    """

    kind: str = KIND
    schema: int = SCHEMA
    version: str = __version__
    command: list[str] = []
    versions: dict[str, str] = {}
    config: RunConfig | None = None
    policies: list[str] = []
    params: dict[str, dict[str, Any]] = {}
    seeds: list[int] = []
    seeds_vary: list[str] = []
    settings: dict[str, Any] = {}
    inputs: list[InputFile] = []
    cluster: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    data_report: dict[str, Any] | None = None
    forecast: str = ""
    runtime: str = ""
    assumptions: list[str] = []
    warnings: list[str] = []
    runs: list[RunEntry] = []

    @property
    def complete(self) -> bool:
        """True if every run came to its end."""
        return all(run.status == "complete" for run in self.runs)


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries on whose numbers results rest."""
    found = {"python": platform.python_version()}
    for name in _DEPENDENCIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def new_manifest(**fields: Any) -> Manifest:
    """A manifest with the versions filled in."""
    return Manifest(versions=library_versions(), **fields)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json``, whole or not at all."""
    write_json(folder / MANIFEST, manifest)


def read_manifest(path: Path) -> tuple[Manifest, Path]:
    """Read a manifest, given itself or its folder.

    Returns
    -------
    manifest : Manifest
    folder : Path
        The run directory.

    Raises
    ------
    ConfigError
        If there is none, or it is not one of ours or of a newer schema.
    """
    file = path / MANIFEST if path.is_dir() else path
    if not file.is_file():
        hint = f"no {MANIFEST} in it" if path.is_dir() else "no such file"
        raise ConfigError(f"{path}: {hint}; give a folder written by cotenant simulate -o")
    try:
        found = msgspec.json.decode(file.read_bytes())
        if not isinstance(found, dict) or found.get("kind") != KIND:
            raise ConfigError(f"{file} is not a manifest of a cotenant run")
        if found.get("schema") != SCHEMA:
            raise ConfigError(
                f"{file} has manifest schema {found.get('schema')}, this version reads {SCHEMA}; use cotenant "
                f"{found.get('version', 'of another version')}"
            )
        return msgspec.convert(found, Manifest), file.parent
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read as a manifest: {error}") from None
