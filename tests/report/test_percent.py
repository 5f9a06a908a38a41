"""Shares and differences read 0 or 100 per cent only where they are so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.report.compare import Estimate
from cotenant.report.html import _mark, _signed
from cotenant.report.names import METRICS
from cotenant.report.tables import cell, percent


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (1.0, 1, "100.0 %"),
        (1.0 - 1e-13, 1, "100.0 %"),  # a sum of floats, not a missing part
        (0.99951, 1, ">99.9 %"),
        (0.9994, 1, "99.9 %"),
        (0.998, 0, "99.8 %"),
        (0.99999, 0, ">99.9 %"),
        (1.0, 0, "100 %"),
        (0.0, 0, "0 %"),
        (0.0004, 1, "<0.1 %"),
        (0.004, 0, "0.4 %"),
        (0.5, 0, "50 %"),
    ],
)
def test_only_all_is_100_and_only_none_is_0(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


def test_cells_of_tables_are_written_so_too() -> None:
    assert cell(0.99999, "goodput_share") == ">99.9 %"
    assert cell(1e-5, "stranded_share") == "<0.1 %"


@settings(max_examples=100)
@given(st.floats(1e-8, 1 - 1e-8), st.sampled_from([0, 1]))
def test_no_share_between_reads_as_an_end(share: float, digits: int) -> None:
    assert percent(share, digits) not in {"0 %", "0.0 %", "100 %", "100.0 %"}


@pytest.mark.parametrize(
    ("value", "hundred", "text"),
    [
        (-100.0, True, "\u2212100"),
        (-99.97, True, "\u221299.9"),
        (-99.6, True, "\u221299.6"),
        (100.3, True, "+100.3"),
        (-99.97, False, "\u2212100"),  # seconds: nothing special about a hundred
        (-0.04, True, "\u00b10.0"),
        (12.4, True, "+12"),
    ],
)
def test_differences_reach_a_hundred_only_when_they_do(value: float, hundred: bool, text: str) -> None:
    assert _signed(value, hundred=hundred) == text


@pytest.mark.parametrize(
    ("points", "word"), [(-0.0003, None), (0.0003, None), (-0.02, "worse"), (0.02, "better")]
)
def test_a_difference_that_rounds_to_nothing_has_no_badge(points: float, word: str | None) -> None:
    metric = next(m for m in METRICS if m.key == "goodput_share")
    gap = Estimate(points, points * 1.1 if points < 0 else points * 0.9, points, 3)
    assert gap.excludes_zero
    shown = str(_mark(metric, gap, Estimate(None, None, None, 3), Estimate(0.5, 0.4, 0.6, 3)))
    assert [w for w in ("better", "worse") if w in shown] == ([word] if word else [])
    assert ("\u00b10.0 points" in shown) == (word is None)
