"""Our own format: exact round trips, clear refusals, names of all kinds, large files."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.errors import InputError, TraceError
from cotenant.model.quantities import MIB
from cotenant.model.workload import JOB_SCHEMA, Workload
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.native import write_workload
from cotenant.traces.nativecolumns import ALIASES, list_text, list_values
from cotenant.traces.synthetic import generate

KINDS = ("w.parquet", "w.csv", "w.csv.gz", "w.jsonl", "w.jsonl.gz")
NAMES = [
    "dédé job",
    "训练-01",
    "für",
    "🚀 go",
    "مهمة",
    "a|b",
    "=1+1",
    "+2",
    "@x",
    "\x1b[31mred\x1b[0m",
    'say "hi", then',
    "two\nlines",
    "back\\slash\\e",
    " blanks ",
    "a\rb",
    "\ufeffbom",
    "null",
    "",
    "\u2028",
    "#2",
]
MODEST = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def _same(one: Workload, two: Workload) -> bool:
    columns = sorted(one.frame.columns)
    return columns == sorted(two.frame.columns) and one.frame.select(columns).equals(
        two.frame.select(columns)
    )


def _file(tmp_path: Path, text: str, name: str = "w.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_all_kinds_come_back_exactly(tmp_path: Path, kind: str) -> None:
    # Case C67.
    frame = pl.DataFrame(
        {
            "name": NAMES,
            "submit_s": [float(i) for i in range(len(NAMES))],
            "duration_s": [1.0] * len(NAMES),
            "tenant": NAMES[::-1],
            "device_types": [[name, "x"] for name in NAMES],
        }
    )
    work = Workload(frame)
    path = write_workload(work, tmp_path / kind)
    assert recognise(path) == "native"
    back = read_trace(path)
    assert back.frame["name"].to_list() == NAMES
    assert _same(back, work)
    assert back.report.rows_read == back.report.rows_kept == len(NAMES)


def test_native_data_is_not_altered_for_spreadsheets(tmp_path: Path) -> None:
    work = Workload(pl.DataFrame({"name": ["=1+1"], "submit_s": [0.0], "duration_s": [1.0]}))
    assert b'"=1+1"' in write_workload(work, tmp_path / "w.csv").read_bytes()


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
_TIME = st.floats(0, 1e9)
_CELL: dict[str, st.SearchStrategy[object]] = {
    "gpus": st.integers(0, 1000),
    "model": _TEXT,
    "memory_bytes": st.integers(0, 2**62),
    "compute_milli": st.integers(0, 1000),
    "sharing": st.sampled_from(["exclusive", "same-owner", "trusted", "any"]),
    "tenant": _TEXT,
    "user": _TEXT,
    "priority": st.integers(-(2**40), 2**40),
    "estimate_s": _TIME,
    "device_types": st.lists(_TEXT, max_size=3),
    "cpu_milli": st.integers(0, 2**40),
    "host_memory_bytes": st.integers(0, 2**62),
    "min_gpus": st.integers(0, 4),
    "max_gpus": st.integers(4, 8),
    "job_class": st.sampled_from(["guaranteed", "opportunistic"]),
    "state_bytes": st.integers(0, 2**62),
    "leave_s": _TIME,
    "deadline_s": _TIME,
    "suspendable": st.booleans(),
    "determinism": st.sampled_from(["none", "D0", "D1", "D2"]),
    "outcome": st.sampled_from(["done", "failed", "cancelled"]),
    "failed_after_s": st.lists(_TIME, max_size=3),
}


@st.composite
def _workloads(draw: st.DrawFn) -> Workload:
    names = draw(st.lists(_TEXT, max_size=6, unique=True))
    columns = draw(st.sets(st.sampled_from(sorted(_CELL))))
    data: dict[str, object] = {
        "name": names,
        "submit_s": [draw(st.floats(-1e6, 1e9)) for _ in names],
        "duration_s": [draw(_TIME) for _ in names],
    }
    data |= {column: [draw(_CELL[column]) for _ in names] for column in sorted(columns)}
    return Workload(pl.DataFrame(data, schema={column: JOB_SCHEMA[column] for column in data}))


@MODEST
@given(_workloads(), st.sampled_from(KINDS))
def test_any_workload_comes_back_exactly(tmp_path: Path, work: Workload, kind: str) -> None:
    if len(work) == 0 and kind.startswith("w.jsonl"):
        return  # JSON lines of nothing is an empty file, which is its own message
    path = write_workload(work, tmp_path / kind)
    assert _same(read_trace(path, format="native"), work)


@MODEST
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4))
def test_lists_in_a_cell_come_back_exactly(items: list[str]) -> None:
    assert list_values(list_text(items)) == items


def test_equal_workloads_give_equal_bytes(tmp_path: Path) -> None:
    work = generate("philly-like", jobs=200)
    for kind in KINDS:
        first = write_workload(work, tmp_path / kind).read_bytes()
        assert first == write_workload(generate("philly-like", jobs=200), tmp_path / kind).read_bytes()
        assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_shuffled_file_is_the_same_workload(tmp_path: Path) -> None:
    work = generate(
        "philly-like", jobs=300, arrivals={"kind": "at-once", **dict.fromkeys(["mean_gap_s", "cycle"])}
    )
    lines = write_workload(work, tmp_path / "w.csv").read_text().splitlines()
    body = lines[1:]
    random.Random(1).shuffle(body)
    assert _same(read_trace(_file(tmp_path, "\n".join([lines[0], *body]), "s.csv")), work)


def test_a_minimal_file_with_other_names(tmp_path: Path) -> None:
    text = "job_id,submit_s,num_gpu,duration_s,gpu_memory,compute,cpus\na,0,2,60,6GiB,40%,1.5\nb,5,,9,,,\n"
    frame = read_trace(_file(tmp_path, text)).frame
    assert frame.to_dicts() == [
        {
            "name": "a",
            "submit_s": 0.0,
            "duration_s": 60.0,
            "gpus": 2,
            "memory_bytes": 6 << 30,
            "compute_milli": 400,
            "cpu_milli": 1500,
        },
        {
            "name": "b",
            "submit_s": 5.0,
            "duration_s": 9.0,
            "gpus": 1,
            "memory_bytes": 0,
            "compute_milli": 1000,
            "cpu_milli": 0,
        },
    ]


def test_times_alone_make_a_trace_whose_jobs_are_named_by_place(tmp_path: Path) -> None:
    frame = read_trace(_file(tmp_path, "submit_s,duration_s\n5,1\n0,2\n")).frame
    assert frame.rows() == [("job-0", 0.0, 2.0), ("job-1", 5.0, 1.0)]


def test_sizes_keep_their_units(tmp_path: Path) -> None:
    # Case C16: bare numbers only where the column's name carries the unit.
    rows = ["80GiB", "80GB", "79.6GiB", "81559MiB", "80g", "81559"]
    text = "name,submit_s,duration_s,gpu_memory\n" + "".join(
        f"j{i},0,1,{size}\n" for i, size in enumerate(rows)
    )
    work = read_trace(_file(tmp_path, text))
    mib = [-(-size // MIB) for size in work.frame["memory_bytes"].to_list()]
    assert mib == [81_920, 76_294, 81_511, 81_559, 81_920]
    assert [(f.rows, f.example_line) for f in work.report.dropped] == [(1, 7)]
    assert "81559" in work.report.dropped[0].reason
    assert "no unit" in work.report.dropped[0].reason
    with pytest.raises(TraceError, match=r"w\.csv:7 \[gpu_memory\].*no unit"):
        read_trace(tmp_path / "w.csv", strict=True)
    mib_text = "name,submit_s,duration_s,memory_mib\na,0,1,81559\n"
    assert read_trace(_file(tmp_path, mib_text)).frame["memory_bytes"][0] == 81_559 * MIB


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,one,1,1", "submit_s is not a number"),
        ("x,0,-1,1", "duration_s is negative"),
        ("x,0,inf,1", "duration_s is not a number"),
        ("x,0,1,1.5", "gpus is not a whole number"),
        ("x,0,1,-1", "gpus is negative"),
        ("x,0,1,1_000", "gpus is not a whole number"),
        ("x,0,1,9999999", "gpus is above"),
        ("x,0,1", "not 4 fields"),
        ("x,0,1,1,1", "not 4 fields"),
    ],
)
def test_a_bad_row_is_counted_and_under_strict_refused_with_its_line(
    tmp_path: Path, row: str, reason: str
) -> None:
    path = _file(tmp_path, f"name,submit_s,duration_s,gpus\ngood,0,1,1\n{row}\nalso,1,1,8.0\n")
    work = read_trace(path)
    assert work.frame["name"].to_list() == ["good", "also"]
    assert [(f.rows, f.example_line) for f in work.report.dropped] == [(1, 3)]
    assert reason in work.report.dropped[0].reason
    with pytest.raises(TraceError, match=r"w\.csv:3"):
        read_trace(path, strict=True)


def test_decimal_numbers_are_read_as_documented(tmp_path: Path) -> None:
    text = "name,submit_s,duration_s,gpus\na,1e3,+5,012\nb,1_000,5,1\nc,0x10,5,1\nd,nan,5,1\n"
    work = read_trace(_file(tmp_path, text))
    assert work.frame.rows() == [("a", 1000.0, 5.0, 12)]
    assert [f.rows for f in work.report.dropped] == [3]


def test_unknown_times_are_set_aside(tmp_path: Path) -> None:
    report = read_trace(_file(tmp_path, "name,submit_s,duration_s\na,0,\nb,,1\nc,0,0\n")).report
    assert [(f.reason, f.rows) for f in report.not_simulated] == [
        ("no submission time", 1),
        ("no running time", 1),
    ]
    assert (report.rows_read, report.rows_kept) == (3, 3)


def test_words_are_checked(tmp_path: Path) -> None:
    text = "name,submit_s,duration_s,sharing,outcome,suspendable\na,0,1,all,done,true\nb,0,1,any,lost,1\nc,0,1,any,done,maybe\nd,0,1,any,failed,0\n"
    work = read_trace(_file(tmp_path, text))
    assert work.frame.rows() == [("d", 0.0, 1.0, "any", False, "failed")]
    assert [f.rows for f in work.report.dropped] == [1, 1, 1]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("name,submit_s,durations_s", ["durations_s", "duration_s"]),
        ("name,submit_s", ["missing", "duration_s"]),
        ("name,job_id,submit_s,duration_s", ["same thing"]),
        ("name,name,submit_s,duration_s", ["twice"]),
        ("name,submit_s,duration_s,comment", ["comment", "extra=ignore"]),
    ],
)
def test_wrong_headers_are_refused(tmp_path: Path, header: str, words: list[str]) -> None:
    path = _file(tmp_path, header + "\n" + ",".join(["1"] * (header.count(",") + 1)) + "\n")
    with pytest.raises(TraceError) as caught:
        read_trace(path, format="native")
    for word in words:
        assert word in str(caught.value)


def test_extra_columns_can_be_ignored(tmp_path: Path) -> None:
    path = _file(tmp_path, "name,submit_s,duration_s,comment\na,0,1,hello\n")
    assert read_trace(path, extra="ignore").frame.columns == ["name", "submit_s", "duration_s"]


def test_repeated_names(tmp_path: Path) -> None:
    work = read_trace(_file(tmp_path, "name,submit_s,duration_s\na,0,1\na,0,1\na,5,2\n"))
    assert work.frame["name"].to_list() == ["a", "a#2"]
    assert [f.rows for f in work.report.dropped] == [1]


def test_json_lines_say_where_they_are_wrong(tmp_path: Path) -> None:
    good = json.dumps(
        {"name": "a", "submit_s": 0, "duration_s": 1.5, "suspendable": False, "device_types": ["x"]}
    )
    text = f'{good}\n\n[1]\n{{"name": \n{{"name":"b","submit_s":1,"duration_s":2}}\n'
    work = read_trace(_file(tmp_path, text, "w.jsonl"))
    assert work.frame["name"].to_list() == ["a", "b"]
    assert work.frame["suspendable"].to_list() == [False, True]
    assert [(f.rows, f.example_line) for f in work.report.dropped] == [(2, 3)]


def test_a_file_in_latin_1_needs_its_name(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes("name,submit_s,duration_s\ndédé,0,1\n".encode("latin-1"))
    with pytest.raises(TraceError, match=r"w\.csv:2: .*latin-1"):
        read_trace(path)
    assert read_trace(path, encoding="latin-1").frame["name"].to_list() == ["dédé"]
    path.write_bytes(b"\xef\xbb\xbfname,submit_s,duration_s\nx,0,1\n")
    assert read_trace(path).frame["name"].to_list() == ["x"]


def test_nothing_at_all_has_its_own_message_each_time(tmp_path: Path) -> None:
    # Case C73.
    messages = set()
    empty = _file(tmp_path, "", "empty.csv")
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(b""))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 not really")
    for path in (empty, packed, broken, tmp_path / "absent.csv", tmp_path):
        with pytest.raises(TraceError) as caught:
            read_trace(path, format="native")
        messages.add(str(caught.value).replace(str(path), ""))
    assert len(messages) == 5
    for text in ("name,submit_s,duration_s\n", "name,submit_s,duration_s", "name,submit_s,duration_s\n\n \n"):
        work = read_trace(_file(tmp_path, text))
        assert len(work) == work.report.rows_read == 0
    cpu = read_trace(_file(tmp_path, "name,submit_s,duration_s,gpus\na,0,1,0\n"))
    assert cpu.frame["gpus"].to_list() == [0]


def test_a_trace_that_does_not_begin_at_zero_stays_where_it_is(tmp_path: Path) -> None:
    frame = read_trace(_file(tmp_path, "name,submit_s,duration_s\na,86400,1\n")).frame
    assert frame["submit_s"].to_list() == [86400.0]


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    work = generate(jobs=2)
    for name in ("w.txt", "w.parquet.gz", "absent/w.csv"):
        with pytest.raises(InputError, match="w"):
            write_workload(work, tmp_path / name)
    odd = Workload(pl.DataFrame({"name": ["a\0b"], "submit_s": [0.0], "duration_s": [1.0]}))
    with pytest.raises(InputError, match="NUL"):
        write_workload(odd, tmp_path / "w.csv")
    assert read_trace(write_workload(odd, tmp_path / "w.parquet")).frame["name"].to_list() == ["a\0b"]


def test_every_other_name_stands_for_a_column() -> None:
    assert set(ALIASES.values()) <= set(JOB_SCHEMA)
    assert not set(ALIASES) & set(JOB_SCHEMA)


@pytest.mark.slow
def test_a_million_rows_are_imported_in_bounded_memory(tmp_path: Path) -> None:
    # Case C72.
    path = tmp_path / "million.csv"
    n = 1_000_000
    with path.open("w", encoding="utf-8") as target:
        target.write("job_id,submit_s,num_gpu,duration_s,tenant\n")
        target.writelines(f"job{i},{i},{1 << i % 4},{60 + i % 7200},team{i % 20}\n" for i in range(n))
    # In a process of its own, so that the peak is that of the import alone. VmHWM and not ru_maxrss: the latter
    # keeps, over exec, the size of the process that started it, here that of the whole test run.
    code = (
        "import sys\n"
        "from cotenant.traces.load import read_trace\n"
        "seen = []\n"
        "work = read_trace(sys.argv[1], progress=lambda done, total: seen.append(done))\n"
        "status = open('/proc/self/status', encoding='utf-8').read()\n"
        "peak = int(status.split('VmHWM:')[1].split()[0])\n"
        "print(len(work), work.report.rows_read, work.frame['gpus'].sum(), seen == sorted(seen), seen[-1], peak)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    rows, read, gpus, ordered, last, peak_kib = run.stdout.split()
    assert int(rows) == int(read) == n
    assert int(gpus) == n // 4 * (1 + 2 + 4 + 8)
    assert ordered == "True"
    assert int(last) == path.stat().st_size
    assert int(peak_kib) < 1 << 20


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("submit_s", [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)], "Datetime"),
        ("duration_s", [dt.timedelta(1), dt.timedelta(2)], "Duration"),
        ("gpus", [[1], [2]], "List"),
        ("gpus", [True, False], "Boolean"),
        ("device_types", [{"a": 1}, {"a": 2}], "Struct"),
        ("memory", [1, 2], "without a unit"),
        ("model", [1.5, 2.5], "Float64"),
        ("suspendable", [1, 0], "Int64"),
    ],
)
def test_parquet_columns_of_another_type_are_refused(
    tmp_path: Path, column: str, values: list[object], words: str
) -> None:
    data: dict[str, object] = {
        "name": ["a", "b"],
        "submit_s": [0.0, 1.0],
        "duration_s": [1.0, 2.0],
        column: values,
    }
    path = tmp_path / "w.parquet"
    pl.DataFrame(data).write_parquet(path)
    with pytest.raises(TraceError, match=rf"w\.parquet \[{column}\].*{words}"):
        read_trace(path)


def test_parquet_columns_of_a_kindred_type_are_read(tmp_path: Path) -> None:
    path = tmp_path / "w.parquet"
    pl.DataFrame(
        {
            "job_id": [7, 8],
            "submit_s": [0, 1],
            "duration_s": pl.Series([1, 2], dtype=pl.Float32),
            "gpus": pl.Series([1, 2], dtype=pl.UInt8),
            "memory_mib": [1.5, 2.0],
            "cpus": [0.5, 2.0],
            "compute": [0.4, 1.0],
            "tenant": pl.Series(["x", None], dtype=pl.Categorical),
            "device_types": [None, ["A"]],
        }
    ).write_parquet(path)
    assert read_trace(path, strict=True).frame.rows() == [
        ("7", 0.0, 1.0, 1, 3 << 19, 400, "x", [], 500),
        ("8", 1.0, 2.0, 2, 2 << 20, 1000, "", ["A"], 2000),
    ]


def test_milliseconds_by_mistake_are_remarked_upon(tmp_path: Path) -> None:
    # Case C69 (e): arrivals as milliseconds of the epoch, running times in seconds.
    start = 1_767_607_200_000
    text = "name,submit_s,duration_s\n" + "".join(f"j{i},{start + i * 60_000},30\n" for i in range(10))
    report = read_trace(_file(tmp_path, text)).report
    assert [f.rows for f in report.flagged if "milliseconds?" in f.reason] == [10]
