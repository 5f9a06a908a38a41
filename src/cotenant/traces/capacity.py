"""Demand against capacity: does a trace ask for more than its cluster has?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from cotenant.model.cluster import Cluster

__all__ = ["capacity_check", "oversubscription", "peak_demand"]


def peak_demand(start_s: Any, end_s: Any, amount: Any) -> float:
    """Largest sum of ``amount`` over intervals ``[start, end)``.

    >>> peak_demand([0, 5, 10], [10, 15, 20], [1, 2, 4])
    6.0
    """
    start, end = np.asarray(start_s, float), np.asarray(end_s, float)
    size = np.asarray(amount, float)
    if not size.size:
        return 0.0
    when = np.concatenate([start, end])
    change = np.concatenate([size, -size])
    order = np.lexsort((change, when))  # at one instant, ends come first
    return max(0.0, float(np.cumsum(change[order]).max()))


def oversubscription(demand: Mapping[str, float], capacity: Mapping[str, float], unit: str) -> dict[str, Any]:
    """Peak demand against capacity for each type, for ``DataReport.oversubscription``.

    ``percent`` is null where there is no capacity.
    """
    return {
        kind: {
            "peak": round(demand.get(kind, 0.0), 3),
            "capacity": round(capacity.get(kind, 0.0), 3),
            "unit": unit,
            "percent": round(100 * demand.get(kind, 0.0) / capacity[kind], 1) if capacity.get(kind) else None,
        }
        for kind in sorted({*demand, *capacity})
    }


def capacity_check(frame: pl.DataFrame, cluster: Cluster) -> dict[str, Any]:
    """Peak demand against capacity, for ``DataReport.oversubscription``.

    Demand lasts from ``submit_s`` to ``end_s`` (waiting included). Given are all devices, each
    type that some jobs insist on (one type only), cores and host memory.

    Parameters
    ----------
    frame : polars.DataFrame
        ``submit_s``, ``end_s``, ``gpus``, ``compute_milli``, ``device_types``, ``cpu_milli``,
        ``host_memory_bytes``.
    """
    frame = frame.with_columns(devices=pl.col("gpus") * pl.col("compute_milli") / 1000)
    start, end = frame["submit_s"], frame["end_s"]
    sizes = {t.name: 0.0 for t in cluster.types}
    for node in cluster.nodes:
        for kind, count in node.gpus:
            sizes[kind] += count
    demand = {"all devices": peak_demand(start, end, frame["devices"])}
    capacity = {"all devices": float(cluster.gpu_count)}
    only = frame.filter(pl.col("device_types").list.len() == 1).with_columns(
        kind=pl.col("device_types").list.first()
    )
    for kind in sorted(set(only["kind"].to_list())):
        part = only.filter(pl.col("kind") == kind)
        demand[f"{kind} only"] = peak_demand(part["submit_s"], part["end_s"], part["devices"])
        capacity[f"{kind} only"] = sizes.get(kind, 0.0)
    found = oversubscription(demand, capacity, "devices")
    cores = peak_demand(start, end, frame["cpu_milli"]) / 1000
    total_cores = sum(node.cpu_milli for node in cluster.nodes) / 1000
    found |= oversubscription({"cores": cores}, {"cores": total_cores}, "cores")
    gib = peak_demand(start, end, frame["host_memory_bytes"]) / 2**30
    total_gib = sum(node.host_memory_bytes for node in cluster.nodes) / 2**30
    if gib or total_gib:
        found |= oversubscription({"host memory": gib}, {"host memory": total_gib}, "GiB")
    return found
