"""Files that people write by hand: the examples of the documentation, and what is wrong with others."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.app.datareport import report_lines
from cotenant.model.cluster import Cluster, Tenant
from cotenant.model.events import TenantLimitChanged
from cotenant.model.workload import Workload
from cotenant.runs.incidents import _KEYS, read_incidents
from cotenant.traces.base import DataReport
from cotenant.traces.clusterfile import read_cluster

Run = Callable[..., subprocess.CompletedProcess[str]]
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def test_the_example_files_of_the_documentation_are_valid(inside: Run) -> None:
    cluster, incidents = str(EXAMPLES / "cluster.toml"), str(EXAMPLES / "incidents.toml")
    first = inside("validate", cluster)
    assert first.returncode == 0, first.stderr
    assert "valid cluster: 8 nodes, 56 devices (types: A100, oldcard), 3 tenants" in first.stdout
    alone = inside("validate", incidents)
    assert "valid incidents: 14 incidents; give --cluster to check its names" in alone.stdout
    both = inside("validate", incidents, "--cluster", cluster)
    assert both.returncode == 0, both.stderr
    assert "14 incidents; names of nodes and tenants checked" in both.stdout
    kinds = set(re.findall(r'kind = "([a-z-]+)"', (EXAMPLES / "incidents.toml").read_text()))
    assert kinds == set(_KEYS)


def test_the_example_of_incidents_can_be_used_with_that_of_the_cluster() -> None:
    import polars as pl

    rows = pl.DataFrame({"name": ["j17", "j18"], "submit_s": [0.0, 1.0], "duration_s": [9.0, 9.0]})
    events = read_incidents(
        EXAMPLES / "incidents.toml", read_cluster(EXAMPLES / "cluster.toml"), Workload(rows)
    )
    # Fourteen entries, three of which last and so return.
    assert len(events) == 17
    limits = [e.limit_gpus for e in events if isinstance(e, TenantLimitChanged)]
    assert limits == [48, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "tenant-limit"\ntenant = "vision"', '"tenant-limit" needs limit_gpus (a number, or "none"'),
        (
            'kind = "tenant-limit"\ntenant = "vision"\nlimit_gpus = -1',
            "limit_gpus must be 0 or more, found -1",
        ),
        ('kind = "tenant-limit"\ntenant = "visio"\nlimit_gpus = 4', 'no tenant "visio"; known: speech'),
        ('kind = "device-down"\nnode = "n0"', '"device-down" needs slot'),
        ('kind = "device-down"\nnode = "n0"\nslot = 8', "slots 0 to 7, found slot = 8"),
        ('kind = "node-down"\nnode = "n9"', 'no node "n9" in this cluster of 8 nodes'),
        ('kind = "cancel"', '"cancel" needs job'),
        ('kind = "cancel"\njob = "a"\nlasts = "1h"', '"cancel" does not last'),
        ('kind = "cancel"\njob = "a"\nnode = "n0"', 'node says nothing for "cancel"'),
        ('kind = "drain"\nnode = "n0"\nlasts = "soon"', "lasts: "),
        ('kind = "explode"\nnode = "n0"', "explode"),
    ],
)
def test_wrong_incidents_are_told_with_their_place(
    inside: Run, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "i.toml").write_text(f'[[incident]]\nat = "1h"\n{text}\n')
    done = inside("validate", "i.toml", "--cluster", str(EXAMPLES / "cluster.toml"))
    assert done.returncode == 1
    assert message in done.stderr
    assert "i.toml" in done.stderr


def test_demand_against_capacity_is_told_in_sentences() -> None:
    numbers = {"peak": 5600.4, "capacity": 6212.0, "unit": "devices", "percent": 90.2}
    none = {"peak": 3.0, "capacity": 0.0, "unit": "devices", "percent": None}
    report = DataReport(format="f", path="p", oversubscription={"all devices": numbers, "K80 only": none})
    lines = report_lines(report, 1)
    assert "  most wanted at one time, all devices: 5,600 of 6,212 devices (90.2 %)" in lines
    assert "  most wanted at one time, K80 only: 3 of 0 devices" in lines
    assert "{" not in "".join(lines)


def test_a_lifted_ceiling_is_written_as_none(tmp_path: Path) -> None:
    import polars as pl

    (tmp_path / "i.toml").write_text(
        '[[incident]]\nkind = "tenant-limit"\nat = "1h"\ntenant = "t"\nlimit_gpus = "none"\n'
    )
    rows = pl.DataFrame({"name": ["a"], "submit_s": [0.0], "duration_s": [1.0]})
    cluster = Cluster.uniform(4, tenants=(Tenant(name="t", limit_gpus=2),))
    assert read_incidents(tmp_path / "i.toml", cluster, Workload(rows)) == (
        TenantLimitChanged(3600.0, "t", None),
    )
