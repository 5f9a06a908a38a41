"""Output folders: nothing that is not ours is ever removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import ConfigError
from cotenant.profiles.hashes import sha256_of
from cotenant.runs.folders import claim, earlier_runs, is_ours, write_json
from cotenant.runs.manifest import Manifest, RunEntry, new_manifest, read_manifest, write_manifest
from cotenant.runs.result import Result


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    claim(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_with_other_things_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not empty and holds no earlier run"):
        claim(tmp_path)
    claim(tmp_path, force=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_force_does_not_remove_a_runs_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(ConfigError, match="is not ours"):
        claim(tmp_path, force=True)
    assert (tmp_path / "runs").is_dir()


def test_an_earlier_run_of_ours_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    write_manifest(tmp_path, new_manifest())
    (tmp_path / "runs" / "fifo").mkdir(parents=True)
    (tmp_path / "notes.md").write_text("mine")
    assert is_ours(tmp_path)
    claim(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.md"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        claim(tmp_path / "out")


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = new_manifest(
        seeds=[0], runs=[RunEntry(policy="fifo", seed=0, folder="runs/fifo/seed-0", status="complete")]
    )
    write_manifest(tmp_path, manifest)
    back, folder = read_manifest(tmp_path)
    assert back == manifest
    assert folder == tmp_path
    assert back.complete
    assert back.versions["polars"]
    assert not any(p.name.endswith(".tmp") for p in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"[]", "is not a manifest"),
        (b'{"kind": "other"}', "is not a manifest"),
        (b'{"kind": "cotenant-run", "schema": 99, "version": "9.9"}', "schema 99.*use cotenant 9.9"),
        (b'{"kind": "cotenant-run", "schema": 1, "runs": 3}', "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_damaged_manifest_gives_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_manifest(tmp_path / "manifest.json")


def test_a_missing_manifest_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no manifest.json in it"):
        read_manifest(tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        read_manifest(tmp_path / "absent.json")


def test_hashes_are_those_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    assert sha256_of(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    write_json(tmp_path / "m.json", Manifest())
    assert (tmp_path / "m.json").read_bytes().endswith(b"}\n")


def test_runs_of_another_policy_or_seed_are_kept_where_one_alone_is_written(tmp_path: Path) -> None:
    runs = [RunEntry(policy=p, seed=s, folder=f"runs/{p}/seed-{s}") for p, s in (("fifo", 0), ("las", 1))]
    write_manifest(tmp_path, new_manifest(runs=runs))
    assert earlier_runs(tmp_path) == [("fifo", 0), ("las", 1)]
    with pytest.raises(ConfigError, match=r"holds earlier runs \(las seed 1\), which this one would replace"):
        claim(tmp_path, only=("fifo", 0))
    assert is_ours(tmp_path)
    assert claim(tmp_path, only=("fifo", 0), force=True) == "fifo seed 0, las seed 1"
    assert not is_ours(tmp_path)
    write_manifest(tmp_path, new_manifest(runs=runs[:1]))
    assert claim(tmp_path, only=("fifo", 0)) == "fifo seed 0"
    assert claim(tmp_path) == ""


def test_which_run_of_several_is_asked_with_an_example(tmp_path: Path) -> None:
    runs = [
        RunEntry(policy=p, seed=0, folder=f"runs/{p}/seed-0", status="complete", log_sha256="0")
        for p in ("fifo", "las")
    ]
    write_manifest(tmp_path, new_manifest(runs=runs))
    with pytest.raises(
        ConfigError, match=r"2 runs; say which, .*policy='fifo', seed=0\); it has: fifo seed 0, las"
    ):
        Result.open(tmp_path)
    with pytest.raises(ConfigError, match="no run of policy 'srtf', seed 3; it has: fifo seed 0, las seed 0"):
        Result.open(tmp_path, "srtf", 3)
    assert Result.open(tmp_path, "las").policy == "las"
