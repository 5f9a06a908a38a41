"""A story of what runs now names times of day and devices; one of a run, its own time and numbers."""

from __future__ import annotations

import time

import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason, Why
from cotenant.report.explain import explain_events
from cotenant.report.phrases import at
from cotenant.report.telling import now_telling, told_live

BEGAN = 1_796_005_685.0


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def _log() -> list[ev.Event]:
    cluster = Cluster.uniform(2)
    return [
        ev.Opened(0.0, 1, "0", 0, "fifo", {}, {}, cluster, {}, {"kind": "none"}, {}),
        ev.Submitted(1.0, Job(0, "a", 1.0)),
        ev.Started(1.0, 0, 1, (1,), why=Why("free-devices")),
        ev.SuspendRequested(61.0, 0),
        ev.Stopping(61.0, 0, 1),
        ev.Suspended(62.0, 0, 1, 60.0),
        ev.ResumeRequested(90_000.0, 0),
        ev.Started(90_000.0, 0, 2, (0,), resumed=True),
        ev.Ended(90_060.0, 0, 2, "done", 120.0),
    ]


def _live(log: list[ev.Event], now_s: float) -> str:
    with told_live(lambda t: BEGAN + t, now_s, ["cpu:0", "cpu:1"].__getitem__):
        return explain_events(log, 0, now_s=now_s).text


def test_times_are_of_the_clock_with_the_date_where_it_is_another_day() -> None:
    # 1,796,005,685 s after 1970 is 02:28:05 UTC on 30 November 2026; the job resumes 25 hours later.
    text = _live(_log(), 90_100.0)
    assert "2026-11-30 02:28:06  Submitted" in text
    assert "           03:28:05  Resumed on cpu:0, whole" in text
    assert "done at 03:29:05 with 2m of useful work" in text
    assert "device 0" not in text
    assert "on 1 node" not in text
    assert "to go on later" in text
    # It was its owner who kept it away, and let it go on: nothing is left to advise.
    assert "What would have helped" not in text


def test_while_its_owner_holds_it_a_resume_would_help() -> None:
    assert "What would have helped: a resume by its owner" in _live(_log()[:6], 80.0)


def test_a_run_has_its_own_time_and_numbers() -> None:
    text = explain_events(_log(), 0).text
    assert "    00:00:01  Submitted" in text
    assert "Started (attempt 1) on device 1 on 1 node, whole" in text
    assert "saving its state" in text


def test_outside_the_block_nothing_is_told_live() -> None:
    with told_live(lambda t: BEGAN + t, 0.0, str):
        assert at(5.0) == "02:28:10"
    assert now_telling() is None
    assert at(5.0) == "00:00:05"


def test_one_that_stands_still_is_not_said_to_run() -> None:
    log = [*_log()[:3], ev.Paused(30.0, 0, 1)]
    assert "Job 'a' (number 0): paused; 39s on its devices so far." in _live(log, 40.0)
    assert "Job 'a' (number 0): running; 59s on its devices so far." in _live(
        [*log, ev.Paused(50.0, 0, 1, False)], 60.0
    )


def test_of_a_wait_that_is_over_nothing_is_said_to_help() -> None:
    log = [
        _log()[0],
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Held(0.0, 0, Reason.NO_CAPACITY),
    ]
    assert "\nWhat would have helped: running jobs that end" in _live(log, 40.0)
    log.append(ev.Started(50.0, 0, 1, (0,)))
    assert "\nWhat would have shortened its longest wait, now over: running jobs that end" in _live(log, 60.0)
