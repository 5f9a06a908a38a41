"""What is known of each job before it shares a device: features of solo runs.

A *node* is a job configuration in a *world*, that is in one campaign on one device type: the
same job is another node on another device. A feature that was not measured is missing (NaN),
never zero; ``NodeTable`` standardises features over worlds that share jobs and puts the mean in
place of what is missing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.graphs import graph_features
from cotenant.predictors.interference.usage import Usage, iteration_s, usage_of
from cotenant.profiles.runs import JobConfig, SoloRun

__all__ = ["FEATURES", "Node", "NodeTable", "SoloIndex", "World"]

World = tuple[str, str]
"""Campaign and device type."""
Node = tuple[JobConfig, World]

FEATURES = (
    "log2_batch",
    "log2_iteration_s",
    "log2_memory",
    "amp",
    "gpu_util",
    "mem_util",
    "gain_slowest",
    "gain_middle",
    "saturation",
    "num_gpus",
    "first_stage",
    "last_stage",
    "largest_stage",
    "tensor_parallel",
    "data_parallel",
    "baseline",
    "log2_dram",
    "sm_efficiency",
    "log2_flops",
    "log2_kernels",
    "log2_kernel_flops",
    "log2_intensity",
    "log2_graph_mib",
)
"""Columns, in order.

``gain_slowest`` and ``gain_middle`` are the logarithm of the job's speed on the fastest device
type of its campaign over that on the slowest and on the median one: a job that gains little is
not bound by the device. ``saturation`` is the exponent with which iteration time grows with the
batch: near 1 for a busy device, near 0 for an idle one. ``baseline`` compares the solo run with
those of other campaigns on the same device type: a baseline that is too slow raises every speed
beside others. Stages are layers per device over an even split, for models cut into pipelines. Arithmetic
of one step, its kernels, arithmetic per kernel and per byte come from the model's graph, where
that is known, and count only where no iteration time was measured; memory from the graph serves
feasibility alone.
"""


_INCOMPARABLE = 3.0
_FROM_GRAPHS = ("log2_flops", "log2_kernels", "log2_kernel_flops", "log2_intensity", "log2_graph_mib")


class SoloIndex:
    """Solo runs by job and world.

    Parameters
    ----------
    runs : sequence of SoloRun
        Of several runs of one job in one world the first one counts.
    """

    def __init__(self, runs: Iterable[SoloRun]) -> None:
        self.by_job: dict[JobConfig, dict[World, SoloRun]] = defaultdict(dict)
        for run in runs:
            self.by_job[run.job].setdefault((run.source, run.device_type), run)
        self._variants: dict[tuple[object, ...], list[JobConfig]] = defaultdict(list)
        for job in self.by_job:
            self._variants[_but_batch(job)].append(job)

    def run(self, job: JobConfig, world: World) -> SoloRun | None:
        """The job alone in this world, if it was measured."""
        return self.by_job.get(job, {}).get(world)

    def jobs(self, world: World) -> list[JobConfig]:
        """Jobs with a solo run in this world, in order."""
        return sorted(job for job, runs in self.by_job.items() if world in runs)

    def features(self, job: JobConfig, world: World) -> list[float]:
        """One value for each of ``FEATURES``; NaN where nothing is known."""
        run = self.run(job, world)
        found = dict.fromkeys(FEATURES, math.nan)
        found["num_gpus"] = float(job.num_gpus)
        if job.batch:
            found["log2_batch"] = math.log2(job.batch)
        if job.amp >= 0:
            found["amp"] = float(job.amp)
        found.update(_stages(job))
        found.update(graph_features(job))
        if run is None:
            return list(found.values())
        if run.mem_mib:
            found["log2_memory"] = math.log2(run.mem_mib)
        found["gpu_util"] = math.nan if run.gpu_util is None else run.gpu_util / 100.0
        found["mem_util"] = math.nan if run.mem_util is None else run.mem_util / 100.0
        found.update(_counters(run.counters))
        seconds = iteration_s(run)
        if seconds is not None:
            found["log2_iteration_s"] = math.log2(seconds)
            found["saturation"] = self._saturation(run, world, seconds)
            found.update(self._other_devices(job, world))
            found["baseline"] = self._baseline(run)
        return list(found.values())

    def _saturation(self, run: SoloRun, world: World, seconds: float) -> float:
        slopes: list[tuple[float, float]] = []
        for other in self._variants[_but_batch(run.job)]:
            there = self.run(other, world)
            theirs = None if there is None else iteration_s(there)
            if theirs is None or not other.batch or not run.job.batch or other.batch == run.job.batch:
                continue
            distance = math.log2(other.batch / run.job.batch)
            slopes.append((abs(distance), math.log2(theirs / seconds) / distance))
        if not slopes:
            return math.nan
        nearest = min(distance for distance, _ in slopes)
        near = [slope for distance, slope in slopes if distance == nearest]
        return float(np.clip(np.mean(near), -0.5, 1.5))

    def _other_devices(self, job: JobConfig, world: World) -> dict[str, float]:
        speeds = sorted(
            run.throughput
            for (source, _), run in self.by_job[job].items()
            if source == world[0] and run.throughput
        )
        if len(speeds) < 2:
            return {}
        middle = speeds[len(speeds) // 2] if len(speeds) > 2 else math.nan
        return {
            "gain_slowest": math.log2(speeds[-1] / speeds[0]),
            "gain_middle": math.log2(speeds[-1] / middle) if len(speeds) > 2 else math.nan,
        }

    def agreed(self, job: JobConfig, world: World) -> float:
        """Speed of this run alone over the speed alone on which campaigns would agree.

        That is the geometric mean of this run and the fastest on the same device type, at most
        1; where they differ by more than a factor of three they did not run the same thing.
        """
        run = self.run(job, world)
        if run is None or not run.throughput:
            return 1.0
        best = max(
            other.throughput or 0.0
            for (_, device), other in self.by_job[job].items()
            if device == run.device_type and other.unit == run.unit
        )
        ratio = best / run.throughput
        return 1.0 if ratio > _INCOMPARABLE else 1.0 / math.sqrt(ratio)

    def _baseline(self, run: SoloRun) -> float:
        ratios = [
            math.log2(other.throughput / run.throughput)
            for (source, device), other in self.by_job[run.job].items()
            if device == run.device_type and source != run.source
            if other.unit == run.unit and other.throughput and run.throughput
        ]
        return float(np.clip(np.mean(ratios), -1.5, 1.5)) if ratios else math.nan


def _but_batch(job: JobConfig) -> tuple[object, ...]:
    return job.model, job.dataset, job.amp, job.num_gpus, job.parallel


def _stages(job: JobConfig) -> dict[str, float]:
    parts = job.parallel.split(",")
    if len(parts) > 1 and all(part.strip().isdigit() for part in parts):
        layers = [int(part) for part in parts]
        even = max(sum(layers), 1) / len(layers)
        cut = {
            "first_stage": layers[0] / even,
            "last_stage": layers[-1] / even,
            "largest_stage": max(layers) / even,
        }
        return {**cut, "tensor_parallel": 0.0, "data_parallel": 0.0}
    tensor = float(job.parallel.upper().startswith("TP"))
    whole = dict.fromkeys(("first_stage", "last_stage", "largest_stage"), 1.0)
    return {**whole, "tensor_parallel": tensor, "data_parallel": 1.0 - tensor}


def _counters(counters: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    moved = [
        counters[name] for name in ("dram_read_throughput_tw", "dram_write_throughput_tw") if name in counters
    ]
    if moved and sum(moved) > 0:
        found["log2_dram"] = math.log2(sum(moved))
    if "sm_efficiency_tw" in counters:
        found["sm_efficiency"] = counters["sm_efficiency_tw"] / 100.0
    return found


class NodeTable:
    """Nodes of worlds that share jobs, with standardised features.

    Parameters
    ----------
    solos : SoloIndex
    nodes : sequence of Node
        Those that decide means and scales; others may be added later and change neither.

    Attributes
    ----------
    z : ndarray, shape (nodes, features in use)
    raw : ndarray, shape (nodes, len(FEATURES))
    family, config, world : ndarray of intp, shape (nodes,)
        Numbers of each node's architecture, configuration and world.
    usage : ndarray, shape (nodes, len(usage.COLUMNS))
        What each job does with the device when alone.
    agreed : ndarray, shape (nodes,)
        By what speeds are multiplied before effects are learnt: 1, but for worlds whose
        baselines are in doubt (``doubt``) as in ``SoloIndex.agreed``.
    """

    def __init__(self, solos: SoloIndex, nodes: Sequence[Node]) -> None:
        self.solos = solos
        self.ids: dict[Node, int] = {}
        self.names: list[Node] = []
        self._families: dict[str, int] = {}
        self._configs: dict[JobConfig, int] = {}
        self._worlds: dict[World, int] = {}
        self.worlds: list[World] = []
        self._doubted: frozenset[World] = frozenset()
        self._use = Usage()
        self.raw = np.zeros((0, len(FEATURES)))
        self.family = self.config = self.world = np.zeros(0, np.intp)
        self._append(nodes)
        known = np.isfinite(self.raw)
        count = np.maximum(known.sum(axis=0), 1)
        filled = np.where(known, self.raw, 0.0)
        self._mean = filled.sum(axis=0) / count
        spread = np.sqrt((np.where(known, self.raw - self._mean, 0.0) ** 2).sum(axis=0) / count)
        telling = (known.mean(axis=0) > 0.2) & (spread > 1e-6)
        if telling[FEATURES.index("log2_iteration_s")]:
            # What was measured says more than what a graph lets one guess, and columns dilute.
            telling[[FEATURES.index(name) for name in _FROM_GRAPHS]] = False
        telling[FEATURES.index("log2_graph_mib")] = False
        self.columns = np.flatnonzero(telling)
        self._spread = spread
        self.z = self._standard(self.raw)
        self._use.settle()
        self.usage = self._use.filled()
        self.agreed = np.ones(len(self.names))

    def add(self, nodes: Sequence[Node]) -> None:
        """Make further nodes known."""
        before = len(self.names)
        self._append(nodes)
        if len(self.names) == before:
            return
        self.z = np.vstack([self.z, self._standard(self.raw[before:])])
        self.usage = self._use.filled()
        self.agreed = np.concatenate([self.agreed, self._agreed(self.names[before:])])

    def doubt(self, worlds: Set[World]) -> None:
        """Take it that solo runs of these worlds were too slow: their speeds were clipped at 1."""
        self._doubted = frozenset(worlds)
        self.agreed = self._agreed(self.names)

    def _agreed(self, names: Sequence[Node]) -> NDArray[np.float64]:
        found = [self.solos.agreed(job, world) if world in self._doubted else 1.0 for job, world in names]
        return np.array(found, np.float64)

    def _append(self, nodes: Sequence[Node]) -> None:
        fresh = [node for node in dict.fromkeys(nodes) if node not in self.ids]
        if not fresh:
            return
        rows = []
        for job, world in fresh:
            self.ids[(job, world)] = len(self.names)
            self.names.append((job, world))
            rows.append(self.solos.features(job, world))
            if world not in self._worlds:
                self._worlds[world] = len(self.worlds)
                self.worlds.append(world)
        self.raw = np.vstack([self.raw, rows])
        self._use.add([usage_of(job, world[1], self.solos.run(job, world)) for job, world in fresh])
        number = [
            (
                self._families.setdefault(job.group, len(self._families)),
                self._configs.setdefault(job, len(self._configs)),
                self._worlds[world],
            )
            for job, world in fresh
        ]
        added = np.array(number, np.intp)
        self.family = np.concatenate([self.family, added[:, 0]])
        self.config = np.concatenate([self.config, added[:, 1]])
        self.world = np.concatenate([self.world, added[:, 2]])

    def _standard(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        z = (raw[:, self.columns] - self._mean[self.columns]) / self._spread[self.columns]
        return np.where(np.isfinite(z), np.clip(z, -4.0, 4.0), 0.0)

    def known(self, node: int) -> bool:
        """Whether anything was measured of this job in this world."""
        job, world = self.names[node]
        return self.solos.run(job, world) is not None
