"""Clusters given as a number: what is assumed about their devices is said, and changes no exclusive result."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import cotenant
from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.quantities import GIB, MIB
from cotenant.runs.config import RunConfig
from cotenant.runs.devices import cluster_of, unknown_memory
from cotenant.runs.prepare import prepare

GIVE = "give --gpu-type or --cluster"


def jobs(**columns: list[object]) -> cotenant.Workload:
    count = len(next(iter(columns.values())))
    frame = {
        "name": [f"j{i}" for i in range(count)],
        "submit_s": [0.0] * count,
        "duration_s": [10.0] * count,
        "gpus": [1] * count,
    }
    return cotenant.Workload(pl.DataFrame({**frame, **columns}))


@pytest.mark.parametrize(
    ("asked", "name", "memory_mib", "said"),
    [
        (0, "V100", 16_160, f"device type not given: V100 with 16 GB assumed; {GIVE}"),
        (16_160 * MIB, "V100", 16_160, f"device type not given: V100 with 16 GB assumed; {GIVE}"),
        (16_161 * MIB, "V100-32GB", 32_480, f"device type not given: V100 with 32 GB assumed; {GIVE}"),
        (
            40 * GIB,
            "gpu",
            0,
            f"device type not given, and a job needs 40,960 MiB, more than a V100 has: {GIVE}",
        ),
    ],
)
def test_the_type_assumed_holds_every_job(asked: int, name: str, memory_mib: int, said: str) -> None:
    cluster, assumed = cluster_of(12, 8, None, jobs(memory_bytes=[0, asked]))
    assert [dict(node.gpus) for node in cluster.nodes] == [{name: 8}, {name: 4}]
    (kind,) = cluster.types
    assert (kind.memory_bytes, kind.speed) == (memory_mib * MIB, 1.0)
    assert assumed == (said,)


def test_a_model_known_to_need_more_counts_where_no_memory_is_declared() -> None:
    # BERT-base at batch size 8 needs 18,628 MiB in the catalogue of models.
    large = jobs(model=["BERT-base/b8"])
    assert cluster_of(1, 8, None, large)[0].types[0].name == "V100-32GB"
    declared = jobs(model=["BERT-base/b8"], memory_bytes=[GIB])
    assert cluster_of(1, 8, None, declared)[0].types[0].name == "V100"


def test_jobs_that_name_other_types_are_counted() -> None:
    _, (said,) = cluster_of(2, 8, None, jobs(device_types=[[], ["V100"], ["T4"], ["P100", "T4"]]))
    assert "(2 jobs name other device types and cannot run)" in said


def test_a_type_that_is_given_is_taken_and_nothing_is_assumed() -> None:
    cluster, assumed = cluster_of(2, 8, "A100", jobs(memory_bytes=[0]))
    assert (cluster.types[0].name, assumed) == ("A100", ())


def test_types_of_unknown_memory_are_named_if_they_are_used() -> None:
    types = tuple(DeviceType(name=name, memory_bytes=m) for name, m in (("x", 0), ("y", GIB), ("z", 0)))
    one = Cluster(nodes=(Node(name="a", gpus=(("x", 1), ("y", 1))),), types=types)
    assert unknown_memory(one) == ["device memory of type x is not known: no policy can share it"]
    two = Cluster(nodes=(Node(name="a", gpus=(("x", 1), ("z", 1))),), types=types)
    assert unknown_memory(two) == ["device memory of types x, z is not known: no policy can share them"]
    assert unknown_memory(Cluster(nodes=(Node(name="a", gpus=(("y", 1),)),), types=types)) == []


def test_the_manifest_and_the_result_say_what_was_assumed(tmp_path: Path) -> None:
    result = cotenant.simulate(jobs(gpus=[1, 1]), 2, out=tmp_path / "o")
    assert result.assumptions[0] == f"device type not given: V100 with 16 GB assumed; {GIVE}"
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["assumptions"] == result.assumptions
    given = cotenant.simulate(jobs(gpus=[1, 1]), 2, gpu_type="V100", gpus_per_node=1)
    assert not any("device" in sentence for sentence in given.assumptions)
    with pytest.raises(ConfigError, match="gpu_type goes with a number of devices"):
        cotenant.simulate(jobs(gpus=[1]), Cluster.uniform(1), gpu_type="V100")


def test_a_cluster_file_of_unknown_memory_is_told_on(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[[types]]\nname = "odd"\n[[nodes]]\nname = "a"\ngpus = 2\n')
    (tmp_path / "j.csv").write_text("name,submit_s,duration_s\na,0,1\n")
    config = RunConfig(trace=str(tmp_path / "j.csv"), policies=("fifo",), cluster=str(tmp_path / "c.toml"))
    assert prepare(config).assumptions == ("device memory of type odd is not known: no policy can share it",)


def test_without_a_type_jobs_do_share() -> None:
    two = jobs(model=["A3C/b4", "A3C/b4"], memory_bytes=[GIB, GIB])
    assert cotenant.simulate(two, 1, "colocate").summary["makespan_s"] < 20.0
    alone = cotenant.simulate(two, 1, "colocate", gpu_type="gpu")
    assert alone.summary["makespan_s"] == 20.0


@pytest.mark.data
def test_exclusive_results_are_those_of_a_counted_cluster(data_dir: Path) -> None:
    trace = cotenant.load(data_dir / "traces/common/common-n2000-g64.csv.gz")
    result = cotenant.simulate(trace, 64, "fifo", gpus_per_node=64)
    # Computed by hand-made code as well, see tests/engine/test_reference.py.
    assert result.summary["jct_s_mean"] == pytest.approx(8984.0555, abs=1e-6)
