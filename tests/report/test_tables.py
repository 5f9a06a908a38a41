"""Tables: hostile text, formulas, numbers that are not numbers."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from cotenant.report.tables import cell, neutral, plain_json, show, table, write_csv, write_parquet


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb", "a\\nb"),
        ("\u202eabc", "\\u202eabc"),
        ("训练-01", "训练-01"),
        ("dédé 🚀", "dédé 🚀"),
        ("\ud800", "\\ud800"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_control_and_direction_characters_are_escaped(raw, shown):
    assert show(raw) == shown


@settings(max_examples=200)
@given(st.text())
def test_shown_text_never_acts_on_a_terminal(text):
    # The zero-width joiner holds emoji together and moves nothing.
    acts = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not any(unicodedata.category(c) in acts and c != "\u200d" for c in show(text))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_formulas_are_neutralised(text):
    assert neutral(text) == "'" + text


def test_csv_reads_back_and_computes_nothing(tmp_path):
    frame = pl.DataFrame({"name": ["=1+1", 'a"b,c', "训练", None], "x": [-1.5, None, 2.0, 3.0]})
    write_csv(frame, tmp_path / "t.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text(encoding="utf-8"))))
    assert rows == [["name", "x"], ["'=1+1", "-1.5"], ['a"b,c', ""], ["训练", "2.0"], ["", "3.0"]]
    write_parquet(frame, tmp_path / "t.parquet")
    assert pl.read_parquet(tmp_path / "t.parquet").equals(frame)


def test_json_has_no_nan():
    text = plain_json({"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": None}, "e": "训练"})
    assert json.loads(text) == {"a": None, "b": [None, 1.0], "c": {"d": None}, "e": "训练"}
    assert "NaN" not in text
    assert "Infinity" not in text


def test_cells_carry_units():
    assert cell(None) == cell(float("nan")) == "n/a"
    assert cell(5400.0, "wait_s_p95") == "1h 30m"
    assert cell(0.5, "allocated_share") == "50.0 %"
    assert cell(1234, "jobs_finished") == "1,234"
    assert cell(True) == "yes"
    assert cell(1.2345, "corun_slowdown_mean") == "1.23"


def test_terminal_columns_line_up_by_display_width():
    console = Console(width=60, file=io.StringIO(), color_system=None)
    console.print(table("t", ["name", "x"], [["训练-01", "1"], ["[red]b[/red]", "22"], ["\x1b[2J", "3"]]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    body = [line for line in lines if "│" in line]
    from rich.cells import cell_len

    assert len({cell_len(line) for line in body}) == 1
    assert "\x1b" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert any("[red]b[/red]" in line for line in body)
