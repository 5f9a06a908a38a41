"""A job's output: from some byte on, over rotated files, followed while the job runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

__all__ = ["follow", "read", "whole_characters"]

CHUNK = 64 * 1024
_TRIES = 10
_Id = tuple[int, int]


def whole_characters(data: bytes) -> int:
    """How many bytes of this end at the end of a UTF-8 character.

    Bytes that are no UTF-8 count as they are: output is handed on unchanged.

    >>> whole_characters("aé".encode()), whole_characters("aé".encode()[:-1])
    (3, 1)
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if byte < 0xF8 and needs > back else len(data)
    return len(data)


def read(files: list[str] | Callable[[], list[str]], offset: int, limit: int) -> tuple[int, bytes]:
    """Bytes of a job's output.

    Parameters
    ----------
    files : list of str, or callable
        Oldest first; together they are one text. Asked for by a callable, they may be renamed meanwhile: it is
        then read anew, so that nothing is left out.
    offset : int
        Where to begin, in bytes of that text; below zero: so many bytes before its end.
    limit : int
        Most bytes; never cut inside a character.

    Returns
    -------
    (int, bytes)
        Where it really begins, and what stands there.
    """
    if callable(files):
        for _ in range(_TRIES):
            names = files()
            found = read(names, offset, limit)
            if files() == names:
                break
        return found
    sizes = [_size(name) for name in files]
    total = sum(sizes)
    begin = max(0, total + offset) if offset < 0 else min(offset, total)
    parts: list[bytes] = []
    start, left = begin, limit
    for name, size in zip(files, sizes, strict=True):
        if start < size and left > 0:
            part = _part(name, start, min(left, size - start))
            parts.append(part)
            left -= len(part)
            start = 0
        else:
            start = max(0, start - size)
    data = b"".join(parts)
    if offset < 0 and begin > 0:
        # The end of a text, as asked, may begin inside a character.
        skip = next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))
        begin, data = begin + skip, data[skip:]
    return begin, data[: whole_characters(data)] if begin + len(data) < total else data


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0


def _part(name: str, start: int, length: int) -> bytes:
    try:
        with Path(name).open("rb") as file:
            file.seek(start)
            return file.read(length)
    except OSError:
        return b""


class _Tail:
    """Reads files that are written, renamed and deleted meanwhile.

    It holds on to every open file that it has read as long as that has a name: a file is known by its number in the
    file system, and that of a deleted one is given to the next.
    """

    def __init__(self, files: Callable[[], list[str]]) -> None:
        self._files = files
        self._held: dict[_Id, int] = {}
        self._at: _Id | None = None

    def start(self, offset: int) -> None:
        """Go to a byte of the whole."""
        for _ in range(_TRIES):
            names = self._files()
            self.close()
            self._go(names, offset)
            if self._files() == names:
                return

    def _go(self, names: list[str], offset: int) -> None:
        sizes = [_size(name) for name in names]
        left = max(0, sum(sizes) + offset) if offset < 0 else offset
        for name, size in zip(names, sizes, strict=True):
            if (found := self._hold(name)) is None:
                continue
            self._at = found
            if left < size or name == names[-1]:
                os.lseek(self._held[found], min(left, size), os.SEEK_SET)
                return
            os.lseek(self._held[found], 0, os.SEEK_END)
            left -= size

    def more(self) -> bytes:
        """What is there now, of one file; nothing: nothing yet."""
        data = self._read(CHUNK)
        if data or not self._next():
            return data
        return self._read(CHUNK)

    def _read(self, most: int) -> bytes:
        return b"" if self._at is None else os.read(self._held[self._at], most)

    def _next(self) -> bool:
        """Go to the oldest file not read yet. The one before was read to its end; where a newer one is there,
        nobody writes to it any more, after one last look."""
        for _ in range(_TRIES):
            if (fresh := self._fresh()) is None:
                return False
            if self._at is not None and self._read(1):
                os.lseek(self._held[self._at], -1, os.SEEK_CUR)
                return True
            # Between looking and opening it may have got another name: the file of this one comes after it.
            name, which = fresh
            if self._hold(name, which) is not None:
                self._at = which
                return True
        return False

    def _fresh(self) -> tuple[str, _Id] | None:
        """The oldest file that is not known; of those that are known, the deleted are forgotten."""
        found = [(name, which) for name in self._files() if (which := _id(name)) is not None]
        named = {which for _, which in found}
        for which in [which for which in self._held if which not in named and which != self._at]:
            os.close(self._held.pop(which))
        return next(((name, which) for name, which in found if which not in self._held), None)

    def _hold(self, name: str, wanted: _Id | None = None) -> _Id | None:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        status = os.fstat(fd)
        found = status.st_dev, status.st_ino
        if wanted not in (None, found) or found in self._held:
            os.close(fd)
            return None
        self._held[found] = fd
        return found

    def close(self) -> None:
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()
        self._at = None


def _id(name: str) -> _Id | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def follow(
    files: Callable[[], list[str]], over: Callable[[], bool], offset: int, every_s: float = 0.2
) -> AsyncIterator[bytes]:
    """A job's output as it is written, until the job has ended and all of it was told.

    Parameters
    ----------
    files : callable
        The files as they are now, oldest first; asked again and again, in a thread.
    over : callable
        Whether nothing more will be written.
    offset : int
        As for ``read``.
    every_s : float
        How often to look when there is nothing.
    """
    tail = _Tail(files)
    held = b""
    try:
        await asyncio.to_thread(tail.start, offset)
        while True:
            ended = await asyncio.to_thread(over)
            data = await asyncio.to_thread(tail.more)
            while data:
                held += data
                whole = whole_characters(held)
                yield held[:whole]
                held = held[whole:]
                data = await asyncio.to_thread(tail.more)
            if ended:
                if held:
                    yield held
                return
            await asyncio.sleep(every_s)
    finally:
        tail.close()
