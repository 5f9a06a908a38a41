"""The event log: append, flush, read. JSON lines; a torn last line is survived."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from cotenant.errors import LogError
from cotenant.model.events import Event, decode_event

__all__ = ["LogWriter", "read_log"]


class LogWriter:
    """Encodes batches of events and writes them at once.

    Parameters
    ----------
    path : Path or None
        None keeps nothing on disk, and only counts and hashes.

    Attributes
    ----------
    events : int
        Events written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.events = 0
        self._encoder = msgspec.json.Encoder()
        self._hash = hashlib.sha256()
        self._file: IO[bytes] | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb", buffering=0)

    def write(self, batch: list[Event]) -> None:
        """Append a batch, in order."""
        data = self._encoder.encode_lines(batch)
        self.events += len(batch)
        self._hash.update(data)
        if self._file is not None:
            self._file.write(data)

    def sha256(self) -> str:
        """Digest of everything written so far."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_log(path: Path) -> Iterator[Event]:
    """Yield the events of a log, plain or gzip.

    A torn last line (the writer died while writing it) is left out; anything else that
    cannot be read is an error.

    Raises
    ------
    LogError
        With file and line.
    """
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if packed else path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield decode_event(line)
            except msgspec.MsgspecError as error:
                if not line.endswith(b"\n"):
                    return
                raise LogError(f"{path}:{number}: not an event of this version: {error}") from error
