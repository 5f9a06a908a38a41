"""Policies of which the workload or the cluster leaves no more than a plain queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import polars as pl

from cotenant.model.cluster import Cluster
from cotenant.model.workload import Workload

__all__ = ["unmet"]


class _Need(NamedTuple):
    met: Callable[[Workload, Cluster], bool]
    words: str


def _elastic(workload: Workload, cluster: Cluster) -> bool:
    if not {"min_gpus", "max_gpus"} <= set(workload.frame.columns):
        return False
    low, high = pl.col("min_gpus"), pl.col("max_gpus")
    return bool(workload.frame.select(((low > 0) & (low < high)).any()).item())


def _fractions(workload: Workload, cluster: Cluster) -> bool:
    if "compute_milli" not in workload.frame.columns:
        return False
    return bool(workload.frame.select((pl.col("compute_milli") < 1000).any()).item())


def _tenants(workload: Workload, cluster: Cluster) -> bool:
    # Where no tenant has a quota, ceilings or equal parts of those named take its place.
    return bool(cluster.tenants)


_NEEDS = {
    "elastic-jobs": _Need(
        _elastic, "no job is elastic (min_gpus below max_gpus), so none ever changes its number of devices"
    ),
    "fractions": _Need(
        _fractions, "no job asks for a part of a device (compute_milli below 1000), so none is shared"
    ),
    "tenants": _Need(
        _tenants, "the cluster names no tenants ([[tenants]] in a cluster file), so all share one part"
    ),
}


def unmet(policies: Iterable[tuple[str, Any]], workload: Workload, cluster: Cluster) -> list[str]:
    """One sentence for each policy whose ``made_for`` does not occur.

    Parameters
    ----------
    policies : iterable of (str, policy)
        Name as asked for, and the policy. ``made_for``, if it has one, is ``elastic-jobs``, ``fractions`` or
        ``tenants``; anything else is taken to be met.
    """
    told = []
    for name, policy in policies:
        need = _NEEDS.get(str(getattr(policy, "made_for", "")))
        if need is not None and not need.met(workload, cluster):
            told.append(f"{name}: {need.words}; little is left of what it is made for")
    return told
