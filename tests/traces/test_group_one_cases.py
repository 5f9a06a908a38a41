"""Small inputs shaped after public reports of what goes wrong with these formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant.errors import CotenantError, InputError, TraceError
from cotenant.traces.base import Finding
from cotenant.traces.helios import read_capacity_series
from cotenant.traces.load import read_trace

MIB = 1 << 20
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def count(findings: list[Finding]) -> list[tuple[str, int, int | None]]:
    return [(f.reason, f.rows, f.example_line) for f in findings]


def column(workload: object, name: str) -> dict[str, object]:
    frame = workload.frame  # type: ignore[attr-defined]
    return dict(zip(frame["name"].to_list(), frame[name].to_list(), strict=True))


# C01: attempts missing, ends missing

C01 = """[{"jobid":"a1","vc":"v1","user":"u1","status":"Killed","submitted_time":"2017-10-02 08:00:00","attempts":[]},
 {"jobid":"a2","vc":"v1","user":"u1","status":"Pass","submitted_time":"2017-10-02 08:00:00","attempts":[{"start_time":"2017-10-02 08:05:00","end_time":null,"detail":[{"ip":"m1","gpus":["gpu0","gpu1"]}]}]},
 {"jobid":"a3","vc":"v1","user":"u2","status":"Failed","submitted_time":"2017-10-02 08:00:00","attempts":[{"start_time":null,"end_time":"2017-10-02 09:00:00","detail":[]},{"start_time":"2017-10-02 09:10:00","end_time":"2017-10-02 09:40:00","detail":[{"ip":"m2","gpus":["gpu3"]}]}]}]
"""


def test_c01_attempts_without_start_or_end_are_told_apart(tmp_path: Path) -> None:
    workload = read_trace(put(tmp_path, "cluster_job_log", C01))
    assert workload.frame.select("name", "submit_s", "duration_s", "gpus", "outcome").rows() == [
        ("a3", 0.0, 1800.0, 1, "failed")
    ]
    assert workload.frame["failed_after_s"].to_list() == [[]]
    report = workload.report
    assert (report.rows_read, report.rows_kept) == (3, 3)
    assert count(report.not_simulated) == [
        ("no attempts: never started, GPU need unknown", 1, 1),
        ("last attempt has no end: still running, running time censored (cut_off gives it an end)", 1, 2),
    ]
    assert report.not_simulated[1].example == "2 GPUs"
    assert count(report.flagged) == [("attempt with unknown running time, not replayed", 1, 3)]
    assert "NaT" not in json.dumps(report.to_dict())


def test_c01_a_cut_off_time_gives_the_running_job_an_end(tmp_path: Path) -> None:
    path = put(tmp_path, "cluster_job_log", C01)
    workload = read_trace(path, cut_off="2017-10-02 08:15:00")
    assert column(workload, "duration_s") == {"a2": 600.0, "a3": 1800.0}
    assert column(workload, "gpus") == {"a2": 2, "a3": 1}
    with pytest.raises(InputError, match="cut_off='soon'"):
        read_trace(path, cut_off="soon")


def philly_job(**changes: object) -> dict[str, object]:
    job: dict[str, object] = {
        "jobid": "j",
        "vc": "v",
        "user": "u",
        "status": "Pass",
        "submitted_time": "2017-10-02 08:00:00",
        "attempts": [
            {
                "start_time": "2017-10-02 08:01:00",
                "end_time": "2017-10-02 08:02:00",
                "detail": [{"ip": "m", "gpus": ["gpu0"]}],
            }
        ],
    }
    return job | changes


def test_philly_attempts_become_failures_before_the_last(tmp_path: Path) -> None:
    attempts = [
        {"start_time": f"2017-10-02 0{h}:00:00", "end_time": f"2017-10-02 0{h}:00:{10 * h}", "detail": [part]}
        for h, part in ((1, {"gpus": ["g0"]}), (2, {"gpus": ["g0", "g1"]}), (3, {"gpus": ["g0", "g1", "g2"]}))
    ]
    log = [philly_job(attempts=attempts, status="Killed")]
    workload = read_trace(put(tmp_path, "log.json", json.dumps(log)))
    row = workload.frame.row(0, named=True)
    assert (row["failed_after_s"], row["duration_s"], row["gpus"], row["outcome"]) == (
        [10.0, 20.0],
        30.0,
        3,
        "cancelled",
    )
    behaviour = next(workload.pairs())
    assert behaviour[0].retries == 2


def test_philly_entries_that_are_no_jobs_are_dropped_with_their_place(tmp_path: Path) -> None:
    log = [philly_job(), 7, {"vc": "x"}, philly_job(jobid="k", submitted_time="None")]
    report = read_trace(put(tmp_path, "log.json", json.dumps(log, indent=1)), format="philly-raw").report
    assert (report.rows_read, report.rows_kept) == (4, 2)
    assert [(f.rows, f.example) for f in report.dropped] == [(2, "entry 2 of the list")]
    assert count(report.not_simulated)[0][:2] == ("no submission time: arrivals cannot be replayed", 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[{", "not valid JSON"), ('{"jobid": 1}', "expected one JSON list"), ("[" * 100_000, "JSON")],
)
def test_a_broken_job_log_gives_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(put(tmp_path, "log.json", text), format="philly-raw")


# C03: the file contradicts its own documentation

C03 = """job_id,gpu_num,submit_time,start_time,end_time,duration,queue,gpu_time
s1,8,2023-03-01 00:10:00+08:00,2023-03-01 00:10:20+08:00,2023-03-01 00:13:40+08:00,200,20,1600.0
k1,64,2023-05-17 09:00:00+00:00,2023-05-17 09:00:12+00:00,2023-05-17 09:00:22+00:00,22,12.0,1408.0
"""


def test_c03_running_times_come_from_timestamps_and_the_column_is_checked(tmp_path: Path) -> None:
    path = put(tmp_path, "trace.csv", C03)
    workload = read_trace(path)
    assert workload.report.format == "acme"
    assert column(workload, "duration_s") == {"s1": 200.0, "k1": 10.0}
    gpu_s = {n: d * g for n, d, g in workload.frame.select("name", "duration_s", "gpus").iter_rows()}
    assert gpu_s == {"s1": 1600.0, "k1": 640.0}
    # 2023-02-28 16:10:00 UTC to 2023-05-17 09:00:00 UTC is 77 days, 16 h, 50 min.
    assert column(workload, "submit_s")["k1"] == 77 * 86_400 + 16 * 3600 + 50 * 60
    flagged = workload.report.flagged
    assert [f.example for f in flagged] == ["22.0 vs 10.0, equals end - submit"]
    assert "it equals end - submit" in flagged[0].reason
    assert flagged[0].example_line == 3
    assert workload.report.time_zone == "offsets in file (+00:00, +08:00)"


def test_c03_the_column_can_be_trusted_instead(tmp_path: Path) -> None:
    workload = read_trace(put(tmp_path, "trace.csv", C03), trust_duration=True)
    assert column(workload, "duration_s") == {"s1": 200.0, "k1": 22.0}
    assert any("trust_duration" in a for a in workload.assumptions)


# C04: rows that never start, states that mislead

C04 = (
    OPENB
    + "p0,12000,16384,1,1000,,LS,Running,0,500,0\n"
    + "p1,4000,8192,1,470,,BE,Pending,100,220,\n"
    + "p2,4000,8192,0,0,,LS,Succeeded,120,300,121\n"
)


def test_c04_pending_pods_are_demand_and_time_zero_is_a_time(tmp_path: Path) -> None:
    workload = read_trace(put(tmp_path, "openb_pod_list_x.csv", C04), strict=True)
    assert workload.frame.select(
        "name", "submit_s", "duration_s", "gpus", "compute_milli", "leave_s"
    ).rows() == [
        ("p0", 0.0, 500.0, 1, 1000, 0.0),
        ("p1", 100.0, 120.0, 1, 470, 220.0),
        ("p2", 120.0, 179.0, 0, 1000, 0.0),
    ]
    assert column(workload, "job_class") == {"p0": "guaranteed", "p1": "opportunistic", "p2": "guaranteed"}
    report = workload.report
    assert (report.rows_read, report.rows_kept, report.dropped) == (3, 3, [])
    assert [(f.rows, f.example_line) for f in report.flagged] == [(1, 3), (1, 4)]
    assert "Pending" in report.flagged[0].reason
    assert any("leave at deletion" in a for a in workload.assumptions)


# C05: milli means per device


def test_c05_milli_is_per_device_and_out_of_range_is_a_row_error(tmp_path: Path) -> None:
    tasks = [(8, 1000), (1, 470), (1, 1000), (0, 0), (2, 500), (1, 0), (1, 1001)]
    text = OPENB + "".join(f"t{i},1,1,{n},{m},,LS,Running,0,10,0\n" for i, (n, m) in enumerate(tasks))
    path = put(tmp_path, "pods.csv", text)
    workload = read_trace(path)
    assert workload.frame.select("name", "gpus", "compute_milli").rows() == [
        ("t0", 8, 1000),
        ("t1", 1, 470),
        ("t2", 1, 1000),
        ("t3", 0, 1000),
        ("t4", 2, 500),
    ]
    assert [(f.rows, f.example_line, f.example) for f in workload.report.dropped] == [
        (1, 7, "num_gpu=1, gpu_milli=0"),
        (1, 8, "num_gpu=1, gpu_milli=1001"),
    ]
    assert all("gpu_milli" in f.reason for f in workload.report.dropped)
    assert any("different devices" in f.reason for f in workload.report.flagged)
    with pytest.raises(TraceError, match=r"pods.csv:7 \[gpu_milli\]"):
        read_trace(path, strict=True)


# C11: any of these models, and code names

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,8192,1,V100M32\nn2,8000,8192,1,G2\nn3,8000,8192,1,T4\n"


def test_c11_alternatives_trailing_separators_and_unknown_models(tmp_path: Path) -> None:
    put(tmp_path, "openb_node_list_gpu_node.csv", NODES)
    specs = {"a": "V100M16|V100M32", "b": "", "c": "G2", "d": "P100", "e": "V100M32|"}
    text = OPENB + "".join(f"{n},1000,1024,1,1000,{s},LS,Running,0,10,0\n" for n, s in specs.items())
    path = put(tmp_path, "openb_pod_list_x.csv", text)
    workload = read_trace(path)
    assert column(workload, "device_types") == {
        "a": ["V100M16", "V100M32"],
        "b": [],
        "c": ["G2"],
        "d": ["P100"],
        "e": ["V100M32"],
    }
    assert workload.cluster is not None
    assert [(n.name, n.gpus) for n in workload.cluster.nodes] == [
        ("n1", (("V100M32", 1),)),
        ("n2", (("G2", 1),)),
        ("n3", (("T4", 1),)),
    ]
    assert count(workload.report.repaired) == [
        ("gpu_spec with an empty part (extra separator), ignored", 1, 6)
    ]
    never = [f for f in workload.report.flagged if "can never start" in f.reason]
    assert [(f.rows, f.example_line, f.example) for f in never] == [(1, 5, "P100")]
    assert any(a.startswith("Device memory of G2") and "is unknown" in a for a in workload.assumptions)
    with pytest.raises(TraceError, match=r":6: gpu_spec with an empty part"):
        read_trace(path, strict=True)


def test_openb_demand_is_compared_with_capacity_by_type(tmp_path: Path) -> None:
    put(tmp_path, "openb_node_list_gpu_node.csv", NODES)
    pods = [("a", 2, "T4", 0, 100), ("b", 1, "", 50, 150), ("c", 1, "T4", 100, 200)]
    text = OPENB + "".join(f"{n},4000,1024,{g},1000,{s},LS,Running,{t},{u},{t}\n" for n, g, s, t, u in pods)
    found = read_trace(put(tmp_path, "pods.csv", text)).report.oversubscription
    assert (found["T4 only"]["peak"], found["T4 only"]["capacity"], found["T4 only"]["percent"]) == (
        2,
        1,
        200,
    )
    assert (found["all devices"]["peak"], found["all devices"]["percent"]) == (3, 100)
    assert found["all devices, if no pod left"]["peak"] == 4
    assert (found["cores"]["peak"], found["cores"]["capacity"]) == (8, 24)


def test_openb_parts_of_a_device_need_memory_by_a_stated_rule(tmp_path: Path) -> None:
    put(tmp_path, "openb_node_list_gpu_node.csv", NODES)
    text = OPENB + "half,1,1,1,500,,LS,Running,0,10,0\nwhole,1,1,1,1000,,LS,Running,0,10,0\n"
    path = put(tmp_path, "pods.csv", text)
    workload = read_trace(path)
    assert workload.cluster is not None
    smallest = min(t.memory_bytes for t in workload.cluster.types if t.memory_bytes)
    needs = column(workload, "memory_bytes")
    assert needs["whole"] == 0
    assert smallest // 2 - 1000 < int(str(needs["half"])) <= smallest // 2
    assert any("the smallest known device memory" in a for a in workload.assumptions)
    assert column(read_trace(path, memory="unknown"), "memory_bytes") == {"half": 0, "whole": 0}


# C12: a tenant's capacity that changes by the day, sometimes to zero

SERIES = "date,vA,vB,total\n2020-09-01,8,0,8\n2020-09-02,4,4,8\n"


def test_c12_capacity_is_a_series_of_changes_in_which_zero_is_a_value(tmp_path: Path) -> None:
    path = put(tmp_path, "cluster_gpu_number.csv", SERIES)
    limits, report = read_capacity_series(path)
    assert limits == [(0.0, "vA", 8), (0.0, "vB", 0), (86_400.0, "vA", 4), (86_400.0, "vB", 4)]
    assert (report.rows_read, report.rows_kept, report.flagged) == (2, 2, [])
    with pytest.raises(TraceError, match="GPUs of each virtual cluster and day"):
        read_trace(path)


def test_c12_limits_line_up_with_the_clock_of_the_jobs(tmp_path: Path) -> None:
    jobs = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "x,u,vA,8,1,1,COMPLETED,2020-09-01 23:00:00,2020-09-01 23:00:00,2020-09-02 01:00:00,7200,0\n"
        "y,u,vB,4,1,1,COMPLETED,2020-09-01 12:00:00,2020-09-01 12:00:00,2020-09-01 13:00:00,3600,0\n"
        "z,u,vB,1,1,1,SUSPENDED,2020-09-01 12:00:00,,,,\n"
    )
    workload = read_trace(put(tmp_path, "cluster_log.csv", jobs))
    assert column(workload, "tenant") == {"x": "vA", "y": "vB"}
    assert column(workload, "submit_s") == {"x": 39_600.0, "y": 0.0}
    assert any(f.example == "SUSPENDED" and f.rows == 1 for f in workload.report.flagged)
    assert count(workload.report.not_simulated) == [("never started: running time unknown", 1, 4)]
    assert workload.report.rows_kept == 3
    limits, _ = read_capacity_series(
        put(tmp_path, "gpu_number.csv", SERIES), zero_s=workload.report.time_zero_s
    )
    # The jobs' time 0 is noon of 1 September: midnight before is -12 h, the change +12 h.
    assert limits[1] == (-43_200.0, "vB", 0)
    assert limits[3] == (43_200.0, "vB", 4)


def test_c12_a_missing_date_keeps_the_last_known_values_and_is_counted(tmp_path: Path) -> None:
    text = "date,vA,total\n2020-09-05,2,2\n2020-09-01,8,9\n2020-09-02,8,8\n"
    limits, report = read_capacity_series(put(tmp_path, "n.csv", text))
    assert limits == [(0.0, "vA", 8), (4 * 86_400.0, "vA", 2)]
    assert count(report.flagged) == [
        ("total differs from the sum of the tenants", 1, 3),
        ("dates missing from the series: the last known values hold", 2, None),
    ]
    assert read_capacity_series(put(tmp_path, "none.csv", "date,vA,total\n"))[0] == []
    twice = put(tmp_path, "twice.csv", "date,vA,total\n2020-09-01,8,8\n2020-09-01,4,4\n")
    with pytest.raises(TraceError, match=r"twice.csv:3: date 2020-09-01 appears twice"):
        read_capacity_series(twice)


# C14: no submission time


def test_c14_a_trace_without_arrivals_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = put(tmp_path, "jobs.csv", "job,schedule_delay_sec,duration\na,3,60\nb,9,600\n")
    with pytest.raises(TraceError, match=r"no submission time, so arrivals cannot be replayed.*synthetic"):
        read_trace(path)


def test_c14_pods_without_times_are_listed_by_count_and_none_is_simulated(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\nb,1,1,2,1000\n"
    workload = read_trace(put(tmp_path, "openb_pod_list_multigpu20.csv", text))
    assert len(workload) == 0
    assert (workload.report.rows_read, workload.report.rows_kept) == (2, 2)
    assert [(f.rows, f.example_line) for f in workload.report.not_simulated] == [(2, 2)]
    assert "no submission time" in workload.report.not_simulated[0].reason


# Philly table


def test_philly_rows_are_named_by_place_and_repeats_are_kept_or_dropped_on_request(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:00:10,5,2,10,b\n2017-10-09 07:00:00,7,1,7,a\n2017-10-09 07:00:10,5,2,10,b\n"
        "2017-10-09 07:00:20,5,2,99,b\n\n"
    )
    path = put(tmp_path, "philly.csv", text)
    workload = read_trace(path)
    assert workload.frame.select("name", "submit_s", "duration_s", "gpus", "tenant").rows() == [
        ("job-0", 0.0, 7.0, 1, "a"),
        ("job-1", 10.0, 5.0, 2, "b"),
        ("job-2", 10.0, 5.0, 2, "b"),
        ("job-3", 20.0, 5.0, 2, "b"),
    ]
    assert [(f.rows, f.example_line) for f in workload.report.flagged] == [(1, 4), (1, 5)]
    assert len(read_trace(path, duplicates="drop")) == 3


# Helios and Lucid


def test_lucid_models_are_used_and_said_to_be_assigned(tmp_path: Path) -> None:
    text = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,"
        "jobname,dataset,model,batchsize,amp\n"
        "1,u,v,2,8,1,TIMEOUT,2020-06-09 18:00:00,2020-06-09 18:01:00,2020-06-09 18:02:00,90,60,n,d,ResNet50,64,0\n"
    )
    workload = read_trace(put(tmp_path, "cluster_full_log.csv", text))
    row = workload.frame.row(0, named=True)
    assert (row["model"], row["outcome"], row["duration_s"], row["cpu_milli"]) == (
        "ResNet50/b64",
        "failed",
        60,
        8000,
    )
    assert any("assigned" in a for a in workload.assumptions)
    assert [f.example for f in workload.report.flagged] == ["90.0 vs 60.0"]


def test_an_id_used_twice_with_other_content_is_renamed_the_same_way_in_any_order(tmp_path: Path) -> None:
    head = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    rows = [
        f"7,{user},v,1,1,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 18:00:0{i},{i},0\n"
        for i, user in enumerate(("b", "a", "c"), 1)
    ]
    first = read_trace(put(tmp_path, "one.csv", head + "".join(rows)))
    second = read_trace(put(tmp_path, "two.csv", head + "".join(reversed(rows))))
    # The same submission and start; the earliest end keeps the id.
    assert column(first, "user") == {"7": "b", "7#2": "a", "7#3": "c"}
    assert first.frame.equals(second.frame)


# PAI 2020

PAI = {
    "pai_job_table.csv": (
        "j1,i1,u1,Terminated,1000.0,1600.0\n"
        "j2,i2,u1,Failed,1100.0,1200.0\n"
        "j3,i3,u2,Running,1200.0,\n"
        "j4,i4,u2,Waiting,,\n"
        "j5,i5,u2,Terminated,1300.0,1400.0\n"
        "j6,i6,u2,Waiting,1300.0,\n"
    ),
    "pai_task_table.csv": (
        "j1,worker,4.0,Terminated,1010.0,1590.0,600.0,29.296875,50.0,T4\n"
        "j1,ps,1.0,Terminated,1005.0,1595.0,300.0,10.0,,CPU\n"
        "j2,tensorflow,2.0,Failed,1110.0,1200.0,600.0,16.0,200.0,V100\n"
        "j3,tensorflow,1.0,Running,1210.0,,600.0,16.0,100.0,MISC\n"
        "j6,tensorflow,1.0,Waiting,,,600.0,16.0,100.0,MISC\n"
    ),
    "pai_group_tag_table.csv": "i1,u1,V100M32,g,nmt\ni2,u1,,g,\n",
    "pai_machine_spec.csv": "m1,T4,96,512,2\nm2,CPU,96,512,0\n",
}


def pai(folder: Path) -> Path:
    for name, text in PAI.items():
        put(folder, name, text)
    return folder


def test_pai_tables_without_header_join_into_jobs(tmp_path: Path) -> None:
    workload = read_trace(pai(tmp_path))
    frame = workload.frame
    assert frame.select("name", "submit_s", "duration_s", "gpus", "compute_milli", "outcome").rows() == [
        # j1: tasks run from 1005 to 1595; 4 halves of a device.
        ("j1", 0.0, 590.0, 4, 500, "done"),
        # j2: 2 instances of 200 % are 4 whole devices.
        ("j2", 100.0, 90.0, 4, 1000, "failed"),
    ]
    assert column(workload, "cpu_milli") == {"j1": 4 * 6000 + 3000, "j2": 12_000}
    # 4 x 29.296875 GiB + 10 GiB
    assert column(workload, "host_memory_bytes")["j1"] == round(127.1875 * 2**30)
    assert column(workload, "device_types") == {"j1": ["V100M32"], "j2": []}
    assert column(workload, "model") == {"j1": "nmt", "j2": ""}
    report = workload.report
    assert (report.rows_read, report.rows_kept) == (6, 6)
    assert count(report.not_simulated) == [
        ("no start time: the job was never launched, no submission time either", 1, 4),
        ("no row in the task table: GPU need unknown", 1, 5),
        ("no task ever started: running time unknown", 1, 6),
        ("end unknown: running time censored", 1, 3),
    ]
    assert workload.cluster is not None
    assert workload.cluster.gpu_count == 2
    assert report.oversubscription["all devices"]["peak"] == 6.0  # 4 halves and 4 whole at 1100 s
    assert report.time_zero_s == 1000.0


def test_pai_may_be_given_by_one_of_its_files_with_or_without_header(tmp_path: Path) -> None:
    whole = read_trace(pai(tmp_path))
    by_file = read_trace(tmp_path / "pai_task_table.csv")
    assert by_file.frame.equals(whole.frame)
    put(
        tmp_path,
        "pai_job_table.csv",
        "job_name,inst_id,user,status,start_time,end_time\n" + PAI["pai_job_table.csv"],
    )
    put(
        tmp_path,
        "pai_task_table.header",
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n",
    )
    assert read_trace(tmp_path).frame.equals(whole.frame)
    cut = read_trace(tmp_path, cut_off=1310)
    assert column(cut, "duration_s")["j3"] == 100.0


def test_pai_without_its_job_table_says_what_to_give(tmp_path: Path) -> None:
    path = put(tmp_path, "pai_task_table.csv", PAI["pai_task_table.csv"])
    with pytest.raises(TraceError, match="no pai_job_table beside it"):
        read_trace(path)
    with pytest.raises(TraceError, match="not a job list: utilisation of workers"):
        read_trace(put(tmp_path, "pai_sensor_table.csv", "a,b\n"))
    with pytest.raises(TraceError, match="holds only column names"):
        read_trace(put(tmp_path, "pai_job_table.header", "a,b\n"))


# DLRM 2025

DLRM = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
    "i0,HN,a,12,12,1,1,25,25,120.0,120.0,6,8,8,,,\n"
    "i1,CN,a,8,8,0,0,25,25,2.5,2.5,6,8,-1,,,300.0\n"
    "i2,HN,b,8,8,1,1,25,25,40.0,40.0,6,8,2,50.0,60.0,\n"
    "i3,HN,b,8,8,1,1,25,25,40.0,40.0,6,8,2,100.0,130.0,400.0\n"
)


def test_dlrm_empty_times_lie_outside_the_trace(tmp_path: Path) -> None:
    path = put(tmp_path, "dlrm.csv", DLRM)
    workload = read_trace(path)
    assert workload.frame.select("name", "submit_s", "duration_s", "gpus").rows() == [
        ("i1", 0.0, 300.0, 0),
        ("i3", 100.0, 270.0, 1),
    ]
    assert [(f.rows, f.example_line) for f in workload.report.not_simulated] == [(1, 2), (1, 4)]
    assert column(workload, "host_memory_bytes")["i1"] == 2.5 * 2**30
    whole = read_trace(path, cut_off="end")
    assert column(whole, "duration_s") == {"i0": 400.0, "i1": 300.0, "i2": 340.0, "i3": 270.0}
    assert column(read_trace(path, cut_off=1000), "duration_s")["i2"] == 940.0
    for bad in ("-1", "later"):
        with pytest.raises(InputError, match="cut_off"):
            read_trace(path, cut_off=bad)


# Spot 2026


def test_spot_requests_are_per_worker_and_parts_are_shares(tmp_path: Path) -> None:
    put(
        tmp_path,
        "node_info_df.csv",
        "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,4,192,0\nA10,4,192,1\n",
    )
    text = (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
        "1,13,A10,20,2,3,0,100,HP\n2,13,A10,8,0.25,4,50,100,Spot\n3,13,A10,8,1.5,1,50,100,Spot\n"
    )
    workload = read_trace(put(tmp_path, "job_info_df.csv", text))
    assert workload.frame.select("name", "gpus", "compute_milli", "cpu_milli", "job_class").rows() == [
        ("1", 6, 1000, 60_000, "guaranteed"),
        ("2", 4, 250, 32_000, "opportunistic"),
    ]
    assert [(f.rows, f.example_line) for f in workload.report.dropped] == [(1, 4)]
    found = workload.report.oversubscription["A10 only"]
    assert (found["peak"], found["capacity"], found["percent"]) == (7.0, 8.0, 87.5)


# GenAI 2026


def test_genai_samples_become_pods_and_the_books_count_samples(tmp_path: Path) -> None:
    duty = "value,timestamp_anon,container_ip\n" + "".join(
        f"{v},{t},{p}\n"
        for v, t, p in ((10, 0, "a"), (30, 10, "a"), (0, 10, "b"), (0, 20, "b"), (5, 20, "a"), (101, 20, "b"))
    )
    memory = "timestamp_anon,value,container_ip\n0,100,a\n10,300,a\n"
    path = put(tmp_path, "pod_gpu_duty_cycle_anon.csv", duty)
    other = put(tmp_path, "pod_gpu_memory_used_bytes_anon.csv", memory)
    workload = read_trace(path)
    assert workload.frame.select(
        "name", "submit_s", "duration_s", "gpus", "memory_bytes", "compute_milli"
    ).rows() == [
        ("a", 0.0, 30.0, 1, 300, 1000),
        ("b", 10.0, 20.0, 1, 0, 1000),
    ]
    report = workload.report
    assert (report.rows_read, report.rows_kept) == (6, 5)
    assert [(f.rows, f.example_line) for f in report.dropped] == [(1, 7)]
    assert any("Telemetry, not a job list: 5 samples of 2 pods" in a for a in workload.assumptions)
    # Pod a: (10 + 30 + 5) / 3 = 15 percent.
    assert column(read_trace(path, share="mean"), "compute_milli") == {"a": 150, "b": 1}
    assert len(read_trace(path, window=(5, 15))) == 2
    by_memory = read_trace(other, share="mean")
    assert column(by_memory, "compute_milli") == {"a": 150}


# Other tables of these traces


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("time,machineId,gpu0_util", "give cluster_job_log"),
        ("time,machine_id,cpu_util", "give cluster_job_log"),
        ("machineId,number of GPUs,single GPU mem", "give it as the cluster"),
        ("time,active,total", "give cluster_job_log"),
        ("sn,cpu_milli,memory_mib,gpu,model", "give it as the cluster"),
        ("gpu_model,gpu_capacity_num,cpu_num,node_name", "give it as the cluster"),
        (",worker,gpu,time,batch_time_norm", "step times of workers"),
        ("id,job_num,cpu_job_num,gpu_job_num,complete_rate_gpu", "a summary of five clusters"),
    ],
)
def test_files_that_are_no_job_lists_say_what_to_give_instead(
    tmp_path: Path, header: str, words: str
) -> None:
    with pytest.raises(CotenantError, match="not a job list: .*" + words):
        read_trace(put(tmp_path, "t.csv", header + "\n"))
