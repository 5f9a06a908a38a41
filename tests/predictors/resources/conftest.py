"""Made-up works, and runs of them on a device whose factors are known."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from cotenant.predictors.resources.observations import Observation
from cotenant.predictors.resources.roofline import Efficiency, rates_of, step_times
from cotenant.predictors.resources.work import KernelGroup, StepWork

TRUTH = Efficiency(
    convolution=0.4,
    matrix=0.6,
    bandwidth=0.7,
    kernel_us=8.0,
    forward_us=45.0,
    backward_us=10.0,
    update_us=9.0,
    step_ms=2.0,
    overlap=2.5,
    context_mib=900.0,
)


def work(family: int, batch: int) -> StepWork:
    """Families differ in depth, in how big their kernels are, and in what they mostly do."""
    random = np.random.default_rng(family)
    depth = int(random.integers(10, 200))
    size = 10 ** random.uniform(6, 9.5) * batch
    moved = 10 ** random.uniform(4.5, 7) * batch
    kind = ("convolution", "matrix")[family % 2]
    return StepWork(
        name=f"family{family}@made",
        batch=batch,
        optimiser="momentum",
        forward=depth,
        backward=2 * depth,
        weights=depth,
        update_bytes=4e6 * depth,
        parameter_bytes=1e6 * depth,
        activation_bytes=moved * depth,
        memory_bytes=2.0**20 * 430 + 2e6 * depth + moved * depth,
        memory_high_bytes=2.0**20 * 700 + 2e6 * depth + 1.1 * moved * depth,
        counts={kind if kind == "convolution" else "matmul": depth},
        groups=(
            KernelGroup(kind, 5, depth, size * depth, moved * depth),  # type: ignore[arg-type]
            KernelGroup("other", 0, 2 * depth, 0.0, moved * depth),
        ),
    )


def observations(
    families: int = 12, batches: tuple[int, ...] = (8, 32, 128), device: str = "V100", noise: float = 0.0
) -> list[Observation]:
    works = [work(f, b) for f in range(families) for b in batches]
    rates = rates_of(device)
    times = step_times(works, [rates] * len(works), TRUTH)
    random = np.random.default_rng(7)
    return [
        Observation(
            work=w,
            rates=rates,
            family=w.name.partition("@")[0],
            source="made",
            iteration_s=float(times.iteration_s[i] * np.exp(noise * random.normal())),
            gpu_util=float(times.gpu_util[i]),
            mem_util=float(times.mem_util[i]),
            mem_mib=float(times.memory_mib[i]),
            licence="MIT",
        )
        for i, w in enumerate(works)
    ]


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """This module: ``made.work``, ``made.observations``, ``made.TRUTH``."""
    return sys.modules[__name__]
