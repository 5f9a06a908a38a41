"""Pools for the ``polardb`` experiment: a state tier that changes its size, and host memory near and far."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from cotenant.experiments.base import Table
from cotenant.experiments.simulate import metrics_of
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.poolevents import Stored, TierResized
from cotenant.model.pools import HostPool, StateTier
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.runs.prepare import Prepared

__all__ = ["SIZES_GB", "elasticity", "near_and_far"]

SIZES_GB = (8, 80, 48, 128)
"""Of the memory pool, one after the other, as in the paper's figure."""
_GB = 10**9
_NEAR_GIB = (0, 4, 8, 16, 32, 64)
_HOST_GIB = ((16, 0.5), (48, 0.3), (160, 0.2))
"""Host memory of a job for each device, and its weight."""
_MOST_GIB = 448


class Phases:
    """What happens between resizes: states stored, time from resumption to work, completion times of the jobs submitted.

    Parameters
    ----------
    starts_s : sequence of float
        When each phase begins, ascending.
    """

    def __init__(self, starts_s: Sequence[float]) -> None:
        self._starts = list(starts_s)
        self.stored: list[list[int]] = [[] for _ in starts_s]
        self.resumed_s: list[list[float]] = [[] for _ in starts_s]
        self.jct_s: list[list[float]] = [[] for _ in starts_s]
        self._submitted: dict[int, float] = {}
        self._resuming: dict[int, float] = {}

    def see(self, events: list[ev.Event]) -> None:
        """Take the next events."""
        for event in events:
            phase = self._phase(event.t)
            if isinstance(event, ev.Submitted):
                self._submitted[event.job.id] = event.t
            elif isinstance(event, Stored):
                self.stored[phase].append(event.tier)
            elif isinstance(event, ev.Started) and event.resumed:
                self._resuming[event.id] = event.t
            elif isinstance(event, ev.Rated) and event.rate > 0.0:
                if (since := self._resuming.pop(event.id, None)) is not None:
                    self.resumed_s[phase].append(event.t - since)
            elif isinstance(event, ev.Ended):
                self._resuming.pop(event.id, None)
                if event.final and event.outcome == "done":
                    submitted_s = self._submitted[event.id]
                    self.jct_s[self._phase(submitted_s)].append(event.t - submitted_s)

    def _phase(self, t: float) -> int:
        return max(0, bisect_right(self._starts, t) - 1)

    def row(self, phase: int) -> dict[str, Any]:
        """Figures of a phase."""
        stored = self.stored[phase]
        return {
            "states_stored": len(stored),
            "fast_share": stored.count(0) / len(stored) if stored else None,
            "resume_s_mean": _mean(self.resumed_s[phase]),
            "jct_s_mean": _mean(self.jct_s[phase]),
            "jobs_submitted": len(self.jct_s[phase]),
        }


def elasticity(base: Prepared, seed: int) -> tuple[dict[str, Any], dict[str, Any], list[Table]]:
    """Run ``las`` while the fast tier goes through ``SIZES_GB``, and with each size all the time.

    The fast tier moves 10 GB/s in all, the store behind it, without bounds, 0.2 GB/s. Phases are equal parts of the time
    in which jobs arrive; the last lasts until all have ended.

    Returns
    -------
    smallest, largest : dict
        Figures of the smallest and the largest size, each all the time.
    tables : list of Table
    """
    last_s = float(base.workload.frame["submit_s"].max() or 0.0)  # type: ignore[arg-type]
    starts = [last_s * i / len(SIZES_GB) for i in range(len(SIZES_GB))]
    phases = _phases(base, seed, list(zip(starts, SIZES_GB, strict=True)))
    resized = [{"tier": f"{size} GB", **phases.row(i)} for i, size in enumerate(SIZES_GB)]
    fixed = [{"tier": f"{size} GB", **_phases(base, seed, [(0.0, size)]).row(0)} for size in sorted(SIZES_GB)]
    tables = [
        Table(title="The fast state tier changes its size under load (las)", rows=resized),
        Table(title="The same with one size all the time", rows=fixed),
    ]
    return fixed[0], fixed[-1], tables


def _phases(base: Prepared, seed: int, sizes: list[tuple[float, int]]) -> Phases:
    """One run in which the fast tier has these sizes in GB from these times on."""
    tiers = (
        StateTier(name="memory", bytes_per_s=10e9, capacity_bytes=sizes[0][1] * _GB),
        StateTier(name="store", bytes_per_s=0.2e9),
    )
    phases = Phases([t for t, _ in sizes])
    metrics_of(
        msgspec.structs.replace(
            base,
            cluster=msgspec.structs.replace(base.cluster, state_tiers=tiers),
            settings=Settings(state_bytes_per_s=4e9, min_quantum_s=300.0),
            incidents=tuple(TierResized(t, 0, size * _GB, "resize") for t, size in sizes[1:]),
        ),
        "las",
        seed,
        observers=[phases],
    )
    return phases


def near_and_far(base: Prepared, seed: int) -> tuple[dict[str, float], Table]:
    """Jobs that need host memory: from their own nodes, and from a pool with more or less of it beside the devices.

    All clusters have the same memory in all: what lies beside the devices is taken from the pool.
    """
    rng = np.random.default_rng((seed, 8))
    sizes = np.array([size for size, _ in _HOST_GIB]) * GIB
    drawn = sizes[rng.choice(len(sizes), len(base.workload), p=[weight for _, weight in _HOST_GIB])]
    frame = base.workload.frame
    most = _MOST_GIB * GIB  # so that every job fits on a node by itself
    host = pl.Series("host_memory_bytes", np.minimum(drawn * frame["gpus"].to_numpy(), most), dtype=pl.Int64)
    workload = base.workload.with_frame(frame.with_columns(host), "host memory drawn")
    each = 64 * GIB
    cluster = base.cluster
    own = tuple(
        msgspec.structs.replace(node, host_memory_bytes=each * sum(n for _, n in node.gpus))
        for node in cluster.nodes
    )
    worlds = {"each node its own": msgspec.structs.replace(cluster, nodes=own)}
    for near in _NEAR_GIB:
        if near * GIB < each:
            worlds[f"pool, {near} GiB near"] = _pooled(cluster, near * GIB, each)
    found, rows = {}, []
    for label, world in worlds.items():
        told = msgspec.structs.replace(base, workload=workload, cluster=world)
        summary = metrics_of(told, "fifo:head_of_line=no", seed).summary
        found[label] = float(summary["jct_s_mean"] or 0.0)
        keys = ("jct_s_mean", "jct_s_median", "wait_s_mean", "makespan_s", "jobs_finished")
        rows.append({"host_memory": label, **{key: summary[key] for key in keys}})
    return found, Table(title="Host memory: near, far, or each node its own (equal in all)", rows=rows)


def _pooled(cluster: Cluster, near: int, each: int) -> Cluster:
    pool = HostPool(
        name="memory",
        host_memory_bytes=(each - near) * cluster.gpu_count,
        link_bytes_per_s=12.5e9,
        local_bytes=near,
        touch_s=30.0,
    )
    return msgspec.structs.replace(cluster, host_pools=(pool,)).check()


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
