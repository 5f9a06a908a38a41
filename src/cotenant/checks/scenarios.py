"""Small random scenarios by number: clusters, jobs, incidents and settings that are hard to get right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.ports import Policy
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.testing import FixedForecast, FixedTruth, Harness

__all__ = ["MODELS", "scenario"]

MODELS = ("small", "wide", "deep")
_PAIR = {"small": 0.95, "wide": 0.7, "deep": 0.55}


def scenario(
    number: int, policy: Callable[[], Policy], *, drop_indexes: bool = False, samples: bool = False
) -> Harness:
    """Scenario ``number`` for a policy: the same number is the same scenario, always.

    Jobs come singly, in bursts and all at once; gangs of 1 to 8, some larger than a node;
    fractions, CPU-only jobs, priorities, failing attempts, jobs that leave; two device types;
    nodes and devices that fail and return, drains, cancellations; saving and loading that
    takes time, or none. With ``samples``, light samples are taken every 30 s (``Settings.sample_s``).
    """
    rng = np.random.default_rng((20251, number))
    cluster = _cluster(rng)
    settings = _settings(rng)
    if samples:
        settings = msgspec.structs.replace(settings, sample_s=30.0)
    harness = Harness(
        cluster,
        policy(),
        settings=settings,
        truth=FixedTruth(_speeds(rng, noise=0.1)),
        forecast=FixedForecast(_speeds(rng, noise=0.0), spread=0.05),
        seed=number,
        drop_indexes=drop_indexes,
    )
    jobs = int(rng.integers(1, 40))
    _submit(harness, rng, jobs)
    if rng.random() < 0.5:
        _incidents(harness, rng, cluster, jobs)
    return harness


def _cluster(rng: np.random.Generator) -> Cluster:
    types = (
        DeviceType(name="old", memory_bytes=16 * GIB, speed=0.5),
        DeviceType(name="new", memory_bytes=32 * GIB, speed=1.0),
    )
    nodes = []
    for i in range(int(rng.integers(1, 5))):
        size = int(rng.choice([1, 2, 4, 8]))
        mixed = size > 1 and rng.random() < 0.2
        gpus = (
            (("old", size // 2), ("new", size - size // 2))
            if mixed
            else ((str(rng.choice(["old", "new"])), size),)
        )
        cpu = int(rng.choice([0, 16000]))
        nodes.append(Node(name=f"n{i}", gpus=gpus, cpu_milli=cpu, rack=f"r{i // 2}"))
    tenants = (
        Tenant(name="a", weight=1.0, quota_gpus=2),
        Tenant(name="b", weight=2.0, quota_gpus=1, limit_gpus=int(rng.integers(2, 9))),
    )
    return Cluster(nodes=tuple(nodes), types=types, tenants=tenants)


def _settings(rng: np.random.Generator) -> Settings:
    slow = rng.random() < 0.5
    return Settings(
        gang_span=str(rng.choice(["never", "larger-than-node", "any"])),  # type: ignore[arg-type]
        start_s=float(rng.choice([0.0, 5.0])),
        restore_s=10.0 if slow else 0.0,
        state_bytes_per_s=1e9 if slow else 1e15,
        min_quantum_s=float(rng.choice([0.0, 30.0])),
        checkpoint_s=float(rng.choice([0.0, 60.0])),
        max_sharers=int(rng.integers(1, 5)),
        starts_per_event=int(rng.choice([0, 0, 1])),
        round_s=float(rng.choice([0.0, 0.0, 60.0])),
        decision_latency_s=float(rng.choice([0.0, 1.0])),
    )


def _speeds(rng: np.random.Generator, *, noise: float) -> dict[tuple[str, tuple[str, ...]], float]:
    """Speeds of every set of up to four models: the more and the heavier, the slower."""
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    sets: list[tuple[str, ...]] = [()]
    for _ in range(3):
        sets = sorted({tuple(sorted((*s, m))) for s in sets for m in MODELS})
        for beside in sets:
            for model in MODELS:
                speed = _PAIR[model]
                for other in beside:
                    speed *= _PAIR[other] ** 0.5
                found[model, beside] = max(0.05, min(1.0, speed * (1 + noise * float(rng.uniform(-1, 1)))))
    return found


def _submit(harness: Harness, rng: np.random.Generator, jobs: int) -> None:
    at = 0.0
    together = rng.random() < 0.25
    for i in range(jobs):
        if not together:
            at += float(rng.choice([0.0, 1.0, 7.0, 40.0, 300.0], p=[0.2, 0.2, 0.3, 0.2, 0.1]))
        fields: dict[str, Any] = {
            "gpus": int(rng.choice([1, 1, 1, 2, 3, 4, 8])),
            "model": str(rng.choice(MODELS)),
            "memory_bytes": int(rng.choice([0, 2, 5, 9, 20])) * GIB,
            "tenant": str(rng.choice(["a", "b", "c"])),
            "priority": int(rng.choice([0, 0, 0, 5])),
            "sharing": str(rng.choice(["any", "any", "any", "exclusive", "trusted"])),
            "job_class": str(rng.choice(["guaranteed", "opportunistic"])),
            "suspendable": bool(rng.random() < 0.9),
        }
        draw = rng.random()
        if draw < 0.1:
            fields |= {"gpus": 0, "cpu_milli": 2000}
        elif draw < 0.25 and fields["gpus"] == 1:
            fields["compute_milli"] = int(rng.choice([200, 333, 500]))
        elif draw < 0.35:
            fields["failed_after_s"] = [float(rng.integers(1, 90))] * int(rng.integers(1, 3))
        elif draw < 0.4:
            fields["leave_s"] = at + float(rng.integers(1, 400))
        elif draw < 0.45:
            fields["device_types"] = ["new"]
        elif draw < 0.5:
            fields["cpu_milli"] = 4000
        harness.submit(f"j{i}", at_s=at, runs_s=float(rng.choice([0.0, 1.0, 33.0, 250.0, 2000.0])), **fields)


def _incidents(harness: Harness, rng: np.random.Generator, cluster: Cluster, jobs: int) -> None:
    for _ in range(int(rng.integers(1, 5))):
        at = float(rng.integers(1, 900))
        back = at + float(rng.integers(1, 600))
        kind = int(rng.integers(0, 5))
        if kind == 0:
            node = int(rng.integers(0, len(cluster.nodes)))
            harness.happen(ev.NodeDown(at, node, "power"))
            harness.happen(ev.NodeUp(back, node))
        elif kind == 1:
            device = int(rng.integers(0, cluster.gpu_count))
            harness.happen(ev.DeviceDown(at, device, "xid"))
            harness.happen(ev.DeviceUp(back, device))
        elif kind == 2:
            node = int(rng.integers(0, len(cluster.nodes)))
            # Every other time a single device of it.
            device = cluster.gpu_count - 1 if int(at) % 2 else -1
            harness.happen(ev.Drained(at, node, device=device))
            harness.happen(ev.Undrained(back, node, device=device))
        elif kind == 3:
            harness.happen(ev.CancelRequested(at, int(rng.integers(0, jobs))))
        else:
            harness.happen(ev.PriorityChanged(at, int(rng.integers(0, jobs)), 9))
    harness.happen(ev.TenantLimitChanged(float(rng.integers(1, 500)), "b", 0))
    harness.happen(ev.TenantLimitChanged(1000.0, "b", 8))
