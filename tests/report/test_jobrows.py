"""The table of jobs made late and in parts, and the arrays beneath the fold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.report import jobrows
from cotenant.report.columns import grown, stable_order
from cotenant.report.fold import MetricFold
from cotenant.report.places import Places, flattened


def log(jobs: int) -> list[ev.Event]:
    """Jobs that run one after the other for 10 s each, ids falling; the last one still waits."""
    out: list[ev.Event] = [
        ev.Opened(0.0, ev.SCHEMA, "0", 1, "fifo", {}, {}, Cluster.uniform(1), {}, {}, {}),
        *(ev.Submitted(0.0, Job(i, f"job {i}", 0.0, tenant=f"t{i % 2}")) for i in reversed(range(jobs))),
    ]
    for i in range(jobs - 1):
        out += [ev.Started(10.0 * i, i, 1, (0,)), ev.Ended(10.0 * i + 10.0, i, 1, "done", 10.0)]
    return out


@pytest.mark.parametrize("part", [1, 3, 100])
def test_parts_of_any_size_make_the_same_table_in_memory_and_in_the_file(monkeypatch, tmp_path: Path, part):
    monkeypatch.setattr(jobrows, "PART", part)
    fold = MetricFold()
    fold.see(log(7))
    run = fold.result()
    run.write_jobs(tmp_path / "jobs.parquet")
    stored = pl.read_parquet(tmp_path / "jobs.parquet")
    assert stored.equals(run.jobs)
    assert stored.schema == run.jobs.schema
    assert stored["name"].to_list() == [f"job {i}" for i in range(7)]
    assert stored["wait_s"].to_list() == [0, 10, 20, 30, 40, 50, None]
    assert stored["queued_s"].to_list() == [0, 10, 20, 30, 40, 50, 60]
    assert stored["outcome"].to_list() == ["done"] * 6 + ["waiting"]
    run.write_jobs(tmp_path / "again.parquet")  # now that the whole table is there
    assert pl.read_parquet(tmp_path / "again.parquet").equals(stored)


def test_a_table_of_no_jobs_has_all_columns(tmp_path: Path):
    run = MetricFold().result()
    run.write_jobs(tmp_path / "jobs.parquet")
    full = MetricFold()
    full.see(log(2))
    assert pl.read_parquet(tmp_path / "jobs.parquet").schema == full.result().jobs.schema


def test_what_was_told_of_a_run_that_goes_on_stays_as_it_was():
    events = log(5)
    early = MetricFold()
    early.see(events[:10])
    then = early.result()  # two jobs have ended, nothing was asked of the table yet
    early.see(events[10:])
    now = early.result()
    alone = MetricFold()
    alone.see(events[:10])
    assert then.jobs.equals(alone.result().jobs)
    assert then.jobs["outcome"].to_list() == ["done", "done", "waiting", "waiting", "waiting"]
    assert now.jobs["outcome"].to_list() == ["done"] * 4 + ["waiting"]


def test_groups_add_up_to_the_whole():
    fold = MetricFold()
    fold.see(log(5))
    groups = fold.result().summary["by_tenant"]
    # Jobs 0, 2 and 4 (which still waits) are of t0; 1 and 3 of t1. They start at 0, 20; 10, 30.
    assert {k: (g["jobs"], g["started"], g["wait_s_mean"]) for k, g in groups.items()} == {
        "t0": (3, 2, 10.0),
        "t1": (2, 2, 20.0),
    }
    assert groups["t0"]["longest_wait_s"] == 40.0
    assert groups["t1"]["useful_gpu_hours"] == pytest.approx(20 / 3600)


@settings(max_examples=60)
@given(keys=st.lists(st.integers(0, (1 << 20) - 1), max_size=50), wide=st.sampled_from([1 << 20, 1 << 33]))
def test_small_numbers_are_sorted_and_equal_ones_keep_their_order(keys, wide):
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    assert stable_order(np.array(keys, dtype=np.int64), wide).tolist() == expected
    low = [k & 0xFFFF for k in keys]
    expected = sorted(range(len(low)), key=low.__getitem__)
    assert stable_order(np.array(low, dtype=np.int64), 1 << 16).tolist() == expected


def test_columns_grow_with_their_fill_and_keep_what_they_hold():
    column = grown(np.zeros(0), 0, 3, np.nan)
    assert np.isnan(column[:3]).all()
    column[:3] = [1.0, 2.0, 3.0]
    column = grown(column, 3, 5000, np.nan)
    assert column[:3].tolist() == [1, 2, 3]
    assert np.isnan(column[3:5000]).all()
    zeros = grown(np.zeros(4, dtype=np.int32), 4, 5000)
    assert zeros.size >= 5000
    assert not zeros.any()


@settings(max_examples=60)
@given(
    held=st.dictionaries(st.integers(3, 40), st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=8),
    more=st.dictionaries(st.integers(3, 40), st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=8),
    asked=st.lists(st.integers(0, 50), max_size=8),
)
def test_places_do_what_a_dictionary_does(held, more, asked):
    joined = Places.of(held).joined(np.array(list(more), dtype=np.int64), *flattened(list(more.values())))
    assert joined.distinct == held.keys().isdisjoint(more)
    if not joined.distinct:
        return
    whole = {**held, **more}
    assert joined.mapping() == whole
    rows = joined.find(np.array(asked, dtype=np.int64))
    lengths, devices = joined.devices_of(rows)
    assert lengths.tolist() == [len(whole.get(j, ())) for j in asked]
    assert devices.tolist() == [d for j in asked for d in whole.get(j, ())]
    assert joined.without(rows).mapping() == {j: d for j, d in whole.items() if j not in asked}
