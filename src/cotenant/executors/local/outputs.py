"""A job's output: rotated by size, read by one running offset.

The shepherd reads the job's pipes and writes the files. The alternative, letting the job write and
cutting the file behind its back, loses what is written between copy and cut, needs a timer for each
job, and lets a job that prints fast fill the disk between two looks. A pipe holds what comes at most
64 KiB ahead; a job that prints nothing costs nothing. When the disk is full, output is dropped and
counted: the job goes on.

Rotated files hold exactly ``limit`` bytes and are numbered upwards (``stdout.log.0`` is the oldest ever
written), so byte ``n`` of the output lies in file ``n // limit``, rotated or not.

Standard library alone, as the shepherd is.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["LOG_BYTES", "LOG_KEEP", "OutputFile", "Piece", "read_output"]

LOG_BYTES = 16 << 20
LOG_KEEP = 4
_CHUNK = 1 << 16


class OutputFile:
    """Takes what a pipe gives.

    Parameters
    ----------
    path : str
        Of the file being written; rotated ones get a number at the end.
    pipe : int
        Descriptor to read from, not blocking.
    limit : int
        Bytes in each file.
    keep : int
        Rotated files kept besides the one being written.
    """

    def __init__(self, path: str, pipe: int, limit: int = LOG_BYTES, keep: int = LOG_KEEP) -> None:
        self.path, self.pipe, self.limit, self.keep = path, pipe, max(limit, 1), max(keep, 0)
        self.dropped = 0
        self.tail = b""
        self.open = True
        self._number, self._size = 0, 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def pump(self) -> bool:
        """Read once and write it; False if there was nothing, or the pipe has ended."""
        try:
            data = os.read(self.pipe, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.open = False
            return False
        self.tail = (self.tail + data)[-4096:]
        while data:
            room = self.limit - self._size
            self._write(data[:room])
            self._size += min(room, len(data))
            data = data[room:]
            if self._size >= self.limit:
                self._rotate()
        return True

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            # Offsets must stay true: the hole is made up for by length alone.
            self.dropped += len(data)
            with contextlib.suppress(OSError):
                size = os.fstat(self._file).st_size
                os.ftruncate(self._file, size + len(data))

    def _rotate(self) -> None:
        os.close(self._file)
        with contextlib.suppress(OSError):
            os.replace(self.path, f"{self.path}.{self._number}")  # noqa: PTH105
        with contextlib.suppress(OSError):
            os.unlink(f"{self.path}.{self._number - self.keep}")  # noqa: PTH108
        self._number, self._size = self._number + 1, 0
        self._file = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def close(self) -> None:
        """Take what is left in the pipe, and close both."""
        while self.open and self.pump():
            pass
        os.close(self._file)
        os.close(self.pipe)


class Piece:
    """A part of the output: ``data`` begins at byte ``offset`` of all that was ever written."""

    __slots__ = ("data", "offset")

    def __init__(self, offset: int, data: bytes) -> None:
        self.offset, self.data = offset, data

    @property
    def end(self) -> int:
        """Where to read on."""
        return self.offset + len(self.data)


def read_output(
    folder: str, stream: str, offset: int = 0, most: int = 1 << 20, limit: int = LOG_BYTES
) -> Piece:
    """Read a stream of an attempt from a byte on.

    Parameters
    ----------
    folder : str
        Of the attempt.
    stream : {"stdout", "stderr"}
    offset : int
        Byte of all output; negative: so many before the end. Where it was rotated away, reading begins at
        the oldest byte that is left: compare ``Piece.offset``.
    most : int
        Bytes at most.
    limit : int
        Size of rotated files, as the attempt was started with.
    """
    name = "stderr.log" if stream == "stderr" else "stdout.log"
    for _ in range(3):
        numbers = sorted(int(n.rpartition(".")[2]) for n in _listed(folder) if _numbered(n, name))
        current = numbers[-1] + 1 if numbers else 0
        size = _size(f"{folder}/{name}")
        end = current * limit + size
        first = (numbers[0] if numbers else current) * limit
        at = min(max(offset if offset >= 0 else end + offset, first), end)
        number = min(at // limit, current)
        path = f"{folder}/{name}" if number == current else f"{folder}/{name}.{number}"
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                file.seek(at - number * limit)
                data = file.read(min(most, limit))
        except OSError:
            continue  # rotated at this very moment
        if number != current or os.path.exists(f"{folder}/{name}.{current}") is False:  # noqa: PTH110
            return Piece(at, data)
    return Piece(max(offset, 0), b"")


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208
    return []


def _numbered(found: str, name: str) -> bool:
    return found.startswith(name + ".") and found[len(name) + 1 :].isdigit()


def _size(path: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size  # noqa: PTH116
    return 0
