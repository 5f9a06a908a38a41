"""Reading any trace: recognise the format, or take the one that is named."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cotenant import registry
from cotenant.errors import ConfigError, TraceError
from cotenant.model.ports import TraceReader
from cotenant.model.workload import Workload
from cotenant.traces.files import as_utf8, check_file, first_lines, read_head

__all__ = ["read_trace", "recognise"]

_SURE_ENOUGH = 0.3


def read_trace(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word that users type
    strict: bool = False,
    **options: Any,
) -> Workload:
    """Read a trace in any registered format.

    Parameters
    ----------
    path : path
        A file, plain or gzip; for some formats a folder.
    format : str, optional
        Registered name, or ``file.py:Class`` for a reader of one's own; recognised from the
        file if not given.
    strict : bool
        Refuse, with file and line, what the default repairs or drops and counts.
    **options
        Common ones are in ``traces.options.ReadOptions`` (``progress``, ``encoding``, ``window``,
        ``cpu_jobs``, ``duplicates``, ``time_zone``); the rest belong to the format.

    Returns
    -------
    Workload
        Its ``report`` is a ``DataReport`` whose numbers add up.

    Raises
    ------
    TraceError
        If the file cannot be read, or its format is not clear.
    UnknownNameError
        If no reader has that name.
    """
    place = check_file(path, folder=True)
    reader = _reader(format or recognise(place, str(options.get("encoding") or "")))
    workload = reader.read(place, strict=strict, **options)
    if not isinstance(workload, Workload):
        raise ConfigError(
            f'trace reader "{reader.format}" returned {type(workload).__name__}, not a Workload'
        )
    return workload


def recognise(path: str | Path, encoding: str = "") -> str:
    """Name of the format of a file, from its name and first bytes.

    Parameters
    ----------
    encoding : str
        Of a file that is not UTF-8.

    Raises
    ------
    TraceError
        If no reader knows it or two are equally sure; the message says how to name the format.
    """
    place = check_file(path, folder=True)
    head = b"" if place.is_dir() else read_head(place)
    if encoding and head:
        head = as_utf8(head, encoding, path)
    scores, broken = _scores(place, head)
    best = max(scores.values(), default=0.0)
    if best < _SURE_ENOUGH:
        if place.is_dir():
            check_file(place)
        _refuse_without_arrivals(place, head)
        start = head[:80].decode("utf-8", errors="replace")
        more = f" (not available here: {', '.join(broken)})" if broken else ""
        raise TraceError(
            f"no known trace format; it begins {start!r}. Name the format if you know it: "
            f"format=NAME with one of {', '.join(registry.names('trace format'))}{more}",
            path=path,
        )
    top = sorted(name for name, score in scores.items() if score == best)
    if len(top) > 1:
        raise TraceError(
            f"could be any of {', '.join(top)}; name one: format={top[0]!r} (--format {top[0]})", path=path
        )
    return top[0]


def _refuse_without_arrivals(path: Path, head: bytes) -> None:
    """Say so where a table has running times but no moment of submission (alibaba/clusterdata 257)."""
    lines = first_lines(head, 1)
    cells = [cell.strip().lower() for cell in lines[0].split(",")] if lines else []
    lengths = [c for c in cells if "duration" in c or "runtime" in c]
    moments = [c for c in cells if any(word in c for word in ("submit", "arriv", "creat", "start", "time_"))]
    if lengths and not moments:
        raise TraceError(
            f"has running times ({lengths[0]}) but no submission time, so arrivals cannot be replayed. "
            "Draw arrivals instead: describe the distributions in a file for format=synthetic",
            path=path,
            line=1,
        )


def _reader(name: str) -> TraceReader:
    found = registry.load("trace format", name)
    reader = found() if isinstance(found, type) else found
    if not isinstance(reader, TraceReader):
        raise ConfigError(f"{name} is not a trace reader: it needs format, title, sniff and read")
    return reader


def _scores(path: Path, head: bytes) -> tuple[dict[str, float], list[str]]:
    """How sure each reader is; a reader that cannot be imported is named, and hinders no other."""
    readers, broken = _registered()
    return {name: reader.sniff(path, head) for name, reader in readers.items()}, broken


@cache
def _registered() -> tuple[dict[str, TraceReader], list[str]]:
    readers: dict[str, TraceReader] = {}
    broken: list[str] = []
    for name in registry.names("trace format"):
        try:
            readers[name] = _reader(name)
        except (ImportError, AttributeError, ConfigError):
            broken.append(name)
    return readers, broken
