"""Whatever the bytes, a reader gives a workload or one of our errors: no other exception."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant import registry
from cotenant.errors import CotenantError
from cotenant.model.workload import Workload
from cotenant.traces.helios import read_capacity_series
from cotenant.traces.load import read_trace

MODEST = settings(
    max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
SAMPLES: dict[str, tuple[str, list[str]]] = {
    "philly-csv": (
        "timestamp,duration,num_gpus,gpu_time,cluster",
        ["2017-10-09 07:01:55,66.0,1,66.0,11cb48"],
    ),
    "helios": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        ["1,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0"],
    ),
    "acme": (
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,type,state,submit_time,start_time,end_time,duration,gpu_time",
        [
            "d,u,8,64,960,1000,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
            "2023-05-17 11:01:16+00:00,18,1152.0"
        ],
    ),
    "openb2023": (
        OPENB,
        ["p0,12000,16384,1,1000,T4|P100,LS,Running,0,12537496,0", "p1,1,1,1,470,,BE,Pending,100,220,"],
    ),
    "dlrm2025": (
        "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,scheduled_time,deletion_time",
        ["i0,HN,a,12,1,120.0,,,", "i1,CN,b,8,0,40.0,1.0,2.0,3.5"],
    ),
    "spot2026": (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type",
        ["1,13,A10,20,1,1,0,2764799,HP", "2,13,A10,20,0.5,2,5,9,Spot"],
    ),
    "genai2026": ("value,timestamp_anon,container_ip", ["0.0,1662858720.0,aa", "1.0,1662858777.0,aa"]),
    "pai2020": ("job_name,inst_id,user,status,start_time,end_time", ["j,i,u,Terminated,4550879.0,4551416.0"]),
}
CELLS = st.sampled_from(
    [
        *(
            "",
            " ",
            "-1",
            "0",
            "1e15",
            "1e999",
            "nan",
            "inf",
            "NA",
            "None",
            "-0.0",
            "99999999999999999999",
            "0x1",
        ),
        *(
            "1.5",
            "|",
            "a|",
            '"',
            '""',
            "é",
            "\x00",
            "\u2028",
            "\t",
            "2017-02-30 00:00:00",
            "9999-12-31 23:59:59",
        ),
        *("0001-01-01 00:00:00+14:00", "2017-10-09T07:01:55Z", "1e-300", "name", "_line", "_again"),
    ]
)


def outcome(data: bytes, name: str, format_name: str | None, **options: object) -> Workload | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            workload = read_trace(path, format_name, **options)
        except CotenantError as error:
            assert str(error)
            return None
    report = workload.report
    assert report.rows_read == report.rows_kept + sum(f.rows for f in report.dropped)
    folded = len(workload) + sum(f.rows for f in report.not_simulated)
    assert folded == report.rows_kept or report.format == "genai2026"
    json.dumps(report.to_dict(), allow_nan=False)
    assert sum(1 for _ in workload.pairs()) == len(workload)
    return workload


@st.composite
def mutated(draw: st.DrawFn, header: str, rows: list[str]) -> bytes:
    """A real table with cells replaced, lines moved, doubled, cut, and the header too now and then."""
    table = [
        header.split(","),
        *(draw(st.sampled_from(rows)).split(",") for _ in range(draw(st.integers(0, 4)))),
    ]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0 if draw(st.booleans()) else min(1, len(table) - 1), len(table) - 1))
        if table[at]:
            table[at][draw(st.integers(0, len(table[at]) - 1))] = draw(CELLS | st.text(max_size=8))
    if draw(st.integers(0, 5)) == 0:
        draw(st.sampled_from(table)).append(draw(CELLS))
    if draw(st.integers(0, 5)) == 0:
        table.append(table[-1])
    end = draw(st.sampled_from(["\n", "\r\n", "\n\n", "\r"]))
    text = end.join(",".join(row) for row in table) + draw(st.sampled_from(["", end]))
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("format_name", SAMPLES)
def test_mutated_tables_give_a_workload_or_our_error(format_name: str) -> None:
    header, rows = SAMPLES[format_name]
    seen: list[bool] = []

    @MODEST
    @given(data=mutated(header, rows), strict=st.booleans(), named=st.booleans())
    def check(data: bytes, strict: bool, named: bool) -> None:
        seen.append(outcome(data, "t.csv", format_name if named else None, strict=strict) is not None)

    check()
    assert any(seen)  # some of them do load
    assert not all(seen)


@pytest.mark.parametrize("format_name", [*SAMPLES, "philly-raw", None])
def test_random_bytes_give_a_workload_or_our_error(format_name: str | None) -> None:
    @MODEST
    @given(
        data=st.binary(max_size=200) | st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass"))
    )
    def check(data: bytes) -> None:
        outcome(data, "t.csv", format_name)
        outcome(gzip.compress(data)[: len(data) + 12], "t.csv.gz", format_name)

    check()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | CELLS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["jobid", "attempts", "start_time", "end_time", "detail", "gpus", "status", "submitted_time"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
TIMES = st.sampled_from(["2017-10-02 08:00:00", "2017-10-02 09:00:00"])
ODD_TIMES = TIMES | st.sampled_from(["None", "", None, 5, "2017-10-02"])
DETAIL = st.lists(st.fixed_dictionaries({"gpus": st.lists(st.just("g0"), max_size=3)}), max_size=2)
ATTEMPT = st.fixed_dictionaries({"start_time": ODD_TIMES, "end_time": ODD_TIMES, "detail": DETAIL | JSON})
JOB = st.fixed_dictionaries(
    {
        "jobid": st.sampled_from(["a", "b"]),
        "vc": st.just("v"),
        "user": st.just("u") | JSON,
        "status": st.sampled_from(["Pass", "Killed", "Failed", "Odd"]),
        "submitted_time": TIMES,
        "attempts": st.lists(ATTEMPT, max_size=3),
    }
)


@pytest.mark.parametrize(
    ("log", "some_load"),
    [(st.lists(JOB, min_size=1, max_size=4), True), (st.lists(JOB | JSON, max_size=4) | JSON, False)],
)
def test_odd_job_logs_give_a_workload_or_our_error(log: st.SearchStrategy[object], some_load: bool) -> None:
    seen: list[int] = []

    @MODEST
    @given(log=log, cut=st.sampled_from(["", "2017-10-02 10:00:00"]), strict=st.booleans())
    def check(log: object, cut: str, strict: bool) -> None:
        found = outcome(json.dumps(log).encode(), "cluster_job_log", "philly-raw", cut_off=cut, strict=strict)
        seen.append(len(found) if found is not None else 0)

    check()
    assert 0 in seen
    assert max(seen) > 0 or not some_load


def test_odd_capacity_series_give_limits_or_our_error() -> None:
    @MODEST
    @given(data=mutated("date,vA,vB,total", ["2020-09-01,8,0,8", "2020-09-03,4,4,8"]))
    def check(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "n.csv"
            path.write_bytes(data)
            try:
                limits, report = read_capacity_series(path)
            except CotenantError:
                return
        assert limits == sorted(limits, key=lambda change: change[0])
        assert report.check() is report

    check()


def test_pai_folders_of_mutated_tables_give_a_workload_or_our_error() -> None:
    tasks = ["j,w,2.0,Terminated,4550880.0,4551400.0,600.0,29.3,50.0,T4", "j,p,1.0,Failed,,,1,1,250,CPU"]
    jobs, job_rows = SAMPLES["pai2020"]
    task_head = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    seen: list[int] = []

    @MODEST
    @given(
        job=mutated(jobs, job_rows),
        task=mutated(task_head, tasks),
        machines=mutated("machine,gpu_type,cap_cpu,cap_mem,cap_gpu", ["m,T4,96,512,2"]) | st.none(),
        tags=mutated("inst_id,user,gpu_type_spec,group,workload", ["i,u,V100M32,g,nmt"]) | st.none(),
    )
    def check(job: bytes, task: bytes, machines: bytes | None, tags: bytes | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in (
                ("job_table", job),
                ("task_table", task),
                ("machine_spec", machines),
                ("group_tag_table", tags),
            ):
                if data is not None:
                    (Path(folder) / f"pai_{name}.csv").write_bytes(data)
            try:
                seen.append(len(read_trace(folder)))
            except CotenantError as error:
                assert str(error)

    check()
    assert max(seen, default=0) > 0


def test_every_reader_of_the_group_is_registered_under_its_own_name() -> None:
    for name in [*SAMPLES, "philly-raw"]:
        reader = registry.load("trace format", name)()
        assert reader.format == name
        assert reader.title
