"""Cgroups: version 1 for real where we may write it, version 2 on files like the kernel's, and for real what is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.executors.local.freezing import Freezer
from cotenant.model.placement import Share
from cotenant.shares.backends.base import Want
from cotenant.shares.backends.cgroup1 import CgroupV1
from cotenant.shares.backends.cgroup2 import CgroupV2
from cotenant.shares.backends.detect import for_cores
from cotenant.shares.backends.groups import own_groups, put, read_counter
from cotenant.shares.backends.plain import DutyCycleBackend

GIB = 1 << 30


def want(share: Share, cores: tuple[int, ...] = (0,), **more: object) -> Want:
    return Want(key="5.0", share=share, devices=len(cores), cores=cores, **more)  # type: ignore[arg-type]


@pytest.fixture
def one() -> Iterator[CgroupV1]:
    found = CgroupV1.detect(f"cotenant-test-{os.getpid()}")
    if found is None:
        pytest.skip("cgroups of version 1 are not ours to write")
    yield found
    found.remove("5.0")
    found.tidy()


def read(found: dict[str, Path], name: str, file: str) -> str:
    return (found[name] / file).read_text().strip()


def test_version_1_holds_quota_weight_and_memory(one: CgroupV1) -> None:
    applied = one.apply(want(Share("spatial", GIB, 300, 450), (0, 1)))
    folders = one._folders("5.0")
    # 450 thousandths of two cores are 0.9 of one, in each 100 ms; memory is of each device.
    assert (
        read(folders, "cpu", "cpu.cfs_quota_us") == "90000"
        and read(folders, "cpu", "cpu.cfs_period_us") == "100000"
    )
    assert read(folders, "cpu", "cpu.shares") == "614"
    if "memory" in folders:
        assert read(folders, "memory", "memory.limit_in_bytes") == str(2 * GIB)
    one.adjust(want(Share("spatial", GIB // 2, 300, 1000), (0, 1)))
    assert read(folders, "cpu", "cpu.cfs_quota_us") == "-1", (
        "up to the whole: nothing to hold, nothing to pay"
    )
    if "memory" in folders:
        assert read(folders, "memory", "memory.limit_in_bytes") == str(GIB)
    assert applied.procs and set(applied.remove) == {str(p) for p in folders.values()}
    one.remove("5.0")
    assert not any(path.exists() for path in folders.values())


def test_what_another_scheduler_tidied_away_is_made_again(one: CgroupV1) -> None:
    weight = (one._parents["cpu"] / "cpu.shares").read_text()
    assert int(weight) >= 1024
    one.tidy()
    assert not one._parents["cpu"].exists()
    one.apply(want(Share("spatial", 0, 500, 500)))
    assert (one._parents["cpu"] / "cpu.shares").read_text() == weight


def test_version_1_is_not_taken_where_it_cannot_be_written(tmp_path: Path) -> None:
    mounts = f"cgroup {tmp_path} cgroup rw,cpu 0 0"
    assert CgroupV1.detect("x", mounts=mounts, groups="1:cpu:/") is None, (
        "a folder without the kernel's files"
    )
    assert CgroupV1.detect("x", mounts="", groups="") is None
    assert list(tmp_path.iterdir()) == []


def test_our_own_group_is_where_the_kernel_says() -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ntmpfs /run tmpfs rw 0 0"
    found = own_groups(mounts, "0::/user.slice/user-1000.slice")
    assert set(found) == {"unified"} and str(found["unified"]).startswith("/sys/fs/cgroup")
    assert own_groups("", "0::/") == {}


def fake_group(folder: Path, controllers: str, subtree: str, procs: str = "") -> Path:
    folder.mkdir()
    for name, text in (
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", subtree),
        ("cgroup.procs", procs),
    ):
        (folder / name).write_text(text)
    return folder


KERNEL = (
    "cpu.max",
    "cpu.weight",
    "memory.max",
    "memory.swap.max",
    "cgroup.procs",
    "cgroup.freeze",
    "cgroup.kill",
)


def test_version_2_writes_what_the_kernel_reads(tmp_path: Path) -> None:
    own = fake_group(tmp_path / "own", "cpu memory io", "cpu memory")
    (own / "scope").mkdir()
    (own / "scope" / "cgroup.subtree_control").touch()
    (own / "scope" / "5.0").mkdir()
    for name in KERNEL:
        (own / "scope" / "5.0" / name).touch()
    two = CgroupV2.below(own, "scope")
    assert two is not None and two.enforcement.memory == "hard"
    assert (own / "scope" / "cgroup.subtree_control").read_text() == "+cpu +memory"
    applied = two.apply(want(Share("spatial", GIB, 250, 300), (0, 1)))
    folder = own / "scope" / "5.0"
    assert [(folder / n).read_text() for n in KERNEL[:4]] == ["60000 100000", "50", str(2 * GIB), "0"]
    assert applied.freezer == str(folder / "cgroup.freeze") and applied.kill_file == str(
        folder / "cgroup.kill"
    )
    for name in KERNEL[:4]:
        (folder / name).write_text("")
    two.adjust(want(Share("exclusive"), (0, 1), host_memory_bytes=3 * GIB))
    assert [(folder / n).read_text() for n in KERNEL[:3]] == ["max 100000", "200", str(3 * GIB)]
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert two.use_s("5.0") == 2.5 and two.memory_bytes("5.0") is None
    (folder / "memory.stat").write_text("anon 1000\nfile 500000\nshmem 24\n")
    assert two.memory_bytes("5.0") == 1024, "what the kernel keeps of files is not the job's"


def test_version_2_leaves_a_group_that_others_are_in_alone(tmp_path: Path) -> None:
    own = fake_group(tmp_path / "own", "cpu memory", "", procs=f"{os.getpid()}\n1\n")
    with pytest.raises(OSError, match="holds other processes"):
        CgroupV2.below(own, "scope")
    assert CgroupV2.below(fake_group(tmp_path / "poor", "hugetlb", ""), "scope") is None
    alone = fake_group(tmp_path / "alone", "cpu", "", procs=f"{os.getpid()}\n")
    (alone / "cotenant-daemon").mkdir()
    (alone / "cotenant-daemon" / "cgroup.procs").touch()
    (alone / "scope").mkdir()
    (alone / "scope" / "cgroup.subtree_control").touch()
    assert CgroupV2.below(alone, "scope") is not None
    assert (alone / "cotenant-daemon" / "cgroup.procs").read_text() == str(os.getpid())
    assert (alone / "cgroup.subtree_control").read_text() == "+cpu"


@pytest.fixture
def real_two() -> Iterator[Path]:
    try:
        own = own_groups(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text()).get(
            "unified"
        )
        assert own is not None
        folder = own / f"cotenant-test-{os.getpid()}"
        folder.mkdir()
    except (OSError, AssertionError):
        pytest.skip("no cgroup of version 2 is ours to write")
    if not (folder / "cgroup.kill").exists():
        folder.rmdir()
        pytest.skip("this kernel's version 2 cannot kill")
    yield folder
    for _ in range(200):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.01)


def hold(freezer: Freezer) -> None:
    """Freeze, with as many tries as a loaded machine needs."""
    end = time.monotonic() + 30
    while not freezer.freeze():
        assert time.monotonic() < end


def test_the_kernels_own_freeze_and_kill(real_two: Path) -> None:
    # It forks only once it is in the group: what is born earlier stays outside, and would outlive the test.
    code = "import os, time\ninput()\nif os.fork() == 0: os.setsid()\nwhile True: time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as busy:
        put(real_two / "cgroup.procs", busy.pid)
        assert busy.stdin is not None
        busy.stdin.write(b"\n")
        busy.stdin.flush()
        while len((real_two / "cgroup.procs").read_text().split()) < 2:
            assert busy.poll() is None
            time.sleep(0.01)
        freezer = Freezer(str(real_two / "cgroup.freeze"))
        hold(freezer)
        assert "frozen 1" in (real_two / "cgroup.events").read_text()
        freezer.thaw()
        assert "frozen 1" not in (real_two / "cgroup.events").read_text()
        put(real_two / "cgroup.kill", 1)
        assert busy.wait() == -9
    end = time.monotonic() + 30
    while (real_two / "cgroup.procs").read_text().strip():
        assert time.monotonic() < end, "the one in a session of its own is killed too"
        time.sleep(0.01)


def test_the_freezer_of_version_1_holds_a_job_still(one: CgroupV1) -> None:
    if "freezer" not in one._parents:
        pytest.skip("the freezer is not ours to write")
    applied = one.apply(want(Share("spatial", 0, 500, 500)))
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as busy:
        for path in applied.procs:
            put(path, busy.pid)
        assert one.pids("5.0") == [busy.pid]
        freezer = Freezer(applied.freezer)
        hold(freezer)
        before = one.use_s("5.0")
        time.sleep(0.1)
        assert before is not None and one.use_s("5.0") == before
        freezer.thaw()
        busy.kill()
    assert read_counter(applied.oom_files[0], "oom_kill") in (0, None) if applied.oom_files else True


def test_what_the_kernels_groups_do_not_hold_is_held_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = fake_group(tmp_path / "own", "memory pids", "memory")
    (own / "scope").mkdir()
    (own / "scope" / "cgroup.subtree_control").touch()
    memory_alone = CgroupV2.below(own, "scope")
    assert memory_alone is not None and memory_alone.enforcement.compute == "none"
    monkeypatch.setattr(CgroupV1, "detect", lambda scope: None)
    monkeypatch.setattr(CgroupV2, "detect", lambda scope: memory_alone)
    tables = [(b.name, b.enforcement.memory, b.enforcement.compute) for b in for_cores("scope")]
    assert tables == [("cgroup v2", "hard", "none"), ("duty cycle", "none", "averaged")]
    monkeypatch.setattr(CgroupV2, "detect", lambda scope: None)
    assert [b.name for b in for_cores("scope")] == ["duty cycle"]
    own = fake_group(tmp_path / "cpu", "cpu", "cpu")
    (own / "scope").mkdir()
    (own / "scope" / "cgroup.subtree_control").touch()
    cpu_alone = CgroupV2.below(own, "scope")
    monkeypatch.setattr(CgroupV2, "detect", lambda scope: cpu_alone)
    assert [b.name for b in for_cores("scope")] == ["cgroup v2", "writable memory"]


def test_without_cgroups_memory_is_of_each_process_and_said_to_be_advisory() -> None:
    backend = DutyCycleBackend()
    applied = backend.apply(want(Share("spatial", 2 * GIB, 400, 600), (0, 1)))
    assert applied.duty == 2 and applied.data_bytes == 5 * GIB + GIB // 4
    assert backend.enforcement.memory == "advisory" and backend.apply(want(Share())).duty == 0
