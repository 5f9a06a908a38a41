"""Tiresias' job lists, and its list of durations alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import TraceError
from cotenant.traces.load import read_trace, recognise

HEAD = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"


@pytest.mark.data
def test_the_list_of_sixty_jobs(data_dir: Path) -> None:
    path = data_dir / "traces" / "tiresias" / "60_job.csv"
    assert recognise(path) == "tiresias"
    work = read_trace(path)
    assert len(work) == work.report.rows_read == 60
    assert work.frame.row(1, named=True) == {
        "name": "1",
        "submit_s": 30.0,
        "duration_s": 147.0,
        "gpus": 8,
        "model": "vgg11",
    }


@pytest.mark.data
def test_a_job_listed_twice_is_one_job(data_dir: Path) -> None:
    path = data_dir / "traces" / "tiresias" / "tf_job.csv"
    assert recognise(path) == "tiresias"
    report = read_trace(path).report
    assert (report.rows_read, report.rows_kept) == (2, 1)
    assert [(f.rows, f.example_line) for f in report.dropped] == [(1, 3)]
    assert len(read_trace(path, duplicates="keep")) == 2
    with pytest.raises(TraceError, match=r"tf_job\.csv"):
        read_trace(path, strict=True)


@pytest.mark.data
def test_durations_alone_are_not_replayed_unless_arrivals_are_asked_for(data_dir: Path) -> None:
    # As in case C14: refused with the reason and what can be done, or done with a flag.
    path = data_dir / "traces" / "tiresias" / "yarn-gput1000.csv"
    assert recognise(path) == "tiresias"
    with pytest.raises(TraceError, match=r"without submission times.*mean_gap_s"):
        read_trace(path)
    work = read_trace(path, mean_gap_s=10, seed=1)
    assert len(work) == work.report.rows_read == 1001
    assert any("arrivals are invented" in sentence for sentence in work.assumptions)
    assert work.frame.equals(read_trace(path, mean_gap_s="10", seed="1").frame)
    assert not work.frame["submit_s"].equals(read_trace(path, mean_gap_s=10, seed=2).frame["submit_s"])


@pytest.mark.data
@pytest.mark.parametrize("name", ["cluster_spec.csv", "n1g4.csv", "n32g4.csv"])
def test_a_cluster_spec_is_no_job_list(data_dir: Path, name: str) -> None:
    with pytest.raises(TraceError, match="cluster spec"):
        read_trace(data_dir / "traces" / "tiresias" / name)


def test_the_same_id_with_other_content_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "7,1,0,5,vgg16,10,0\n7,2,5,5,vgg16,10,5\n8,x,0,1,a,1,0\n")
    work = read_trace(path)
    assert work.frame["name"].to_list() == ["7", "7#2"]
    assert work.frame["model"].to_list() == ["VGG-16/b16"] * 2
    assert [f.reason for f in work.report.dropped] == ["num_gpu is not a number"]
