"""Slurm accounting as it really looks (case C09)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import InputError, QuantityError, TraceError
from cotenant.model.quantities import GIB, MIB
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.sacct import sacct_jobs
from cotenant.traces.sacctfields import array_tasks, parse_limit, parse_memory, parse_state, parse_tres

HEAD = "JobID|JobName|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|ReqMem\n"
C09 = HEAD + (
    "101|ok|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:05|2026-01-06T12:00:05|1-02:00:00|2-00:00:00|"
    "cpu=8,mem=64G,gres/gpu=2|64G\n"
    "101.batch|batch|COMPLETED|2026-01-05T10:00:05|2026-01-05T10:00:05|2026-01-06T12:00:05|1-02:00:00||cpu=8|\n"
    "102|gone|CANCELLED by 1001|2026-01-05T10:00:00|None|2026-01-05T10:01:00|00:00:00|Partition_Limit|"
    "cpu=4,gres/gpu:a100=1|32000M\n"
    "103_[1-4%2]|arr|PENDING|2026-01-05T10:00:00|Unknown|Unknown|00:00:00|UNLIMITED|gres/gpu=1|4Gc\n"
    "104|cat a | grep b|TIMEOUT|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|"
    "gres/gpu=1|8G\n"
    "105|oom|OUT_OF_MEMORY|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T10:05:01|00:05:00|60|cpu=1|1G\n"
)
START = 1_767_607_200.0  # 2026-01-05 10:00:00 as if UTC


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_the_jobs_of_the_case(tmp_path: Path) -> None:
    path = _file(tmp_path, C09)
    assert recognise(path) == "sacct"
    jobs = {row["job_id"]: row for row in sacct_jobs(path).to_dicts()}
    assert list(jobs) == ["101", "102", "103_[1-4%2]", "104", "105"]
    assert jobs["101"]["duration_s"] == 93_600
    assert (jobs["101"]["gpus"], jobs["101"]["limit_s"], jobs["101"]["host_memory_bytes"]) == (
        2,
        172_800,
        64 * GIB,
    )
    gone = jobs["102"]
    assert (gone["state"], gone["start_s"], gone["limit_kind"]) == ("CANCELLED", None, "inherited")
    assert (gone["gpus"], gone["gpu_type"], gone["host_memory_bytes"]) == (1, "A100", 32_000 * MIB)
    array = jobs["103_[1-4%2]"]
    assert (array["tasks"], array["at_once"], array["state"], array["limit_kind"]) == (
        4,
        2,
        "PENDING",
        "none",
    )
    assert array["host_memory_bytes"] == 4 * GIB
    grep = jobs["104"]
    assert (grep["name"], grep["state"], grep["duration_s"], grep["gpus"]) == (
        "cat a | grep b",
        "TIMEOUT",
        3600,
        1,
    )
    oom = jobs["105"]
    assert (oom["state"], oom["gpus"], oom["limit_s"], oom["cpu_milli"]) == ("OUT_OF_MEMORY", 0, 3600, 1000)


def test_the_workload_of_the_case_holds_what_can_be_replayed(tmp_path: Path) -> None:
    work = read_trace(_file(tmp_path, C09))
    assert work.frame.select("name", "submit_s", "duration_s", "gpus", "outcome", "estimate_s").rows() == [
        ("101", 0.0, 93_600.0, 2, "done", 172_800.0),
        ("104", 0.0, 3600.0, 1, "failed", 3600.0),
        ("105", 0.0, 300.0, 0, "failed", 3600.0),
    ]
    report = work.report
    assert (report.rows_read, report.rows_kept) == (6, 5)
    assert [(f.reason, f.example_line) for f in report.dropped] == [("step of a job, not a job", 3)]
    assert [(f.rows, f.example_line) for f in report.repaired] == [(1, 6)]
    assert [(f.rows, f.example_line) for f in report.not_simulated] == [(1, 5), (1, 4)]
    assert "4 tasks, at most 2 at once" in next(f.example for f in report.flagged if "array" in f.reason)
    with pytest.raises(TraceError, match=r"jobs\.txt:6: delimiter inside JobName"):
        read_trace(tmp_path / "jobs.txt", strict=True)


@pytest.mark.parametrize(
    "line",
    [
        "9|a|b|c|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=1|8G|x",
        "9|a|COMPLETED|2026-01-05T10:00:00",
        "9|a|SLEEPING|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=1|8G",
        "x|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=1|8G",
        "9|a|COMPLETED|yesterday|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=1|8G",
        "9|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|soon|01:00:00|gres/gpu=1|8G",
        "9|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|later|gres/gpu=1|8G",
        "9|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=x|8G",
        "9|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=1|8X",
    ],
)
def test_a_bad_row_is_dropped_by_its_line_and_never_shifted(tmp_path: Path, line: str) -> None:
    work = read_trace(_file(tmp_path, C09 + line + "\n"))
    assert work.frame["name"].to_list() == ["101", "104", "105"]
    assert sorted((f.rows, f.example_line) for f in work.report.dropped) == [(1, 3), (1, 8)]


def test_a_name_full_of_delimiters_is_put_right(tmp_path: Path) -> None:
    line = "9||||COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|01:00:00|gres/gpu=1|8G\n"
    jobs = sacct_jobs(_file(tmp_path, HEAD + line))
    assert jobs.select("job_id", "name", "gpus").rows() == [("9", "||", 1)]


def test_parsable_with_its_trailing_delimiter(tmp_path: Path) -> None:
    text = "".join(f"{line}|\n" for line in C09.splitlines())
    one = read_trace(_file(tmp_path, C09)).frame
    assert read_trace(_file(tmp_path, text)).frame.equals(one)
    windows = C09.replace("\n", "\r\n")
    assert read_trace(_file(tmp_path, windows)).frame.equals(one)


def test_another_delimiter_and_account_and_user(tmp_path: Path) -> None:
    text = (
        "JobID;State;Submit;Start;End;ElapsedRaw;AllocTRES;User;Account\n"
        "1;COMPLETED;2026-01-05T10:00:00;2026-01-05T10:00:00;2026-01-05T11:00:00;3600;"
        "billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8000M,node=1;dédé;bio|lab\n"
    )
    work = read_trace(_file(tmp_path, text), format="sacct", delimiter=";")
    row = work.frame.row(0, named=True)
    assert (row["gpus"], row["cpu_milli"], row["tenant"], row["user"]) == (2, 4000, "bio|lab", "dédé")
    assert row["device_types"] == ["A100"]
    assert row["host_memory_bytes"] == 8000 * MIB
    assert any("AllocTRES" in sentence for sentence in work.assumptions)


def test_a_requeued_job_appears_twice_and_keeps_both_rows(tmp_path: Path) -> None:
    row = "7|a|{state}|2026-01-05T10:00:00|2026-01-05T{start}|2026-01-05T{end}|{ran}|60|gres/gpu=1|1G\n"
    text = HEAD + row.format(state="NODE_FAIL", start="10:00:00", end="10:10:00", ran="00:10:00")
    text += row.format(state="COMPLETED", start="10:20:00", end="10:50:00", ran="00:30:00")
    work = read_trace(_file(tmp_path, text))
    assert work.frame.select("name", "duration_s", "outcome").rows() == [
        ("7", 600.0, "failed"),
        ("7#2", 1800.0, "done"),
    ]


def test_running_jobs_are_set_aside(tmp_path: Path) -> None:
    line = "8|a|RUNNING|2026-01-05T10:00:00|2026-01-05T10:00:00|Unknown|01:00:00|60|gres/gpu=1|1G\n"
    report = read_trace(_file(tmp_path, HEAD + line)).report
    assert ["still running" in f.reason for f in report.not_simulated] == [True]


def test_headers_that_do_not_do(tmp_path: Path) -> None:
    for text, words in (
        ("JobID|State|Submit|Start|End\n", "missing field.*ReqTRES"),
        ("JobID|State|ReqTRES\n", "missing field.*Submit"),
        (HEAD.replace("JobName", "State"), "twice"),
    ):
        with pytest.raises(TraceError, match=words):
            read_trace(_file(tmp_path, text), format="sacct")
    empty = read_trace(_file(tmp_path, HEAD + "\n"))
    assert len(empty) == 0
    with pytest.raises(InputError, match="delimiter"):
        read_trace(_file(tmp_path, C09), delimiter="")


def test_states() -> None:
    assert parse_state("CANCELLED by 1001") == "CANCELLED"
    assert parse_state("CANCELLED+") == "CANCELLED"
    assert parse_state("completed") == "COMPLETED"
    assert parse_state("RE+") == ""  # several states begin so
    assert parse_state("") == ""


def test_limits() -> None:
    assert parse_limit("1-12").seconds == 129_600
    assert parse_limit("90:30").seconds == 5430
    assert parse_limit("90").seconds == 5400
    assert (parse_limit("").kind, parse_limit("UNLIMITED").kind) == ("not given", "none")
    with pytest.raises(QuantityError):
        parse_limit("a while")


def test_memory() -> None:
    assert parse_memory("4Gn", None, 3) == (12 * GIB, "")
    assert parse_memory("4000", None, None) == (4000 * MIB, "")
    assert parse_memory("0n", 4, 4) == (0, "")
    assert "one is taken" in parse_memory("1Gc", None, None)[1]


def test_trackable_resources() -> None:
    both = parse_tres("billing=9,cpu=2,gres/gpu=4,gres/gpu:a100=4,mem=1.50G,node=2")
    assert (both.gpus, both.gpu_type, both.memory_bytes, both.nodes) == (4, "a100", 1536 * MIB, 2)
    two = parse_tres("gres/gpu:a100=1,gres/gpu:h100=2")
    assert (two.gpus, two.gpu_type) == (3, "")
    assert parse_tres("gpu:2").gpus == parse_tres("gpu:v100:2(S:0-1)").gpus == 2
    assert parse_tres("gres/gpumem=5G").gpus == parse_tres("").gpus == 0
    shard = parse_tres("cpu=2,gres/gpumem=5G,gres/shard=3")
    assert (shard.gpus, shard.shared, shard.slice_gib) == (1, "shard", 0)
    assert parse_tres("shard:3").shared == "shard"
    assert parse_tres("gres/gpu=1,gres/shard=4") == parse_tres("gres/gpu=1")
    piece = parse_tres("gres/gpu:1g.10gb=2,gres/gpu=2")
    assert (piece.gpus, piece.gpu_type, piece.shared) == (2, "", "slice")
    assert (piece.slice_gib, piece.slice_sevenths) == (10, 1)
    assert parse_tres("gpu:a100_3g.20gb:1").slice_sevenths == 3


def test_parts_of_a_gpu_are_kept_as_sharing_jobs_and_flagged(tmp_path: Path) -> None:
    row = "{}|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:00|2026-01-05T10:01:00|00:01:00|60|{}|1G\n"
    asked = ("gres/shard=2", "gres/gpu:1g.10gb=1", "gres/gpu=1")
    workload = read_trace(_file(tmp_path, HEAD + "".join(row.format(i, a) for i, a in enumerate(asked, 1))))
    columns = ("name", "gpus", "sharing", "memory_bytes", "compute_milli", "device_types")
    assert workload.frame.select(columns).rows() == [
        ("1", 1, "any", 0, 1000, []),
        ("2", 1, "any", 10 * GIB, 142, []),
        ("3", 1, "same-owner", 0, 1000, []),
    ]
    flags = {finding.reason.split(":")[0]: finding.rows for finding in workload.report.flagged}
    assert flags == {"asks for shards of a GPU (gres/shard)": 1, "asks for MIG slices": 1}


def test_local_times_are_not_called_utc(tmp_path: Path) -> None:
    line = "9|a|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:01|2026-01-05T11:00:01|01:00:00|60|gres/gpu=1|8G\n"
    local = read_trace(_file(tmp_path, HEAD + line))
    assert (
        "Time 0 is the first submission, 2026-01-05 10:00:00 as written, zone unknown." in local.assumptions
    )
    zoned = read_trace(_file(tmp_path, HEAD + line), time_zone="Europe/Berlin")
    assert "Time 0 is the first submission, 2026-01-05 09:00:00 UTC." in zoned.assumptions


def test_arrays() -> None:
    assert array_tasks("1_[0-9]") == (10, 0)
    assert array_tasks("1_[1,5,7-8%3]") == (4, 3)
    assert array_tasks("1_[0-10:5]") == (3, 0)
    assert array_tasks("1_[9-1]") is None
    assert array_tasks("1_[0-99999999]") is None
    assert array_tasks("1") is None
