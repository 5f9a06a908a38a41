"""Pollux workloads have no running times: they are assumed, and that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import InputError
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.pollux import TYPICAL_GPU_S

TEXT = "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\nodd-1,110,chess,2,320\n"


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "p.csv"
    path.write_text(TEXT)
    return path


@pytest.mark.data
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_published_files(data_dir: Path, number: int) -> None:
    path = data_dir / "traces" / "pollux" / f"workload-{number}.csv"
    assert recognise(path) == "pollux"
    work = read_trace(path)
    assert len(work) == work.report.rows_read == 160
    assert any("assumed, not observed" in sentence for sentence in work.assumptions)
    assert [f.rows for f in work.report.flagged] == [160]
    assert len(read_trace(path, seconds="none")) == 0


def test_an_assumed_time_belongs_to_seed_and_name(tmp_path: Path) -> None:
    path = _file(tmp_path)
    work = read_trace(path)
    duration = work.frame["duration_s"][0]
    # Five sigma of exp(N(0, 0.5)) around the typical GPU time, on six devices.
    assert TYPICAL_GPU_S["cifar10"] / 6 / 12.2 < duration < TYPICAL_GPU_S["cifar10"] / 6 * 12.2
    assert read_trace(path).frame["duration_s"][0] == duration
    assert read_trace(path, seed=1).frame["duration_s"][0] != duration
    # No typical time is known for the other application.
    assert [(f.rows, f.example_line) for f in work.report.not_simulated] == [(1, 3)]
    assert work.report.rows_kept == 2


def test_seconds_can_be_given(tmp_path: Path) -> None:
    path = _file(tmp_path)
    assert read_trace(path, seconds=600).frame["duration_s"].to_list() == [600.0, 600.0]
    given = read_trace(path, seconds="chess:30")
    assert given.frame.select("name", "duration_s").rows() == [("odd-1", 30.0)]
    assert any("seconds=chess:30" in sentence for sentence in given.assumptions)
    for wrong in ("-1", "x", "chess:-2", "inf"):
        with pytest.raises(InputError, match="seconds"):
            read_trace(path, seconds=wrong)
