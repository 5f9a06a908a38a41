"""The common trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import InputError
from cotenant.profiles.kinds import MIXES
from cotenant.traces.load import read_trace, recognise

TEXT = "job_id,submit_s,num_gpu,duration_s,model_u1000\n0,0,1,5906,228\n1,29,2,2172,758\n"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "jobs", "mean_s"),
    [
        ("common-n500-g64", 500, 8219.0),
        ("common-n500-g512", 500, 8219.0),
        ("common-n2000-g64", 2000, 5962.8),
        ("common-n2000-g512", 2000, 5962.8),
        ("common-n2000-g4096", 2000, 5962.8),
        ("common-n8000-g64", 8000, 5676.7),
        ("common-n8000-g512", 8000, 5676.7),
        ("common-n8000-g4096", 8000, 5676.7),
    ],
)
def test_files_have_the_jobs_and_mean_duration_that_they_should(
    data_dir: Path, name: str, jobs: int, mean_s: float
) -> None:
    path = data_dir / "traces" / "common" / f"{name}.csv.gz"
    assert recognise(path) == "common"
    work = read_trace(path)
    assert len(work) == work.report.rows_read == jobs
    assert work.report.dropped == work.report.repaired == []
    assert round(float(work.frame["duration_s"].mean()), 1) == mean_s  # type: ignore[arg-type]
    assert set(work.frame["gpus"].unique()) == {1, 2, 4, 8}


def test_a_model_is_picked_by_the_remainder(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text(TEXT)
    # 228 % 3 = 0, 758 % 3 = 2
    assert read_trace(path, models="a,b,c").frame["model"].to_list() == ["a", "c"]
    gavel = list(MIXES["gavel"])
    work = read_trace(path)
    assert work.frame["model"].to_list() == [gavel[228 % 26], gavel[758 % 26]]
    assert any("not observed" in sentence for sentence in work.assumptions)
    assert "model" not in read_trace(path, models="none").frame.columns
    with pytest.raises(InputError, match="empty name"):
        read_trace(path, models="a,,b")


def test_bad_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text(TEXT + "2,x,1,1,1\n3,1,1,1,1.5\n1,29,2,2172,758\n")
    report = read_trace(path).report
    assert (report.rows_read, report.rows_kept) == (5, 2)
    assert sum(f.rows for f in report.dropped) == 3
