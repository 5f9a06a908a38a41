"""Alibaba's GPU-sharing cluster of 2023 (openb): pods that ask for thousandths of a GPU.

Data of Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023 (alibaba/clusterdata, cluster-trace-gpu-v2023;
hkust-adsl/kubernetes-scheduler-simulator).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from cotenant.model.cluster import Cluster
from cotenant.model.quantities import MIB
from cotenant.model.workload import Workload
from cotenant.traces.base import DataReport
from cotenant.traces.capacity import capacity_check, oversubscription
from cotenant.traces.files import first_lines
from cotenant.traces.finish import finish, interval_rules
from cotenant.traces.nodelists import read_node_list
from cotenant.traces.options import take_options
from cotenant.traces.others import Others, is_other, refuse_other
from cotenant.traces.table import Rows, header_score, read_rows

__all__ = ["OpenB2023Reader"]

_NEEDED = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIMES = ("creation_time", "deletion_time", "scheduled_time")
_OPTIONAL = ("gpu_spec", "qos", "pod_phase", *_TIMES)
_OTHERS: Others = {
    ("sn", "cpu_milli", "memory_mib", "gpu", "model"): (
        "a node list; give it as the cluster (nodes=...), and openb_pod_list_*.csv as the trace"
    ),
}
_NODE_LISTS = ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv")


class OpenB2023Reader:
    """Reads ``openb_pod_list_*.csv``; the node list beside it becomes the cluster.

    ``gpu_milli`` is per device. Pending pods are demand that the original cluster did not
    place: they are offered, and leave at their deletion time if not started. Lists without
    times (``multigpu*``) load, and none of their pods can be simulated.
    """

    format: ClassVar[str] = "openb2023"
    title: ClassVar[str] = "Alibaba GPU sharing 2023 (openb)"

    def sniff(self, path: Path, head: bytes) -> float:
        """Sure if the header holds the pod columns, or is the node list."""
        lines = first_lines(head, 1)
        if header_score(lines, _NEEDED) == 1:
            return 0.95
        return 0.9 if is_other(lines, _OTHERS) else 0.0

    def read(self, path: Path, **options: Any) -> Workload:
        """Read pods.

        Parameters
        ----------
        nodes : path
            Node list; the default is one beside the file, all nodes before GPU nodes.
        memory : {"proportional", "unknown"}
            Device memory is not in the trace. A pod with part of a device is taken to need the
            same part of the smallest known device memory of the cluster; ``unknown`` says 0,
            and then it shares with nobody.

        Raises
        ------
        TraceError
            If the table cannot be read or holds something else, or under ``strict`` at the first bad row.
        """
        common, own = take_options(self.format, options, {"nodes": "", "memory": "proportional"})
        report = DataReport(format=self.format, path=str(path), strict=common.strict)
        refuse_other(path, _OTHERS)
        cluster = _cluster(Path(path), own["nodes"], report)
        rows = read_rows(path, report, common, needed=_NEEDED, optional=_OPTIONAL)
        rows.duplicates((*_NEEDED, *_OPTIONAL), common.duplicates, "drop")
        rows.unique_names("name", (*_NEEDED[1:], *_OPTIONAL))
        _resources(rows)
        _specs(rows, cluster)
        if cluster is not None:
            devices = float((rows.frame["gpus"] * rows.frame["compute_milli"]).sum()) / 1000
            report.oversubscription = oversubscription(
                {"all devices, if no pod left": devices},
                {"all devices, if no pod left": cluster.gpu_count},
                "devices",
            )
        _life(rows)
        _class_and_memory(rows, cluster, str(own["memory"]))
        report.time_zone = "none: seconds from the trace's start"
        if cluster is not None:
            report.oversubscription |= capacity_check(rows.frame, cluster)
        keep = (
            *("gpus", "compute_milli", "memory_bytes", "cpu_milli", "host_memory_bytes"),
            *("device_types", "job_class", "leave_s", "outcome"),
        )
        return finish(rows, common, keep=keep, zero="trace", clock="trace", cluster=cluster)


def _cluster(path: Path, nodes: object, report: DataReport) -> Cluster | None:
    if nodes:
        found: Path | None = Path(str(nodes))
    else:
        beside = [path.parent / (name + end) for name in _NODE_LISTS for end in ("", ".gz")]
        found = next((p for p in beside if p.is_file()), None)
    if found is None:
        report.assumptions.append(
            "No node list given or found beside the file: no cluster, no capacity check."
        )
        return None
    report.assumptions.append(f"The cluster is {found.name}.")
    return read_node_list(found)


def _resources(rows: Rows) -> None:
    rows.number("cpu_milli", low=0, integer=True)
    rows.number("memory_mib", low=0, high=1e12)
    rows.number("num_gpu", low=0, high=1e6, integer=True, into="gpus")
    rows.number("gpu_milli", integer=True, into="milli")
    gpus, milli = pl.col("gpus"), pl.col("milli")
    show = pl.format("num_gpu={}, gpu_milli={}", gpus, milli)
    range_text = "thousandths of one device, 1 to 1000"
    low, high = (gpus > 0) & (milli < 1), (gpus > 0) & (milli > 1000)
    rows.drop(low, f"gpu_milli is below 1 for a GPU pod ({range_text})", column="gpu_milli", show=show)
    rows.drop(high, f"gpu_milli is above 1000 ({range_text})", column="gpu_milli", show=show)
    rows.drop((gpus == 0) & (milli != 0), "gpu_milli without num_gpu", column="gpu_milli", show=show)
    rows.flag(
        (gpus > 1) & (milli < 1000),
        "several GPUs of a part each: read as parts of different devices",
        show=show,
    )
    memory = (pl.col("memory_mib") * MIB).ceil().cast(pl.Int64)
    rows.add(compute_milli=pl.when(gpus > 0).then(milli).otherwise(1000), host_memory_bytes=memory)


def _specs(rows: Rows, cluster: Cluster | None) -> None:
    """Alternatives of device types; empty parts are mended, models that the cluster lacks are listed."""
    text = pl.col("gpu_spec").str.strip_chars()
    parts = text.str.split("|").list.eval(pl.element().str.strip_chars())
    clean = parts.list.eval(pl.element().filter(pl.element() != "")).list.unique(maintain_order=True)
    empty_part = (text != "") & parts.list.contains("")
    rows.repair(empty_part, "gpu_spec with an empty part (extra separator), ignored", show=text)
    rows.flag(
        (text != "") & ~empty_part & (parts.list.len() > clean.list.len()),
        "gpu_spec names a model more than once",
        show=text,
    )
    rows.add(device_types=pl.when(text == "").then(pl.lit([], dtype=pl.List(pl.String))).otherwise(clean))
    if cluster is None:
        return
    present = sorted({kind for node in cluster.nodes for kind, _ in node.gpus})
    fits = pl.col("device_types").list.set_intersection(pl.lit(present, dtype=pl.List(pl.String)))
    asked = pl.col("device_types").list.len() > 0
    rows.flag(
        asked & (fits.list.len() == 0),
        "gpu_spec names no model of this cluster: it can never start",
        show=text,
    )
    unknown = sorted(t.name for t in cluster.types if not t.memory_bytes)
    if unknown:
        rows.report.assumptions.append(
            f"Device memory of {', '.join(unknown)} is unknown: nothing is decided on memory there."
        )


def _life(rows: Rows) -> None:
    """Submission, running time and departure from the three times of a pod."""
    for column in _TIMES:
        rows.number(column, empty="null", high=1e15, into=f"{column}_s")
    made, gone, placed = (pl.col(f"{c}_s") for c in _TIMES)
    rows.set_aside(
        made.is_null(),
        "no submission time: arrivals cannot be replayed (lists without times serve packing only)",
    )
    pending = placed.is_null()
    rows.set_aside(pending & gone.is_null(), "never started and no deletion time: running time unknown")
    rows.drop(pending & (gone < made), "deleted before it was created", column="deletion_time")
    rows.drop(pending & (made < 0) & (gone <= 0), "outside the trace's window: ended before time 0")
    rows.flag(
        pending,
        "Pending pod, never placed by the original cluster: offered, leaves at deletion if not started",
    )
    rows.add(leave_s=pl.when(pending).then(gone).otherwise(0.0), start_s=placed.fill_null(made), end_s=gone)
    if rows.frame.select(pending.alias("p"))["p"].any():
        rows.report.assumptions.append(
            "Pending pods: running time taken as deletion - creation; they leave at deletion if not started."
        )
    interval_rules(rows)
    rows.flag(made < 0, "created before the trace's start: submitted at 0")
    rows.add(submit_s=made.clip(0.0))


def _class_and_memory(rows: Rows, cluster: Cluster | None, memory: str) -> None:
    best_effort = pl.col("qos").str.strip_chars() == "BE"
    rows.add(job_class=pl.when(best_effort).then(pl.lit("opportunistic")).otherwise(pl.lit("guaranteed")))
    failed = pl.col("pod_phase").str.strip_chars() == "Failed"
    rows.add(outcome=pl.when(failed).then(pl.lit("failed")).otherwise(pl.lit("done")))
    if "qos" in rows.present:
        rows.report.assumptions.append("Best-effort (BE) pods are opportunistic jobs, all others guaranteed.")
    known = [t.memory_bytes for t in cluster.types if t.memory_bytes] if cluster else []
    part = (pl.col("gpus") > 0) & (pl.col("compute_milli") < 1000)
    size = min(known, default=0) if memory == "proportional" else 0
    needs = (pl.col("compute_milli") * (size // 1000)).cast(pl.Int64)
    rows.add(memory_bytes=pl.when(part).then(needs).otherwise(0))
    if size:
        rows.report.assumptions.append(
            "Device memory is not in the trace: a pod with part of a device is taken to need the same part of "
            f"{size // MIB:,} MiB, the smallest known device memory of the cluster."
        )
