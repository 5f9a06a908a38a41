"""Files that appear whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["write_whole"]


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
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _settle(place.parent)


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
