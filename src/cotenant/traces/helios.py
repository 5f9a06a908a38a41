"""The SenseTime Helios trace, Lucid's variant of it, and its GPUs-per-virtual-cluster table.

Data of Q. Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale
GPU Datacenters", SC 2021 (S-Lab-System-Group/HeliosData).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import TraceError
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.files import first_lines, plain_name, read_head
from cotenant.traces.finish import finish, interval_rules
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.table import LINE, Rows, as_seconds, header_score, read_rows

__all__ = ["HeliosReader", "check_durations", "outcomes", "read_capacity_series"]

_NEEDED = ("job_id", "vc", "gpu_num", "state", "submit_time", "start_time", "end_time")
_OPTIONAL = ("user", "cpu_num", "duration", "model", "batchsize")
_OUTCOMES = {
    "COMPLETED": "done",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
}
_OTHERS: Others = {
    ("date", "total"): (
        "GPUs of each virtual cluster and day. Read it with cotenant.traces.helios.read_capacity_series "
        "and give cluster_log.csv as the trace"
    ),
    ("time", "total_gpu_num", "running_gpu_num"): (
        "counts of jobs and GPUs per minute of one virtual cluster; give cluster_log.csv as the trace"
    ),
    ("time", "submit_job_all", "end_job_all"): (
        "counts of jobs per ten minutes; give cluster_log.csv (or cluster_full_log.csv) as the trace"
    ),
}
_VC_CONFIG = "nodes of each virtual cluster; give cluster_log.csv (or cluster_full_log.csv) as the trace"
_DAY_S = 86_400.0


class HeliosReader:
    """Reads ``cluster_log.csv`` and Lucid's ``cluster_full_log.csv``.

    The running time is end - start; ``trust_duration=True`` takes the column instead. In
    Lucid's variant the model and batch size were assigned, not observed; they become the
    job's model, and the report says so.
    """

    format: ClassVar[str] = "helios"
    title: ClassVar[str] = "SenseTime Helios 2020 (and Lucid's variant)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the job columns, or is one of the trace's other tables."""
        lines = first_lines(head, 1)
        if header_score(lines, _NEEDED) == 1:
            return 0.95
        return 0.9 if is_other(lines, _OTHERS) or _is_vc_config(path, lines) else 0.0

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
        if _is_vc_config(path, first_lines(read_head(path), 1)):
            raise TraceError(f"not a job list: {_VC_CONFIG}", path=path)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        report.time_zone = common.time_zone or "none in file: local time (UTC+8) read as written"
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.unique_names("job_id", (*_NEEDED, *_OPTIONAL))
        _times(rows, common)
        rows.number("gpu_num", low=0, high=1e6, integer=True, into="gpus")
        rows.number("cpu_num", low=0, high=1e6, empty=0.0)
        outcomes(rows, _OUTCOMES)
        interval_rules(rows)
        check_durations(rows, trust=own["trust_duration"])
        _model(rows)
        rows.add(tenant=pl.col("vc").str.strip_chars(), cpu_milli=(pl.col("cpu_num") * 1000).cast(pl.Int64))
        return finish(
            rows,
            common,
            keep=("gpus", "tenant", "user", "cpu_milli", "outcome", "model"),
            clock="epoch" if common.time_zone else "local",
        )


def _is_vc_config(path: Path, lines: list[str]) -> bool:
    return bool(lines) and lines[0] == ",num" and "vc_config" in plain_name(path)


def _times(rows: Rows, options: ReadOptions) -> None:
    rows.time("submit_time", zone=options.time_zone, empty="null", into="submit_s")
    rows.set_aside(pl.col("submit_s").is_null(), "no submission time: arrivals cannot be replayed")
    rows.time("start_time", zone=options.time_zone, empty="null", into="start_s")
    rows.time("end_time", zone=options.time_zone, empty="null", into="end_s")
    rows.flag(pl.col("start_s") < pl.col("submit_s"), "starts before it was submitted; both times kept")


def outcomes(rows: Rows, known: dict[str, str]) -> None:
    """Add ``outcome`` from the ``state`` column; unknown states are kept, flagged, as done."""
    state = pl.col("state").str.strip_chars().str.to_uppercase()
    # Slurm writes "CANCELLED by 1001".
    word = state.str.extract(r"^(CANCELLED)", 1).fill_null(state)
    mapped = word.replace_strict(known, default=None, return_dtype=pl.String)
    rows.flag(
        mapped.is_null(),
        "state is neither a success nor a failure (SUSPENDED, RUNNING...), kept as done if it has an end",
        show=pl.col("state"),
    )
    rows.add(outcome=mapped.fill_null("done"))


def check_durations(rows: Rows, *, trust: bool, tolerance_s: float = 1.0) -> None:
    """Compare ``duration_s`` (end - start) with the file's ``duration``; take the latter if ``trust``."""
    if "duration" not in rows.present:
        return
    rows.number("duration", empty="null", into="told_s")
    told, real = pl.col("told_s"), pl.col("duration_s")
    queued = pl.col("end_s") - pl.col("submit_s")
    differs = (told - real).abs() > tolerance_s
    as_queued = differs & ((told - queued).abs() <= tolerance_s)
    used = "the column is used" if trust else "end - start is used"
    show = pl.format("{} vs {}", told, real)
    rows.flag(
        as_queued,
        f"duration column disagrees with end - start: it equals end - submit; {used}",
        show=pl.format("{}, equals end - submit", show),
    )
    rows.flag(differs & ~as_queued, f"duration column disagrees with end - start; {used}", show=show)
    if trust:
        rows.drop(told < 0, "duration is negative", column="duration")
        rows.add(duration_s=told.fill_null(real))
        rows.report.assumptions.append("Running times are the file's duration column (trust_duration).")


def _model(rows: Rows) -> None:
    name, batch = pl.col("model").str.strip_chars(), pl.col("batchsize").str.strip_chars()
    rows.add(
        model=pl.when((name != "") & (batch != "")).then(pl.format("{}/b{}", name, batch)).otherwise(name)
    )
    if "model" in rows.present:
        rows.report.assumptions.append(
            "Models and batch sizes were assigned by Lucid's authors, not observed."
        )


def read_capacity_series(
    path: str | Path, *, zero_s: float | None = None, **options: Any
) -> tuple[list[tuple[float, str, int]], DataReport]:
    """GPUs of each virtual cluster over time (``date,vc...,total``), as changes of tenant limits.

    A day's values hold from its midnight. A missing date keeps the last known values and is
    counted. Zero is a value: the tenant has no capacity that day.

    Parameters
    ----------
    zero_s : float, optional
        Time 0, in seconds since 1970 on the file's clock (a workload's ``report.time_zero_s``);
        default is midnight of the first date.

    Returns
    -------
    list of (float, str, int)
        ``(t_s, tenant, gpus)`` in order of time: every tenant at first, then only changes.
    DataReport

    Raises
    ------
    TraceError
        If the table cannot be read, a date appears twice, or a cell is not a count.
    """
    common, _ = take_options("helios", options)
    report = DataReport(format="helios", path=str(path), strict=common.strict, units="GPUs")
    lines = first_lines(read_head(path), 1)
    tenants = [c.strip() for c in lines[0].split(",")][1:] if lines else []
    tenants = [t for t in tenants if t and t != "total"]
    if any(t.startswith("_") or t in ("date", "day_s", "total_gpus") for t in tenants):
        raise TraceError("a tenant has a reserved name (date, day_s, total_gpus or _...)", path=path, line=1)
    rows = read_rows(path, report, common, needed=("date", *tenants), optional=("total",))
    for tenant in tenants:
        rows.number(tenant, low=0, high=1e9, integer=True)
    rows.add(day_s=as_seconds(pl.col("date").str.strip_chars() + " 00:00:00"))
    rows.drop(pl.col("day_s").is_null(), "date is not YYYY-MM-DD", column="date")
    twice = rows.frame.filter(pl.col("day_s").is_duplicated())
    if twice.height:
        raise TraceError(f"date {twice['date'][0]} appears twice", path=path, line=int(twice[LINE][-1]))
    _check_total(rows, tenants)
    frame = rows.frame.sort("day_s")
    report.rows_kept = frame.height
    days = frame["day_s"].to_list()
    missing = sum(round((b - a) / _DAY_S) - 1 for a, b in pairwise(days))
    report.flag("dates missing from the series: the last known values hold", rows=missing)
    return _changes(frame, tenants, days[0] if zero_s is None and days else zero_s or 0.0), report.check()


def _check_total(rows: Rows, tenants: list[str]) -> None:
    if "total" in rows.present and tenants:
        rows.number("total", empty="null", into="total_gpus")
        rows.flag(
            pl.sum_horizontal(tenants) != pl.col("total_gpus"), "total differs from the sum of the tenants"
        )


def _changes(frame: pl.DataFrame, tenants: list[str], zero_s: float) -> list[tuple[float, str, int]]:
    found: list[tuple[float, str, int]] = []
    last: dict[str, int] = {}
    for row in frame.select("day_s", *tenants).iter_rows():
        for tenant, gpus in zip(tenants, row[1:], strict=True):
            if last.get(tenant) != gpus:
                found.append((row[0] - zero_s, tenant, gpus))
                last[tenant] = gpus
    return found
