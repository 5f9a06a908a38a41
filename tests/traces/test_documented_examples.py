"""The examples of the documentation do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cotenant.traces.clusterfile import read_cluster, to_toml
from cotenant.traces.load import read_trace
from cotenant.traces.nativecolumns import ALIASES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(_blocks("clusters.md", "toml")[0], encoding="utf-8")
    cluster = read_cluster(path)
    assert [node.name for node in cluster.nodes] == ["big0", "big1", "big2", "big3", "mixed", "login-1"]
    assert cluster.gpu_count == 35
    a100, old = cluster.types
    assert (a100.speed, a100.memory_bytes > 0, old.memory_bytes) == (2.5, True, 12 << 30)
    path.write_text(to_toml(cluster), encoding="utf-8")
    assert read_cluster(path) == cluster


def test_the_synthetic_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_blocks("workloads.md", "toml")[0], encoding="utf-8")
    work = read_trace(path)
    assert len(work) == 500
    assert set(work.frame["gpus"]) == {1, 8}
    assert work.frame.filter(work.frame["gpus"] == 8)["duration_s"].min() >= 1800
    assert not read_trace(path, seed=8).frame.equals(work.frame)


def test_the_native_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(_blocks("workloads.md", "csv")[0], encoding="utf-8")
    frame = read_trace(path, strict=True).frame
    assert frame["memory_bytes"].to_list() == [6 << 30, 512 << 20]


def test_the_python_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(_blocks("workloads.md", "python")[0], "workloads.md", "exec"), {})
    assert capsys.readouterr().out.startswith("2000 Synthetic jobs")
    assert len(read_trace(tmp_path / "jobs.parquet")) == 2000


def test_every_other_column_name_is_documented() -> None:
    text = (DOCS / "workloads.md").read_text(encoding="utf-8")
    assert [name for name in ALIASES if f"`{name}`" not in text] == []
