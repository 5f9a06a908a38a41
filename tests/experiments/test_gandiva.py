"""Gandiva's experiments: their parts by hand; the whole at its smallest runs in ``test_contract``."""

from __future__ import annotations

import pytest

from cotenant.experiments.searching import GOOD, RUNG_S, Curves, search
from cotenant.experiments.turning import pairs, turns, united
from cotenant.experiments.watching import Watcher
from cotenant.model import events as ev
from cotenant.model.jobs import Job


def test_work_in_a_window_and_first_progress() -> None:
    # Job 0 works from 10 s at 1, from 400 s at 0.5, ends at 500 s; job 1 waits until 600 s. Counted from
    # 100 s to 700 s: 300 + 50, and 100.
    watcher = Watcher(until_s=700.0, first_s=300.0, from_s=100.0)
    watcher.see(
        [
            ev.Submitted(0.0, Job(id=0, name="a", submit_s=0.0)),
            ev.Submitted(5.0, Job(id=1, name="b", submit_s=5.0)),
            ev.Started(10.0, 0, 1, (0,)),
            ev.Rated(400.0, 0, 0.5),
            ev.Ended(500.0, 0, 1, "done", 440.0),
            ev.Started(600.0, 1, 1, (0,)),
            ev.Ended(1000.0, 1, 1, "done", 400.0),
            ev.Closed(1000.0, 8, 2, 2),
        ]
    )
    assert watcher.work_s == {0: 350.0, 1: 100.0}
    # 300 s of work are done at 310 s and at 900 s, 310 s and 895 s after submission.
    assert watcher.first == {0: 310.0, 1: 895.0}


def test_turns_are_equal_and_cheap() -> None:
    spread, loss = turns(1)
    assert 0.0 <= spread <= 5.0
    assert 0.0 < loss <= 2.0


def test_pairs_that_do_not_pay_are_undone() -> None:
    rows = pairs(1, ("VGG-16/b16", "A3C/b4"))
    assert [row["pair"] for row in rows] == [
        "VGG-16/b16 + VGG-16/b16",
        "VGG-16/b16 + A3C/b4",
        "A3C/b4 + A3C/b4",
    ]
    for row in rows:
        assert bool(row["kept"]) == (row["sum"] > 1.0)
        assert row["gain"] > 1.0 if row["kept"] else 0.99 < row["gain"] <= 1.0
    assert {row["kept"] for row in rows} == {0.0, 1.0}


def test_scattered_jobs_come_together() -> None:
    # At 53 % of their speed before; 3.2 s of moving in 9,000 s hardly show.
    scattered, together, speedup = united(1)
    assert (scattered, together) == (3, 3)
    assert speedup == pytest.approx(1 / 0.53, rel=0.001)


def test_a_search_by_turns_finds_what_it_is_looking_for_and_ends_the_rest() -> None:
    # 16 configurations on 4 GPUs, halved while more than 4 are left: 8 and 4 end.
    found = search("gandiva:max_residents=64", "half", 3, gpus=4, count=16)
    assert found.stopped == 12
    everybody = search("fifo", "none", 3, gpus=4, count=16)
    assert everybody.stopped == 0
    assert everybody.gpu_hours == pytest.approx(32.0)
    assert found.gpu_hours < everybody.gpu_hours


def test_curves_rise_to_their_top() -> None:
    curves = Curves(7, 100)
    scores = [[curves.score(f"search/{i:03}", rung * RUNG_S) for rung in range(121)] for i in range(100)]
    assert all(line == sorted(line) and line[0] == 0.0 for line in scores)
    # Tops are uniform in 0.1 to 0.95, so about 6 of 100 lie above 0.9.
    assert 1 <= sum(line[-1] >= GOOD for line in scores) <= 12
