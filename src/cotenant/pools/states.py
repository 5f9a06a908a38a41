"""From the folder where a job saved its state to the registry, and back."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from cotenant.errors import NotFoundError, StateError, StoreError
from cotenant.pools.blocks import BLOCK_BYTES, BlockId
from cotenant.pools.registry import StateRegistry

__all__ = ["Absorbed", "absorb", "cuts", "restore"]

_CUT_BYTES = 256 << 10
"""Tensors from this size on begin a block of their own."""


class _File(msgspec.Struct, frozen=True):
    path: str
    size: int
    blocks: int


class _Meta(msgspec.Struct, frozen=True):
    step: int
    files: list[_File]


class Absorbed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a saved state.

    Parameters
    ----------
    version : int
    size_bytes : int
        Of its files.
    new_bytes : int
        Of blocks that were not there before.
    tiers : tuple of str
        Where it lies, fastest first.
    """

    version: int
    size_bytes: int
    new_bytes: int
    tiers: tuple[str, ...]


def absorb(
    folder: str | os.PathLike[str],
    registry: StateRegistry,
    job: int,
    step: int,
    *,
    epoch: int = 0,
    durable: bool = True,
    delete: bool = True,
) -> Absorbed:
    """Move a job's saved state into the registry. The job must have ended.

    Parameters
    ----------
    folder : path
        What ``COTENANT_STATE`` was; unfinished files (``tmp-*``) are left out.
    registry : StateRegistry
    job, step : int
    epoch : int
        Of the caller; an older one than the job's lease is refused.
    durable : bool
        Write a copy to the last tier as well, if the first that has room does not survive a restart of
        the machine.
    delete : bool
        Delete the files once they are published.

    Raises
    ------
    NotFoundError
        If nothing was saved.
    StateError
        If there is something else than files and folders.
    StoreError, FencedError
    """
    root = Path(folder)
    paths = _files(root)
    if not paths:
        raise NotFoundError(f"{root}: no saved state of job {job}")
    size = sum(path.stat().st_size for path in paths)
    tiers = _choose(registry, size, durable)
    before = registry.stats()
    held: list[BlockId] = []
    try:
        files = []
        for path in paths:
            count = len(held)
            with path.open("rb") as file:
                for data in _pieces(file, cuts(path)):
                    held.append(registry.put(data, tiers))
            name = path.relative_to(root).as_posix()
            files.append(_File(name, path.stat().st_size, len(held) - count))
        meta = msgspec.json.encode(_Meta(step, files)).decode()
        version = (registry.newest(job) or 0) + 1
        registry.publish(job, version, held, epoch, meta=meta)
    except BaseException:
        registry.release(held)
        raise
    after = registry.stats()
    if delete:
        for path in paths:
            path.unlink()
    new = after.distinct_bytes - before.distinct_bytes
    return Absorbed(version=version, size_bytes=size, new_bytes=max(new, 0), tiers=tiers)


def restore(registry: StateRegistry, job: int, folder: str | os.PathLike[str]) -> int:
    """Write a job's newest state to a folder, every block verified; returns its step.

    Raises
    ------
    NotFoundError, StateError, ConflictError
    StoreError
        If the folder cannot be written.
    """
    root = Path(folder)
    with registry.open(job) as reader:
        meta = msgspec.json.decode(reader.meta, type=_Meta)
        place = 0
        for number, file in enumerate(meta.files):
            target = root / _safe(file.path)
            temporary = target.parent / f"tmp-{os.getpid()}-{number}"
            try:
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with temporary.open("wb") as out:
                    for _ in range(file.blocks):
                        out.write(reader.read(place))
                        place += 1
                    out.flush()
                    os.fsync(out.fileno())
                temporary.rename(target)
            except OSError as error:
                raise StoreError(f"{target}: state not restored: {error.strerror or error}") from None
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
    return meta.step


def cuts(path: Path) -> list[int]:
    """Where in a file large tensors begin, so that the same tensor gives the same blocks in any file.

    What PyTorch and NumPy save is a zip without compression; other files have no cuts.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            places = []
            for member in archive.infolist():
                if member.compress_type == zipfile.ZIP_STORED and member.file_size >= _CUT_BYTES:
                    file.seek(member.header_offset + 26)
                    lengths = file.read(4)
                    name, extra = int.from_bytes(lengths[:2], "little"), int.from_bytes(lengths[2:], "little")
                    start = member.header_offset + 30 + name + extra
                    places += [start, start + member.file_size]
            return sorted(set(places))
    except (zipfile.BadZipFile, OSError, ValueError):
        return []


def _pieces(file: IO[bytes], places: list[int]) -> Iterator[bytes]:
    at = 0
    for end in [*places, None]:
        while end is None or at < end:
            data = file.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - at))
            if not data:
                break
            at += len(data)
            yield data


def _choose(registry: StateRegistry, size: int, durable: bool) -> tuple[str, ...]:
    """The first tier with room, and the last where that is asked for."""
    *faster, last = registry.tiers
    first = next((tier for tier in faster if size <= registry.free_bytes(tier.name)), last)
    if first is last or first.durable or not durable:
        return (first.name,)
    return first.name, last.name


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StateError(f"{path}: saved state may hold files and folders only")
        if path.is_file() and not any(part.startswith("tmp-") for part in path.relative_to(root).parts):
            found.append(path)
    return found


def _safe(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise StateError(f"saved state names a file outside its folder: {name!r}")
    return path
