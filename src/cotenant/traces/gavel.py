"""Traces of Gavel (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies", OSDI 2020;
stanford-futuredata/gavel): tab-separated, no header, 10 fields (physical cluster) or 7 (``msr``).

A row says how many steps a job takes, not how long it runs: that is steps / throughput of the job
type on a device type, from a table of solo measurements. ``data/gavel_throughputs.csv`` carries three
campaigns of that repository (MIT): ``gavel-2020`` (``scheduler/simulation_throughputs.json``),
``gavel-2020-physical`` (``physical_cluster_throughputs.json``), ``gavel-2019-08``
(``oracle_throughputs.json`` at 48eceb7; one device only), gangs on one node ("consolidated").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import InputError
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines, plain_name, read_head
from cotenant.traces.finish import finish
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.steps import NO_GAIN, STRETCHED, Throughputs, load_throughputs
from cotenant.traces.table import Rows, read_rows
from cotenant.traces.tiresias import canonical_models

__all__ = ["GavelReader"]

_LONG = (
    "job_type",
    "command",
    "directory",
    "steps_argument",
    "needs_data",
    "steps",
    "gpus",
    "weight",
    "slo",
    "arrival",
)
_SHORT = ("job_type", "command", "steps_argument", "needs_data", "steps", "arrival", "gpus")
_DISPUTED = "Recommendation/"


class GavelReader:
    """Reads Gavel's ``.trace`` files.

    Options: ``gpu_type`` (``V100``, ``P100`` or ``K80``) whose throughput turns steps into seconds;
    ``campaign`` (default ``gavel-2020``); ``throughputs``, a table of one's own with columns
    ``gpu_type,model,batch,num_gpus,throughput`` in steps/s (and ``source`` for the campaign), or ``none``;
    ``scale``: ``gang`` takes the throughput of the whole gang, extrapolated in proportion beyond the largest
    measured one (of one device where no gang was measured; both flagged); ``single`` that of one device, which with ``campaign=gavel-2019-08`` gives back the times
    from which the ``msr`` traces were made.

    An SLO is a factor of the running time: the deadline is arrival + SLO x running time.
    """

    format: ClassVar[str] = "gavel"
    title: ClassVar[str] = "Gavel job list (.trace)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the first line has the right number of fields and numbers where they belong."""
        lines = first_lines(head, 1)
        cells = lines[0].split("\t") if lines else []
        names = {len(_LONG): _LONG, len(_SHORT): _SHORT}.get(len(cells))
        if names is None:
            return 0.0
        row = dict(zip(names, cells, strict=True))
        if row["needs_data"] not in {"0", "1"} or not row["steps"].strip().isdigit():
            return 0.0
        return 0.95 if plain_name(path).endswith(".trace") else 0.8

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs; options as in the class and in ``traces.options.ReadOptions``.

        Raises
        ------
        TraceError
            If the table cannot be read, or under ``strict`` at the first bad row.
        InputError
            If an option makes no sense, or the table of throughputs cannot be used.
        """
        own_options = {"gpu_type": "V100", "campaign": "gavel-2020", "throughputs": "", "scale": "gang"}
        common, own = take_options(self.format, options, own_options)
        if own["scale"] not in {"gang", "single"}:
            raise InputError(f'option scale is "gang" or "single", found {own["scale"]!r}')
        speeds = load_throughputs(own["throughputs"], own["campaign"], own["gpu_type"])
        report = DataReport(
            format=self.format,
            path=str(path),
            strict=common.strict,
            time_zone="none",
            units="steps and seconds",
        )
        rows = _rows(path, report, common)
        _numbers(rows)
        _seconds(rows, speeds, own)
        keep = ["gpus", "model"]
        if "slo" in rows.present:
            wanted = pl.col("slo") > 0
            end = pl.col("submit_s") + pl.col("slo") * pl.col("duration_s")
            rows.add(deadline_s=pl.when(wanted).then(end).otherwise(0.0))
            rows.flag(wanted & (pl.col("slo") < 1), "SLO below 1: the deadline cannot be met even alone")
            keep += ["deadline_s", "priority"]
        return finish(rows, common, keep=keep, clock="trace")


def _rows(path: Path, report: DataReport, common: ReadOptions) -> Rows:
    lines = first_lines(read_head(path), 1)
    columns = _SHORT if lines and lines[0].count("\t") + 1 == len(_SHORT) else _LONG
    rows = read_rows(path, report, common, needed=columns, separator="\t", header=columns)
    rows.duplicates(columns, common.duplicates, "keep")
    # No ids: name by place among rows sorted by content, so that the order of lines does not matter.
    rows.add(arrival_sort=pl.col("arrival").str.strip_chars().cast(pl.Float64, strict=False))
    rows.frame = rows.frame.sort("arrival_sort", *columns, maintain_order=True)
    rows.add(name=pl.format("job-{}", pl.int_range(pl.len())))
    return rows


def _numbers(rows: Rows) -> None:
    rows.number("steps", low=0, integer=True)
    rows.number("arrival", low=0, into="submit_s")
    rows.number("gpus", low=1, high=1e6, integer=True)
    canonical_models(rows, "job_type")
    if "slo" in rows.present:
        rows.number("slo", low=-1, high=1e6)
        rows.number("weight", low=0, high=1e6, empty=1.0)
        rows.flag(pl.col("weight") != pl.col("weight").floor(), "priority weight is not whole: rounded down")
        rows.add(priority=pl.col("weight").floor().cast(pl.Int64))


def _seconds(rows: Rows, speeds: Throughputs | None, own: dict[str, Any]) -> None:
    report = rows.report
    if speeds is None:
        rows.add(duration_s=pl.lit(None, dtype=pl.Float64))
        rows.set_aside(pl.lit(True), "steps without a table of throughputs: running time unknown")
        return
    wanted = pl.lit(1) if own["scale"] == "single" else pl.col("gpus")
    pairs = rows.frame.select("model", pl.lit(0).alias("n") + wanted).unique().sort("model", "n")
    found = [speeds.find(model, gpus) for model, gpus in pairs.iter_rows()]
    made = pairs.with_columns(
        pl.Series("speed", [f.steps_per_s for f in found], dtype=pl.Float64),
        pl.Series("assumed", [f.assumed for f in found], dtype=pl.String),
    )
    rows.add(n=pl.lit(0) + wanted)
    rows.frame = rows.frame.join(made, on=("model", "n"), how="left", maintain_order="left")
    where = f"on {own['gpu_type']} in {speeds.label}"
    rows.set_aside(pl.col("speed").is_null(), f"no throughput of this job type {where}: running time unknown")
    rows.set_aside(pl.col("speed") == 0, f"throughput is 0 {where} (does not fit that device)")
    for reason in (STRETCHED, NO_GAIN):
        rows.flag(pl.col("assumed") == reason, reason)
    disputed = pl.col("model").str.starts_with(_DISPUTED) & pl.lit(speeds.label == "gavel-2020")
    rows.flag(disputed, "solo speed of the recommendation model is disputed by its own source (gavel-2020)")
    rows.add(duration_s=pl.col("steps") / pl.col("speed"))
    report.assumptions.append(
        f"Running times are steps / throughput {where}, {own['scale']} scale; not observed."
    )
