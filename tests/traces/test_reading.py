"""What all trace readers share: opening, recognising, books, windows, clocks."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from cotenant.errors import InputError, TraceError, UnknownNameError
from cotenant.traces.base import DataReport
from cotenant.traces.capacity import oversubscription, peak_demand
from cotenant.traces.finish import interval_rules
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.table import LINE, Rows, as_number, as_seconds

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def dropped(report: DataReport) -> dict[str, int]:
    return {f.reason: f.rows for f in report.dropped}


def helios_row(
    job: str, gpus: int = 1, submit: str = "2020-06-09 18:00:00", end: str = "2020-06-09 19:00:00"
) -> str:
    return f"{job},u1,v1,{gpus},4,1,COMPLETED,{submit},{submit},{end},3600,0\n"


# C73


def test_each_kind_of_nothing_has_its_own_message(tmp_path: Path) -> None:
    put(tmp_path, "other.txt", "x")
    cases = {
        "missing": (tmp_path / "absent.csv", "no such file"),
        "folder": (tmp_path, "is a folder, not a file; name one file in it: "),
        "empty": (put(tmp_path, "empty.csv", b""), "empty (0 bytes)"),
        "packed": (put(tmp_path, "packed.csv.gz", gzip.compress(b"")), "gzip of an empty file"),
        "blank": (put(tmp_path, "blank.csv", b"\n \n\n"), "no known trace format"),
    }
    messages = set()
    for path, words in cases.values():
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        assert words in str(caught.value)
        assert str(path) in str(caught.value)
        messages.add(str(caught.value).replace(str(path), ""))
    assert len(messages) == len(cases)


@pytest.mark.parametrize("body", ["", "\n\n  \n"])
def test_a_header_without_rows_is_a_valid_trace_of_no_jobs(tmp_path: Path, body: str) -> None:
    workload = read_trace(put(tmp_path, "t.csv", PHILLY + body))
    assert len(workload) == 0
    assert workload.report.rows_read == 0
    assert "0 jobs" in workload.assumptions[0]


def test_a_trace_of_cpu_jobs_alone_loads_and_says_so(tmp_path: Path) -> None:
    path = put(tmp_path, "cluster_log.csv", HELIOS + helios_row("1", 0) + helios_row("2", 0))
    workload = read_trace(path)
    assert workload.frame["gpus"].to_list() == [0, 0]
    assert [(f.rows, f.example_line) for f in workload.report.flagged if "CPU-only" in f.reason] == [(2, 2)]
    without = read_trace(path, cpu_jobs="drop")
    assert len(without) == 0
    assert dropped(without.report) == {"CPU-only job (asks for no GPU)": 2}


@pytest.mark.parametrize("cut", [5, 30])
def test_a_damaged_gzip_is_named_as_such(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress((PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n" * 50).encode())
    with pytest.raises(TraceError, match="damaged gzip file"):
        read_trace(put(tmp_path, "t.csv.gz", whole[:-cut]))


# C67


def test_names_of_all_kinds_arrive_unchanged(tmp_path: Path) -> None:
    names = ["dédé job", "训练-01", "für", "🚀", "שלום", "a|b", "=1+1", "\x1b[31mred\x1b[0m"]
    text = HELIOS + "".join(helios_row(name) for name in names)
    for lead in (b"", b"\xef\xbb\xbf"):
        workload = read_trace(put(tmp_path, "cluster_log.csv", lead + text.encode()))
        assert sorted(workload.frame["name"].to_list()) == sorted(names)


def test_a_quoted_name_may_hold_the_separator_and_line_numbers_stay_true(tmp_path: Path) -> None:
    text = HELIOS + helios_row('"a,b"') + helios_row('"two\nlines"') + helios_row("c", -1)
    report = read_trace(put(tmp_path, "cluster_log.csv", text)).report
    assert report.rows_read == 3
    # header, a,b on line 2, a name over lines 3 and 4, c on line 5
    assert [(f.example_line, f.example) for f in report.dropped] == [(5, "gpu_num='-1'")]


def test_latin_1_is_refused_with_the_line_and_read_when_named(tmp_path: Path) -> None:
    path = put(tmp_path, "cluster_log.csv", (HELIOS + helios_row("a") + helios_row("dédé")).encode("latin-1"))
    with pytest.raises(TraceError, match=r"cluster_log.csv:3: byte 0xe9 is not UTF-8.*encoding='latin-1'"):
        read_trace(path)
    assert "dédé" in read_trace(path, encoding="latin-1").frame["name"].to_list()
    with pytest.raises(TraceError, match="cannot read it as 'klingon'"):
        read_trace(path, encoding="klingon")


def test_utf_16_is_recognised_when_the_encoding_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "t.csv", (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n").encode("utf-16"))
    assert recognise(path, "utf-16") == "philly-csv"
    assert len(read_trace(path, encoding="utf-16")) == 1


def test_utf_16_and_binary_files_are_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="UTF-16"):
        read_trace(put(tmp_path, "t.csv", PHILLY.encode("utf-16")), format="philly-csv")
    with pytest.raises(TraceError, match="binary file"):
        read_trace(put(tmp_path, "t.csv", b"\x00\x01\x02"), format="philly-csv")


def test_line_ends_of_every_system_give_the_same_jobs(tmp_path: Path) -> None:
    text = PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n2017-10-09 07:01:56,5,2,10,w\n"
    frames = [
        read_trace(put(tmp_path, "t.csv", text.replace("\n", end)), format="philly-csv").frame
        for end in ("\n", "\r\n", "\r")
    ]
    assert frames[0].height == 2
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


# Recognition and options


def test_an_unknown_file_gets_the_list_of_formats_and_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match=r"no known trace format; it begins 'hello'.*format=NAME.*philly-csv"
    ):
        recognise(put(tmp_path, "t.txt", b"hello"))
    with pytest.raises(UnknownNameError, match='did you mean "helios"'):
        read_trace(put(tmp_path, "t.txt", b"hello"), format="helius")


def test_a_tie_is_refused_and_a_named_format_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cotenant.traces import load

    monkeypatch.setattr(load, "_scores", lambda path, head: ({"acme": 0.9, "helios": 0.9, "x": 0.4}, []))
    with pytest.raises(TraceError, match=r"could be any of acme, helios; name one: format='acme'"):
        recognise(put(tmp_path, "t.txt", b"hello"))


def test_a_reader_of_ones_own_is_loaded_from_a_file(tmp_path: Path) -> None:
    put(
        tmp_path,
        "mine.py",
        "from cotenant.traces.philly_csv import PhillyCsvReader\n"
        "class Mine(PhillyCsvReader):\n    format = 'mine'\n"
        "class NotAReader:\n    pass\n",
    )
    path = put(tmp_path, "t.csv", PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n")
    assert read_trace(path, format=f"{tmp_path}/mine.py:Mine").report.format == "mine"
    with pytest.raises(InputError, match="not a trace reader"):
        read_trace(path, format=f"{tmp_path}/mine.py:NotAReader")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cutoff": 3}, 'no option "cutoff"; it has: encoding|no option "cutoff"; it has: '),
        ({"cpu_jobs": "maybe"}, 'cpu_jobs is "keep" or "drop"'),
        ({"window": "9..1"}, "is empty"),
        ({"window": "2017-10-09..2017-10-08"}, "is empty"),
        ({"window": "soon"}, "cannot be read"),
        ({"time_zone": "Mars/Olympus"}, "no time zone"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, object], words: str
) -> None:
    path = put(tmp_path, "t.csv", PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n")
    with pytest.raises(InputError, match=words):
        read_trace(path, **options)


def test_progress_is_told_and_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = put(tmp_path, "t.csv", PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n" * 80_000)
    seen: list[tuple[int, int]] = []
    read_trace(path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert len(seen) >= 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (size, size)


# C13


def c13_text() -> str:
    good = [helios_row(f"j{i}", 1, f"2020-06-09 18:0{i}:00") for i in range(6)]
    cpu = helios_row("cpu", 0, "2020-06-09 18:30:00")
    unreadable = helios_row("bad", 1, "2020-06-09 18:31:00").replace(",4,1,COMPLETED", ",four,1,COMPLETED")
    outside = helios_row("late", 1, "2020-06-12 00:00:00", "2020-06-12 01:00:00")
    return HELIOS + "".join([*good, good[0], cpu, unreadable, outside])


def test_a_report_of_ten_rows_adds_up_with_an_example_line_for_each_reason(tmp_path: Path) -> None:
    path = put(tmp_path, "cluster_log.csv", c13_text())
    report = read_trace(path, cpu_jobs="drop", window=(0, 86_400)).report
    assert (report.rows_read, report.rows_kept) == (10, 6)
    assert [(f.rows, f.example_line) for f in report.dropped] == [(1, 8), (1, 10), (1, 11), (1, 9)]
    assert [f.reason for f in report.dropped] == [
        "exact repeat of another row",
        "cpu_num is not a number",
        "submitted outside the asked window [0, 86400) s from time 0",
        "CPU-only job (asks for no GPU)",
    ]
    as_json = report.to_dict()
    assert as_json["rows_read"] == as_json["rows_kept"] + sum(f["rows"] for f in as_json["dropped"])


def test_a_window_is_seconds_from_time_0_or_dates(tmp_path: Path) -> None:
    rows = [
        helios_row(f"d{day}", 1, f"2020-06-{day:02d} 12:00:00", f"2020-06-{day:02d} 13:00:00")
        for day in (1, 2, 3)
    ]
    path = put(tmp_path, "cluster_log.csv", HELIOS + "".join(rows))
    for window in (
        (86_400, 2 * 86_400),
        "86400..172800",
        "2020-06-02..2020-06-03",
        "2020-06-02 12:00..2020-06-02 12:01",
    ):
        workload = read_trace(path, window=window)
        assert workload.frame.select("name", "submit_s").rows() == [("d2", 0.0)]
        assert workload.report.rows_kept == 1
    assert "[2020-06-02 12:00:00, 2020-06-02 12:01:00)" in workload.report.dropped[0].reason
    spot = put(tmp_path, "jobs.csv", SPOT + "".join(f"j{t},1,A10,1,1,1,{t},60,HP\n" for t in (50, 100, 150)))
    # This format has its own zero, so time 0 is not the first submission.
    assert read_trace(spot, window=(60, 120)).frame.select("name", "submit_s").rows() == [("j100", 100.0)]
    with pytest.raises(InputError, match="has no dates"):
        read_trace(spot, window="2020-06-02..2020-06-03")


def test_strict_refuses_what_the_default_drops_but_not_what_an_option_excludes(tmp_path: Path) -> None:
    path = put(tmp_path, "cluster_log.csv", c13_text())
    with pytest.raises(TraceError, match=r"cluster_log.csv:8: exact repeat"):
        read_trace(path, strict=True)
    with pytest.raises(TraceError, match=r"cluster_log.csv:10 \[cpu_num\]: cpu_num is not a number.*'four'"):
        read_trace(path, strict=True, duplicates="drop")
    clean = put(tmp_path, "clean.csv", HELIOS + helios_row("a", 0) + helios_row("b"))
    assert len(read_trace(clean, strict=True, cpu_jobs="drop")) == 1


def test_rows_of_a_wrong_width_are_counted_with_their_line(tmp_path: Path) -> None:
    path = put(tmp_path, "t.csv", PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,v\n\n2017-10-09 07:01:55,66.0\n")
    report = read_trace(path).report
    assert (report.rows_read, report.rows_kept) == (2, 1)
    assert [(f.example_line, f.example) for f in report.dropped] == [
        (4, "2 fields: 2017-10-09 07:01:55,66.0")
    ]
    with pytest.raises(TraceError, match=r"t.csv:4: not 5 fields"):
        read_trace(path, strict=True)


def test_a_missing_column_is_named_with_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match=r"t.csv:1: missing column\(s\) num_gpus; found: timestamp, duration"
    ):
        read_trace(put(tmp_path, "t.csv", "timestamp,duration,gpus,cluster\n"), format="philly-csv")


# C07


def test_negative_zero_and_reversed_times_follow_one_rule() -> None:
    pairs = [(-400.0, -380.0), (-50.0, 300.0), (500.0, 0.0), (500.0, 500.0), (700.0, 650.0), (100.0, 100.5)]
    report = DataReport(format="test", path="six", rows_read=6)
    frame = pl.DataFrame(
        {LINE: range(2, 8), "start_s": [p[0] for p in pairs], "end_s": [p[1] for p in pairs]}
    )
    rows = Rows(frame, report, frozenset())
    interval_rules(rows)
    assert rows.frame.select(LINE, "start_s", "duration_s").rows() == [
        (3, 0.0, 300.0),
        (5, 500.0, 0.0),
        (7, 100.0, 0.5),
    ]
    assert [(f.reason, f.rows, f.example_line) for f in report.dropped] == [
        ("outside the trace's window: ended before time 0", 1, 2),
        ("ends before it starts", 1, 6),
    ]
    assert [(f.rows, f.example_line) for f in report.not_simulated] == [(1, 4)]
    assert [(f.rows, f.example_line) for f in report.flagged] == [(1, 3)]
    report.rows_kept = rows.frame.height + 1
    assert report.check() is report


def test_time_zero_itself_is_a_start_but_no_end_of_an_earlier_one() -> None:
    pairs = [(0.0, 0.0), (-5.0, 0.0), (None, 9.0), (3.0, None)]
    report = DataReport(format="test", path="four", rows_read=4)
    schema = {LINE: pl.Int64, "start_s": pl.Float64, "end_s": pl.Float64}
    rows = Rows(
        pl.DataFrame([(i, *p) for i, p in enumerate(pairs, 2)], schema, orient="row"), report, frozenset()
    )
    interval_rules(rows)
    assert rows.frame.select(LINE, "start_s", "duration_s").rows() == [(2, 0.0, 0.0)]
    assert [(f.rows, f.example_line) for f in report.dropped] == [(1, 3)]
    assert [(f.reason, f.example_line) for f in report.not_simulated] == [
        ("never started: running time unknown", 4),
        ("end unknown: running time censored", 5),
    ]


def test_empty_dates_written_as_1970_do_not_make_fifty_year_jobs(tmp_path: Path) -> None:
    rows = [
        helios_row("good"),
        helios_row("no-start").replace(
            ",2020-06-09 18:00:00,2020-06-09 19", ",1970-01-01 00:00:00,2020-06-09 19"
        ),
        helios_row("no-end", 1, "2020-06-09 18:00:00", "1970-01-01 00:00:00"),
        helios_row("no-submit").replace("COMPLETED,2020-06-09 18:00:00", "COMPLETED,1970-01-01 00:00:00"),
    ]
    workload = read_trace(put(tmp_path, "cluster_log.csv", HELIOS + "".join(rows)))
    assert workload.frame.select("name", "submit_s", "duration_s").rows() == [("good", 0.0, 3600.0)]
    assert [(f.reason, f.rows, f.example_line) for f in workload.report.not_simulated] == [
        ("end unknown: running time censored", 1, 4),
        ("started in 1970, ended decades later: start unknown", 1, 3),
        ("submitted in 1970: no submission time", 1, 5),
    ]


# C69


def philly(*rows: tuple[str, float]) -> str:
    return PHILLY + "".join(f"{when},{length},1,{length},v\n" for when, length in rows)


def arrivals(folder: Path, text: str) -> tuple[list[float], list[str]]:
    workload = read_trace(put(folder, "t.csv", text))
    return workload.frame["submit_s"].to_list(), [f.reason for f in workload.report.flagged]


def test_time_0_is_the_first_arrival_wherever_the_trace_begins(tmp_path: Path) -> None:
    early = arrivals(tmp_path, philly(("2017-10-09 00:00:00", 60), ("2017-10-09 00:01:00", 60)))
    late = arrivals(tmp_path, philly(("2017-10-10 00:00:00", 60), ("2017-10-10 00:01:00", 60)))
    assert early == late == ([0.0, 60.0], [])
    report = read_trace(tmp_path / "t.csv").report
    assert report.time_zero_s == 1_507_593_600.0  # date -u -d 2017-10-10 +%s
    assert "2017-10-10 00:00:00 as written" in report.assumptions[-1]


def test_equal_arrivals_one_job_and_a_long_gap_give_no_warning(tmp_path: Path) -> None:
    same = arrivals(tmp_path, philly(*[("2017-10-09 00:00:00", float(i)) for i in range(1, 4)]))
    assert same == ([0.0, 0.0, 0.0], [])
    assert arrivals(tmp_path, philly(("2017-10-09 00:00:00", 60))) == ([0.0], [])
    gap = philly(*[(f"2017-{m}-09 00:0{i}:00", 60) for m in ("09", "10") for i in range(5)])
    submit, flags = arrivals(tmp_path, gap)
    assert submit[5] - submit[0] == 30 * 86_400
    assert flags == []


SPOT = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"


def test_milliseconds_by_mistake_are_remarked_upon(tmp_path: Path) -> None:
    for first, step in ((1_700_000_000_000, 60_000), (0, 600_000)):
        text = SPOT + "".join(f"j{i},1,A10,1,1,1,{first + i * step},{60},HP\n" for i in range(5))
        workload = read_trace(put(tmp_path, "jobs.csv", text))
        reasons = [f.reason for f in workload.report.flagged]
        assert reasons == [
            "submission times span 1,000x longer than the running times suggest: milliseconds?"
        ]
    in_seconds = SPOT + "".join(f"j{i},1,A10,1,1,1,{i * 60},60,HP\n" for i in range(5))
    assert read_trace(put(tmp_path, "jobs.csv", in_seconds)).report.flagged == []


# Cells


def test_numbers_are_plain_decimal_and_finite() -> None:
    cells = ["8", " 8.0 ", "+8", "1e3", "-2.5", ".5", "1_000", "0x10", "inf", "nan", "1e999", "", "8 GPUs"]
    got = pl.DataFrame({"x": cells}).select(as_number(pl.col("x")))["x"].to_list()
    assert got == [8.0, 8.0, 8.0, 1000.0, -2.5, 0.5, None, None, None, None, None, None, None]


def test_times_with_offsets_share_one_line_and_bad_ones_are_null() -> None:
    cells = [
        "1970-01-01 00:00:10",
        "1970-01-01T08:00:10+08:00",
        "1969-12-31 16:00:10 PST",
        "1970-01-01 00:00:10.5Z",
        "1970-01-01 05:30:10+0530",
        "1970-02-30 00:00:00",
        "1970-01-01",
        "1970-01-01 00:00:10 ABC",
    ]
    got = pl.DataFrame({"x": cells}).select(as_seconds(pl.col("x")))["x"].to_list()
    assert got == [10.0, 10.0, 10.0, 10.5, 10.0, None, None, None]


def test_a_named_zone_places_local_times_and_knows_the_clock_change() -> None:
    cells = ["2017-10-09 00:00:00", "2017-12-09 00:00:00", "2017-11-05 01:30:00"]
    frame = pl.DataFrame({"x": cells})
    bare = frame.select(as_seconds(pl.col("x")))["x"]
    local = frame.select(as_seconds(pl.col("x"), "America/Los_Angeles"))["x"]
    # 7 h behind in summer, 8 h in winter; the hour that occurs twice is its first (summer).
    assert (local - bare).to_list() == [25_200.0, 28_800.0, 25_200.0]


# Capacity


def test_peak_demand_counts_an_end_before_a_start_of_the_same_instant() -> None:
    assert peak_demand([0.0, 10.0, 5.0], [10.0, 20.0, 7.0], [8, 8, 1]) == 9.0
    assert peak_demand([], [], []) == 0.0


def test_oversubscription_is_percent_of_capacity_and_null_without_any() -> None:
    found = oversubscription({"T4": 12.0, "G9": 1.0}, {"T4": 8.0}, "devices")
    assert found["T4"]["percent"] == 150.0
    assert found["G9"]["percent"] is None
