"""A job's output: from some byte on, over rotated files, followed while the job runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

__all__ = ["follow", "read", "whole_characters"]

CHUNK = 64 * 1024


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


def read(files: list[str], offset: int, limit: int) -> tuple[int, bytes]:
    """Bytes of a job's output.

    Parameters
    ----------
    files : list of str
        Oldest first; together they are one text.
    offset : int
        Where to begin, in bytes of that text; below zero: so many bytes before its end.
    limit : int
        Most bytes; never cut inside a character.

    Returns
    -------
    (int, bytes)
        Where it really begins, and what stands there.
    """
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
    """Reads files that are written and renamed meanwhile: it holds on to the open file, not to its name."""

    def __init__(self, files: Callable[[], list[str]]) -> None:
        self._files = files
        self._fd = -1
        self._seen: set[tuple[int, int]] = set()

    def start(self, offset: int) -> None:
        """Go to a byte of the whole."""
        names = self._files()
        sizes = [_size(name) for name in names]
        left = max(0, sum(sizes) + offset) if offset < 0 else offset
        for name, size in zip(names, sizes, strict=True):
            if left < size or name == names[-1]:
                if self._open(name):
                    os.lseek(self._fd, min(left, size), os.SEEK_SET)
                return
            left -= size
            self._skip(name)

    def more(self) -> bytes:
        """What is there now, of one file; nothing: nothing yet."""
        data = os.read(self._fd, CHUNK) if self._fd >= 0 else b""
        if data or not self._next():
            return data
        return os.read(self._fd, CHUNK)

    def _next(self) -> bool:
        """Open the oldest file not read yet. The one held was read to its end; where a newer one is there,
        nobody writes to it any more, after one last look."""
        fresh = []
        for name in self._files():
            try:
                found = Path(name).stat()
            except OSError:
                continue
            if (found.st_dev, found.st_ino) not in self._seen:
                fresh.append(name)
        if not fresh:
            return False
        if self._fd >= 0:
            rest = os.read(self._fd, 1)
            if rest:
                os.lseek(self._fd, -1, os.SEEK_CUR)
                return True
        return self._open(fresh[0])

    def _open(self, name: str) -> bool:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        self.close()
        self._fd = fd
        found = os.fstat(fd)
        self._seen.add((found.st_dev, found.st_ino))
        return True

    def _skip(self, name: str) -> None:
        try:
            found = Path(name).stat()
        except OSError:
            return
        self._seen.add((found.st_dev, found.st_ino))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


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
