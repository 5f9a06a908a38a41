"""Files that come with a trace and are not job lists: recognised, and answered with what to give instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cotenant.errors import TraceError
from cotenant.traces.files import first_lines, read_head

__all__ = ["Others", "is_other", "refuse_other"]

Others = Mapping[tuple[str, ...], str]
"""Column names that give a file away, and what to say then."""


def is_other(lines: Sequence[str], others: Others, separator: str = ",") -> bool:
    """Whether the first line holds all columns of one of ``others``."""
    return bool(_message(lines, others, separator))


def refuse_other(path: Path, others: Others, separator: str = ",") -> None:
    """Raise if the file is one of ``others``.

    Raises
    ------
    TraceError
        Saying what the file holds and what to read instead.
    """
    message = _message(first_lines(read_head(path), 1), others, separator)
    if message:
        raise TraceError(f"not a job list: {message}", path=path)


def _message(lines: Sequence[str], others: Others, separator: str) -> str:
    cells = [cell.strip().strip('"') for cell in lines[0].split(separator)] if lines else []
    for columns, message in others.items():
        if all(column in cells for column in columns):
            return message
    return ""
