"""Files that appear whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from cotenant.errors import ConfigError

__all__ = ["check_place", "write_whole"]


def check_place(path: Path | str) -> None:
    """Check that a file can be written there, before the work whose result it is to hold.

    Raises
    ------
    ConfigError
        If it is a folder, its folder is not there, or nothing may be written in it.
    """
    place = Path(path)
    if place.is_symlink():
        place = place.resolve()
    if place.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file to write")
    if place.exists() and not place.is_file():
        return
    folder = place.parent
    if not folder.is_dir():
        raise ConfigError(f"{path}: cannot be written, there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{path}: cannot be written, the folder {folder} is read-only for us")


def write_whole(path: Path | str, data: bytes) -> None:
    """Write a file so that nobody ever finds half of it, not even after a crash or a full disk.

    The bytes go into a file beside it, which is forced onto the disk and then takes the name. What was
    there before stays as it was until then. A link is followed; what is no regular file, such as
    ``/dev/stdout``, is written to as it is.

    Raises
    ------
    OSError
        As ``open`` does; nothing is left behind.
    """
    place = Path(path)
    if place.is_symlink():
        place = place.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            shutil.copymode(place, beside)
        beside.replace(place)
    except OSError as error:
        _away(beside)
        # The file beside it is nobody's concern: the one asked for is named.
        raise OSError(error.errno, error.strerror, str(place)) from error
    except BaseException:
        _away(beside)
        raise
    _settle(place.parent)


def _away(beside: Path) -> None:
    with contextlib.suppress(OSError):
        beside.unlink()


def _settle(folder: Path) -> None:
    """Force the new name onto the disk; where folders cannot be opened, the system does it later."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
