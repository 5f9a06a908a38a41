"""Blocks as files, named by their content."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cotenant.errors import StateError

__all__ = ["BLOCK_BYTES", "BlockFolder", "BlockId", "Tier", "block_id"]

BLOCK_BYTES = 16 << 20
"""Largest block."""

BlockId = str
"""BLAKE2b-256 of the content, hexadecimal."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A place for blocks; tiers are listed fastest first.

    Parameters
    ----------
    name : str
    path : Path
        A folder of its own.
    limit_bytes : int or None
        None is no limit.
    durable : bool
        What is here survives a restart of the machine; host memory does not.
    """

    name: str
    path: Path
    limit_bytes: int | None = None
    durable: bool = True


def block_id(data: bytes | memoryview) -> BlockId:
    """Name of a block with this content."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class BlockFolder:
    """The files of one tier. A file is whole from the moment it has its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blocks, self._temporary = path / "blocks", path / "tmp"
        for folder in (self._blocks, self._temporary):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def file(self, block: BlockId) -> Path:
        """Where a block lies, if it is here."""
        return self._blocks / block[:2] / block

    def has(self, block: BlockId, size_bytes: int) -> bool:
        """Whether a file of that size is here."""
        try:
            return self.file(block).stat().st_size == size_bytes
        except OSError:
            return False

    def write(self, block: BlockId, data: bytes | memoryview) -> None:
        """Make a block, on disk when this returns.

        Raises
        ------
        OSError
        """
        path = self.file(block)
        temporary = self._temporary / f"{block}-{os.getpid()}"
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                _sync(self._blocks)
            temporary.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def read(self, block: BlockId) -> bytes:
        """Content of a block.

        Raises
        ------
        StateError
            If it is not here, cannot be read, or is not what was written.
        """
        path = self.file(block)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StateError(f"{path}: block cannot be read: {error.strerror or error}") from None
        if block_id(data) != block:
            raise StateError(
                f"{path}: block is damaged: its content ({len(data)} bytes) does not match its name"
            )
        return data

    def remove(self, block: BlockId) -> None:
        """Delete a block, if it is here."""
        self.file(block).unlink(missing_ok=True)

    def list(self) -> Iterator[BlockId]:
        """Blocks that are here."""
        for folder in sorted(self._blocks.iterdir()):
            for path in sorted(folder.iterdir()):
                yield path.name

    def clean(self) -> None:
        """Delete what writers that died left unfinished."""
        for path in self._temporary.iterdir():
            path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
