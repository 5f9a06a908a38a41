"""What the graph of a job's network tells: arithmetic, kernels, bytes of one training step.

Steps of the networks in the measured tables come with the package (``resources.work``); a job
of another batch size has the step of the nearest one, in proportion.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from cotenant.predictors.resources.work import StepWork, zoo_works
from cotenant.profiles.runs import JobConfig
from cotenant.profiles.zoo.recipes import RECIPES

__all__ = ["graph_features", "step_of"]


@lru_cache(maxsize=1)
def _works() -> dict[str, tuple[StepWork, ...]]:
    found: dict[str, list[StepWork]] = defaultdict(list)
    for work in zoo_works():
        if work.precision == "fp32":
            found[work.name].append(work)
    return {name: tuple(works) for name, works in found.items()}


def _works_of(job: JobConfig) -> tuple[StepWork, ...]:
    works = _works().get(f"{job.model}@{job.dataset}") or _works().get(job.model)
    if not works and not job.dataset:
        # A name without its data set stands for the first network of that name, or architecture.
        alike = [r.name for r in RECIPES.values() if job.group in (r.model, r.family)]
        works = next((_works()[name] for name in alike if name in _works()), None)
    return works or ()


def _batch(job: JobConfig, works: Sequence[StepWork]) -> int:
    recipe = RECIPES.get(works[0].name)
    return job.batch or (recipe.usual_batch if recipe else works[0].batch)


def _nearest(works: Sequence[StepWork], batch: int) -> list[StepWork]:
    return sorted(works, key=lambda work: (abs(math.log2(work.batch / batch)), work.batch))


@lru_cache(maxsize=4096)
def step_of(job: JobConfig) -> StepWork | None:
    """One training step of a job, as its precision runs it; None of a network nobody knows."""
    works = _works_of(job)
    if not works:
        return None
    batch = _batch(job, works)
    near = _nearest(works, batch)[0]
    ratio = batch / near.batch
    groups = tuple(
        msgspec.structs.replace(group, flops=group.flops * ratio, moved_bytes=group.moved_bytes * ratio)
        for group in near.groups
    )
    return msgspec.structs.replace(
        near, batch=batch, groups=groups, precision="amp" if job.amp == 1 else "fp32"
    )


@lru_cache(maxsize=4096)
def graph_features(job: JobConfig) -> Mapping[str, float]:
    """Features of ``jobs.FEATURES`` that the network's graph gives; none if nobody knows it."""
    works = _works_of(job)
    if not works:
        return {}
    batch = _batch(job, works)
    near = _nearest(works, batch)[0]
    flops = max(near.flops, 1.0) * batch / near.batch
    moved = max(near.moved_bytes, 1.0) * batch / near.batch
    return {
        "log2_flops": math.log2(flops),
        "log2_kernels": math.log2(max(near.kernels, 1)),
        "log2_kernel_flops": math.log2(flops / max(near.kernels, 1)),
        "log2_intensity": math.log2(flops / moved),
        "log2_graph_mib": math.log2(_graph_mib(works, batch)),
    }


def _graph_mib(works: Sequence[StepWork], batch: int) -> float:
    """Memory by the graph, a line in the batch size through the two nearest sizes that are known."""
    near = _nearest(works, batch)[:2]
    first = max(near[0].memory_bytes, 1.0)
    if len(near) == 1 or near[0].batch == near[1].batch:
        return first / 2**20
    slope = (near[1].memory_bytes - first) / (near[1].batch - near[0].batch)
    return max(first + slope * (batch - near[0].batch), 0.25 * first) / 2**20
