"""Whatever the bytes, a reader gives a workload or one of our errors: no other exception."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.errors import CotenantError
from cotenant.model.workload import Workload
from cotenant.traces.load import read_trace

MODEST = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
LONG = "ResNet-50 (batch size 64)\tpython3 main.py %s\timage\t--steps\t1\t5000\t2\t1\t-1.000000\t0"
SAMPLES: dict[str, tuple[str, str, list[str]]] = {
    "common": (
        "c.csv",
        ",",
        ["job_id,submit_s,num_gpu,duration_s,model_u1000", "0,0,1,5906,228", "1,29,1,2172,758"],
    ),
    "gavel": ("g.trace", "\t", [LONG, LONG.replace("5000", "70")]),
    "tiresias": (
        "t.csv",
        ",",
        ["job_id,num_gpu,submit_time,iterations,model_name,duration,interval", "0,1,0,606,vgg19,164,30"],
    ),
    "muri": (
        "m.csv",
        ",",
        [
            "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
            "resource_time_0,resource_time_1,resource_time_2,priority",
            "0,8,0,10956,gpt2,4,5095000,91000,437,0.6,419,49,0",
        ],
    ),
    "elasticflow": (
        "e.csv",
        ",",
        [
            "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration",
            "0,5,2011,ncf,9,8,1,5644",
        ],
    ),
    "pollux": ("p.csv", ",", ["name,time,application,num_replicas,batch_size", "a,107,cifar10,6,2048"]),
    "sacct": (
        "s.txt",
        "|",
        [
            "JobID|JobName|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|ReqMem",
            "1_[1-4%2]|ok|CANCELLED by 1|2026-01-05T10:00:00|None|2026-01-06T12:00:05|1-02:00:00|60|gres/gpu=2|4Gc",
            "2|ok|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:05|2026-01-06T12:00:05|02:00:00|60|cpu=8,gres/gpu=2|4G",
        ],
    ),
    "native": (
        "n.csv",
        ",",
        [
            "name,submit_s,duration_s,gpus,gpu_memory,device_types,failed_after_s,sharing,suspendable",
            "a,0,1.5,2,6GiB,A|B,1|2.5,any,true",
        ],
    ),
    "synthetic": (
        "y.yaml",
        ":",
        ["synthetic:", "  jobs: 3", "  seed: 1", "  duration: {kind: fixed, value_s: 3.0}"],
    ),
}
CELLS = st.one_of(
    st.sampled_from(
        ["", " ", "-1", "0", "1e308", "1e400", "nan", "inf", "1_000", "012", "9" * 30, "None", "é", '"', '"a', "|", "\\",
         "\\e", "\t", "\r", "\x00", "true", "{}", "[", "&a", "*a", "!!x y", "0.5", "2026-13-45T99:99:99", "1-1", "%", "80GB"]
    ),
    st.text(max_size=8),
)  # fmt: skip


def check_reading(path: Path, format_name: str, strict: bool) -> None:
    try:
        work = read_trace(path, format=format_name, strict=strict)
    except CotenantError:
        return
    assert isinstance(work, Workload)
    assert work.report.check() is work.report
    assert work.report.rows_kept == len(work) + sum(f.rows for f in work.report.not_simulated)


@pytest.mark.parametrize("format_name", sorted(SAMPLES))
@MODEST
@given(data=st.data())
def test_mutated_rows(tmp_path: Path, format_name: str, data: st.DataObject) -> None:
    name, separator, lines = SAMPLES[format_name]
    table = [line.split(separator) for line in lines]
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.sampled_from(table))
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(CELLS)
        if data.draw(st.integers(0, 9)) == 0:
            row.append(data.draw(CELLS))
        if data.draw(st.integers(0, 9)) == 0:
            table.append(list(row))
    path = tmp_path / name
    path.write_bytes("\n".join(separator.join(row) for row in table).encode("utf-8", "replace"))
    check_reading(path, format_name, data.draw(st.booleans()))


@pytest.mark.parametrize("format_name", sorted(SAMPLES))
@MODEST
@given(st.binary(max_size=120), st.booleans(), st.booleans())
def test_random_bytes(
    tmp_path: Path, format_name: str, data: bytes, after_header: bool, packed: bool
) -> None:
    name, _, lines = SAMPLES[format_name]
    body = (lines[0].encode() + b"\n" if after_header else b"") + data
    path = tmp_path / name
    path.write_bytes(gzip.compress(body) if packed else body)
    check_reading(path, format_name, False)


@MODEST
@given(st.binary(max_size=200), st.integers(0, 3))
def test_parquet_and_json_lines_from_random_bytes(tmp_path: Path, data: bytes, kind: int) -> None:
    path = tmp_path / ("n.parquet" if kind < 2 else "n.jsonl")
    path.write_bytes(
        (b"PAR1" + data + b"PAR1")
        if kind == 1
        else (b'{"submit_s":0,"duration_s":' + data if kind == 3 else data)
    )
    check_reading(path, "native", False)


@pytest.mark.parametrize("format_name", sorted(set(SAMPLES) - {"synthetic", "native"}))
def test_shuffled_lines_give_the_same_workload(tmp_path: Path, format_name: str) -> None:
    name, separator, lines = SAMPLES[format_name]
    first = 0 if format_name == "gavel" else 1
    cells = [line.split(separator) for line in lines[first:]]
    identified = format_name not in {"gavel"}
    body = [
        separator.join([f"{i + 10}", *row[1:]] if identified else [*row[:-1], str(i % 3)])
        for i in range(30)
        for row in cells[-1:]
    ]
    path = tmp_path / name
    path.write_text("\n".join([*lines[:first], *body]))
    expected = read_trace(path, format=format_name).frame
    assert expected.height == 30 if identified else expected.height > 0
    random.Random(4).shuffle(body)
    path.write_text("\n".join([*lines[:first], *body]))
    assert read_trace(path, format=format_name).frame.equals(expected)
