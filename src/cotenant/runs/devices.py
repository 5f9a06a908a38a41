"""Clusters given as a number of devices, and what must be said about devices of unknown memory."""

from __future__ import annotations

import polars as pl

from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.quantities import GIB, format_bytes
from cotenant.model.workload import Workload

__all__ = ["cluster_of", "unknown_memory"]

_ASSUMED = ("V100", "V100-32GB")
"""Both have speed 1.0, so the choice changes no running time of a job alone."""


def cluster_of(
    gpus: int, gpus_per_node: int, gpu_type: str | None, workload: Workload
) -> tuple[Cluster, tuple[str, ...]]:
    """Equal nodes, and what was assumed about them.

    Without a type the devices are V100s of 16 GB, or of 32 GB where a job asks for more than
    16; where a job asks for more than that, their memory stays unknown.

    Raises
    ------
    ConfigError
        If a count is not positive or too large.
    """
    from cotenant.traces.clusterfile import cluster_from_options

    if gpu_type is not None:
        return cluster_from_options(gpus, gpus_per_node, gpu_type), ()
    name, said = _assumed(workload)
    return cluster_from_options(gpus, gpus_per_node, name), (said,)


def _assumed(workload: Workload) -> tuple[str, str]:
    from cotenant.profiles.catalogue import device_type

    largest = _largest_bytes(workload)
    how = "give --gpu-type or --cluster"
    for kind in map(device_type, _ASSUMED):
        if largest <= kind.memory_bytes:
            others = _naming_others(workload, kind)
            and_so = f" ({others:,} jobs name other device types and cannot run)" if others else ""
            size = round(kind.memory_bytes / GIB)
            return kind.name, f"device type not given: V100 with {size} GB assumed{and_so}; {how}"
    asked = format_bytes(largest)
    return "gpu", f"device type not given, and a job needs {asked}, more than a V100 has: {how}"


def _largest_bytes(workload: Workload) -> int:
    """The most memory that a job declares on each device, or that its model is known to need."""
    from cotenant.profiles.kinds import find_kind

    frame = workload.frame
    declared = frame["memory_bytes"].max() if "memory_bytes" in frame.columns else None
    sizes = [declared if isinstance(declared, int) else 0]
    if "model" in frame.columns:
        blank = pl.col("memory_bytes") == 0 if "memory_bytes" in frame.columns else pl.lit(value=True)
        models = frame.filter(blank)["model"].unique().to_list()
        sizes += [kind.memory_bytes for name in models if name and (kind := find_kind(name)) is not None]
    return max(sizes)


def _naming_others(workload: Workload, kind: DeviceType) -> int:
    if "device_types" not in workload.frame.columns:
        return 0
    named = pl.col("device_types")
    return workload.frame.filter((named.list.len() > 0) & ~named.list.contains(kind.name)).height


def unknown_memory(cluster: Cluster) -> list[str]:
    """A sentence where devices of unknown memory are among the cluster's; else nothing."""
    used = {kind for node in cluster.nodes for kind, _ in node.gpus}
    names = [kind.name for kind in cluster.types if not kind.memory_bytes and kind.name in used]
    if not names:
        return []
    types, them = ("type", "it") if len(names) == 1 else ("types", "them")
    return [f"device memory of {types} {', '.join(names)} is not known: no policy can share {them}"]
