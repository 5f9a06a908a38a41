"""``docs/cases.md`` is true: every test it names exists, and no case is left out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (C\d\d) \| ([^|]+) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
IN_RANGE = [
    "C01",
    "C03",
    "C04",
    "C05",
    "C07",
    "C09",
    "C11",
    "C12",
    "C13",
    "C14",
    "C15",
    "C16",
    "C19",
    "C20",
    "C22",
    "C24",
    "C25",
    "C26",
    "C28",
    "C30",
    "C32",
    "C33",
    "C36",
    "C37",
    "C68",
    "C69",
    "C72",
    "C73",
]
"""The cases of C01-C37 and C68-C73; the numbering has gaps."""
RUNNING = {
    *(
        "C38",
        "C41",
        "C42",
        "C43",
        "C45",
        "C46",
        "C48",
        "C49",
        "C50",
        "C53",
        "C54",
        "C55",
        "C57",
        "C59",
        "C60",
        "C62",
        "C63",
        "C64",
    ),
    "C67",
}
"""Those between that the live scheduler has to meet."""


def test_every_case_of_the_ranges_is_listed_once_and_in_order() -> None:
    listed = [number for number, _, _ in ROW.findall(PAGE)]
    assert len(set(listed)) == len(listed)
    assert [n for n in listed if n <= "C37" or n >= "C68"] == IN_RANGE
    assert set(listed) >= RUNNING


@pytest.mark.parametrize(("number", "held"), [(n, held) for n, _, held in ROW.findall(PAGE)])
def test_the_tests_named_exist_or_the_reason_is_given(number: str, held: str) -> None:
    found = NAMED.findall(held)
    if not found:
        assert held.startswith("no test: "), number
        return
    for file, name in found:
        path = ROOT / file
        assert path.is_file(), file
        if name:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, f"{file}::{name}"
