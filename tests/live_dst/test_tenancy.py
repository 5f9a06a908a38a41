"""Quotas, limits and weights that change while the scheduler runs, and files that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.live_dst.conftest import Machine

from cotenant import registry
from cotenant.engine.state import State
from cotenant.errors import ConfigError
from cotenant.live.tenancy import TenantWatch
from cotenant.live.tenants import TenantRow, Tenants
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, Tenant
from cotenant.model.settings import Settings

HEAD = "# by hand\n\n[[tenants]]\nname = 'ada'\n\n[[tenants]]\nname = 'bob'\n"


def made(folder: Path, **rows: dict[str, Any]) -> Tenants:
    (folder / "s").mkdir(mode=0o700)
    tenants = Tenants(folder / "s")
    for name, row in rows.items():
        tenants.add(TenantRow(name=name, **row))
    return tenants


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HEAD + "weight = 0\n", 8, 'tenant "bob": weight must be more than 0'),
        (HEAD + "quota_gpus = 3\nlimit_gpus = 2\n", 8, "quota_gpus 3 is more than limit_gpus 2"),
        (HEAD + "limit_gpus = -1\n", 8, "limit_gpus must be zero or more, found -1"),
        (HEAD + "sha256 = 'abc'\n", 8, "64 hexadecimal digits"),
        (HEAD + "colour = 'red'\n", 8, "unknown field `colour`"),
        (HEAD + "weight = 'much'\n", 8, "Expected `float`"),
        (HEAD.replace("bob", "ada"), 7, '"ada" appears twice'),
        (HEAD.replace("bob", "a/b"), 7, "found 'a/b'"),
        (HEAD + "weight = \n", 8, "not valid TOML"),
    ],
)
def test_a_broken_file_is_refused_with_its_line_and_what_was_read_before_stays(
    text: str, line: int, said: str, tmp_path: Path
) -> None:
    tenants = made(tmp_path, ada={"limit_gpus": 1})
    watch = TenantWatch(tenants, ())
    ada = Tenant(name="ada", limit_gpus=1)
    assert watch.read(1.0) == [ev.TenantsChanged(1.0, (ada,))]
    path = tmp_path / "s" / "tenants.toml"
    path.write_text(text)
    assert watch.read(2.0) == []
    assert tenants.broken.startswith(f"{path}:{line}: ")
    assert said in tenants.broken
    assert tenants.cluster_tenants() == (ada,)
    with pytest.raises(ConfigError, match=f"tenants.toml:{line}: "):
        Tenants(tmp_path / "s")
    path.write_text(HEAD + "quota_gpus = 2\n")
    bob = Tenant(name="bob", quota_gpus=2)
    assert watch.read(2.5) == []  # once a second
    assert watch.read(3.0) == [ev.TenantsChanged(3.0, (Tenant(name="ada"), bob))]
    assert tenants.broken == ""


def test_what_the_log_says_is_in_force_until_the_file_says_otherwise(tmp_path: Path) -> None:
    tenants = made(tmp_path, ada={"limit_gpus": 2})
    opened = ev.Opened(0.0, 1, "0", 0, "fifo", {}, {}, Cluster.uniform(2), {}, {}, {})
    changed = ev.TenantsChanged(5.0, tenants.cluster_tenants())
    known, other = TenantWatch(tenants, ()), TenantWatch(tenants, tenants.cluster_tenants())
    known.recall([opened, changed])
    assert known.read(9.0) == []
    other.recall([opened, changed, ev.TenantsChanged(6.0, ())])
    assert other.read(9.0) == [ev.TenantsChanged(9.0, tenants.cluster_tenants())]
    (tmp_path / "s" / "tenants.toml").unlink()
    assert other.read(10.0) == [ev.TenantsChanged(10.0)]


def _watched(make: Callable[..., Machine], tenants: Tenants, policy: str) -> Machine:
    """A machine whose scheduler looks at that file."""
    nodes = Cluster.uniform(2, tenants=tenants.cluster_tenants())
    m = make(registry.load("policy", policy), gpus=2, cluster=nodes)
    m.executor.intake.tenants = TenantWatch(tenants, tenants.cluster_tenants())
    return m


@pytest.mark.parametrize("policy", ["fifo", "fair-share", "hived", "gaiagpu", "gavel", "horus"])
def test_a_limit_that_is_raised_lets_a_job_start_and_folds_to_the_same_state(
    policy: str, machine: Callable[..., Machine], tmp_path: Path
) -> None:
    tenants = made(tmp_path, ada={"quota_gpus": 1, "limit_gpus": 1}, bob={})
    m = _watched(machine, tenants, policy)
    for name in ("a", "b"):
        m.submit(name, tenant="ada", sharing="exclusive")
    m.to(400.0)
    assert len(m.runs()) == 1
    assert m.state.cluster.tenants[0].limit_gpus == 1
    tenants.add(TenantRow(name="ada", quota_gpus=2, limit_gpus=2, weight=3.0))
    m.to(2000.0)
    assert len(m.runs()) == 2
    (changed,) = m.log(ev.TenantsChanged)
    assert changed.tenants[0] == Tenant(name="ada", quota_gpus=2, limit_gpus=2, weight=3.0)
    # Who folds the log, as a scheduler that takes over does, stands where this one stood.
    folded = State(Cluster.uniform(2), Settings())
    folded.go_live()
    for event in m.log():
        folded.apply(event)
    assert folded.cluster == m.state.cluster
    assert folded.books.limits == m.state.books.limits == {"ada": 2}
    m.begin()
    m.executor.intake.tenants = TenantWatch(tenants, ())
    m.executor.intake.tenants.recall(m.log())
    tenants.remove("ada")
    m.to(2100.0)
    assert [len(event.tenants) for event in m.log(ev.TenantsChanged)] == [2, 1]
    assert m.state.books.limits == {}
    assert len(m.runs()) == 2
