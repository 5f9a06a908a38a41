"""What daemons and shepherds leave behind that are killed: found, told, and swept when a scheduler begins to lead.

Files that are written beside and renamed carry the number of their writer: one that is dead writes no more. Pipes
and kept room belong to an attempt, and are looked at only where its job has ended for good. Blocks of saved states
that were never published are the registry's own affair: it sweeps them when it is opened.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from cotenant.executors.local.layout import alive, read_json, start_ticks

__all__ = ["Leftovers", "Swept"]

_BESIDE = re.compile(r"\.?.+\.(?P<pid>\d+)\.(?:new|tmp)$")
_CLAIMING = re.compile(r"(?:claim|room)\.(?P<pid>\d+)(?:\.started)?$")
_SAVING = re.compile(r"tmp-(?P<pid>\d+)-")
_OF_ENDED = frozenset({"control", "steps", "exit.room", "started.room", "status.new"})
_YOUNG_S = 60.0


class Swept(msgspec.Struct, frozen=True):
    """How many files and folders, and how large they were together."""

    count: int = 0
    size_bytes: int = 0


class Leftovers:
    """Those of one state folder.

    Parameters
    ----------
    state : Path
    ended : callable
        Whether the job of this number has ended for good: nothing of others is ever touched.

    Attributes
    ----------
    swept : Swept
        By the last ``sweep``.
    """

    def __init__(self, state: Path, ended: Callable[[int], bool]) -> None:
        self._state, self._ended = state, ended
        self.swept = Swept()

    def find(self) -> Iterator[Path]:
        """All that is left by processes that are gone."""
        for folder in (self._state, self._state / "learned"):
            yield from self._beside(folder)
        adopted = {path.name.rpartition(".")[0] for path in _names(self._state / "live")}
        for job in _names(self._state / "jobs"):
            if job.name.isascii() and job.name.isdecimal() and self._ended(int(job.name)):
                yield from self._of_job(job, adopted)

    def sweep(self) -> Swept:
        """Delete it; what cannot be deleted stays, for ``doctor`` to tell."""
        count = size = 0
        for path in self.find():
            bytes_ = _size(path)
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except OSError:
                continue
            count, size = count + 1, size + bytes_
        self.swept = Swept(count, size)
        return self.swept

    def sweep_aside(self, told: Callable[[Swept], None]) -> None:
        """Do it in a thread of its own: a scheduler that takes over does not wait for it."""
        threading.Thread(target=lambda: told(self.sweep()), name="cotenant-sweep", daemon=True).start()

    def left(self) -> Swept:
        """What there is now."""
        sizes = [_size(path) for path in self.find()]
        return Swept(len(sizes), sum(sizes))

    def _of_job(self, job: Path, adopted: set[str]) -> Iterator[Path]:
        """``adopted``: starts, as ``JOB.SERIAL``, of whose end a scheduler still has to hear."""
        if (kept := job / "state-kept").is_dir():
            yield kept  # the registry had taken it over
        for path in _names(job / "state"):
            if (match := _SAVING.match(path.name)) and _gone(path, match):
                yield path
        for start in _names(job):
            word, _, serial = start.name.partition("-")
            if word == "serial" and f"{job.name}.{serial}" not in adopted and not _held(start):
                yield from self._beside(start)
                for path in _names(start):
                    match = _CLAIMING.match(path.name)
                    if (match and _gone(path, match)) or (path.name in _OF_ENDED and _old(path)):
                        yield path

    def _beside(self, folder: Path) -> Iterator[Path]:
        for path in _names(folder):
            if (match := _BESIDE.match(path.name)) and _gone(path, match):
                yield path


def _held(start: Path) -> bool:
    """Whether its shepherd has not left yet."""
    claim = read_json(str(start / "claim"))
    pid, ticks = claim.get("pid"), claim.get("start_ticks")
    return isinstance(pid, int) and isinstance(ticks, int) and alive(pid, ticks)


def _names(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _gone(path: Path, match: re.Match[str]) -> bool:
    """Whether whoever wrote it is gone, and not only just."""
    return not start_ticks(int(match["pid"])) and _old(path)


def _old(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    ours = stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return ours and found.st_uid == os.geteuid() and time.time() - found.st_mtime > _YOUNG_S


def _size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    found = 0
    for place in [path, *(Path(top, name) for top, _, names in os.walk(path) for name in names)]:
        try:
            status = place.lstat()
        except OSError:
            continue
        found += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return found
