"""Job lists of ElasticFlow (Gu et al., "ElasticFlow", ASPLOS 2023; pkusys/ElasticFlow): jobs with deadlines.

``job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration`` in seconds; ``ddl`` is a point in
time. ``real_iteration`` and ``real_duration``, where present, repeat the others.
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
from cotenant.traces.table import header_score, read_rows
from cotenant.traces.tiresias import canonical_models

__all__ = ["ElasticFlowReader"]

_NEEDED = ("job_id", "submit_time", "model_name", "ddl", "num_gpu", "duration")
_OPTIONAL = ("iteration", "batch_size", "real_iteration", "real_duration")


class ElasticFlowReader:
    """Reads ElasticFlow's job lists; a job that cannot meet its deadline even alone is flagged."""

    format: ClassVar[str] = "elasticflow"
    title: ClassVar[str] = "ElasticFlow job list with deadlines"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the deadline and the others."""
        return 0.95 if header_score(first_lines(head, 1), (*_NEEDED, "iteration")) == 1 else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; see ``traces.options.ReadOptions`` for the options.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        """
        common, _ = take_options(self.format, options)
        report = DataReport(format=self.format, path=str(path), strict=common.strict, time_zone="none")
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.number("submit_time", low=0, into="submit_s")
        rows.number("duration", low=0, into="duration_s")
        rows.number("num_gpu", low=0, high=1e6, integer=True, into="gpus")
        rows.number("ddl", low=0, empty=0.0, into="deadline_s")
        rows.number("real_duration", low=0, empty="null")
        rows.flag(
            (pl.col("deadline_s") > 0) & (pl.col("deadline_s") - pl.col("submit_s") < pl.col("duration_s")),
            "deadline cannot be met even alone: deadline - submission is less than the running time",
        )
        rows.flag(
            pl.col("real_duration") != pl.col("duration_s"),
            "real_duration differs from duration; duration is used",
        )
        canonical_models(rows, "model_name", "batch_size")
        rows.add(job_id=pl.col("job_id").str.strip_chars())
        rows.unique_names("job_id", ("submit_s", "gpus", "duration_s", "deadline_s", "model"))
        report.assumptions.append(
            "Batch sizes in the list are those of the whole job; the model name carries them unchanged."
        )
        return finish(rows, common, keep=("gpus", "model", "deadline_s"), clock="trace")
