"""The tables of the PAI 2020 trace: their columns, how to find them, how to read them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cotenant.errors import ConfigError, TraceError
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.quantities import GIB
from cotenant.traces.base import DataReport
from cotenant.traces.clusterfile import known_type
from cotenant.traces.files import first_lines, plain_name, read_head
from cotenant.traces.options import ReadOptions
from cotenant.traces.table import Rows, read_rows

__all__ = ["COLUMNS", "find_tables", "read_machines", "read_table", "table_of"]

COLUMNS: dict[str, tuple[str, ...]] = {
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_task_table": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    "pai_instance_table": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id"),
        *("status", "start_time", "end_time", "machine"),
    ),
    "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "pai_machine_spec": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
    "pai_machine_metric": (
        *("worker_name", "machine", "start_time", "end_time", "machine_cpu_iowait", "machine_cpu_kernel"),
        *("machine_cpu_usr", "machine_gpu", "machine_load_1", "machine_net_receive"),
        *("machine_num_worker", "machine_cpu"),
    ),
    "pai_sensor_table": (
        *("job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage"),
        *("gpu_wrk_util", "avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem"),
        *("read", "write", "read_count", "write_count"),
    ),
}
_ENDINGS = (".csv", "", ".example.csv")


def table_of(path: Path) -> str:
    """Name of the table that a file name speaks of; empty if none."""
    name = plain_name(path)
    return next((table for table in COLUMNS if name.startswith(table)), "")


def find_tables(folder: Path) -> dict[str, Path]:
    """Tables in a folder, plain or gzip; real ones before ``.example.csv``.

    Raises
    ------
    TraceError
        If the folder cannot be listed.
    """
    try:
        files = {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_file()}
    except OSError as error:
        raise TraceError(f"cannot list the folder: {error.strerror}", path=folder) from error
    found: dict[str, Path] = {}
    for table in COLUMNS:
        names = (table + ending + packed for ending in _ENDINGS for packed in ("", ".gz"))
        first = next((files[name] for name in names if name in files), None)
        if first is not None:
            found[table] = first
    return found


def read_table(path: Path, table: str, report: DataReport, options: ReadOptions) -> Rows:
    """Read a table with or without a header line; ``TABLE.header`` beside it gives other names."""
    names = COLUMNS[table]
    side = path.parent / f"{table}.header"
    if side.is_file():
        lines = first_lines(read_head(side), 1)
        told = tuple(c.strip() for c in lines[0].split(",")) if lines else ()
        missing = [c for c in names if c not in told]
        if missing:
            raise TraceError(f"lacks the column(s) {', '.join(missing)} of {table}", path=side, line=1)
        names = told
    return read_rows(path, report, options, needed=COLUMNS[table], header=names)


def read_machines(path: Path, options: ReadOptions) -> Cluster:
    """The cluster of ``pai_machine_spec``: cores, memory (GiB) and devices of each machine.

    Raises
    ------
    TraceError
        At the first row that cannot be used; a cluster is not repaired.
    """
    report = DataReport(format="pai2020", path=str(path), strict=True)
    rows = read_table(path, "pai_machine_spec", report, options)
    rows.number("cap_cpu", low=0, high=1e6)
    rows.number("cap_mem", low=0, high=1e6)
    rows.number("cap_gpu", low=0, high=1024, integer=True)
    kind = pl.col("gpu_type").str.strip_chars()
    rows.drop((pl.col("cap_gpu") > 0) & (kind == ""), "devices without a gpu_type", column="gpu_type")
    nodes = tuple(
        Node(
            name=name.strip(),
            gpus=((kind.strip(), count),) if count else (),
            cpu_milli=round(cores * 1000),
            host_memory_bytes=round(memory * GIB),
        )
        for name, kind, cores, memory, count in rows.frame.select(COLUMNS["pai_machine_spec"]).iter_rows()
    )
    names = dict.fromkeys(kind for node in nodes for kind, _ in node.gpus)
    types = tuple(known_type(name) or DeviceType(name=name) for name in names)
    try:
        return Cluster(nodes=nodes, types=types, name="pai2020").check()
    except ConfigError as error:
        raise TraceError(str(error), path=path) from error
