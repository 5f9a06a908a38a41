"""Campaigns that come with the package are whole, and say where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.profiles.measure.jobsfile import parse_jobs
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.measure.tables import make_tables, write_tables
from cotenant.profiles.measure.target import Target
from cotenant.profiles.shipped import read_campaign, shipped_campaign, shipped_campaigns

SHIPPED = shipped_campaigns()


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_campaign_is_whole(name: str) -> None:
    folder = SHIPPED[name]
    co_runs, solo_runs = shipped_campaign(name)  # compares the tables with the manifest
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["kind"] == "cotenant-measurement"
    assert {run.job for run in solo_runs} >= {side.job for run in co_runs for side in run.sides}
    assert {run.device_type for run in co_runs} == {manifest["machine"]["device_type"]}
    measured = [run for run in co_runs if run.status == "ok"]
    assert len(measured) >= 50
    assert all(0.02 < (side.speed or 0.0) < 1.1 for run in measured for side in run.sides)
    # It names no host, user or place.
    assert not any("/" in word.removeprefix("examples/") for word in manifest["command"])


def _campaign(folder: Path) -> None:
    folder.mkdir(parents=True)
    file = parse_jobs('[measure]\n[[job]]\nname = "a"\ncommand = ["x"]\n')
    target = Target(name="cpu:0", kind="cpu", cores=(0,), device_type="X x1", memory_mib=10.0)
    both = tuple(Member(job="a", steps=9, seconds=1.0, speed=2.0) for _ in range(2))
    alone = Member(job="a", steps=9, seconds=1.0, speed=4.0)
    repeats = [
        Repeat(session=1, at_s=0.0, jobs=("a",), members=(alone,)),
        Repeat(session=1, at_s=1.0, jobs=("a", "a"), members=both),
    ]
    write_tables(folder, make_tables(file, target, repeats))


def test_tables_are_compared_with_their_manifest(tmp_path: Path) -> None:
    import hashlib

    folder = tmp_path / "measured_mine"
    _campaign(folder)
    names = ("pairs.csv", "solo_profiles.csv")
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    assert shipped_campaigns(tmp_path) == {}  # no manifest yet
    with pytest.raises(ConfigError, match="is no folder of measurements"):
        read_campaign(folder)
    (folder / "manifest.json").write_text(json.dumps({"sha256": hashes}))
    assert shipped_campaigns(tmp_path) == {"mine": folder}
    (run,), (solo,) = shipped_campaign("mine", tmp_path)
    assert [side.speed for side in run.sides] == [0.5, 0.5]
    assert solo.throughput == 4.0
    with pytest.raises(UnknownNameError, match='no shipped campaign "minr"; did you mean "mine"'):
        shipped_campaign("minr", tmp_path)
    changed = (folder / "pairs.csv").read_text().replace(",0.5,", ",0.6,", 1)
    (folder / "pairs.csv").write_text(changed)
    with pytest.raises(ConfigError, match=r"pairs\.csv is not what its manifest names"):
        read_campaign(folder)
