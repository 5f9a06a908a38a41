"""The registry of state blocks: nothing that is needed is lost, limits hold, whoever dies."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cotenant.errors import ConflictError, FencedError, InputError, NotFoundError, StateError, StoreError
from cotenant.pools.blocks import BLOCK_BYTES, Tier, block_id
from cotenant.pools.fsck import fsck
from cotenant.pools.registry import StateRegistry

SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cotenant-test-", dir=SHARED) as name:
        yield Path(name)


def _open(folder: Path, memory: int | None = 1000, disk: int | None = None) -> StateRegistry:
    return StateRegistry(
        folder / "books",
        [
            Tier(name="memory", path=folder / "memory", limit_bytes=memory, durable=False),
            Tier(name="disk", path=folder / "disk", limit_bytes=disk),
        ],
    )


def _tier(registry: StateRegistry, name: str) -> Any:
    return next(tier for tier in registry.stats().tiers if tier.name == name)


def test_published_is_read_again_by_whoever_opens_it(folder: Path) -> None:
    with _open(folder) as registry:
        blocks = [registry.put(b"a" * 300), registry.put(b"b" * 200, ["memory"])]
        assert blocks[0] == block_id(b"a" * 300)
        registry.publish(7, 1, blocks, epoch=3, meta="step 40")
    with _open(folder) as registry, registry.open(7) as reader:
        assert (reader.version, reader.meta, list(reader)) == (1, "step 40", [b"a" * 300, b"b" * 200])
        assert reader.valid
        assert fsck(registry).clean
        with pytest.raises(NotFoundError, match="no saved state of job 8"):
            registry.open(8)


def test_two_jobs_with_the_same_weights_keep_them_once(folder: Path) -> None:
    with _open(folder) as registry:
        for job in (1, 2):
            registry.publish(job, 1, [registry.put(b"w" * 400), registry.put(b"%d" % job * 50)], epoch=1)
        stats = registry.stats()
        assert (stats.published_bytes, stats.distinct_bytes) == (900, 500)
        assert _tier(registry, "disk").held_bytes == 500
        registry.drop(1)
        with registry.open(2) as reader:
            assert list(reader) == [b"w" * 400, b"2" * 50]


def test_a_stale_epoch_is_refused(folder: Path) -> None:
    with _open(folder) as registry:
        registry.lease(1, "second scheduler", 5)
        block = registry.put(b"x")
        with pytest.raises(FencedError, match="epoch 4 is over, epoch 5 writes it"):
            registry.publish(1, 1, [block], epoch=4)
        with pytest.raises(FencedError):
            registry.lease(1, "first scheduler", 4)
        registry.publish(1, 1, [block], epoch=6)
        with pytest.raises(FencedError):
            registry.publish(1, 2, [block], epoch=5)


def test_a_new_version_tells_those_who_read_the_old_one(folder: Path) -> None:
    with _open(folder) as registry:
        registry.publish(1, 1, [registry.put(b"old1"), registry.put(b"old2")], epoch=1)
        reader = registry.open(1)
        assert reader.read(0) == b"old1"
        registry.publish(1, 2, [registry.put(b"new")], epoch=1)
        assert not reader.valid
        with pytest.raises(ConflictError, match="superseded while it was read"):
            reader.read(1)
        with registry.open(1) as newer:
            assert list(newer) == [b"new"]


def test_versions_go_up_and_saying_the_same_again_does_nothing(folder: Path) -> None:
    with _open(folder) as registry:
        block = registry.put(b"x")
        registry.publish(1, 4, [block], epoch=1)
        registry.publish(1, 4, [block], epoch=1)
        with pytest.raises(ConflictError, match="version 4 after version 4"):
            registry.publish(1, 4, [registry.put(b"y")], epoch=1)
        with pytest.raises(ConflictError, match="version 3 after version 4"):
            registry.publish(1, 3, [block], epoch=1)
        with pytest.raises(StateError, match="is not there; put it before"):
            registry.publish(1, 5, ["0" * 64], epoch=1)


def test_the_least_recently_used_goes_first_and_what_disk_has_not_moves_there(folder: Path) -> None:
    with _open(folder, memory=300) as registry:
        for job in (1, 2, 3):
            registry.publish(job, 1, [registry.put(b"%d" % job * 100, ["memory"])], epoch=1)
        with registry.open(1) as reader:
            assert reader.read(0) == b"1" * 100  # now job 2's is the oldest
        registry.publish(4, 1, [registry.put(b"4" * 100, ["memory"])], epoch=1)
        assert (_tier(registry, "memory").held_bytes, _tier(registry, "disk").held_bytes) == (300, 100)
        assert not registry.books_of()[1]["memory"].has(block_id(b"2" * 100), 100)
        with registry.open(2) as reader:
            assert reader.read(0) == b"2" * 100


def test_pinned_read_and_unpublished_blocks_stay_and_no_room_is_said(folder: Path) -> None:
    with _open(folder, memory=300, disk=100) as registry:
        registry.publish(1, 1, [registry.put(b"p" * 100, ["memory"])], epoch=1)
        registry.pin(1, 1)
        registry.publish(2, 1, [registry.put(b"r" * 100, ["memory"])], epoch=1)
        reader = registry.open(2)
        registry.put(b"h" * 100, ["memory"])
        with pytest.raises(StoreError, match=r"tier memory: no room for 50 bytes: 300 of 300 are held"):
            registry.put(b"n" * 50, ["memory"])
        reader.close()
        registry.put(b"n" * 50, ["memory"])  # job 2's has moved to disk
        assert _tier(registry, "disk").held_bytes == 100
        registry.unpin(1, 1)
        with pytest.raises(StoreError, match="cannot move to disk"):
            registry.evict("memory", 150)
        assert fsck(registry).clean


def test_a_tier_shrinks_as_far_as_what_it_holds_can_go(folder: Path) -> None:
    with _open(folder) as registry:
        registry.publish(1, 1, [registry.put(b"x" * 400, ["memory", "disk"])], epoch=1)
        registry.pin(1, 1)
        with pytest.raises(StoreError):
            registry.resize("memory", 100)
        assert _tier(registry, "memory").limit_bytes == 1000
        registry.unpin(1, 1)
        registry.resize("memory", 100)
        assert _tier(registry, "memory").held_bytes == 0
        with registry.open(1) as reader:
            assert reader.read(0) == b"x" * 400


def test_a_damaged_copy_is_given_up_for_a_good_one(folder: Path) -> None:
    with _open(folder) as registry:
        block = registry.put(b"x" * 400, ["memory", "disk"])
        registry.publish(1, 1, [block], epoch=1)
        folders = registry.books_of()[1]
        folders["memory"].file(block).write_bytes(b"y" * 400)
        assert fsck(registry).torn == (f"memory/{block}",)
        with registry.open(1) as reader:
            assert reader.read(0) == b"x" * 400
            assert fsck(registry).clean
            folders["disk"].file(block).write_bytes(b"z" * 400)
            assert fsck(registry).lost == ((1, 1),)
            with pytest.raises(StateError, match="block is damaged"):
                reader.read(0)


def test_memory_that_is_gone_after_a_restart(folder: Path) -> None:
    with _open(folder) as registry:
        registry.publish(1, 1, [registry.put(b"both" * 9, ["memory", "disk"])], epoch=1)
        registry.publish(2, 1, [registry.put(b"memory only", ["memory"])], epoch=1)
    shutil.rmtree(folder / "memory")
    with _open(folder) as registry:
        with registry.open(1) as reader:
            assert list(reader) == [b"both" * 9]
        assert fsck(registry).lost == ((2, 1),)
        with registry.open(2) as reader, pytest.raises(StateError, match="is in no tier"):
            reader.read(0)


def test_what_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="last one durable"):
        StateRegistry(folder, [Tier(name="memory", path=folder, durable=False)])
    with _open(folder) as registry:
        with pytest.raises(InputError, match="more than 16777216 bytes"):
            registry.put(b"\0" * (BLOCK_BYTES + 1))
        with pytest.raises(InputError, match="no tier 'tape'"):
            registry.put(b"", ["tape"])
    (folder / "books" / "registry.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match=r"registry\.db"):
        _open(folder)


def test_threads_share_one_registry(folder: Path) -> None:
    with _open(folder, memory=2000) as registry:
        problems: list[BaseException] = []

        def work(job: int) -> None:
            try:
                for version in range(1, 8):
                    blocks = [
                        registry.put(b"%d-%d" % (job, version) * 20, ["memory"]),
                        registry.put(b"same" * 9),
                    ]
                    registry.publish(job, version, blocks, epoch=1)
                    with registry.open(job) as reader:
                        assert list(reader) == [b"%d-%d" % (job, version) * 20, b"same" * 9]
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(job,)) for job in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(180)
        assert problems == []
        assert fsck(registry).clean


_KILLED = """
import random, sys
from pathlib import Path
from cotenant.pools.blocks import Tier
from cotenant.pools.registry import StateRegistry
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
draw = random.Random(seed)
registry = StateRegistry(folder / "books", [
    Tier(name="memory", path=folder / "memory", limit_bytes=6000, durable=False),
    Tier(name="disk", path=folder / "disk", limit_bytes=20000)])
print("open", flush=True)
while True:
    job = draw.randrange(4)
    version = (registry.newest(job) or 0) + 1
    blocks = [registry.put(draw.randbytes(draw.choice([10, 500, 1500])), draw.choice([["memory"], ["disk"]]))
              for _ in range(draw.randrange(1, 4))]
    registry.publish(job, version, blocks, epoch=1, meta=" ".join(blocks))
    print(job, version, flush=True)
"""


def test_killed_at_any_instant_the_registry_opens_whole(folder: Path) -> None:
    draw = random.Random(1)
    published: dict[int, int] = {}
    for life in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(folder), str(life)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        # One state at least, however slow the machine is.
        first = process.stdout.readline()
        time.sleep(draw.uniform(0.0, 0.25))
        process.send_signal(signal.SIGKILL)
        for line in (first, *process.stdout.read().splitlines(keepends=True)):
            if line.endswith("\n"):
                job, version = map(int, line.split())
                published[job] = version
        process.wait(180)
        process.stdout.close()
        with _open(folder, memory=6000, disk=20000) as registry:
            assert fsck(registry).clean
            assert registry.stats().held == 0  # what the dead one held is free
            for job, version in published.items():
                with registry.open(job) as reader:
                    # Told means published; at most one more may have been, without being told.
                    assert reader.version in (version, version + 1)
                    assert [block_id(data) for data in reader] == reader.meta.split()
                    published[job] = reader.version
    assert len(published) == 4


@settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
class Machine(RuleBasedStateMachine):
    """Against a model: a dictionary of what is published, pinned and being read."""

    @initialize(memory=st.sampled_from([150, 300, 1000]), disk=st.sampled_from([400, 1000, None]))
    def begin(self, memory: int, disk: int | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-test-", dir=SHARED))
        self.open = lambda: _open(self.folder, memory, disk)
        self.limits = {"memory": memory, "disk": disk}
        self.registry = self.open()
        self.published: dict[tuple[int, int], list[bytes]] = {}
        self.last: dict[int, int] = {}
        self.pins: set[tuple[int, int]] = set()
        self.readers: list[Any] = []

    def teardown(self) -> None:
        if hasattr(self, "registry"):
            self.registry.close()
            shutil.rmtree(self.folder)

    @rule(
        job=st.integers(0, 3),
        sizes=st.lists(st.sampled_from([1, 40, 90, 140]), min_size=1, max_size=3),
        letters=st.sampled_from([b"a", b"b", b"c"]),
        tiers=st.sampled_from([("memory",), ("disk",), ("memory", "disk")]),
    )
    def save(self, job: int, sizes: list[int], letters: bytes, tiers: tuple[str, ...]) -> None:
        contents = [letters * size for size in sizes]
        blocks: list[str] = []
        try:
            for content in contents:
                blocks.append(self.registry.put(content, tiers))
        except StoreError:
            self.registry.release(blocks)
            return
        version = self.last.get(job, 0) + 1
        self.registry.publish(job, version, blocks, epoch=1)
        for old in [key for key in self.published if key[0] == job and key not in self.pins]:
            del self.published[old]
        self.published[job, version], self.last[job] = contents, version

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.published)))
        self.registry.pin(*key)
        self.pins.add(key)

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.pins)))
        self.registry.unpin(*key)
        self.pins.remove(key)

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        self.readers.append(self.registry.open(*data.draw(st.sampled_from(sorted(self.published)))))

    @precondition(lambda self: self.readers)
    @rule()
    def stop_reading(self) -> None:
        self.readers.pop(0).close()

    @rule(job=st.integers(0, 3))
    def drop(self, job: int) -> None:
        self.registry.drop(job)
        self.pins = {key for key in self.pins if key[0] != job}
        self.published = {key: value for key, value in self.published.items() if key[0] != job}

    @rule(tier=st.sampled_from(["memory", "disk"]), size=st.sampled_from([50, 200]))
    def evict(self, tier: str, size: int) -> None:
        try:
            self.registry.evict(tier, size)
        except StoreError:
            return

    @rule()
    def again(self) -> None:
        self.registry.close()
        self.readers.clear()
        self.registry = self.open()

    @invariant()
    def nothing_needed_is_lost_and_limits_hold(self) -> None:
        if not hasattr(self, "registry"):
            return
        folders = self.registry.books_of()[1]
        for contents in self.published.values():
            for content in contents:
                assert any(folder.has(block_id(content), len(content)) for folder in folders.values())
        stats = self.registry.stats()
        for tier in stats.tiers:
            limit = self.limits[tier.name]
            assert limit is None or tier.held_bytes <= limit
            files = [folders[tier.name].file(block) for block in folders[tier.name].list()]
            assert sum(file.stat().st_size for file in files) == tier.held_bytes
            assert len(files) == tier.blocks
        assert stats.versions == len(self.published)
        assert stats.published_bytes == sum(len(c) for contents in self.published.values() for c in contents)
        distinct = {c for contents in self.published.values() for c in contents}
        assert stats.distinct_bytes == sum(map(len, distinct))
        assert stats.pinned == len(self.pins)
        assert stats.held == 0
        assert fsck(self.registry).clean


TestMachine = Machine.TestCase
