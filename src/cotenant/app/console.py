"""What people see: tables and lines on a terminal, and one JSON object for programs.

Data goes to standard output, everything else to standard error. Colour only on a terminal.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "clean",
    "error",
    "escape_unprintable",
    "in_row",
    "note",
    "plain_json",
    "print_json",
    "print_table",
    "say",
    "stderr",
    "stdout",
    "warn",
]

_WIDE = 240


def stdout() -> Console:
    """A console for data; as wide as needed where it is no terminal, so that nothing is cut."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=_WIDE)


def stderr() -> Console:
    """A console for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def clean(text: str) -> str:
    """The text with control characters as escapes: names from files may hold anything."""
    if text.isascii() and text.isprintable():
        return text
    from cotenant.report.tables import show

    return "\n".join(show(line) for line in text.split("\n"))


def in_row(text: str) -> str:
    """As ``clean``, and line breaks as escapes, too: a name stays in its row."""
    return clean(text.replace("\n", "\\n"))


def say(text: str) -> None:
    """Print a line of data."""
    sys.stdout.write(clean(text) + "\n")


def note(text: str) -> None:
    """Print a remark on standard error."""
    sys.stderr.write(clean(text) + "\n")


def warn(text: str) -> None:
    """Print on standard error what makes a result doubtful."""
    if sys.stderr.isatty():
        from rich.text import Text

        stderr().print(Text(f"warning: {clean(text)}", style="bold red"))
    else:
        sys.stderr.write(f"warning: {clean(text)}\n")


def error(text: str) -> None:
    """Print what went wrong, in one place and one form."""
    sys.stderr.write(f"error: {clean(text)}\n")


def escape_unprintable() -> None:
    """Let text that the terminal's character set lacks be shown as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream):
            stream.reconfigure(errors="backslashreplace")


def _is_unicode(stream: Any) -> bool:
    return str(getattr(stream, "encoding", "")).lower().replace("-", "").startswith("utf")


def plain_json(value: Any) -> Any:
    """Make a value printable as JSON: numbers that are not numbers become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return value


def print_json(value: Any) -> None:
    """Print one JSON value on standard output, and nothing beside it."""
    # An escape of ours is none of JSON's.
    ascii_only = isinstance(sys.stdout, io.TextIOWrapper) and not _is_unicode(sys.stdout)
    sys.stdout.write(json.dumps(plain_json(value), indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", right: Iterable[str] = ()
) -> None:
    """Print a table; columns named in ``right`` are set flush right."""
    from rich.markup import escape
    from rich.table import Table

    table: Table = Table(
        title=title or None, box=None, pad_edge=False, title_justify="left", header_style="bold"
    )
    flush = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in flush else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(clean(cell)) for cell in row))
    stdout().print(table)
