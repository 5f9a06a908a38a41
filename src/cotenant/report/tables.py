"""Tables for people and for programs: terminal, CSV, Parquet, JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from cotenant.model.quantities import format_duration

__all__ = [
    "NOT_AVAILABLE",
    "cell",
    "neutral",
    "percent",
    "plain_json",
    "show",
    "table",
    "write_csv",
    "write_parquet",
]

NOT_AVAILABLE = "n/a"
_ROUNDING = 1e-9
"""What adding many times may be off by; a share that near to 0 or 1 is 0 or 1."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def show(text: str) -> str:
    """The text with control, format and unpaired characters written as escapes.

    Terminals act on control characters, and direction marks can make a line read backwards.

    >>> show("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _harmless(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def _harmless(char: str) -> bool:
    # A zero-width joiner holds emoji and several scripts together and cannot reorder a line.
    return char == "\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def neutral(text: str) -> str:
    """The text as a spreadsheet must see it: a leading apostrophe where it would compute.

    >>> neutral("=1+1"), neutral("plain")
    ("'=1+1", 'plain')
    """
    return "'" + text if text.startswith(_FORMULA) else text


def cell(value: Any, name: str = "") -> str:
    """One value for people: durations for ``_s`` names, percentages for shares, n/a for None.

    >>> cell(93600.0, "wait_s"), cell(0.251, "busy_share"), cell(None), cell(1234567)
    ('1d 2h', '25.1 %', 'n/a', '1,234,567')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOT_AVAILABLE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number(value, name)
    return show(str(value))


def _number(value: float, name: str) -> str:
    base = name
    for suffix in ("_mean", "_median", "_p95", "_p99", "_max", "_min"):
        base = base.removesuffix(suffix)
    if base.endswith("_s") or base == "s":
        return format_duration(float(value))
    if base.endswith(("_share", "fragmentation")):
        return percent(value)
    if isinstance(value, int):
        return f"{value:,}"
    if name.startswith("forecast_"):
        return f"{value:.3f}"  # of speeds relative to alone
    if value and abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent that reads 0 or 100 only where it is so, sums of floats aside.

    >>> percent(0.251), percent(0.998, 0), percent(0.9999), percent(1e-5), percent(1.0)
    ('25.1 %', '99.8 %', '>99.9 %', '<0.1 %', '100.0 %')
    """
    for bound in (0.0, 1.0):
        if abs(share - bound) < _ROUNDING:
            return f"{100 * bound:.{digits}f} %"
    whole = f"{100 * share:.{digits}f}"
    if float(whole) not in (0.0, 100.0):
        return f"{whole} %"
    if digits == 0:
        return percent(share, 1)
    if share < 0:
        return ">-0.1 %"
    if share < 0.5:
        return "<0.1 %"
    return ">99.9 %" if share < 1 else ">100.0 %"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """A terminal table; widths follow what characters really take on screen.

    Parameters
    ----------
    left : int
        How many of the first columns are text; the others are numbers, aligned right.
    """
    out = Table(title=Text(show(title)), title_justify="left", header_style="bold")
    for i, head in enumerate(heads):
        out.add_column(
            Text(show(head)), justify="left" if i < left else "right", no_wrap=i >= left, overflow="fold"
        )
    for row in rows:
        out.add_row(*(Text(show(value)) for value in row))  # Text: brackets in names are not markup
    return out


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write UTF-8 CSV with one header line; nulls are empty, text cannot compute."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([neutral(name) for name in frame.columns])
    text = [dtype == pl.String for dtype in frame.dtypes]
    for row in frame.iter_rows():
        writer.writerow(
            ["" if v is None else neutral(show(v)) if t else v for v, t in zip(row, text, strict=True)]
        )
    path.write_text(buffer.getvalue(), encoding="utf-8", newline="")


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write Parquet, exact values."""
    frame.write_parquet(path, compression="zstd")


def plain_json(value: Any) -> str:
    """JSON with a line end, keys in given order; what is not finite becomes null, never NaN."""
    return json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
