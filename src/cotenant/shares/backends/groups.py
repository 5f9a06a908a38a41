"""What both versions of cgroups have in common: finding ours, making folders, writing limits."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["own_groups", "put", "read_counter", "remove_folder", "usable"]


def own_groups(mounts: str, groups: str) -> dict[str, Path]:
    """Folder of our own cgroup for each controller; version 2's under the name ``unified``.

    Parameters
    ----------
    mounts, groups : str
        ``/proc/self/mounts`` and ``/proc/self/cgroup``.
    """
    ours: dict[str, str] = {}
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(",") if names else ["unified"] if number == "0" else []:
            ours[name] = path
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 4 or words[2] not in ("cgroup", "cgroup2"):
            continue
        held = {"unified"} if words[2] == "cgroup2" else set(words[3].split(","))
        for name in sorted(held & set(ours)):
            own = Path(words[1] + ours[name])
            # In a container the path may be that of outside: then the mount itself is ours.
            found[name] = own if own.is_dir() or not Path(words[1]).is_dir() else Path(words[1])
    return found


def put(path: Path | str, value: object) -> None:
    """Write a value into a file that the kernel made.

    Raises
    ------
    OSError
        With the path and the value.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {value!r}: {error.strerror}", str(path)) from None
    try:
        os.write(descriptor, str(value).encode())
    except OSError as error:
        raise OSError(error.errno, f"refuses {value!r}: {error.strerror}", str(path)) from None
    finally:
        os.close(descriptor)


def read_counter(path: Path | str, name: str = "") -> int | None:
    """A file's number, or that of its line ``name number``; None if it is not there."""
    try:
        words = Path(path).read_text(encoding="ascii").split()
        if not name:
            return int(words[0])
        return int(words[words.index(name) + 1])
    except (OSError, ValueError, IndexError):
        return None


def remove_folder(path: Path) -> None:
    """Remove a cgroup; one that still holds processes stays."""
    with contextlib.suppress(OSError):
        path.rmdir()


def usable(folder: Path, needed: tuple[str, ...]) -> bool:
    """Whether a group can be made there that has these files: tried, not assumed."""
    trial = folder / f"cotenant-trial-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        return all(os.access(trial / name, os.W_OK) for name in needed)
    finally:
        remove_folder(trial)
