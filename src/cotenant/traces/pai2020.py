"""Alibaba PAI 2020: jobs, their tasks and groups in tables without a header line.

Data of Q. Weng et al., "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale
Heterogeneous GPU Clusters", NSDI 2022 (alibaba/clusterdata, cluster-trace-gpu-v2020).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.errors import InputError, TraceError
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.capacity import capacity_check
from cotenant.traces.files import first_lines, plain_name, read_head
from cotenant.traces.finish import finish, interval_rules
from cotenant.traces.options import ReadOptions, take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.pai_tables import COLUMNS, find_tables, read_machines, read_table, table_of
from cotenant.traces.table import LINE, Rows

__all__ = ["Pai2020Reader"]

_USED = ("pai_job_table", "pai_task_table", "pai_instance_table", "pai_group_tag_table")
_OUTCOMES = {"Terminated": "done", "Failed": "failed", "Running": "done", "Waiting": "done"}
_INSTEAD = "give the folder, or pai_job_table.csv with pai_task_table.csv beside it"
_OTHERS: Others = {
    (
        "worker",
        "gpu",
        "time",
        "batch_time_norm",
    ): f"step times of workers that hold part of a GPU; {_INSTEAD}",
}
_OTHER_TABLES = {
    "pai_machine_spec": f"the machines; {_INSTEAD} (pai_machine_spec.csv there becomes the cluster)",
    "pai_machine_metric": f"utilisation of machines; {_INSTEAD}",
    "pai_sensor_table": f"utilisation of workers; {_INSTEAD}",
}


class Pai2020Reader:
    """Reads the folder of PAI tables, or one of them with the others beside it.

    Submission is the job's start time; the running time goes from its first task's start to
    its last task's end. ``plan_gpu`` is percent of a device for each of ``inst_num`` instances:
    below 100 each gets that part of one device, above it whole devices.
    """

    format: ClassVar[str] = "pai2020"
    title: ClassVar[str] = "Alibaba PAI 2020"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure by table names; less so by a header line."""
        if path.is_dir():
            return 0.95 if "pai_job_table" in find_tables(path) else 0.0
        if table_of(path):
            return 0.96
        lines = first_lines(head, 1)
        cells = tuple(c.strip() for c in lines[0].split(",")) if lines else ()
        return 0.9 if cells in COLUMNS.values() or is_other(lines, _OTHERS) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read jobs.

        Parameters
        ----------
        cut_off : str or float
            End of the observation in seconds of the trace: jobs still running are taken to
            end then.

        Raises
        ------
        TraceError
            If a table cannot be read or is missing, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"cut_off": ""})
        tables = _tables(Path(path))
        report = DataReport(format=self.format, path=str(tables["pai_job_table"]), strict=common.strict)
        rows = read_table(tables["pai_job_table"], "pai_job_table", report, common)
        names = COLUMNS["pai_job_table"]
        rows.duplicates(names, common.duplicates, "drop")
        rows.unique_names("job_name", names[1:])
        _join_tasks(rows, tables, common)
        _life(rows, _cut_off(own["cut_off"]))
        _requests(rows)
        _join_groups(rows, tables, common)
        report.time_zone = "none: seconds from a shifted origin (time of day and weekday true in UTC+8)"
        cluster = None
        if "pai_machine_spec" in tables:
            cluster = read_machines(tables["pai_machine_spec"], common)
            report.assumptions.append(f"The cluster is {tables['pai_machine_spec'].name}.")
            report.oversubscription = capacity_check(rows.frame, cluster)
        keep = (
            *("gpus", "compute_milli", "cpu_milli", "host_memory_bytes"),
            *("device_types", "model", "user", "tenant", "outcome"),
        )
        return finish(rows, common, keep=keep, clock="trace", cluster=cluster)


def _tables(path: Path) -> dict[str, Path]:
    """Tables beside the file or in the folder; refuse what is no job list."""
    if not path.is_dir():
        refuse_other(path, _OTHERS)
        name = table_of(path)
        if plain_name(path).endswith(".header"):
            raise TraceError(f"holds only column names; {_INSTEAD}", path=path)
        if name in _OTHER_TABLES:
            raise TraceError(f"not a job list: {_OTHER_TABLES[name]}", path=path)
        found = find_tables(path.parent)
        found[name or _by_header(path)] = path
    else:
        found = find_tables(path)
    if "pai_job_table" not in found:
        raise TraceError(f"no pai_job_table beside it, so no submission times; {_INSTEAD}", path=path)
    return found


def _by_header(path: Path) -> str:
    lines = first_lines(read_head(path), 1)
    cells = tuple(c.strip() for c in lines[0].split(",")) if lines else ()
    name = next((n for n, columns in COLUMNS.items() if columns == cells), "pai_job_table")
    if name in _OTHER_TABLES:
        raise TraceError(f"not a job list: {_OTHER_TABLES[name]}", path=path)
    return name


def _cut_off(value: Any) -> float | None:
    if value in ("", None):
        return None
    try:
        end = float(value)
    except (TypeError, ValueError):
        end = float("nan")
    if not 0 < end < 1e15:
        raise InputError(f"option cut_off={value!r}: write seconds of the trace, above 0")
    return end


def _join_tasks(rows: Rows, tables: dict[str, Path], options: ReadOptions) -> None:
    """Add to each job the sum of what its tasks plan."""
    report = DataReport(format="pai2020", path=str(tables.get("pai_task_table", "")), strict=options.strict)
    if "pai_task_table" in tables:
        tasks = read_table(tables["pai_task_table"], "pai_task_table", report, options)
    else:
        rows.report.assumptions.append("No pai_task_table: what jobs ask for is unknown.")
        schema = {LINE: pl.Int64, **dict.fromkeys(COLUMNS["pai_task_table"], pl.String)}
        tasks = Rows(pl.DataFrame(schema=schema), report, frozenset())
    tasks.duplicates(COLUMNS["pai_task_table"], options.duplicates, "drop")
    tasks.number("inst_num", low=0, high=1e5, empty=1.0)
    for column, high in (("plan_cpu", 1e7), ("plan_mem", 1e6), ("plan_gpu", 1e6)):
        tasks.number(column, low=0, high=high, empty=0.0)
    for column in ("start_time", "end_time"):
        tasks.number(column, empty="null", high=1e15)
    summed = _sum_tasks(tasks.frame)
    lost = tasks.frame.join(rows.frame, on="job_name", how="anti").height
    dropped = "; ".join(f"{f.rows} dropped: {f.reason}" for f in report.dropped) or "none dropped"
    rows.report.assumptions.append(
        f"Task table: {report.rows_read} rows read, {dropped}, {lost} belong to no job of the job table."
    )
    rows.frame = rows.frame.join(summed, on="job_name", how="left", maintain_order="left")


def _sum_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    percent, count = pl.col("plan_gpu"), pl.col("inst_num")
    each = pl.when(percent >= 100).then((percent / 100).ceil()).otherwise((percent > 0).cast(pl.Float64))
    milli = pl.when(percent >= 100).then(1000.0).when(percent > 0).then((percent * 10).ceil())
    planned = tasks.with_columns(devices=each * count, milli=milli.otherwise(None))
    return planned.group_by("job_name", maintain_order=True).agg(
        pl.len().alias("tasks"),
        pl.col("devices").sum(),
        pl.col("milli").max(),
        pl.col("milli").drop_nulls().n_unique().alias("shares"),
        ((percent > 100) & (percent % 100 != 0)).any().alias("rounded"),
        (pl.col("plan_cpu") * 10 * count).sum().alias("cpu"),
        (pl.col("plan_mem") * count).sum().alias("memory_gib"),
        pl.col("start_time").min().alias("task_start_s"),
        pl.col("end_time").max().alias("task_end_s"),
        pl.col("end_time").is_null().any().alias("open"),
    )


def _life(rows: Rows, cut_off: float | None) -> None:
    for column in ("start_time", "end_time"):
        rows.number(column, empty="null", high=1e15, into=f"job_{column}")
    submit, end = pl.col("job_start_time"), pl.col("job_end_time")
    status = pl.col("status").str.strip_chars()
    rows.set_aside(submit.is_null(), "no start time: the job was never launched, no submission time either")
    rows.set_aside(pl.col("tasks").is_null(), "no row in the task table: GPU need unknown")
    started = pl.col("task_start_s")
    rows.set_aside(started.is_null() & (status != "Terminated"), "no task ever started: running time unknown")
    rows.flag(started.is_null(), "no task start time: the job's own is used, so waiting counts as running")
    stop = pl.when(pl.col("open")).then(end).otherwise(pl.col("task_end_s"))
    if cut_off is not None:
        rows.flag(stop.is_null(), "still running at the end of the trace: taken to end at cut_off")
        stop = stop.fill_null(cut_off)
    rows.add(start_s=started.fill_null(submit), end_s=stop, submit_s=submit)
    interval_rules(rows)
    rows.flag(submit < 0, "submitted before the trace's start: submitted at 0")
    rows.add(submit_s=submit.clip(0.0))
    known = status.replace_strict(_OUTCOMES, default=None, return_dtype=pl.String)
    rows.flag(
        known.is_null(), "status is not Terminated, Failed, Running or Waiting; taken as done", show=status
    )
    rows.add(outcome=known.fill_null("done"))


def _requests(rows: Rows) -> None:
    rows.flag(pl.col("shares") > 1, "tasks ask for different parts of a device: the largest is used for all")
    rows.flag(pl.col("rounded"), "plan_gpu above 100 that is no multiple of it: rounded up to whole devices")
    rows.drop(pl.col("devices") > 1e6, "asks for more than a million devices")
    rows.add(
        gpus=pl.col("devices").ceil().cast(pl.Int64),
        compute_milli=pl.col("milli").fill_null(1000.0).cast(pl.Int64),
        cpu_milli=pl.col("cpu").clip(0, 1e15).round().cast(pl.Int64),
        host_memory_bytes=(pl.col("memory_gib").clip(0, 1e9) * 2**30).ceil().cast(pl.Int64),
        user=pl.col("user").str.strip_chars(),
        tenant=pl.col("user").str.strip_chars(),
    )
    rows.report.assumptions += [
        "plan_mem is read as GiB; all tasks of a job start together.",
        "The user is the tenant: the trace names no other.",
    ]


def _join_groups(rows: Rows, tables: dict[str, Path], options: ReadOptions) -> None:
    """Add the model (``workload``) and the device type that the user asked for."""
    none = pl.lit([], dtype=pl.List(pl.String))
    if "pai_group_tag_table" not in tables:
        rows.add(model="", device_types=none)
        rows.report.assumptions.append(
            "No pai_group_tag_table: models and device types asked for are unknown."
        )
        return
    path = tables["pai_group_tag_table"]
    report = DataReport(format="pai2020", path=str(path), strict=options.strict)
    tags = read_table(path, "pai_group_tag_table", report, options).frame
    tags = tags.sort(COLUMNS["pai_group_tag_table"]).unique("inst_id", keep="first", maintain_order=True)
    wanted = tags.select("inst_id", "gpu_type_spec", model=pl.col("workload").str.strip_chars())
    rows.frame = rows.frame.join(wanted, on="inst_id", how="left", maintain_order="left")
    spec = pl.col("gpu_type_spec").str.strip_chars().fill_null("")
    rows.add(
        model=pl.col("model").fill_null(""),
        device_types=pl.when(spec == "").then(none).otherwise(pl.concat_list(spec)),
    )
