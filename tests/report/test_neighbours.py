"""Meetings with neighbours, told and counted."""

from __future__ import annotations

from cotenant.report.neighbours import MOST_TOLD, Neighbour, told_of


def met(number: int, rate: float | None) -> Neighbour:
    return Neighbour(number, f"j{number}", 10.0 * number, 10.0 * number + 5.0, rate)


def test_few_meetings_are_all_told() -> None:
    few = tuple(met(i, 0.5) for i in range(MOST_TOLD))
    assert told_of(few) == [n.text for n in few]


def test_of_many_meetings_the_worst_are_told_in_order_and_the_others_counted() -> None:
    many = (*(met(i, 1.0 - 0.01 * i) for i in range(MOST_TOLD + 3)), met(99, None))
    lines = told_of(many)
    # The first three ran fastest, and of the last no speed is known.
    assert lines[:-1] == [n.text for n in many[3:-1]]
    assert lines[-1] == "and 4 other meetings at higher speeds (all of them with --json)"
