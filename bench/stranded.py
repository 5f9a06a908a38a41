"""Devices that nobody can use because their node has no cores or memory left, with and without host pools.

    python -m bench.stranded [--part 4] [--load 1.2] [--seeds 3] [--data FOLDER]

Jobs are drawn from a trace, with replacement, and offered one by one to the ``best-fit`` policy; none ever
ends. Once the devices asked for are ``--load`` times those there are, we look. *Idle* devices are counted in parts, as
they are given out; *host* are those of the idle that some job that waits (or that no node can hold) would fit on, had its node the cores
and memory for it. The rest of the idle is lost to other things (fragments, device types).

openb (2023): every ``--part``-th node of the real list, with its own cores and memory. DLRM (2025): the trace has no
nodes. An instance's pre-processing runs apart from its device there (CN and HN roles); we put it back
together: each HN instance with an equal part of the cores and memory of its service's CN instances. The hardware is
exactly what the drawn jobs ask for on average for each device, in the shapes that the rows name.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from cotenant import registry
from cotenant.engine.loop import Loop
from cotenant.engine.state import State
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.plan import Plan
from cotenant.model.pools import HostPool
from cotenant.model.quantities import GIB
from cotenant.model.shape import Shape, host_fits
from cotenant.model.view import View
from cotenant.model.workload import Workload
from cotenant.traces.load import read_trace

DATA = Path(os.environ.get("COTENANT_DATA", "../shared/data"))
_FOR_EVER_S = 1e9


class Until:
    """A policy that ends the run at a time, after deciding."""

    idle_without_queue = False

    def __init__(self, policy: Any, end_s: float) -> None:
        self.policy, self.end_s = policy, end_s
        self.loop: Loop | None = None

    def decide(self, view: View) -> Plan:
        """Decide as the policy does."""
        if view.now >= self.end_s and self.loop is not None:
            self.loop.stop()
        plan: Plan = self.policy.decide(view)
        return plan


def filled(frame: pl.DataFrame, cluster: Cluster, load: float, seed: int) -> State:
    """The state of a cluster that was offered ``load`` times its devices."""
    workload = Workload(_drawn(frame, cluster, load, seed), name="drawn")
    policy = Until(registry.load("policy", "best-fit")(), float(len(workload) - 1))
    loop = Loop(cluster=cluster, policy=policy, executor=SimulatedExecutor(workload, cluster), seed=seed)
    policy.loop = loop
    return loop.run()


def _drawn(frame: pl.DataFrame, cluster: Cluster, load: float, seed: int) -> pl.DataFrame:
    """Jobs, one a second, that never end."""
    rng = np.random.default_rng(seed)
    parts = np.full(len(frame), 1000)
    if "compute_milli" in frame.columns:
        told = frame["compute_milli"].to_numpy()
        parts = np.where((told > 0) & (told < 1000), told, 1000)
    asked = frame["gpus"].to_numpy() * parts / 1000.0
    count = int(2.0 * load * cluster.gpu_count / asked.mean()) + 100
    rows = rng.integers(0, len(frame), count)
    last = int(np.searchsorted(np.cumsum(asked[rows]), load * cluster.gpu_count))
    return frame[rows[: last + 1]].with_columns(
        pl.Series("name", [f"j{i}" for i in range(last + 1)]),
        pl.Series("submit_s", np.arange(last + 1, dtype=float)),
        pl.lit(_FOR_EVER_S).alias("duration_s"),
    )


def idle_gpus(state: State) -> tuple[float, float]:
    """Devices not given out, and those of them that lack only their host, in whole devices."""
    ledger, layout = state.ledger, state.layout
    waiting = list({id(r.shape): r.shape for r in state.queue if r.job.gpus}.values())
    waiting += [shape for shape in state.shapes if shape.never and shape.gpus]
    idle = lost = 0
    for bay, size in enumerate(layout.bay_size):
        first = layout.bay_first[bay]
        free = [ledger.free_milli[d] for d in range(first, first + size)]
        idle += sum(free)
        if any(free) and any(_lacks_host(state, shape, bay, free) for shape in waiting):
            lost += sum(free)
    return idle / 1000.0, lost / 1000.0


def _lacks_host(state: State, shape: Shape, bay: int, free: list[int]) -> bool:
    """Whether a waiting demand fits on a bay's devices, and only cores or memory are missing."""
    if state.layout.bay_type[bay] not in shape.types:
        return False
    need = shape.compute_milli or 1000
    if shape.gpus > 1 or need >= 1000:
        fits = sum(1 for part in free if part == 1000) >= shape.gpus
    else:
        fits = max(free) >= need
    return fits and not host_fits(state.ledger, shape, bay, shape.gpus)


def openb(data: Path, part: int) -> tuple[pl.DataFrame, list[tuple[str, Cluster]]]:
    """Pods and every ``part``-th node, with pools of several kinds."""
    workload = read_trace(data / "traces/openb2023/openb_pod_list_default.csv")
    assert workload.cluster is not None
    cluster = msgspec.structs.replace(workload.cluster, nodes=workload.cluster.nodes[::part])
    names = [node.name for node in cluster.nodes]
    with_gpus = tuple(node.name for node in cluster.nodes if node.gpus)
    sixteen = tuple(HostPool(name=f"p{i}", nodes=with_gpus[i : i + 16]) for i in range(0, len(with_gpus), 16))
    kinds: list[tuple[str, tuple[HostPool, ...]]] = [
        ("each node its own", ()),
        ("pools of 16 GPU nodes", sixteen),
        ("one pool of all GPU nodes", (HostPool(name="p", nodes=with_gpus),)),
        ("one pool of all nodes", (HostPool(name="p", nodes=tuple(names)),)),
    ]
    clusters = [(f"openb: {name}", msgspec.structs.replace(cluster, host_pools=p)) for name, p in kinds]
    return workload.frame, clusters


def dlrm(data: Path, gpus: int = 512) -> tuple[pl.DataFrame, list[tuple[str, Cluster]]]:
    """Instances put together again, and nodes of the average demand in several shapes."""
    path = data / "traces/dlrm2025/disaggregated_DLRM_trace_first_half.csv.gz"
    frame = read_trace(path, cut_off="end").frame
    whole = frame.group_by("tenant").agg(
        cpu=pl.col("cpu_milli").filter(pl.col("gpus") == 0).sum(),
        memory=pl.col("host_memory_bytes").filter(pl.col("gpus") == 0).sum(),
        instances=(pl.col("gpus") > 0).sum(),
    )
    jobs = frame.filter(pl.col("gpus") > 0).join(whole, on="tenant")
    jobs = jobs.with_columns(
        (pl.col("cpu_milli") + pl.col("cpu") // pl.col("instances")).alias("cpu_milli"),
        (pl.col("host_memory_bytes") + pl.col("memory") // pl.col("instances")).alias("host_memory_bytes"),
    ).select(frame.columns)
    each = int(jobs["gpus"].sum())
    cores, memory = int(jobs["cpu_milli"].sum()) // each, int(jobs["host_memory_bytes"].sum()) // each
    kind = DeviceType(name="gpu")
    clusters = []
    for size in (1, 2, 8):
        nodes = tuple(
            Node(name=f"n{i}", gpus=(("gpu", size),), cpu_milli=cores * size, host_memory_bytes=memory * size)
            for i in range(gpus // size)
        )
        clusters.append((f"DLRM: {size} GPUs a node, average cores", Cluster(nodes=nodes, types=(kind,))))
    split = tuple(_split(gpus, cores, memory))
    clusters.append(
        ("DLRM: 8 GPUs and 128 cores a node, rest in CPU nodes", Cluster(nodes=split, types=(kind,)))
    )
    pool = (HostPool(name="p"),)
    clusters.append(("DLRM: one pool", Cluster(nodes=split, types=(kind,), host_pools=pool)))
    return jobs, clusters


def _split(gpus: int, cores: int, memory: int) -> Iterator[Node]:
    """The same hardware as servers are sold: GPU servers with 128 cores and 1 TiB, the rest in CPU servers."""
    for i in range(gpus // 8):
        yield Node(name=f"g{i}", gpus=(("gpu", 8),), cpu_milli=128_000, host_memory_bytes=1024 * GIB)
    rest = gpus * cores - gpus // 8 * 128_000
    left = gpus * memory - gpus // 8 * 1024 * GIB
    count = rest // 128_000
    for i in range(count):
        yield Node(name=f"c{i}", cpu_milli=128_000, host_memory_bytes=left // count)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", type=int, default=4)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    print("| hosts | GPUs | given out % | idle | idle for want of host | jobs not placed |")
    print("|---|---|---|---|---|---|")
    for frame, clusters in (openb(args.data, args.part), dlrm(args.data)):
        for name, cluster in clusters:
            found = []
            for seed in range(args.seeds):
                state = filled(frame, cluster, args.load, seed)
                idle, lost = idle_gpus(state)
                waits = sum(1 for record in state.queue if record.job.gpus) + state.counts["rejected"]
                found.append((100.0 * (1.0 - idle / cluster.gpu_count), idle, lost, float(waits)))
            cells = [
                f"{statistics.mean(values):.1f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.1f}"
                for values in zip(*found, strict=True)
            ]
            print(f"| {name} | {cluster.gpu_count} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
