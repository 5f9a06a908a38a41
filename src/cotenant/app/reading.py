"""Commands that read what runs have written: compare, report, explain."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_to"]

PANEL = "Read results"
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
