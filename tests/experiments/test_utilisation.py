"""Utilisation as a device shows it, by hand; the experiments that compare by it run in ``test_contract``."""

from __future__ import annotations

import polars as pl
import pytest

from cotenant.experiments.tong import largest_jct_s, one_after_another
from cotenant.experiments.utilisation import Gauge
from cotenant.model import events as ev
from cotenant.model.jobs import Job
from cotenant.model.placement import Share

SPATIAL, TURNS = Share("spatial", 1, 0), Share("time-sliced", 1, 0)
# VGG-16/b16 uses 0.64 of a V100, ResNet-50/b32 0.82, ShuffleNet-v2/b128 0.07.
JOBS = [
    Job(id=i, name=str(i), submit_s=0.0, model=m)
    for i, m in enumerate(("VGG-16/b16", "ResNet-50/b32", "ShuffleNet-v2/b128"))
]


def gauge(*events: ev.Event) -> Gauge:
    found = Gauge("V100")
    found.see([*(ev.Submitted(0.0, job) for job in JOBS), *events])
    return found


def test_shares_add_up_and_never_beyond_the_whole() -> None:
    """10 s at 0.64, 10 s at min(1.46, 1), 10 s at 0.82."""
    found = gauge(
        ev.Started(0.0, 0, 1, (0,), SPATIAL),
        ev.Started(10.0, 1, 1, (0,), SPATIAL),
        ev.Ended(20.0, 0, 1, "done", 20.0),
        ev.Ended(30.0, 1, 1, "done", 20.0),
        ev.Submitted(40.0, Job(id=9, name="9", submit_s=40.0)),
    )
    assert found.device_s == pytest.approx(6.4 + 10.0 + 8.2)
    assert (found.held_s, found.paused_s) == (40.0, 0.0)


def test_a_gang_counts_on_each_device_and_nothing_while_it_saves() -> None:
    """Two devices at 0.07 for 5 s, saving for 5 s."""
    found = gauge(
        ev.Started(0.0, 2, 1, (0, 1), None),
        ev.Rated(5.0, 2, 0.0),
        ev.Suspended(10.0, 2, 1, 5.0),
        ev.Submitted(20.0, Job(id=9, name="9", submit_s=20.0)),
    )
    assert found.device_s == pytest.approx(2 * 5 * 0.07)
    assert (found.held_s, found.paused_s) == (20.0, 10.0)


def test_those_who_take_turns_show_their_mean() -> None:
    """0.64 and 0.82 in turns: 0.73."""
    found = gauge(
        ev.Started(0.0, 0, 1, (0,), TURNS),
        ev.Started(0.0, 1, 1, (0,), TURNS),
        ev.Ended(10.0, 0, 1, "done", 5.0),
        ev.Ended(10.0, 1, 1, "done", 5.0),
    )
    assert found.device_s == pytest.approx(7.3)


def test_waits_count_at_a_stretch() -> None:
    """Job 0 waits 3 s, then, stopped at 10 s, 7 s; job 1 waits 5 s; job 2 is never started."""
    found = gauge(
        ev.Started(3.0, 0, 1, (0,), None),
        ev.Started(5.0, 1, 1, (1,), None),
        ev.Suspended(10.0, 0, 1, 7.0),
        ev.Started(17.0, 0, 1, (0,), None, resumed=True),
        ev.Ended(20.0, 0, 1, "done", 10.0),
    )
    assert found.waited_s == {0: 7.0, 1: 5.0}


class _Metrics:
    jobs = pl.DataFrame(
        {
            "id": [0, 1, 2],
            "submit_s": [0.0, 10.0, 500.0],
            "work_s": [100.0, 50.0, 20.0],
            "gpus": [1, 2, 1],
            "jct_s": [100.0, 90.0, 20.0],
            "model": ["VGG-16/b16", "ResNet-50/b32", "ShuffleNet-v2/b128"],
        }
    )


def test_one_job_at_a_time_is_worked_out() -> None:
    """Ends at 100, 150, 520: completion 100, 140, 20; 64 + 82 + 1.4 busy GPU-seconds of 4 * 520."""
    found = one_after_another(_Metrics(), 4)  # type: ignore[arg-type]
    assert found["makespan_s"] == 520.0
    assert found["jct_s_mean"] == pytest.approx(260.0 / 3)
    assert found["utilisation"] == pytest.approx(147.4 / 2080.0)
    # Of three jobs the largest tenth is one: both have 100 GPU-seconds, the later id goes first.
    assert largest_jct_s(_Metrics()) == 90.0  # type: ignore[arg-type]
