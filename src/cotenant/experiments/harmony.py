"""Harmony's placement experiment: the baselines it is measured against, on its test-bed's size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cotenant.experiments.base import Claim, Comparison, Measured, Place, Table, change
from cotenant.model.cluster import Cluster
from cotenant.model.quantities import MIB
from cotenant.model.settings import Settings
from cotenant.profiles.catalogue import device_type
from cotenant.profiles.kinds import KINDS
from cotenant.report.metrics import RunMetrics
from cotenant.runs.prepare import Prepared
from cotenant.traces.synthetic import generate

__all__ = ["Harmony"]

_SOURCE = "doi.org/10.1109/INFOCOM.2019.8737460, abstract"
_MODELS = (
    "ResNet-50/b32",
    "VGG-16/b16",
    "ResNet-18/b64",
    "Transformer/b64",
    "LM/b20",
    "DeepSpeech2/b8",
    "MobileNet/b128",
    "BERT-base/b4",
)
_BLIND = ("spread", "pack", "random")


def _workload(seed: int, jobs: int) -> Any:
    return generate(
        "steady",
        jobs=jobs,
        seed=seed,
        arrivals={"kind": "poisson", "load": 1.4, "gpus": 12},
        sizes=[{"gpus": 1, "weight": 0.6}, {"gpus": 2, "weight": 0.4}],
        duration={"kind": "lognormal", "median_s": 1200.0, "sigma": 1.0},
        models=[
            {"name": name, "weight": 1.0, "memory": f"{KINDS[name].memory_bytes // MIB} MiB"}
            for name in _MODELS
        ],
    )


class Harmony(Comparison):
    """Where arriving jobs go among 6 servers of 2 GPUs, decided once and for all."""

    name: ClassVar[str] = "harmony"
    title: ClassVar[str] = "Harmony: placement of training jobs among six servers"
    paper: ClassVar[str] = (
        "A policy network places parameter servers and workers of each arriving job so that interference is "
        "least; a job stays where it is put. On six GPU servers it completes jobs 25% sooner, on average, "
        "than representative schedulers."
    )
    source: ClassVar[str] = _SOURCE
    reconstruction: ClassVar[tuple[str, ...]] = (
        "Two GPUs (V100, 16 GB) in each of the six servers; up to four jobs on a GPU.",
        "60 jobs of 8 types on one or two GPUs, Poisson arrivals at a load of 1.4 of the GPUs used one job each; "
        "no parameter servers, all-reduce workers only.",
        "The abstract does not name the schedulers it compares with. Here: spreading to the least loaded GPU, packing "
        "by what is left of memory, random, and greedy on an explicit forecast of interference.",
        "The learned policy is not there yet; this is the company it will have to beat.",
    )
    seeds: ClassVar[int] = 10
    policies: ClassVar[dict[str, str]] = {
        "spread": "best-fit:order=spread",
        "pack": "best-fit",
        "random": "cotenant.experiments.scatter:Scatter",
        "interference": "colocate",
    }
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            key="learned_jct_change",
            what="Mean completion time, learned placement against representative schedulers",
            paper="-25 %",
            low=-25.0,
            high=-25.0,
            unit="%",
            source=_SOURCE,
            how="change of the learned policy's mean JCT against the mean of the blind baselines",
            differs="",
            better="low",
            unmeasured="the learned policy is not there yet",
        ),
        Claim(
            key="model_jct_change",
            what="Mean completion time, greedy on an explicit interference model against the blind baselines",
            paper="no number",
            unit="%",
            source=_SOURCE,
            how="change of colocate's mean JCT against the mean of spread, pack and random",
            differs="not a number of the paper: what a forecast alone is worth here, without learning",
            better="low",
        ),
    )

    def prepared(self, seed: int, place: Place) -> Prepared:
        """Draw the jobs; speeds are the contention model's with noise, the forecast does not see the noise."""
        return Prepared(
            workload=_workload(seed, place.pick(60, 40, 12)),
            cluster=Cluster.uniform(12, gpus_per_node=2, gpu_type=device_type("V100")),
            settings=Settings(gang_span="any"),
            runtime="history",
        )

    def measure(self, seed: int, place: Place) -> Measured:
        """As for all comparisons; and the forecast against each of the blind, pair by pair."""
        found = super().measure(seed, place)
        jct = {row["policy"]: row["jct_s_mean"] for row in found.tables[0].rows}
        rows = [
            {
                "against": label,
                "change_of_mean_completion_time_%": change(jct["interference"], jct[label]),
                "seeds_won_share": float(jct["interference"] < jct[label]),
            }
            for label in _BLIND
        ]
        found.tables.append(Table(title="Greedy on a forecast, same jobs and seed", rows=rows))
        return found

    def values(self, runs: Mapping[str, RunMetrics]) -> dict[str, float | None]:
        """Change of mean JCT against the mean of the blind ones."""
        blind = [runs[label].summary["jct_s_mean"] for label in _BLIND]
        base = sum(blind) / len(blind)
        return {
            "learned_jct_change": None,
            "model_jct_change": change(runs["interference"].summary["jct_s_mean"], base),
        }
