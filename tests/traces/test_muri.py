"""Muri's job lists are in milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.traces.load import read_trace, recognise

HEAD = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "differ"),
    [
        ("trace1.csv.gz", 1494, 0),
        ("trace3.csv.gz", 992, 0),
        ("trace4.csv.gz", 2638, 0),
        ("cluster_trace.csv", 400, None),
    ],
)
def test_published_files(data_dir: Path, name: str, rows: int, differ: int | None) -> None:
    path = data_dir / "traces" / "muri" / name
    assert recognise(path) == "muri"
    work = read_trace(path)
    assert len(work) == work.report.rows_read == rows
    flagged = {f.reason.split(" ")[0]: f.rows for f in work.report.flagged}
    assert flagged["has"] == rows  # stage times, counted and not used
    if differ is None:
        assert flagged["duration"] > rows // 2
    else:
        assert flagged.get("duration", 0) <= 2
    assert "milliseconds" in work.report.units


def test_times_become_seconds(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        HEAD
        + "0,8,0,10956,gpt2,4,5095000,91000,437,0.6,419,49,0\n1,8,1534000,1463,vgg16,16,281000,0,214,82,75,66,1\n"
    )
    assert read_trace(path).frame.to_dicts() == [
        {"name": "0", "submit_s": 0.0, "duration_s": 5095.0, "gpus": 8, "model": "GPT-2/b4", "priority": 0},
        {
            "name": "1",
            "submit_s": 1534.0,
            "duration_s": 281.0,
            "gpus": 8,
            "model": "VGG-16/b16",
            "priority": 1,
        },
    ]
