"""A job's saved state goes to the registry and comes back byte for byte; equal weights are kept once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.errors import FencedError, NotFoundError, StateError
from cotenant.pools.blocks import BLOCK_BYTES, Tier
from cotenant.pools.fsck import fsck
from cotenant.pools.registry import StateRegistry
from cotenant.pools.states import absorb, cuts, restore


@pytest.fixture
def folder() -> Iterator[Path]:
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cotenant-test-", dir=shared) as name:
        yield Path(name)


@pytest.fixture
def registry(folder: Path) -> Iterator[StateRegistry]:
    tiers = [
        Tier(name="memory", path=folder / "memory", limit_bytes=3_000_000, durable=False),
        Tier(name="disk", path=folder / "disk"),
    ]
    with StateRegistry(folder / "books", tiers) as registry:
        yield registry


def _held(registry: StateRegistry) -> dict[str, int]:
    return {tier.name: tier.held_bytes for tier in registry.stats().tiers}


def test_there_and_back(folder: Path, registry: StateRegistry) -> None:
    state = folder / "state"
    (state / "trainer").mkdir(parents=True)
    contents = {"state-1.pt": os.urandom(1_000_000), "trainer/a.json": b"{}", "trainer/empty": b""}
    for name, data in contents.items():
        (state / name).write_bytes(data)
    (state / "tmp-9-1").write_bytes(b"unfinished")
    done = absorb(state, registry, 3, 120)
    assert (done.version, done.size_bytes, done.new_bytes) == (1, 1_000_002, 1_000_002)
    assert done.tiers == ("memory", "disk")
    assert not (state / "state-1.pt").exists()
    assert restore(registry, 3, folder / "again") == 120
    found = {
        p.relative_to(folder / "again").as_posix(): p for p in (folder / "again").rglob("*") if p.is_file()
    }
    assert {name: path.read_bytes() for name, path in found.items()} == contents


def test_host_memory_if_there_is_room_else_disk(folder: Path, registry: StateRegistry) -> None:
    for job in (1, 2, 3):
        (folder / f"s{job}").mkdir()
        (folder / f"s{job}" / "x").write_bytes(os.urandom(2_000_000))
        assert absorb(folder / f"s{job}", registry, job, 1).tiers == ("memory", "disk")
    # Copies in memory are spare, the last states push older ones out.
    assert _held(registry) == {"memory": 2_000_000, "disk": 6_000_000}
    registry.pin(3, 1)
    (folder / "s4").mkdir()
    (folder / "s4" / "x").write_bytes(os.urandom(2_000_000))
    assert absorb(folder / "s4", registry, 4, 1).tiers == ("disk",)
    assert absorb_memory_only(folder, registry) == ("memory",)
    assert fsck(registry).clean


def absorb_memory_only(folder: Path, registry: StateRegistry) -> tuple[str, ...]:
    (folder / "s5").mkdir()
    (folder / "s5" / "x").write_bytes(os.urandom(500_000))
    return absorb(folder / "s5", registry, 5, 1, durable=False).tiers


def test_jobs_with_the_same_base_weights_share_them(folder: Path, registry: StateRegistry) -> None:
    torch = pytest.importorskip("torch")
    base = torch.randn(300_000, generator=torch.Generator().manual_seed(1))
    for job, width in ((1, 10), (2, 777)):
        state = folder / f"s{job}"
        state.mkdir()
        content = {"head": torch.full((width,), float(job)), "base": base, "note": "x" * 50 * job}
        torch.save(content, state / "state.pt")
        start, end = cuts(state / "state.pt")
        # The cut lies where the tensor's bytes begin, wherever in the file that is.
        assert (state / "state.pt").read_bytes()[start:end] == base.numpy().tobytes()
        done = absorb(state, registry, job, 5)
        assert (done.new_bytes < 20_000) == (job == 2)
    stats = registry.stats()
    assert stats.published_bytes - stats.distinct_bytes == 1_200_000
    registry.drop(1)
    restore(registry, 2, folder / "again")
    assert torch.equal(torch.load(folder / "again" / "state.pt", weights_only=True)["base"], base)


def test_a_file_of_several_blocks(folder: Path, registry: StateRegistry) -> None:
    state = folder / "state"
    state.mkdir()
    data = os.urandom(BLOCK_BYTES + 5)
    (state / "big").write_bytes(data)
    absorb(state, registry, 1, 1, delete=False)
    assert len(registry.open(1).blocks) == 2
    restore(registry, 1, folder / "again")
    assert (folder / "again" / "big").read_bytes() == data


def test_what_is_refused(folder: Path, registry: StateRegistry) -> None:
    with pytest.raises(NotFoundError, match="no saved state of job 1"):
        absorb(folder / "none", registry, 1, 1)
    with pytest.raises(NotFoundError):
        restore(registry, 1, folder / "again")
    state = folder / "state"
    state.mkdir()
    (state / "x").write_bytes(b"x")
    registry.lease(1, "newer", 9)
    with pytest.raises(FencedError):
        absorb(state, registry, 1, 1, epoch=8)
    # Refused, it leaves the job's files alone and holds nothing.
    assert (state / "x").read_bytes() == b"x"
    assert registry.stats().held == 0
    (state / "link").symlink_to("/etc/passwd")
    with pytest.raises(StateError, match="files and folders only"):
        absorb(state, registry, 1, 1, epoch=9)
    evil = '{"step": 1, "files": [{"path": "../out", "size": 1, "blocks": 1}]}'
    registry.publish(2, 1, [registry.put(b"x")], epoch=1, meta=evil)
    with pytest.raises(StateError, match="outside its folder"):
        restore(registry, 2, folder / "again")
    assert not (folder / "out").exists()


def test_a_lost_block_is_told_and_leaves_no_half_file(folder: Path, registry: StateRegistry) -> None:
    state = folder / "state"
    state.mkdir()
    (state / "x").write_bytes(b"x" * 100)
    absorb(state, registry, 1, 1)
    for blocks in registry.books_of()[1].values():
        for block in blocks.list():
            blocks.file(block).write_bytes(b"y" * 100)
    with pytest.raises(StateError, match="damaged"):
        restore(registry, 1, folder / "again")
    assert list((folder / "again").iterdir()) == []
