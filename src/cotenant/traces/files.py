"""Opening trace files: plain or gzip, empty, binary, in other encodings, each with its own message."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

from cotenant.errors import TraceError

__all__ = [
    "MAX_BYTES",
    "Progress",
    "as_utf8",
    "check_file",
    "first_lines",
    "plain_name",
    "read_head",
    "read_text",
]

Progress = Callable[[int, int], None]
"""Called with (bytes read so far, bytes of the file on disk)."""

MAX_BYTES = 4 << 30
"""Largest decompressed size that is read; a gzip file can promise anything."""

_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def plain_name(path: str | Path) -> str:
    """File name in lower case without ``.gz``.

    >>> plain_name("x/Trace_Seren.csv.GZ")
    'trace_seren.csv'
    """
    name = Path(path).name.lower()
    return name[:-3] if name.endswith(".gz") else name


def check_file(path: str | Path, *, folder: bool = False) -> Path:
    """Return the path if it is a readable file (or, with ``folder``, a folder).

    Raises
    ------
    TraceError
        If nothing is there, it is a folder, or it is empty.
    """
    place = Path(path)
    try:
        if place.is_dir():
            if folder:
                return place
            raise TraceError(f"is a folder, not a file; {_inside(place)}", path=path)
        if not place.exists():
            raise TraceError("no such file; check the spelling and the working folder", path=path)
        if place.is_file() and place.stat().st_size == 0:
            raise TraceError("the file is empty (0 bytes): the export or download failed?", path=path)
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot be opened: {_reason(error)}", path=repr(str(path))) from error
    return place


def _inside(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return "it is empty"
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"name one file in it: {shown}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def read_head(path: str | Path, limit: int = 1 << 16) -> bytes:
    """First bytes of a file, decompressed if it is gzip, whatever its name says.

    Raises
    ------
    TraceError
        If it cannot be read, or holds nothing once decompressed.
    """
    return _read(check_file(path), limit, None)[:limit]


def _read(path: Path, limit: int, progress: Progress | None) -> bytes:
    total = 0
    parts: list[bytes] = []
    try:
        size = path.stat().st_size
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            source = gzip.GzipFile(fileobj=raw) if packed else raw
            while total < limit:
                block = source.read(min(_BLOCK, limit - total))
                if not block:
                    break
                parts.append(block)
                total += len(block)
                if progress is not None:
                    progress(min(raw.tell(), size), size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"damaged gzip file ({error}); fetch it again", path=path) from error
    except OSError as error:
        raise TraceError(f"cannot be read: {_reason(error)}", path=path) from error
    if not total:
        what = "gzip of an empty file: nothing inside once decompressed" if packed else "the file is empty"
        raise TraceError(what, path=path)
    return b"".join(parts)


def read_text(path: str | Path, *, encoding: str = "", progress: Progress | None = None) -> str:
    """The whole file as text, without byte-order mark; UTF-8 unless ``encoding`` says otherwise.

    Nothing depends on the locale.

    Raises
    ------
    TraceError
        With the line of the first byte that is not text in that encoding.
    """
    data = _read(check_file(path), MAX_BYTES + 1, progress)
    if len(data) > MAX_BYTES:
        raise TraceError(f"more than {MAX_BYTES >> 30} GiB of text; split the file", path=path)
    return _decode(data, path, encoding)


def _decode(data: bytes, path: str | Path, encoding: str) -> str:
    if not encoding:
        if data.startswith(_UTF16):
            raise TraceError("the file is UTF-16; pass encoding='utf-16' or save it as UTF-8", path=path)
        if b"\0" in data[:_BLOCK]:
            raise TraceError("a binary file, not text; give the trace as text or gzip of text", path=path)
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceError(
            f"byte 0x{data[error.start]:02x} is not {encoding or 'UTF-8'} text; "
            "if the file is in another encoding, name it, for example encoding='latin-1'",
            path=path,
            line=line,
        ) from error
    except (LookupError, UnicodeError) as error:
        raise TraceError(f"cannot read it as {encoding!r}: {error}", path=path) from error
    if not isinstance(text, str):
        raise TraceError(f"{encoding!r} is not a text encoding", path=path)
    return text.removeprefix("\ufeff")


def as_utf8(head: bytes, encoding: str, path: str | Path) -> bytes:
    """First bytes of a file in UTF-8, for sniffing; what cannot be decoded is replaced.

    Raises
    ------
    TraceError
        If there is no such encoding.
    """
    try:
        text = head.decode(encoding, errors="replace")
    except (LookupError, UnicodeError) as error:
        raise TraceError(f"cannot read it as {encoding!r}: {error}", path=path) from error
    return text.encode("utf-8", errors="replace")


def first_lines(head: bytes, count: int = 2) -> list[str]:
    """First non-blank lines of a file's head, decoded leniently, for sniffing.

    >>> first_lines(b"\\n a,b \\r\\n1,2\\n")
    ['a,b', '1,2']
    """
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    found: list[str] = []
    for line in text.split("\n", 64):
        if line.strip():
            found.append(line.strip()[:4096])
            if len(found) == count:
                break
    return found
