"""Alibaba's spot and high-priority GPU jobs (alibaba/clusterdata, cluster-trace-v2026-spot-gpu)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.model.cluster import Cluster
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.capacity import capacity_check
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish
from cotenant.traces.nodelists import read_node_list
from cotenant.traces.options import take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.table import Rows, header_score, read_rows

__all__ = ["Spot2026Reader"]

_NEEDED = (
    *("job_name", "gpu_model", "cpu_request", "gpu_request", "worker_num"),
    *("submit_time", "duration", "job_type"),
)
_OPTIONAL = ("organization",)
_OTHERS: Others = {
    ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name"): (
        "a node list; give it as the cluster (nodes=...), and job_info_df.csv as the trace"
    ),
}
_NODE_LISTS = ("node_info_df.csv", "node_info_df.csv.gz")
_TYPES = {"HP": "guaranteed", "Spot": "opportunistic"}


class Spot2026Reader:
    """Reads ``job_info_df.csv``; the node list beside it becomes the cluster.

    Requests are for each worker, so a job asks for ``worker_num`` times as much, all at once.
    """

    format: ClassVar[str] = "spot2026"
    title: ClassVar[str] = "Alibaba spot and high-priority GPU jobs 2026"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the job columns, or is the node list."""
        lines = first_lines(head, 1)
        if header_score(lines, _NEEDED) == 1:
            return 0.95
        return 0.9 if is_other(lines, _OTHERS) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs.

        Parameters
        ----------
        nodes : path
            Node list; the default is ``node_info_df.csv`` beside the file.

        Raises
        ------
        TraceError
            If the table cannot be read or holds something else, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"nodes": ""})
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        refuse_other(path, _OTHERS)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.unique_names("job_name", (*_NEEDED[1:], *_OPTIONAL))
        _requests(rows)
        rows.number("submit_time", high=1e15, into="submit_s")
        rows.drop(pl.col("submit_s") < 0, "submitted before the trace's start", column="submit_time")
        rows.number("duration", low=0, high=1e12, into="duration_s")
        _kind(rows)
        report.time_zone = "none: seconds from the trace's start"
        cluster = _cluster(Path(path), own["nodes"], report)
        if cluster is not None:
            life = rows.frame.with_columns(end_s=pl.col("submit_s") + pl.col("duration_s"))
            report.oversubscription = capacity_check(life.with_columns(host_memory_bytes=0), cluster)
        keep = ("gpus", "compute_milli", "cpu_milli", "device_types", "tenant", "job_class")
        return finish(rows, common, keep=keep, zero="trace", clock="trace", cluster=cluster)


def _requests(rows: Rows) -> None:
    rows.number("worker_num", low=1, high=1e6, integer=True)
    rows.number("cpu_request", low=0, high=1e6)
    rows.number("gpu_request", low=0, high=1e6, into="each")
    each, workers = pl.col("each"), pl.col("worker_num")
    odd = (each > 1) & (each != each.floor())
    rows.drop(odd, "gpu_request is neither a part of one device nor a whole number", column="gpu_request")
    part = (each > 0) & (each < 1)
    rows.drop(part & (each * 1000 < 1), "gpu_request is below 0.001 of a device", column="gpu_request")
    rows.add(
        gpus=(each.ceil() * workers).cast(pl.Int64),
        compute_milli=pl.when(part).then((each * 1000).round().cast(pl.Int64)).otherwise(1000),
        cpu_milli=(pl.col("cpu_request") * 1000 * workers).round().cast(pl.Int64),
    )
    rows.report.assumptions.append("Requests are for each worker; a job needs all its workers at once.")


def _kind(rows: Rows) -> None:
    kind = pl.col("job_type").str.strip_chars()
    known = kind.replace_strict(_TYPES, default=None, return_dtype=pl.String)
    rows.flag(known.is_null(), "job_type is neither HP nor Spot, taken as HP", show=pl.col("job_type"))
    model = pl.col("gpu_model").str.strip_chars()
    none = pl.lit([], dtype=pl.List(pl.String))
    rows.add(
        job_class=known.fill_null("guaranteed"),
        device_types=pl.when(model == "").then(none).otherwise(pl.concat_list(model)),
        tenant=pl.col("organization").str.strip_chars(),
    )
    rows.report.assumptions.append("HP jobs are guaranteed, Spot jobs opportunistic.")


def _cluster(path: Path, nodes: object, report: DataReport) -> Cluster | None:
    beside = (path.parent / name for name in _NODE_LISTS)
    found = Path(str(nodes)) if nodes else next((p for p in beside if p.is_file()), None)
    if found is None:
        report.assumptions.append(
            "No node list given or found beside the file: no cluster, no capacity check."
        )
        return None
    report.assumptions.append(f"The cluster is {found.name}.")
    return read_node_list(found)
