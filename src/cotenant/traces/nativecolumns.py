"""Columns of our own format: other names for them, and their reading and checking."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, get_args

import polars as pl

from cotenant.errors import QuantityError, TraceError
from cotenant.model.jobs import Determinism, JobClass, Sharing
from cotenant.model.quantities import parse_bytes, parse_milli
from cotenant.model.workload import JOB_SCHEMA
from cotenant.traces.table import LINE, Rows, as_number

__all__ = ["ALIASES", "column_names", "list_text", "list_values", "tidy"]

ALIASES = {
    "job_id": "name",
    "id": "name",
    "job_name": "name",
    "arrival_s": "submit_s",
    "submit_time_s": "submit_s",
    "runtime_s": "duration_s",
    "run_time_s": "duration_s",
    "num_gpu": "gpus",
    "num_gpus": "gpus",
    "gpu_num": "gpus",
    "vc": "tenant",
    "limit_s": "estimate_s",
    "memory": "memory_bytes",
    "memory_mib": "memory_bytes",
    "gpu_memory": "memory_bytes",
    "gpu_memory_mib": "memory_bytes",
    "host_memory": "host_memory_bytes",
    "host_memory_mib": "host_memory_bytes",
    "state": "state_bytes",
    "state_mib": "state_bytes",
    "compute": "compute_milli",
    "cpus": "cpu_milli",
}
"""Other names that are understood, each for a column of ``JOB_SCHEMA``.

Sizes: those that end in ``_mib`` hold numbers of MiB, the others text with a unit (``6GiB``).
``compute`` holds ``40%``, ``0.4`` or ``400m``; ``cpus`` numbers of cores.
"""

_WORDS: dict[str, tuple[str, ...]] = {
    "sharing": get_args(Sharing),
    "job_class": get_args(JobClass),
    "determinism": get_args(Determinism),
    "outcome": ("done", "failed", "cancelled"),
}
_DEFAULTS: dict[str, Any] = {
    "name": "", "gpus": 1, "model": "", "memory_bytes": 0, "compute_milli": 1000, "sharing": "any",
    "tenant": "", "user": "", "priority": 0, "estimate_s": 0.0, "cpu_milli": 0, "host_memory_bytes": 0,
    "min_gpus": 0, "max_gpus": 0, "job_class": "guaranteed", "state_bytes": 0, "leave_s": 0.0,
    "deadline_s": 0.0, "suspendable": True, "determinism": "none", "outcome": "done",
}  # fmt: skip
_LARGEST = {"gpus": 1_000_000, "min_gpus": 1_000_000, "max_gpus": 1_000_000, "compute_milli": 1000}
_SIGNED = {"priority", "submit_s", "leave_s", "deadline_s"}
_TIME_BOUND = 1e15


def column_names(cells: Sequence[str]) -> dict[str, str]:
    """Columns of ``JOB_SCHEMA`` that a header has, each with the name used there; unknown ones left out."""
    found: dict[str, str] = {}
    for cell in cells:
        column = cell if cell in JOB_SCHEMA else ALIASES.get(cell)
        if column is not None:
            found.setdefault(column, cell)
    return found


def list_text(values: Sequence[str]) -> str:
    r"""Items as one cell: ``|`` between, backslash before ``|`` and backslash, ``\e`` for an empty item.

    >>> list_text(["A100", "a|b", ""])
    'A100|a\\|b|\\e'
    """
    return "|".join(v.replace("\\", "\\\\").replace("|", "\\|") if v else "\\e" for v in values)


def list_values(text: str) -> list[str]:
    r"""The items of a cell written by ``list_text``.

    >>> list_values("A100|a\\|b|\\e")
    ['A100', 'a|b', '']
    """
    if not text:
        return []
    if "\\" not in text:
        return text.split("|")
    items, item, escaped = [], "", False
    for char in text:
        if escaped:
            item += "" if char == "e" else char
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "|":
            items.append(item)
            item = ""
        else:
            item += char
    return [*items, item]


def tidy(rows: Rows, *, ignore: bool) -> list[str]:
    """Bring the columns to the names and types of ``JOB_SCHEMA``, dropping rows with bad cells.

    Returns
    -------
    list of str
        The columns that the file has.

    Raises
    ------
    TraceError
        If a column is unknown, named twice, or a needed one is missing.
    """
    cells = [column for column in rows.frame.columns if column != LINE]
    found = column_names(cells)
    _check_names(rows, cells, found, ignore=ignore)
    for column in JOB_SCHEMA:
        if column in found:
            _column(rows, column, found[column])
    if {"min_gpus", "max_gpus"} <= set(found):
        rows.drop(
            (pl.col("max_gpus") > 0) & (pl.col("max_gpus") < pl.col("min_gpus")), "max_gpus is below min_gpus"
        )
    rows.flag(pl.col("submit_s") < 0, "submitted before time 0")
    return [column for column in JOB_SCHEMA if column in found]


def _check_names(rows: Rows, cells: Sequence[str], found: dict[str, str], *, ignore: bool) -> None:
    path = rows.report.path
    unknown = [cell for cell in cells if cell not in JOB_SCHEMA and cell not in ALIASES]
    known = [*JOB_SCHEMA, *ALIASES]
    if unknown and not ignore:
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.5)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise TraceError(
            f'unknown column "{unknown[0][:80]}"{hint} Known: {", ".join(known)}; or pass extra=ignore',
            path=path,
            line=1,
        )
    for cell in cells:
        column = cell if cell in JOB_SCHEMA else ALIASES.get(cell)
        if column is not None and found[column] != cell:
            raise TraceError(
                f'columns "{found[column]}" and "{cell}" are the same thing; keep one', path=path, line=1
            )
    missing = [column for column in ("submit_s", "duration_s") if column not in found]
    if missing and rows.frame.height:
        raise TraceError(
            f"missing column(s) {', '.join(missing)}; found: {', '.join(cells)[:300]}", path=path, line=1
        )
    for column in missing:
        rows.add(**{column: pl.lit(0.0)})


def _column(rows: Rows, column: str, cell: str) -> None:
    source = rows.frame.schema[cell]
    if source.base_type() in (pl.Categorical, pl.Enum, pl.Null):
        rows.add(**{cell: pl.col(cell).cast(pl.String)})
        source = pl.String()
    if source == pl.String:
        rows.add(**{cell: pl.col(cell).fill_null("")})
        _from_text(rows, column, cell)
    else:
        _from_values(rows, column, cell, source)
    _check_values(rows, column, cell)


def _from_values(rows: Rows, column: str, cell: str, source: pl.DataType) -> None:
    """Columns that come with a type of their own, as in Parquet."""
    kind, value = JOB_SCHEMA[column], pl.col(cell)
    inner = source.inner if isinstance(source, pl.List) else None
    fits = (
        (kind == pl.Boolean and source == pl.Boolean)
        or (kind in (pl.Int64, pl.Float64) and source.is_numeric())
        or (kind == pl.String and source.is_integer())
        or (isinstance(kind, pl.List) and inner is not None and inner.is_numeric() == kind.inner.is_numeric())
        or (isinstance(kind, pl.List) and inner == pl.Null)
    )
    if not fits or (inner is not None and (inner.is_nested() or inner.is_temporal() or inner == pl.Boolean)):
        raise TraceError(f"has type {source}, expected {kind}", path=rows.report.path, column=cell)
    if cell in {"memory", "gpu_memory", "host_memory", "state"}:
        message = "numbers without a unit; end the column's name in _mib or _bytes"
        raise TraceError(message, path=rows.report.path, column=cell)
    if cell in {"cpus", "compute"}:
        value = (value.cast(pl.Float64) * 1000).round()
    elif cell.endswith("_mib"):
        value = (value.cast(pl.Float64) * (1 << 20)).ceil()
    made = value.cast(kind, strict=False)
    if kind == pl.Int64 and not source.is_integer():
        made = pl.when(value == value.floor()).then(made).otherwise(None)
    rows.add(_made=made)
    rows.drop(
        pl.col("_made").is_null() & pl.col(cell).is_not_null(), f"{cell} is not of type {kind}", column=cell
    )
    rows.add(**{column: pl.col("_made")})


def _from_text(rows: Rows, column: str, cell: str) -> None:
    kind, text = JOB_SCHEMA[column], pl.col(cell)
    clean = text.str.strip_chars()
    if isinstance(kind, pl.List):
        _lists(rows, column, cell)
        return
    if kind == pl.String:
        rows.add(**{column: text})
        return
    if cell in ALIASES and column.endswith(("_bytes", "_milli")):
        _quantities(rows, column, cell)
        return
    if kind == pl.Boolean:
        words = {"true": True, "false": False, "1": True, "0": False}
        made = clean.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
    elif kind == pl.Int64:
        whole = (
            pl.when(clean.str.contains(r"^[+-]?\d{1,19}$")).then(clean.str.strip_prefix("+")).otherwise(None)
        )
        number = as_number(text)
        rounded = pl.when((number == number.floor()) & (number.abs() < 2**53)).then(number).otherwise(None)
        made = pl.coalesce(whole.cast(pl.Int64, strict=False), rounded.cast(pl.Int64, strict=False))
    else:
        made = as_number(text)
    what = {pl.Boolean: "true or false", pl.Int64: "a whole number"}.get(kind, "a number")
    rows.add(_made=made)
    rows.drop(pl.col("_made").is_null() & (clean != ""), f"{cell} is not {what}", column=cell)
    rows.add(**{column: pl.col("_made")})


def _lists(rows: Rows, column: str, cell: str) -> None:
    kind, text = JOB_SCHEMA[column], pl.col(cell)
    if kind.inner == pl.Float64:
        parts = pl.when(text == "").then(pl.lit([], dtype=pl.List(pl.String))).otherwise(text.str.split("|"))
        rows.add(**{column: parts.list.eval(as_number(pl.element()))})
        wrong = pl.col(column).list.eval(pl.element().is_null() | (pl.element() < 0)).list.any()
        rows.drop(wrong, f"{cell} is not a list of numbers, 0 or more", column=cell)
        return
    items = {text: list_values(text or "") for text in rows.frame[cell].unique().to_list()}
    made = {cell: list(items), "_list": pl.Series(list(items.values()), dtype=kind)}
    frame = pl.DataFrame(made, schema_overrides={cell: pl.String})
    rows.frame = rows.frame.join(frame, on=cell, how="left", maintain_order="left")
    rows.add(**{column: pl.col("_list")})
    rows.frame = rows.frame.drop("_list")


def _quantities(rows: Rows, column: str, cell: str) -> None:
    """Cells with units, each different text parsed once."""
    read = _reader(cell)
    made: dict[str, int | None] = {}
    wrong: dict[str, str] = {}
    for text in rows.frame[cell].unique().drop_nulls().sort().to_list():
        if not text.strip():
            made[text] = None
            continue
        try:
            made[text] = read(text)
        except QuantityError as error:
            wrong[text] = str(error)
    if wrong:
        example = next(iter(wrong.values()))
        rows.drop(pl.col(cell).is_in(list(wrong)), f"{cell} cannot be read: {example}", column=cell)
    rows.add(**{column: pl.col(cell).replace_strict(made, default=None, return_dtype=pl.Int64)})


def _reader(cell: str) -> Callable[[str], int]:
    def cores(text: str) -> int:
        if text.strip() == "0":
            return 0
        return parse_milli(text, what="number of cores")

    def share(text: str) -> int:
        return 0 if text.strip() == "0" else parse_milli(text)

    if cell == "cpus":
        return cores
    if cell == "compute":
        return share
    unit = "MiB" if cell.endswith("_mib") else None
    return lambda text: parse_bytes(text, unit=unit)


def _check_values(rows: Rows, column: str, cell: str) -> None:
    """Ranges and words; empty cells take the default, or set the row aside."""
    kind, value = JOB_SCHEMA[column], pl.col(column)
    if column == "submit_s":
        rows.set_aside(value.is_null(), "no submission time")
    elif column == "duration_s":
        rows.set_aside(value.is_null(), "no running time")
    elif column in _DEFAULTS:
        rows.add(**{column: value.fill_null(pl.lit(_DEFAULTS[column], dtype=kind))})
    elif isinstance(kind, pl.List):
        rows.drop(
            value.list.eval(pl.element().is_null()).list.any(), f"{cell} has an empty item", column=cell
        )
        rows.add(**{column: value.fill_null(pl.lit([], dtype=kind))})
        if kind.inner == pl.Float64:
            low = value.list.eval((pl.element() < 0) | ~pl.element().is_finite()).list.any()
            rows.drop(low, f"{cell} is not a list of numbers, 0 or more", column=cell)
    if kind == pl.Float64:
        rows.drop(
            ~value.is_finite() | (value.abs() > _TIME_BOUND), f"{cell} is not a finite time", column=cell
        )
    if kind in (pl.Float64, pl.Int64) and column not in _SIGNED:
        rows.drop(value < 0, f"{cell} is negative", column=cell)
    if column in _LARGEST:
        rows.drop(value > _LARGEST[column], f"{cell} is above {_LARGEST[column]}", column=cell)
    if column in _WORDS:
        words = _WORDS[column]
        rows.drop(~value.is_in(words), f"{cell} is none of {', '.join(words)}", column=cell)
