"""The Acme trace of two clusters for large language models, Seren and Kalos.

Data of Q. Hu et al., "Characterization of Large Language Model Development in the Datacenter",
NSDI 2024 (InternLM/AcmeTrace).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish, interval_rules
from cotenant.traces.helios import check_durations, outcomes
from cotenant.traces.options import take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.table import Rows, header_score, read_rows

__all__ = ["AcmeReader"]

_NEEDED = ("job_id", "gpu_num", "submit_time", "start_time", "end_time")
_OPTIONAL = ("user", "node_num", "cpu_num", "mem_per_pod_GB", "type", "state", "duration", "gpu_time")
_OUTCOMES = {
    "COMPLETED": "done",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "": "done",
}
_OTHERS: Others = {
    ("id", "job_num", "gpu_job_num", "complete_rate_gpu"): (
        "a summary of five clusters, one row each; give trace_seren.csv or trace_kalos.csv as the trace"
    ),
}
_GB = 10**9


class AcmeReader:
    """Reads ``trace_seren.csv`` and ``trace_kalos.csv``.

    The running time is end - start: in Kalos, ``duration`` counts from submission, against its
    documentation. ``trust_duration=True`` takes the column instead.
    """

    format: ClassVar[str] = "acme"
    title: ClassVar[str] = "Acme 2023 (Seren and Kalos)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the job columns with ``gpu_time``, and no virtual cluster."""
        lines = first_lines(head, 1)
        if header_score(lines, ("vc",)) == 0 and header_score(lines, (*_NEEDED, "gpu_time")) == 1:
            return 0.95
        return 0.9 if is_other(lines, _OTHERS) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs.

        Parameters
        ----------
        trust_duration : bool
            Take the ``duration`` column instead of end - start.

        Raises
        ------
        TraceError
            If the table cannot be read or holds something else, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"trust_duration": False})
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        refuse_other(path, _OTHERS)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.unique_names("job_id", (*_NEEDED, *_OPTIONAL))
        _zones(rows, common.time_zone)
        rows.time("submit_time", zone=common.time_zone, empty="null", into="submit_s")
        rows.set_aside(pl.col("submit_s").is_null(), "no submission time: arrivals cannot be replayed")
        rows.time("start_time", zone=common.time_zone, empty="null", into="start_s")
        rows.time("end_time", zone=common.time_zone, empty="null", into="end_s")
        rows.flag(pl.col("start_s") < pl.col("submit_s"), "starts before it was submitted; both times kept")
        rows.number("gpu_num", low=0, high=1e6, integer=True, into="gpus")
        rows.number("cpu_num", low=0, high=1e6, empty=0.0)
        rows.number("node_num", low=0, high=1e6, empty=1.0)
        rows.number("mem_per_pod_GB", low=0, high=1e6, empty=0.0, into="pod_gb")
        outcomes(rows, _OUTCOMES)
        interval_rules(rows)
        check_durations(rows, trust=own["trust_duration"])
        _resources(rows)
        return finish(rows, common, keep=("gpus", "user", "cpu_milli", "host_memory_bytes", "outcome"))


def _resources(rows: Rows) -> None:
    memory = (pl.col("pod_gb") * pl.col("node_num")).clip(0, 1e9) * _GB
    rows.add(cpu_milli=(pl.col("cpu_num") * 1000).cast(pl.Int64), host_memory_bytes=memory.cast(pl.Int64))
    if "mem_per_pod_GB" in rows.present:
        rows.report.assumptions.append(
            "Host memory is mem_per_pod_GB (read as 10^9 bytes) for each of node_num pods."
        )


def _zones(rows: Rows, assumed: str) -> None:
    offset = pl.col("submit_time").str.strip_chars().str.extract(r"([+-]\d{2}:?\d{2}|Z)$", 1)
    found = sorted(set(rows.frame.select(offset.alias("o"))["o"].drop_nulls().to_list()))
    rows.report.time_zone = f"offsets in file ({', '.join(found[:4])})" if found else "none in file"
    bare = offset.is_null() & (pl.col("submit_time").str.strip_chars() != "")
    rows.flag(bare, f"time without an offset, read as {assumed or 'UTC'}")
