"""Saved state as files: one file for each save, whole or not there at all.

A name says all that is needed to judge a file without opening it::

    state-1-000000000120-<SHA-256 of the content>.pt
          |  step 120
          format

The content is what ``torch.save`` writes, so that plain ``torch.load`` reads it, too. It is written
under a temporary name, forced to disk, and renamed; whoever reads it checks the digest first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from cotenant.errors import StateError

__all__ = [
    "FORMAT",
    "StateFile",
    "digest_of",
    "list_states",
    "prune",
    "state_folder",
    "sync_folder",
    "verify",
    "write_state",
]

FORMAT = 1
_NAME = re.compile(r"state-(\d{1,4})-(\d{12})-([0-9a-f]{64})\.pt")
_CHUNK_BYTES = 1 << 22


class StateFile(NamedTuple):
    """One saved state.

    Attributes
    ----------
    path : Path
    format, step : int
    digest : str
        SHA-256 of the content, hexadecimal.
    """

    path: Path
    format: int
    step: int
    digest: str


class _Hashed:
    """A file that digests what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def list_states(folder: Path) -> list[StateFile]:
    """Saved states in a folder, the newest first; other files are left alone."""
    if not folder.is_dir():
        return []
    found = [(path, _NAME.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    states = [StateFile(p, int(m[1]), int(m[2]), m[3]) for p, m in found if m and p.is_file()]
    return sorted(states, key=lambda state: (-state.step, state.path.name))


def write_state(folder: Path, step: int, write: Callable[[Any], None]) -> StateFile:
    """Save a state.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    step : int
    write : callable
        Given an object with ``write`` and ``flush``; writes the content once, from front to back.

    Raises
    ------
    OSError
        Disk full, say; nothing is left behind, and states saved before are untouched.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = folder / f"tmp-{os.getpid()}-{step}"
    try:
        with temporary.open("wb") as file:
            hashed = _Hashed(file)
            write(hashed)
            file.flush()
            os.fsync(file.fileno())
        digest = hashed.digest.hexdigest()
        path = folder / f"state-{FORMAT}-{step:012d}-{digest}.pt"
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return StateFile(path, FORMAT, step, digest)


def verify(state: StateFile) -> None:
    """Read a state once and compare its digest with its name.

    Raises
    ------
    StateError
        If it is of a newer format, cannot be read, or is not what was written.
    """
    if state.format > FORMAT:
        raise StateError(
            f"{state.path}: saved state of format {state.format}, this version of cotenant reads up to"
            f" {FORMAT}; install the version that wrote it, or a later one"
        )
    digest, size = hashlib.sha256(), 0
    try:
        with state.path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise StateError(f"{state.path}: saved state cannot be read: {error.strerror or error}") from None
    if digest.hexdigest() != state.digest:
        older = [other.step for other in list_states(state.path.parent) if other.step < state.step]
        way = f"the one of step {max(older)}" if older else "the start: there is no older one"
        raise StateError(
            f"{state.path}: saved state is truncated or damaged: its {size} bytes have SHA-256"
            f" {digest.hexdigest()[:12]}..., {state.digest[:12]}... were written; delete it to begin from {way}"
        )


def prune(folder: Path, keep: int) -> None:
    """Delete all but the newest ``keep`` states, and what writers that died left unfinished."""
    for state in list_states(folder)[max(keep, 1) :]:
        state.path.unlink(missing_ok=True)
    for path in folder.glob("tmp-*"):
        path.unlink(missing_ok=True)


def state_folder(state: str | os.PathLike[str] | None) -> Path | None:
    """Where state is kept: as given, else ``COTENANT_STATE``. None for nowhere, and in gangs, whose state is not kept."""
    where = state if state is not None else os.environ.get("COTENANT_STATE")
    return Path(where) if where and int(os.environ.get("WORLD_SIZE", "1")) == 1 else None


def digest_of(path: Path, *, sync: bool = False) -> str:
    """SHA-256 of a file; ``sync`` forces it onto the disk as well."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
    return digest


def sync_folder(folder: Path) -> None:
    """Force the names in a folder onto the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
