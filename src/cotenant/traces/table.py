"""Text tables as polars frames of strings that remember their line, and the counting of what is not used.

A reader works on ``Rows``: it turns text into numbers and times, drops, flags or sets rows
aside with a reason, and the data report keeps the books.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from cotenant.errors import InputError, TraceError
from cotenant.traces.base import DataReport
from cotenant.traces.files import read_text
from cotenant.traces.options import ReadOptions

__all__ = ["LINE", "Rows", "as_number", "as_seconds", "header_score", "read_rows"]

LINE = "_line"
"""Column that holds the line of each row, counted from 1, header included."""

Empty = float | Literal["bad", "null"]
"""What an empty cell means: a bad row, null, or this number."""

_FINITE = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
_STAMP = r"^(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)\s*([+-]\d{2}:?\d{2}|Z|[A-Z]{3,4})?$"
_NAMED_OFFSETS_H = {"Z": 0, "UTC": 0, "GMT": 0, "PST": -8, "PDT": -7}
_NOTHING = ("", "none", "null", "nan", "nat", "na")


class Rows:
    """Rows of a file on their way to jobs.

    Parameters
    ----------
    frame : polars.DataFrame
        Columns of text, and ``LINE``.
    report : DataReport
        Keeps the books; ``report.rows_read`` already counts these rows.
    present : frozenset of str
        Columns that the file really has; the others are empty text.
    """

    def __init__(self, frame: pl.DataFrame, report: DataReport, present: frozenset[str]) -> None:
        self.frame = frame
        self.report = report
        self.present = present

    def drop(
        self, when: pl.Expr, reason: str, *, column: str | None = None, show: pl.Expr | None = None
    ) -> None:
        """Leave rows out; under ``strict``, refuse with file, line and column.

        ``show`` is the text of the example in the report; the default is the cell of ``column``.
        """
        hit = self._hit(when)
        if not hit.height:
            return
        line, example = self._example(hit, column, show)
        if self.report.strict:
            raise TraceError(
                f"{reason} (strict refuses what the default drops) {example}".rstrip(),
                path=self.report.path,
                line=line,
                column=column,
            )
        self.report.drop(reason, line, example, hit.height)
        self._keep_others(when)

    def exclude(self, when: pl.Expr, reason: str, *, show: pl.Expr | None = None) -> None:
        """Leave rows out because an option asked for it."""
        hit = self._hit(when)
        self.report.exclude(reason, *self._example(hit, None, show), hit.height)
        self._keep_others(when)

    def set_aside(self, when: pl.Expr, reason: str, *, show: pl.Expr | None = None) -> None:
        """Take rows out of the frame that count as kept demand without a known running time."""
        hit = self._hit(when)
        self.report.set_aside(reason, *self._example(hit, None, show), hit.height)
        self._keep_others(when)

    def flag(self, when: pl.Expr, reason: str, *, show: pl.Expr | None = None) -> None:
        """Remark on rows."""
        hit = self._hit(when)
        self.report.flag(reason, *self._example(hit, None, show), hit.height)

    def repair(self, when: pl.Expr, reason: str, *, show: pl.Expr | None = None) -> None:
        """Count rows about to be mended; under ``strict``, refuse."""
        hit = self._hit(when)
        self.report.repair(reason, *self._example(hit, None, show), hit.height)

    def add(self, **columns: pl.Expr | str | float | None) -> None:
        """Add or replace columns; a plain value is a literal."""
        made = {n: v if isinstance(v, pl.Expr) else pl.lit(v) for n, v in columns.items()}
        self.frame = self.frame.with_columns(**made)

    def number(
        self,
        column: str,
        *,
        empty: Empty = "bad",
        low: float | None = None,
        high: float = 1e12,
        integer: bool = False,
        into: str | None = None,
    ) -> None:
        """Turn a column of text into numbers; rows with bad cells are dropped and counted.

        Parameters
        ----------
        low, high : float
            Inclusive range; the default bound keeps later unit conversion inside 64 bits.
        integer : bool
            Whole numbers only (``8.0`` is whole).
        into : str, optional
            Name of the new column; default is the same one.
        """
        text, value = self._parsed(column, as_number(pl.col(column)), "not a number", empty)
        low = -high if low is None else low
        self.drop(value < low, f"{column} is below {low:g}", column=column)
        self.drop(value > high, f"{column} is above {high:g}", column=column)
        if integer:
            self.drop(value != value.floor(), f"{column} is not a whole number", column=column)
            value = value.cast(pl.Int64, strict=False)
        if isinstance(empty, int | float):
            value = pl.when(_is_empty(text)).then(pl.lit(empty)).otherwise(value)
            value = value.cast(pl.Int64 if integer else pl.Float64)
        self.frame = self.frame.with_columns(value.alias(into or column))

    def time(self, column: str, *, zone: str = "", empty: Empty = "bad", into: str | None = None) -> None:
        """Turn timestamps into seconds since 1970 UTC; rows with bad cells are dropped and counted.

        Parameters
        ----------
        zone : str
            IANA zone of stamps that carry none; empty reads them as if UTC.
        """
        text, value = self._parsed(
            column, as_seconds(pl.col(column), zone), "not a time (YYYY-MM-DD HH:MM:SS)", empty
        )
        if isinstance(empty, int | float):
            value = pl.when(_is_empty(text)).then(pl.lit(float(empty))).otherwise(value)
        self.frame = self.frame.with_columns(value.alias(into or column))

    def _parsed(self, column: str, value: pl.Expr, what: str, empty: Empty) -> tuple[pl.Expr, pl.Expr]:
        # Parse once into a hidden column: the checks after it then cost little.
        hidden = f"_parsed_{column}"
        self.frame = self.frame.with_columns(value.alias(hidden))
        text, parsed = pl.col(column), pl.col(hidden)
        if empty == "bad":
            self.drop(_is_empty(text), f"{column} is empty", column=column)
        self.drop(parsed.is_null() & ~_is_empty(text), f"{column} is {what}", column=column)
        return text, parsed

    def duplicates(self, columns: Sequence[str], choice: str, default: str) -> None:
        """Rows that repeat another in all ``columns``: dropped but for the first, or flagged and kept."""
        columns = list(columns)
        again = pl.int_range(pl.len()).over(columns) > 0
        self.frame = self.frame.with_columns(again.alias("_again"))
        if (choice or default) == "keep":
            self.flag(pl.col("_again"), "exact repeat of another row, kept")
        elif choice == "drop":
            self.exclude(pl.col("_again"), "exact repeat of another row")
        else:
            self.drop(pl.col("_again"), "exact repeat of another row")

    def unique_names(self, column: str, tie: Sequence[str]) -> None:
        """Make ``name`` from an id column: a repeated id gets ``#2``, ``#3`` in the order of ``tie``.

        The order of lines in the file does not matter.
        """
        self.frame = self.frame.sort([column, *tie], maintain_order=True)
        count = pl.int_range(pl.len()).over(column)
        self.frame = self.frame.with_columns(count.alias("_copy"))
        self.flag(pl.col("_copy") > 0, f"{column} appears more than once with different content, renamed")
        base, copy = pl.col(column), pl.col("_copy")
        name = pl.when(copy > 0).then(pl.format("{}#{}", base, copy + 1)).otherwise(base)
        self.frame = self.frame.with_columns(name.alias("name"))
        while self.frame["name"].n_unique() < self.frame.height:  # an id that already looks like "a#2"
            again = pl.int_range(pl.len()).over("name")
            fresh = pl.when(again > 0).then(pl.format("{}#{}", "name", again + 1)).otherwise(pl.col("name"))
            self.frame = self.frame.with_columns(fresh.alias("name"))

    def _hit(self, when: pl.Expr) -> pl.DataFrame:
        return self.frame.filter(when.fill_null(False))

    def _keep_others(self, when: pl.Expr) -> None:
        self.frame = self.frame.filter(~when.fill_null(False))

    def _example(
        self, hit: pl.DataFrame, column: str | None = None, show: pl.Expr | None = None
    ) -> tuple[int | None, str]:
        if not hit.height:
            return None, ""
        first = hit[hit[LINE].arg_min() or 0]
        example = f"{column}={first[column][0]!r}" if column else ""
        if show is not None:
            example = str(first.select(show.alias("show"))["show"][0] or "")
        return int(first[LINE][0]), example


def _is_empty(text: pl.Expr) -> pl.Expr:
    return text.str.strip_chars().str.to_lowercase().is_in(_NOTHING)


def as_number(text: pl.Expr) -> pl.Expr:
    """Text to float; null where it is not a finite number (``1_000``, ``0x10`` and ``inf`` are not)."""
    clean = text.str.strip_chars()
    value = pl.when(clean.str.contains(_FINITE)).then(clean)
    number = value.otherwise(None).cast(pl.Float64, strict=False)
    return pl.when(number.is_finite()).then(number).otherwise(None)


def as_seconds(text: pl.Expr, zone: str = "") -> pl.Expr:
    """Timestamps to seconds since 1970 UTC; null where it is not one.

    ``YYYY-MM-DD HH:MM:SS``, a ``T`` for the blank, fractions, offsets (``+08:00``, ``Z``) and
    the names UTC, GMT, PST, PDT are read. In ``zone``, an hour that occurs twice is its first.
    """
    clean = text.str.strip_chars()
    core = clean.str.extract(_STAMP, 1).str.replace("T", " ")
    stamp = core.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    suffix = clean.str.extract(_STAMP, 2)
    local = stamp
    if zone:
        _check_zone(zone)
        local = stamp.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    digits = suffix.str.replace(":", "")
    minutes = (
        digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60
        + digits.str.slice(3, 2).cast(pl.Int64, strict=False)
    ) * pl.when(digits.str.starts_with("-")).then(-1).otherwise(1)
    named = suffix.replace_strict(_NAMED_OFFSETS_H, default=None, return_dtype=pl.Int64) * 60
    shift_s = pl.when(suffix.str.contains(r"^[+-]")).then(minutes).otherwise(named) * 60
    absolute = stamp.dt.epoch("us") / 1e6 - shift_s
    return pl.when(suffix.is_null()).then(local.dt.epoch("us") / 1e6).otherwise(absolute)


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"no time zone {zone!r}; use an IANA name such as America/Los_Angeles") from error


def header_score(lines: Sequence[str], needed: Iterable[str], separator: str = ",") -> float:
    """Share of the ``needed`` column names that the first line holds, 0 to 1; for sniffing."""
    needed = list(needed)
    if not lines or not needed:
        return 0.0
    found = {cell.strip().strip('"') for cell in lines[0].split(separator)}
    return sum(name in found for name in needed) / len(needed)


def read_rows(
    path: str | Path,
    report: DataReport,
    options: ReadOptions,
    *,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    separator: str = ",",
    header: Sequence[str] | None = None,
    hint: Callable[[list[str]], str] | None = None,
) -> Rows:
    """Read a table; rows with a wrong number of fields are dropped with their line.

    Parameters
    ----------
    needed, optional : sequence of str
        Columns to keep; an optional one that the file lacks becomes empty text.
    header : sequence of str, optional
        Names, for a file without a header line; a first line that repeats them is skipped.
    hint : callable, optional
        Given the file's column names, says what else the file may be.

    Raises
    ------
    TraceError
        If the file cannot be read as text or a needed column is missing.
    """
    text = read_text(path, encoding=options.encoding, progress=options.progress)
    numbered = _split(text, separator, path)
    lines, cells = numbered[LINE], numbered["cells"]
    names = [str(c).strip() for c in (cells[0] if numbered.height else [])]
    with_header = header is None or names == list(header)
    columns = names if with_header or header is None else list(header)
    _check_columns(columns, needed, path, lines[0] if numbered.height else 1, hint)
    body = numbered.slice(1) if with_header else numbered
    report.rows_read += body.height
    if not body.height:
        report.assumptions.append("The file holds a header and no rows: 0 jobs.")
    wrong = body.filter(pl.col("cells").list.len() != len(columns))
    for line, row in zip(wrong[LINE], wrong["cells"], strict=True):
        report.drop(f"not {len(columns)} fields", line, f"{len(row)} fields: {separator.join(row)}")
    body = body.filter(pl.col("cells").list.len() == len(columns))
    if wrong.height and not body.height:
        raise TraceError(
            f"no row has {len(columns)} fields; is it another format?", path=path, line=wrong[LINE][0]
        )
    wanted = [*needed, *(c for c in optional if c in columns)]
    made = [pl.col("cells").list.get(columns.index(c), null_on_oob=True).alias(c) for c in wanted]
    absent = [pl.lit("").alias(c) for c in optional if c not in columns]
    frame = body.select(LINE, *made, *absent)
    return Rows(frame, report, frozenset(wanted))


def _check_columns(
    columns: Sequence[str],
    needed: Sequence[str],
    path: str | Path,
    line: int,
    hint: Callable[[list[str]], str] | None,
) -> None:
    missing = [c for c in needed if c not in columns]
    if missing:
        more = hint(list(columns)) if hint else ""
        shown = ", ".join(c[:40] for c in columns[:30])
        raise TraceError(
            f"missing column(s) {', '.join(missing)}; found: {shown or 'none'}. {more}".rstrip(),
            path=path,
            line=line,
        )
    twice = [c for c in needed if list(columns).count(c) > 1]
    if twice:
        raise TraceError(f'column "{twice[0]}" appears twice in the header', path=path, line=line)


def _split(text: str, separator: str, path: str | Path) -> pl.DataFrame:
    """Lines that are not blank, with numbers and cells."""
    if "\n" not in text:
        text = text.replace("\r", "\n")
    if '"' in text:
        return _split_quoted(text, separator, path)
    lines = pl.Series("text", text.split("\n"), dtype=pl.String).str.strip_chars_end("\r")
    frame = pl.DataFrame({LINE: pl.int_range(1, len(lines) + 1, eager=True), "text": lines})
    frame = frame.filter(pl.col("text").str.strip_chars() != "")
    return frame.select(LINE, pl.col("text").str.split(separator).alias("cells"))


def _split_quoted(text: str, separator: str, path: str | Path) -> pl.DataFrame:
    numbers: list[int] = []
    cells: list[list[str]] = []
    source = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    at = 1
    try:
        for row in source:
            if any(cell.strip() for cell in row):
                numbers.append(at)
                cells.append(row)
            at = source.line_num + 1
    except csv.Error as error:
        raise TraceError(f"cannot be read as a table: {error}", path=path, line=source.line_num) from error
    schema: dict[str, Any] = {LINE: pl.Int64, "cells": pl.List(pl.String)}
    return pl.DataFrame({LINE: numbers, "cells": cells}, schema=schema)
