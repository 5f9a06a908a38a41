"""ElasticFlow's job lists: absolute deadlines, half of which nobody can meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.traces.load import read_trace, recognise


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "late"), [("philly_103959.csv", 876, 466), ("elasticVpollux_e.csv", 195, 94)]
)
def test_published_files(data_dir: Path, name: str, rows: int, late: int) -> None:
    path = data_dir / "traces" / "elasticflow" / name
    assert recognise(path) == "elasticflow"
    work = read_trace(path)
    assert len(work) == work.report.rows_read == rows
    assert [f.rows for f in work.report.flagged if "deadline" in f.reason] == [late]


def test_deadlines_move_with_time_zero(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
        "0,1000,5,vgg16,1600,256,1,500\n1,1100,5,bert,1200,64,4,500\n2,1100,5,bert,,64,4,500\n"
    )
    work = read_trace(path)
    assert work.frame.select("submit_s", "deadline_s", "duration_s").rows() == [
        (0.0, 600.0, 500.0),
        (100.0, 200.0, 500.0),
        (100.0, 0.0, 500.0),
    ]
    assert [(f.rows, f.example_line) for f in work.report.flagged] == [(1, 3)]
