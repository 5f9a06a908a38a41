"""Job lists of Muri (Zhao et al., "Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022;
Rivendile/Muri): Tiresias' column names, but **milliseconds**, and times of each stage of an iteration.
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

__all__ = ["MuriReader"]

_NEEDED = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "iteration_time")
_STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
_OPTIONAL = ("batch_size", "interval", *_STAGES, "priority")


class MuriReader:
    """Reads Muri's job lists.

    Stage times are not used for anything: counted in the report. Priorities are kept.
    """

    format: ClassVar[str] = "muri"
    title: ClassVar[str] = "Muri simulator job list (milliseconds)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds iteration and stage times."""
        return 0.95 if header_score(first_lines(head, 1), (*_NEEDED, *_STAGES)) == 1 else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; see ``traces.options.ReadOptions`` for the options.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        """
        common, _ = take_options(self.format, options)
        report = DataReport(
            format=self.format,
            path=str(path),
            strict=common.strict,
            time_zone="none",
            units="milliseconds in the file, seconds here",
        )
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.number("submit_time", low=0, high=1e15)
        rows.number("duration", low=0, high=1e15)
        rows.number("num_gpu", low=0, high=1e6, integer=True, into="gpus")
        rows.number("iterations", low=0, empty="null")
        rows.number("iteration_time", low=0, empty="null")
        rows.number("priority", low=-1e6, high=1e6, integer=True, empty=0)
        product = pl.col("iterations") * pl.col("iteration_time")
        rows.flag(
            # Iterations are whole, so one of them may be missing.
            (product - pl.col("duration")).abs() > 0.01 * pl.col("duration") + pl.col("iteration_time"),
            "duration differs by over 1% from iterations x iteration_time; duration is used",
        )
        staged = pl.any_horizontal(pl.col(c).str.strip_chars() != "" for c in _STAGES)
        rows.flag(staged, "has stage times (input, GPU, network), which are not used")
        rows.add(submit_s=pl.col("submit_time") / 1000, duration_s=pl.col("duration") / 1000)
        canonical_models(rows, "model_name", "batch_size")
        rows.add(job_id=pl.col("job_id").str.strip_chars())
        rows.unique_names("job_id", ("submit_s", "gpus", "duration_s", "model"))
        return finish(rows, common, keep=("gpus", "model", "priority"), clock="trace")
