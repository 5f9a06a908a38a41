"""Write workloads in our own format."""

from __future__ import annotations

import contextlib
import gzip
import io
from pathlib import Path
from typing import IO

import polars as pl

from cotenant.errors import InputError
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.traces.files import plain_name
from cotenant.traces.nativecolumns import list_text

__all__ = ["write_workload"]

_SUFFIXES = (".parquet", ".pq", ".csv", ".jsonl", ".ndjson")


def write_workload(workload: Workload, path: str | Path) -> Path:
    """Write the jobs of a workload; the suffix names the kind.

    Parameters
    ----------
    workload : Workload
    path : path
        ``.parquet``, ``.csv``, ``.csv.gz``, ``.jsonl`` or ``.jsonl.gz``. The file appears whole or
        not at all. Equal workloads give equal bytes.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        For another suffix, a folder that is not there, or a NUL character in a name (CSV).
    """
    place = Path(path)
    name = plain_name(place)
    packed = place.name.lower().endswith(".gz")
    if not name.endswith(_SUFFIXES) or (packed and name.endswith((".parquet", ".pq"))):
        raise InputError(f"{place}: write {', '.join(_SUFFIXES)}, or .csv.gz or .jsonl.gz")
    frame = workload.frame.select(column for column in JOB_SCHEMA if column in workload.frame.columns)
    if name.endswith(".csv"):
        frame = _flat(frame, place)
    part = place.with_name(f".{place.name}.part")
    try:
        with part.open("wb") as raw:
            if packed:
                # No name and time inside, so that equal jobs give equal bytes.
                with gzip.GzipFile("", "wb", 6, raw, mtime=0) as target:
                    _write(frame, name, target)
            else:
                _write(frame, name, raw)
        part.replace(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise InputError(f"{place}: cannot be written ({error.strerror or error})") from None
    return place


def _write(frame: pl.DataFrame, name: str, target: IO[bytes] | gzip.GzipFile) -> None:
    if name.endswith(".csv"):
        # All text in quotes: blanks, line ends and separators inside names survive.
        target.write(frame.write_csv(quote_style="non_numeric").encode("utf-8"))
    elif name.endswith((".parquet", ".pq")):
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        target.write(buffer.getvalue())
    else:
        target.write(frame.write_ndjson().encode("utf-8"))


def _flat(frame: pl.DataFrame, place: Path) -> pl.DataFrame:
    made = []
    for column, kind in frame.schema.items():
        if isinstance(kind, pl.List):
            texts = [list_text(["" if v is None else str(v) for v in row]) for row in frame[column].to_list()]
            made.append(pl.Series(column, texts, dtype=pl.String))
        elif kind == pl.String and frame[column].str.contains("\0", literal=True).any():
            raise InputError(
                f"{place}: a {column} holds a NUL character, which CSV cannot; use .parquet or .jsonl"
            )
    return frame.with_columns(made)
