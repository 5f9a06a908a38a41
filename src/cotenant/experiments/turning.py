"""Gandiva's small experiments: equal turns, pairs of a job table, and jobs brought back together."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import polars as pl

from cotenant.experiments.simulate import metrics_of
from cotenant.experiments.watching import Watcher
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload
from cotenant.profiles.catalogue import device_type
from cotenant.profiles.kinds import KINDS
from cotenant.runs.prepare import Prepared

__all__ = ["SUSPENDS", "TABLE", "pairs", "turns", "united"]

SUSPENDS = {"restore_s": 1.0, "state_bytes_per_s": 1e10, "slice_s": 60.0, "slice_switch_s": 0.6}
"""Suspend-resume as published: turns of a minute, 0.1 to 1 s to switch, about 1 to 2 s to migrate."""

TABLE = (
    "ShuffleNet-v2/b128",
    "A3C/b4",
    "Recommendation/b1024",
    "ResNet-18/b16",
    "Transformer/b32",
    "LM/b20",
    "GNN/b256",
    "VGG-16/b16",
    "DeepSpeech2/b8",
    "MobileNet/b128",
    "ResNet-50/b32",
    "BERT-base/b4",
)
"""From 7 to 90 % of a V100 busy, all of them small enough to lie two on one."""
_LONG_S = 7200.0


def _prepared(rows: list[dict[str, Any]], cluster: Cluster, settings: Settings) -> Prepared:
    return Prepared(workload=Workload(pl.DataFrame(rows), name="gandiva"), cluster=cluster, settings=settings)


def _job(name: str, model: str, **fields: Any) -> dict[str, Any]:
    kind = KINDS[model]
    return {
        "name": name,
        "submit_s": 0.0,
        "gpus": 1,
        "model": model,
        "memory_bytes": kind.memory_bytes,
        **fields,
    }


def turns(seed: int) -> tuple[float, float]:
    """Six jobs on four GPUs: spread of their shares of time, and what switching and moving cost; in per cent."""
    rows = [_job(f"j{i}", "ResNet-50/b64", duration_s=4800.0) for i in range(6)]
    cluster = Cluster.uniform(4, gpus_per_node=4, gpu_type=device_type("V100"))
    watcher = Watcher(until_s=7000.0)
    prepared = _prepared(rows, cluster, Settings(**SUSPENDS))  # type: ignore[arg-type]
    metrics_of(prepared, "gandiva:packing=no", seed, observers=[watcher])
    work = list(watcher.work_s.values())
    return 100.0 * (max(work) / min(work) - 1.0), 100.0 * (1.0 - sum(work) / (4 * 7000.0))


def pairs(seed: int, models: tuple[str, ...]) -> list[dict[str, Any]]:
    """Two jobs of two hours on one GPU, every pair: throughput with packing over that by turns alone."""
    from cotenant.runs.world import build_world

    cluster = Cluster.uniform(1, gpu_type=device_type("V100"))
    rows: list[dict[str, Any]] = []
    for one, other in combinations_with_replacement(models, 2):
        jobs = [_job("a", one, duration_s=_LONG_S), _job("b", other, duration_s=_LONG_S)]
        prepared = _prepared(jobs, cluster, Settings(**SUSPENDS))  # type: ignore[arg-type]
        world = build_world(prepared, seed)
        speeds = (world.truth, world.forecast)
        seen, done = Watcher(_LONG_S), Watcher(_LONG_S)
        metrics_of(prepared, "gandiva:packing=no", seed, speeds=speeds, observers=[done])
        metrics_of(prepared, "gandiva", seed, speeds=speeds, observers=[seen])
        total = world.truth.co_speed(one, (other,), "V100") + world.truth.co_speed(other, (one,), "V100")
        kept = not any(isinstance(e, ev.Resized) and e.why.rule == "unpack" for e in seen.events)
        gain = sum(seen.work_s.values()) / sum(done.work_s.values())
        rows.append({"pair": f"{one} + {other}", "sum": total, "kept": float(kept), "gain": gain})
    return rows


def united(seed: int) -> tuple[int, int, float]:
    """Four pairs of GPUs come to a cluster in fragments; then 8 GPUs are freed.

    Returns
    -------
    scattered, united : int
        Jobs that began on two servers, and those of them that end on one.
    speedup : float
        Of those: speed after over speed before.
    """
    rows = [_job("large", "ResNet-50/b64", gpus=8, duration_s=1000.0)]
    rows += [_job(f"s{i:02}", "ResNet-50/b64", duration_s=10.0 if i % 2 else 1e5) for i in range(12)]
    rows += [_job(f"pair{i}", "ResNet-50/b64", gpus=2, submit_s=20.0, duration_s=20000.0) for i in range(4)]
    cluster = Cluster.uniform(22, gpus_per_node=2, gpu_type=device_type("V100"))
    # ResNet-50 on two servers at 40 Gb/s runs at 53 % of its speed.
    settings = Settings(**SUSPENDS, gang_span="any", span_speed=0.53)  # type: ignore[arg-type]
    watcher = Watcher(until_s=10000.0)
    metrics_of(_prepared(rows, cluster, settings), "gandiva", seed, observers=[watcher, (kept := _Places())])
    scattered = [
        j for j, devices in kept.first.items() if len({d // 2 for d in devices}) > 1 and len(devices) == 2
    ]
    together = [j for j in scattered if len({d // 2 for d in kept.last[j]}) == 1]
    before, after = 980.0 * 0.53, [watcher.work_s[j] for j in together]
    speedup = sum((w - before) / (10000.0 - 1000.0) for w in after) / len(after) / 0.53 if after else 0.0
    return len(scattered), len(together), speedup


class _Places:
    """First and last devices of each job."""

    def __init__(self) -> None:
        self.first: dict[int, tuple[int, ...]] = {}
        self.last: dict[int, tuple[int, ...]] = {}

    def see(self, events: list[ev.Event]) -> None:
        """Take the next events."""
        for event in events:
            if isinstance(event, ev.Started | ev.Moved):
                self.first.setdefault(event.id, event.devices)
                self.last[event.id] = event.devices
