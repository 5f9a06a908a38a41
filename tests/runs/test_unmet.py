"""A policy whose strength the workload or cluster gives no room for says so."""

from __future__ import annotations

import polars as pl
import pytest

from cotenant.model.cluster import Cluster, Tenant
from cotenant.model.workload import Workload
from cotenant.policies.easyscale import EasyScale
from cotenant.policies.fifo import Fifo
from cotenant.policies.gaiagpu import GaiaGpu
from cotenant.policies.hived import Hived
from cotenant.policies.pollux import Pollux
from cotenant.runs.unmet import unmet

POLICIES = [
    ("fifo", Fifo()),
    ("pollux", Pollux()),
    ("easyscale", EasyScale()),
    ("gaiagpu", GaiaGpu()),
    ("hived", Hived()),
]


def told(tenants: int = 0, **columns: list[int]) -> list[str]:
    frame = pl.DataFrame({"name": ["a", "b"], "submit_s": [0.0, 1.0], "duration_s": [5.0, 5.0], **columns})
    cluster = Cluster.uniform(2, tenants=[Tenant(name=f"t{k}") for k in range(tenants)])
    return [line.split(":")[0] for line in unmet(POLICIES, Workload(frame), cluster)]


@pytest.mark.parametrize(
    ("tenants", "columns", "names"),
    [
        (0, {}, ["pollux", "easyscale", "gaiagpu", "hived"]),
        (1, {}, ["pollux", "easyscale", "gaiagpu"]),
        (1, {"compute_milli": [1000, 500]}, ["pollux", "easyscale"]),
        (1, {"compute_milli": [1000, 1000], "min_gpus": [0, 1], "max_gpus": [0, 2]}, ["gaiagpu"]),
        (1, {"min_gpus": [0, 2], "max_gpus": [3, 2]}, ["pollux", "easyscale", "gaiagpu"]),
        (1, {"compute_milli": [1, 1], "min_gpus": [1, 1], "max_gpus": [2, 4]}, []),
    ],
)
def test_who_is_told(tenants: int, columns: dict[str, list[int]], names: list[str]) -> None:
    assert told(tenants, **columns) == names


def test_the_sentence_says_what_is_missing_and_how_it_would_be_given() -> None:
    frame = pl.DataFrame({"name": ["a"], "submit_s": [0.0], "duration_s": [5.0]})
    assert unmet([("pollux:period_s=9", Pollux())], Workload(frame), Cluster.uniform(2)) == [
        "pollux:period_s=9: no job is elastic (min_gpus below max_gpus), so none ever changes its number of "
        "devices; little is left of what it is made for"
    ]
