"""A quick way through large, regular CSV files; anything odd is left to ``table.read_rows``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cotenant.traces.base import DataReport
from cotenant.traces.files import read_text
from cotenant.traces.options import ReadOptions
from cotenant.traces.table import LINE, Rows

__all__ = ["read_regular"]


def read_regular(path: Path, report: DataReport, options: ReadOptions, columns: Sequence[str]) -> Rows | None:
    """All cells as text, if every line is one row with one cell for each column; else None.

    Raises
    ------
    TraceError
        If the file cannot be read as text.
    """
    text = read_text(path, encoding=options.encoding, progress=options.progress)
    lines = text.count("\n") + (not text.endswith("\n"))
    if "\r" in text or len(set(columns)) != len(columns) or LINE in columns or lines < 2:
        return None
    commas = text.count(",")
    try:
        frame = pl.read_csv(
            io.BytesIO(text.encode("utf-8")),
            has_header=True,
            new_columns=list(columns),
            infer_schema=False,
            truncate_ragged_lines=False,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        return None
    header = text.partition("\n")[0]
    if frame.width != len(columns) or frame.height != lines - 1 or not _plain(header, len(columns)):
        return None
    inside = _count(frame, ",")
    if commas != (len(columns) - 1) * lines + inside or _count(frame, "\n") or _count(frame, '"'):
        return None
    report.rows_read += frame.height
    numbered = frame.select(
        pl.int_range(2, frame.height + 2, dtype=pl.Int64).alias(LINE), pl.all().fill_null("")
    )
    return Rows(numbered, report, frozenset(columns))


def _plain(header: str, columns: int) -> bool:
    return header.count(",") == columns - 1


def _count(frame: pl.DataFrame, text: str) -> int:
    counted = frame.select(pl.all().str.count_matches(text, literal=True).sum()).row(0)
    return sum(value or 0 for value in counted)
