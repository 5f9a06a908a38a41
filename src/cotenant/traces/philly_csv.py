"""The one-table form of the Microsoft Philly trace: arrival, duration, GPUs, virtual cluster.

Data of M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019 (msr-fiddle/philly-traces), as laid out by later simulators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish
from cotenant.traces.options import take_options
from cotenant.traces.table import Rows, header_score, read_rows

__all__ = ["PhillyCsvReader"]

_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_NEEDED = ("timestamp", "duration", "num_gpus", "cluster")


class PhillyCsvReader:
    """Reads ``timestamp,duration,num_gpus,gpu_time,cluster``.

    The file has no ids, so jobs are named by their place after sorting by all columns: the
    order of lines does not matter. Repeated rows may be distinct jobs, so they are kept and
    flagged unless ``duplicates="drop"``.
    """

    format: ClassVar[str] = "philly-csv"
    title: ClassVar[str] = "Microsoft Philly 2017, one table"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds all five columns."""
        return 0.95 if header_score(first_lines(head, 1), _COLUMNS) == 1 else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; see ``traces.options.ReadOptions`` for the options.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        """
        common, _ = take_options(self.format, options)
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=("gpu_time",))
        rows.frame = rows.frame.sort(*_NEEDED, "gpu_time", maintain_order=True)
        rows.duplicates((*_NEEDED, "gpu_time"), common.duplicates, "keep")
        rows.time("timestamp", zone=common.time_zone, into="submit_s")
        rows.number("duration", low=0, into="duration_s")
        rows.number("num_gpus", low=0, high=1e6, integer=True, into="gpus")
        _check_product(rows)
        report.time_zone = (
            common.time_zone or "none in file: local time read as written, without clock changes"
        )
        report.assumptions.append(
            "Philly rows carry no outcome: killed and failed jobs are replayed as if they had succeeded."
        )
        # By time first, so that the names follow submission order.
        rows.frame = rows.frame.sort(
            "submit_s", "duration_s", "gpus", "cluster", "gpu_time", maintain_order=True
        )
        rows.add(name=pl.format("job-{}", pl.int_range(pl.len())), tenant=pl.col("cluster").str.strip_chars())
        return finish(rows, common, keep=("gpus", "tenant"), clock="epoch" if common.time_zone else "local")


def _check_product(rows: Rows) -> None:
    if "gpu_time" not in rows.present:
        return
    rows.number("gpu_time", empty="null", into="gpu_time_s")
    product = pl.col("duration_s") * pl.col("gpus")
    rows.flag(
        (pl.col("gpu_time_s") - product).abs() > 1 + 0.001 * product,
        "gpu_time differs from duration x num_gpus; duration is used",
    )
