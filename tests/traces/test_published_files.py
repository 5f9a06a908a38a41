"""Every published file of these formats loads, or says what it is, with books that balance."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from cotenant.errors import TraceError
from cotenant.traces.helios import read_capacity_series
from cotenant.traces.load import read_trace, recognise
from cotenant.traces.openb2023 import OpenB2023Reader

pytestmark = pytest.mark.data

# path below data/traces: format, rows of the file, rows of the workload
LISTS = {
    "philly/philly_first_half.csv.gz": ("philly-csv", 39_536, 39_536),
    "philly/cluster_job_log.example.json": ("philly-raw", 1, 1),
    "helios/cluster_log.example.csv": ("helios", 3, 3),
    "acme/trace_seren.example.csv": ("acme", 2, 2),
    "acme/trace_kalos.example.csv": ("acme", 2, 2),
    "pai2020": ("pai2020", 1, 0),
    "pai2020/pai_job_table.example.csv": ("pai2020", 1, 0),
    "pai2020/pai_task_table.example.csv": ("pai2020", 1, 0),
    "pai2020/pai_instance_table.example.csv": ("pai2020", 1, 0),
    "pai2020/pai_group_tag_table.example.csv": ("pai2020", 1, 0),
    "openb2023/openb_pod_list_default.csv": ("openb2023", 8152, 8152),
    "openb2023/openb_pod_list_gpuspec33.csv.gz": ("openb2023", 8152, 8152),
    "openb2023/openb_pod_list_gpushare40.csv.gz": ("openb2023", 8152, 8152),
    "openb2023/openb_pod_list_gpushare100.csv.gz": ("openb2023", 8152, 8152),
    "openb2023/openb_pod_list_cpu050.csv.gz": ("openb2023", 7439, 7439),
    "openb2023/openb_pod_list_multigpu20.csv.gz": ("openb2023", 8324, 0),
    "dlrm2025/disaggregated_DLRM_trace_first_half.csv.gz": ("dlrm2025", 15_551, 9053),
    "spot2026/job_info_df.example.csv": ("spot2026", 4, 4),
    "genai2026/pod_gpu_duty_cycle_anon.csv.gz": ("genai2026", 157_417, 143),
    "genai2026/pod_gpu_memory_used_bytes_anon.csv.gz": ("genai2026", 161_413, 144),
}
FOLDERS = ("philly", "helios", "acme", "pai2020", "openb2023", "dlrm2025", "spot2026", "genai2026")


@pytest.mark.parametrize("name", LISTS)
def test_job_lists_load_with_the_counts_of_their_publisher(data_dir: Path, name: str) -> None:
    path = data_dir / "traces" / name
    format_name, rows, jobs = LISTS[name]
    assert recognise(path) == format_name
    workload = read_trace(path)
    report = workload.report
    assert (report.format, report.rows_read, len(workload)) == (format_name, rows, jobs)
    assert report.rows_read == report.rows_kept + sum(f.rows for f in report.dropped)
    assert report.check() is report
    assert (report.dropped, report.repaired) == ([], [])
    assert tuple(report.assumptions) == workload.assumptions
    json.dumps(report.to_dict(), allow_nan=False)
    if jobs:
        assert workload.frame["submit_s"].min() == 0.0
        assert sum(1 for _ in workload.pairs()) == jobs


def test_every_other_file_says_what_it_holds(data_dir: Path) -> None:
    others = [
        path
        for folder in FOLDERS
        for path in sorted((data_dir / "traces" / folder).iterdir())
        if f"{folder}/{path.name}" not in LISTS
    ]
    assert len(others) == 28
    for path in others:
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        told = str(caught.value)
        assert path.name in told
        assert "give" in told
        assert "no known trace format" not in told


def test_philly_repeats_and_openb_pending_pods_are_counted(data_dir: Path) -> None:
    philly = read_trace(data_dir / "traces/philly/philly_first_half.csv.gz")
    assert [(f.reason, f.rows) for f in philly.report.flagged] == [("exact repeat of another row, kept", 26)]
    assert philly.frame["gpus"].max() == 32
    openb = read_trace(data_dir / "traces/openb2023/openb_pod_list_default.csv")
    flagged = {f.reason.split(",")[0]: f.rows for f in openb.report.flagged}
    assert flagged == {
        "Pending pod": 897,
        "CPU-only job (asks for no GPU)": 1088,
        "no running time at all (0 s)": 1,
    }
    assert openb.frame.filter(openb.frame["leave_s"] > 0).height == 897
    assert (
        openb.frame.filter((openb.frame["gpus"] == 1) & (openb.frame["compute_milli"] < 1000)).height == 3078
    )
    assert openb.cluster is not None
    assert (len(openb.cluster.nodes), openb.cluster.gpu_count) == (1523, 6212)
    spec = read_trace(data_dir / "traces/openb2023/openb_pod_list_gpuspec33.csv.gz")
    either = spec.frame.filter(spec.frame["device_types"].list.join("|") == "V100M16|V100M32")
    assert either.height == 141 + 22  # 22 rows name V100M32 twice
    assert [f.rows for f in spec.report.flagged if "more than once" in f.reason] == [22 + 3]
    assert spec.report.oversubscription["T4 only"]["capacity"] == 842.0


def test_dlrm_cut_off_at_the_last_time_keeps_all_instances(data_dir: Path) -> None:
    path = data_dir / "traces/dlrm2025/disaggregated_DLRM_trace_first_half.csv.gz"
    assert [f.rows for f in read_trace(path).report.not_simulated] == [4677, 1821]
    whole = read_trace(path, cut_off="end")
    assert len(whole) == 15_551
    assert int(whole.frame["gpus"].sum()) == 5352


def test_the_capacity_series_of_two_clusters_load(data_dir: Path) -> None:
    for name, total in (("venus_cluster_gpu_number.csv", 968), ("earth_gpu_number.csv", 784)):
        limits, report = read_capacity_series(data_dir / "traces/helios" / name)
        assert (report.rows_read, report.rows_kept, report.dropped) == (181, 181, [])
        assert sum(gpus for t_s, _, gpus in limits if t_s == 0.0) == total
        assert 0 in [gpus for _, _, gpus in limits]


@pytest.mark.parametrize(
    "name",
    [
        "philly/philly_first_half.csv.gz",
        "openb2023/openb_pod_list_gpuspec33.csv.gz",
        "dlrm2025/disaggregated_DLRM_trace_first_half.csv.gz",
        "genai2026/pod_gpu_duty_cycle_anon.csv.gz",
    ],
)
def test_the_order_of_lines_does_not_matter(data_dir: Path, tmp_path: Path, name: str) -> None:
    source = data_dir / "traces" / name
    header, *lines = gzip.decompress(source.read_bytes()).decode().splitlines(keepends=True)
    random.Random(7).shuffle(lines)
    mixed = tmp_path / Path(name).name.removesuffix(".gz")
    mixed.write_text(header + "".join(lines), encoding="utf-8")
    before, after = read_trace(source), read_trace(mixed)
    # The files beside the published one are not beside the copy.
    common = [c for c in before.frame.columns if c != "memory_bytes"]
    assert before.frame.select(common).equals(after.frame.select(common))
    assert [(f.reason, f.rows) for f in before.report.not_simulated] == [
        (f.reason, f.rows) for f in after.report.not_simulated
    ]


def test_the_cluster_may_be_another_node_list(data_dir: Path) -> None:
    folder = data_dir / "traces/openb2023"
    workload = OpenB2023Reader().read(
        folder / "openb_pod_list_default.csv", nodes=folder / "openb_node_list_gpu_node.csv"
    )
    assert workload.cluster is not None
    assert (len(workload.cluster.nodes), workload.cluster.gpu_count) == (1213, 6212)
