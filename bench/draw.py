"""The workload of the benchmarks, drawn with array operations.

Gangs of 1, 2, 4 and 8 with probabilities .70, .10, .12, .08; durations int(1800 exp(1.5 N))
clipped to [60, 604,800] s; exponential gaps between arrivals; 26 kinds of 1 to 12 GiB on
devices of 32 GiB; estimates that are wrong by a lognormal factor of sigma 0.5.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.workload import Workload
from cotenant.profiles.kinds import MIXES

__all__ = ["SHAPES", "draw", "offered_load"]

GIB = 1 << 30
SHAPES = ("poisson", "zero", "blocked")
"""Poisson arrivals; all jobs at time 0; most jobs blocked on an exhausted device type."""

_GANGS = (np.array([1, 2, 4, 8]), np.array([0.70, 0.10, 0.12, 0.08]))
_DEVICE = DeviceType(name="gpu-32g", memory_bytes=32 * GIB)
_SCARCE = DeviceType(name="scarce-32g", memory_bytes=32 * GIB)
_PER_NODE = 8


def draw(
    jobs: int, devices: int, load: float, *, shape: str = "poisson", seed: int = 0
) -> tuple[Workload, Cluster]:
    """Jobs and the cluster they are meant for.

    Parameters
    ----------
    jobs, devices : int
    load : float
        Device-seconds that arrive in a second, divided by the number of devices: above 1 the
        cluster cannot keep up without sharing. Only ``poisson`` heeds it.
    shape : {"poisson", "zero", "blocked"}
    seed : int

    Returns
    -------
    Workload, Cluster
    """
    rng = np.random.default_rng(seed)
    gpus = rng.choice(_GANGS[0], jobs, p=_GANGS[1])
    seconds = np.clip(np.floor(1800.0 * np.exp(1.5 * rng.standard_normal(jobs))), 60.0, 604_800.0)
    kind = rng.integers(0, len(MIXES["gavel"]), jobs)
    wrong = np.exp(0.5 * rng.standard_normal(jobs))
    gaps = rng.exponential(1.0, jobs)
    columns = {
        "name": pl.Series(np.arange(jobs)).cast(pl.String),
        "submit_s": np.zeros(jobs),
        "duration_s": seconds,
        "gpus": gpus,
        "model": np.array(list(MIXES["gavel"]), dtype=object)[kind],
        "memory_bytes": (1 + kind * 11 // (len(MIXES["gavel"]) - 1)) * GIB,
        "estimate_s": seconds * wrong,
    }
    cluster = Cluster.uniform(devices, gpus_per_node=_PER_NODE, gpu_type=_DEVICE)
    if shape == "poisson":
        columns["submit_s"] = np.cumsum(gaps) * (gpus * seconds).mean() / (devices * load)
    frame = pl.DataFrame(columns)
    if shape == "blocked":
        frame, cluster = _blocked(frame, devices, rng)
    return Workload(frame, name=f"{shape}-{jobs}"), cluster


def _blocked(frame: pl.DataFrame, devices: int, rng: np.random.Generator) -> tuple[pl.DataFrame, Cluster]:
    """Nine jobs in ten want a type whose only node is taken for a week; the first that fits is half-way.

    The first eight jobs take that node whole. None of the first half of the rest can start
    before they end.
    """
    jobs, at = frame.height, np.arange(frame.height)
    free = rng.random(jobs) < 0.2
    takes, free = at < _PER_NODE, free & (at >= jobs // 2)
    wants = np.where(free, _DEVICE.name, _SCARCE.name).tolist()
    frame = frame.with_columns(
        gpus=pl.when(pl.Series(takes)).then(1).otherwise("gpus"),
        duration_s=pl.when(pl.Series(takes)).then(604_800.0).otherwise("duration_s"),
        memory_bytes=pl.when(pl.Series(takes)).then(32 * GIB).otherwise("memory_bytes"),
        device_types=pl.Series([[name] for name in wants], dtype=pl.List(pl.String)),
    )
    nodes = [Node(name="scarce", gpus=((_SCARCE.name, _PER_NODE),))]
    whole = max(devices // _PER_NODE - 1, 1)
    nodes += [Node(name=f"n{i}", gpus=((_DEVICE.name, _PER_NODE),)) for i in range(whole)]
    return frame, Cluster(nodes=tuple(nodes), types=(_DEVICE, _SCARCE))


def offered_load(workload: Workload, cluster: Cluster) -> float:
    """The load that was really drawn; 0 if all jobs come at once."""
    frame = workload.frame
    span_s = float(frame["submit_s"][-1]) - float(frame["submit_s"][0])
    work = float((frame["gpus"] * frame["duration_s"]).sum())
    return work / (span_s * cluster.gpu_count) if span_s else 0.0
