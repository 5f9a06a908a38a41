"""Every published job list runs under every policy, and no job is unaccounted for."""

from pathlib import Path

import polars as pl
import pytest

import cotenant
from cotenant import registry
from cotenant.errors import TraceError
from cotenant.model.workload import Workload
from cotenant.traces.load import read_trace

pytestmark = [pytest.mark.data, pytest.mark.slow]

JOB_LISTS = (
    "acme/trace_kalos.example.csv",
    "acme/trace_seren.example.csv",
    "common/common-n2000-g64.csv.gz",
    "dlrm2025/disaggregated_DLRM_trace_first_half.csv.gz",
    "elasticflow/elasticVpollux_e.csv",
    "elasticflow/philly_103959.csv",
    "gavel/msr_seed0/103959.trace.gz",
    "gavel/physical_cluster/artifact_evaluation.trace",
    "helios/cluster_log.example.csv",
    "muri/cluster_trace.csv",
    "muri/trace1.csv.gz",
    "openb2023/openb_pod_list_default.csv",
    "openb2023/openb_pod_list_gpuspec33.csv.gz",
    "philly/cluster_job_log.example.json",
    "philly/philly_first_half.csv.gz",
    "pollux/workload-1.csv",
    "spot2026/job_info_df.example.csv",
    "tiresias/60_job.csv",
)
JOBS = 50


def loaded(data_dir: Path, name: str) -> Workload:
    workload = read_trace(data_dir / "traces" / name)
    assert workload.report.check()
    return workload


@pytest.mark.parametrize("name", JOB_LISTS)
def test_a_published_list_runs_under_every_policy(data_dir: Path, name: str) -> None:
    workload = loaded(data_dir, name)
    part = Workload(
        workload.frame.head(JOBS).with_columns(
            pl.col("submit_s") - (workload.frame["submit_s"].min() or 0.0)
        ),
        name=name,
        cluster=workload.cluster,
    )
    for policy in registry.names("policy"):
        result = cotenant.simulate(part, workload.cluster or 64, policy)
        summary = result.summary
        ended = sum(
            summary[key]
            for key in ("jobs_finished", "jobs_failed", "jobs_cancelled", "jobs_lost", "jobs_rejected")
        )
        assert summary["jobs_submitted"] == len(part), policy
        assert ended == len(part), (policy, summary["jobs_waiting"], summary["jobs_running"])


def test_every_file_is_a_list_above_or_says_what_it_is(data_dir: Path) -> None:
    """A file that is not simulated either loads with a report or is refused in words."""
    for path in sorted((data_dir / "traces").rglob("*")):
        if not path.is_file() or path.name == "README.md":
            continue
        try:
            assert read_trace(path).report.check()
        except TraceError as error:
            assert path.name in str(error)
