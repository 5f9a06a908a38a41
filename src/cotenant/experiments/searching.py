"""A hyper-parameter search: 128 configurations with seeded learning curves, under one policy and one stopping rule."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import polars as pl

from cotenant.executors.sweep import Rule, Sweep
from cotenant.experiments.simulate import metrics_of
from cotenant.model.cluster import Cluster
from cotenant.model.quantities import MIB
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload
from cotenant.profiles.catalogue import device_type
from cotenant.profiles.kinds import KINDS
from cotenant.runs.prepare import Prepared

__all__ = ["Curves", "Found", "search"]

MODEL = "ResNet-18/b64"
RUNG_S = 60.0
"""100 mini-batches of 0.6 s."""
FULL_S = 7200.0
"""Training one configuration to the end, alone."""
GOOD = 0.9
"""Accuracy of a good configuration."""


class Curves:
    """Accuracy of each configuration after so much work: ``top * (1 - exp(-work / pace))``.

    ``top`` is uniform in 0.1 to 0.95, so about 6 of 100 configurations can ever be good; ``pace`` is
    lognormal about a sixth of the full training, so curves cross, and early ranks may mislead.
    """

    def __init__(self, seed: int, count: int) -> None:
        rng = np.random.default_rng((seed, 128))
        self._top = rng.uniform(0.1, 0.95, count)
        self._pace = FULL_S / 6.0 * np.exp(0.5 * rng.standard_normal(count))

    def score(self, name: str, work_s: float) -> float:
        """Accuracy of a configuration by name."""
        number = int(name.rpartition("/")[2])
        return float(self._top[number] * (1.0 - math.exp(-work_s / self._pace[number])))


class Found(NamedTuple):
    """What came of a search.

    Parameters
    ----------
    good_s : float or None
        When the first good configuration was found; None if none was.
    stopped : int
        Configurations ended by rank.
    gpu_hours : float
        GPU time that all configurations held.
    """

    good_s: float | None
    stopped: int
    gpu_hours: float


def search(policy: str, rule: Rule, seed: int, *, gpus: int, count: int) -> Found:
    """Run one search on servers of 4 GPUs; all configurations are submitted at once."""
    curves = Curves(seed, count)
    frame = pl.DataFrame(
        {
            "name": [f"search/{i:03}" for i in range(count)],
            "submit_s": 0.0,
            "duration_s": FULL_S,
            "model": MODEL,
            "memory_bytes": KINDS[MODEL].memory_bytes // MIB * MIB,
        }
    )
    prepared = Prepared(
        workload=Workload(frame, name="search"),
        cluster=Cluster.uniform(gpus, gpus_per_node=4, gpu_type=device_type("V100")),
        settings=Settings(restore_s=1.0, state_bytes_per_s=1e10, max_sharers=64),
    )
    sweeps: list[Sweep] = []

    def wrap(inner: object) -> Sweep:
        sweeps.append(
            Sweep(inner, curves.score, rung_s=RUNG_S, rule=rule, good=GOOD, keep=gpus)  # type: ignore[arg-type]
        )
        return sweeps[0]

    summary = metrics_of(prepared, policy, seed, wrap=wrap).summary
    found = sweeps[0].first_good_s.get("search")
    held = summary.get("gpu_hours_allocated") or 0.0
    return Found(None if found is None else found[0], len(sweeps[0].stopped), float(held))
