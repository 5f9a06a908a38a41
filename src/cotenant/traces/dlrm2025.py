"""Alibaba's disaggregated serving of recommendation models, 2025.

Data of L. Yang et al., "GPU-Disaggregated Serving for Deep Learning Recommendation Models at
Scale", NSDI 2025 (alibaba/clusterdata, cluster-trace-gpu-v2025).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import InputError
from cotenant.model.quantities import GIB
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish, interval_rules
from cotenant.traces.options import take_options
from cotenant.traces.table import Rows, header_score, read_rows

__all__ = ["Dlrm2025Reader"]

_TIMES = ("creation_time", "scheduled_time", "deletion_time")
_NEEDED = ("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request", *_TIMES)
_OPTIONAL = ("cpu_limit", "gpu_limit", "rdma_request", "rdma_limit", "memory_limit", "disk_request")


class Dlrm2025Reader:
    """Reads ``disaggregated_DLRM_trace.csv``: one row for each serving instance.

    HN instances hold a GPU, CN instances only cores. An empty time lies before the start or
    after the end of the trace. An instance without an end is not simulated unless ``cut_off``
    says when the observation ended; one without a beginning was running at time 0.
    """

    format: ClassVar[str] = "dlrm2025"
    title: ClassVar[str] = "Alibaba disaggregated DLRM serving 2025"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the instance columns."""
        return 0.95 if header_score(first_lines(head, 1), _NEEDED) == 1 else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read instances.

        Parameters
        ----------
        cut_off : str or float
            End of the observation in seconds of the trace, or ``"end"`` for the last time in
            the file: instances that had not ended are taken to end then.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"cut_off": ""})
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.unique_names("instance_sn", (*_NEEDED[1:], *_OPTIONAL))
        _resources(rows)
        _life(rows, str(own["cut_off"]).strip())
        report.time_zone = "none: seconds from the trace's start"
        report.assumptions += [
            "Instances serve requests: the service (app_name) is the tenant, and none can be suspended.",
            "RDMA bandwidth, disk and the limit of instances per node are not modelled.",
        ]
        keep = ("gpus", "tenant", "cpu_milli", "host_memory_bytes", "suspendable")
        return finish(rows, common, keep=keep, zero="trace", clock="trace")


def _resources(rows: Rows) -> None:
    rows.number("cpu_request", low=0, high=1e9)
    rows.number("gpu_request", low=0, high=1e6, integer=True, empty=0.0, into="gpus")
    rows.number("memory_request", low=0, high=1e9, empty=0.0)
    role, gpus = pl.col("role").str.strip_chars(), pl.col("gpus")
    rows.flag(
        ~role.is_in(["HN", "CN"]), "role is neither HN (GPU node) nor CN (CPU node)", show=pl.col("role")
    )
    odd = ((role == "HN") & (gpus == 0)) | ((role == "CN") & (gpus > 0))
    rows.flag(odd, "role and gpu_request disagree; gpu_request is used")
    rows.add(
        tenant=pl.col("app_name").str.strip_chars(),
        cpu_milli=(pl.col("cpu_request") * 1000).round().cast(pl.Int64),
        host_memory_bytes=(pl.col("memory_request") * GIB).ceil().cast(pl.Int64),
        suspendable=False,
    )


def _life(rows: Rows, cut_off: str) -> None:
    for column in _TIMES:
        rows.number(column, empty="null", high=1e15, into=f"{column}_s")
    made, placed, gone = (pl.col(f"{c}_s") for c in _TIMES)
    end = _end(rows, cut_off)
    nothing = made.is_null() & placed.is_null() & gone.is_null()
    if end is None:
        rows.set_aside(nothing, "no times at all: present for the whole trace, running time unknown")
        rows.set_aside(
            gone.is_null(), "not ended when the trace ends: running time censored (cut_off gives it an end)"
        )
    else:
        rows.flag(nothing, f"no times at all: taken to run from 0 to cut_off ({end:g} s)")
        rows.flag(
            gone.is_null() & ~nothing, f"not ended when the trace ends: taken to end at cut_off ({end:g} s)"
        )
    rows.flag(placed.is_null() & gone.is_not_null(), "running before the trace's start: submitted at 0")
    rows.add(
        start_s=placed.fill_null(made).fill_null(0.0), end_s=gone if end is None else gone.fill_null(end)
    )
    rows.add(submit_s=made.fill_null(pl.col("start_s")).clip(0.0))
    interval_rules(rows)


def _end(rows: Rows, cut_off: str) -> float | None:
    if not cut_off:
        return None
    if cut_off == "end":
        found = rows.frame.select(pl.max_horizontal(*(f"{c}_s" for c in _TIMES)).max().alias("m"))["m"][0]
        return 0.0 if found is None else float(found)
    try:
        end = float(cut_off)
    except ValueError:
        end = float("nan")
    if not 0 < end < 1e15:
        raise InputError(f'option cut_off={cut_off!r}: write seconds of the trace (above 0), or "end"')
    return end
