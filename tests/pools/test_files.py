"""Pools in cluster files and incident files, and the phases of the elasticity experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import ConfigError
from cotenant.experiments.pooled import Phases
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.poolevents import Stored, TierResized
from cotenant.model.pools import HostPool, Scaling, StateTier
from cotenant.model.quantities import GIB, MIB
from cotenant.policies.fifo import Fifo
from cotenant.runs.incidents import check_incidents, read_incidents
from cotenant.testing import Harness
from cotenant.traces.clusterfile import read_cluster, to_toml

TEXT = """
[[nodes]]
name = "n"
count = 4
gpus = 2
cpus = 32
memory = "128GiB"

[[host_pools]]
name = "left"
nodes = ["n0", "n1"]
cpus = 96
link_bandwidth = "10GB/s"
link_latency_s = 3e-6
local_memory = "8GiB"
touch = "30s"

[[host_pools]]
name = "right"
nodes = ["n[23]"]

[[state_tiers]]
name = "memory"
capacity = "80GB"
bandwidth = "10GB/s"

[[state_tiers]]
name = "store"
bandwidth = "200MB/s"
latency_s = 0.1

[[autoscale]]
of = "gpus"
least = 1
most = 4
delay = "5min"

[[autoscale]]
of = "memory"
rule = "retention"
least = "8GB"
most = "1TB"
retention = "2h"
"""


def _read(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return read_cluster(path)


def test_a_cluster_file_declares_pools(tmp_path: Path) -> None:
    cluster = _read(tmp_path, TEXT)
    assert cluster.host_pools == (
        HostPool(
            name="left",
            nodes=("n0", "n1"),
            cpu_milli=96000,
            link_bytes_per_s=1e10,
            link_latency_s=3e-6,
            local_bytes=8 * GIB,
            touch_s=30.0,
            block_bytes=MIB,
        ),
        HostPool(name="right", nodes=("n2", "n3")),
    )
    assert cluster.state_tiers == (
        StateTier(name="memory", bytes_per_s=1e10, capacity_bytes=80 * 10**9),
        StateTier(name="store", bytes_per_s=2e8, latency_s=0.1),
    )
    assert cluster.scaling == (
        Scaling(of="gpus", least=1, most=4, delay_s=300.0),
        Scaling(of="memory", rule="retention", least=8 * 10**9, most=10**12, retention_s=7200.0),
    )


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    cluster = _read(tmp_path, TEXT)
    assert _read(tmp_path, to_toml(cluster)) == cluster


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"n0", "n1"', '"m*"', 'no node is called "m*"'),
        ('"n[23]"', '"n[123]"', 'node "n1" is in host pools'),
        ('"10GB/s"\nlink', '"10GB"\nlink', "a bandwidth is a size for each second"),
        ('"8GiB"', '"8 apples"', "8 apples"),
        ('of = "memory"', 'of = "tape"', "write one of gpus, memory, store"),
        ('of = "gpus"', 'of = "nosuch"', 'no such pool "nosuch"'),
        ("most = 4", 'most = "4GB"', "bounds of gpus are numbers of nodes"),
        ('retention = "2h"', "retention_s = 7200", "retention_s"),
    ],
)
def test_mistakes_in_pools_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError) as caught:
        _read(tmp_path, TEXT.replace(old, new, 1))
    assert words in str(caught.value)


def test_a_file_of_incidents_resizes_tiers(tmp_path: Path) -> None:
    cluster = _read(tmp_path, TEXT)
    path = tmp_path / "incidents.toml"
    good = '[[incident]]\nkind = "tier-resize"\nat = "1h"\ntier = "store"\ncapacity = "5GB"\ncause = "move"\n'
    path.write_text(good)
    h = Harness("1x1", Fifo())
    h.submit("a")
    assert read_incidents(path, cluster, h.workload()) == (TierResized(3600.0, 1, 5 * 10**9, "move"),)
    for old, new, words in (
        ("store", "tape", 'no state tier "tape"; known: memory, store'),
        ("5GB", "much", "capacity: "),
        ('tier = "store"\n', "", '"tier-resize" needs tier'),
        ("[[incident]]", "[[incidents]]", "write [[incident]] for each incident"),
    ):
        path.write_text(good.replace(old, new, 1))
        with pytest.raises(ConfigError) as caught:
            check_incidents(path, cluster)
        assert words in str(caught.value)


def test_phases_count_what_happens_between_resizes() -> None:
    phases = Phases([0.0, 100.0])
    job: Any = next(iter(_one_job().jobs()))
    phases.see(
        [
            ev.Submitted(10.0, job),
            Stored(50.0, 0, 1, 5),
            ev.Started(120.0, 0, 1, (0,), resumed=True),
            ev.Rated(120.0, 0, 0.0),
            ev.Rated(150.0, 0, 1.0),
            Stored(160.0, 0, 0, 5),
            ev.Ended(190.0, 0, 1, "done", 1.0),
        ]
    )
    assert phases.row(0) == {
        "states_stored": 1,
        "fast_share": 0.0,
        "resume_s_mean": None,
        "jct_s_mean": 180.0,
        "jobs_submitted": 1,
    }
    assert phases.row(1) == {
        "states_stored": 1,
        "fast_share": 1.0,
        "resume_s_mean": 30.0,
        "jct_s_mean": None,
        "jobs_submitted": 0,
    }


def _one_job() -> Any:
    h = Harness("1x1", Fifo())
    h.submit("a")
    return h.workload()
