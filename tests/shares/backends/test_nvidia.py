"""MPS limits and MIG instances, against answers in the form of the tools' documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cotenant.errors import ConfigError
from cotenant.model.placement import Share
from cotenant.shares.backends.base import Want, merged
from cotenant.shares.backends.mig import Mig, plan_profile, read_created, read_instances, read_profiles
from cotenant.shares.backends.mps import CONTROL, Mps
from cotenant.shares.backends.plain import MemoryFraction

GIB = 1 << 30
LGIP = """\
+-----------------------------------------------------------------------------+
| GPU instance profiles:                                                      |
| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                              Free/Total   GiB              CE    JPEG  OFA  |
|=============================================================================|
|   0  MIG 1g.5gb        19     5/7        4.75       No     14     0     0   |
|                                                             1     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 1g.5gb+me     20     1/1        4.75       No     14     1     0   |
|                                                             1     1     1   |
+-----------------------------------------------------------------------------+
|   0  MIG 2g.10gb       14     2/3        9.75       No     28     1     0   |
|                                                             2     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 3g.20gb        9     1/2        19.62      No     42     2     0   |
|                                                             3     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 4g.20gb        5     0/1        19.62      No     56     2     0   |
|                                                             4     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 7g.40gb        0     0/1        39.50      No     98     5     0   |
|                                                             7     1     1   |
+-----------------------------------------------------------------------------+
"""
BEFORE = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)
  MIG 1g.5gb      Device  0: (UUID: MIG-11111111-0000-0000-0000-000000000000)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbbbbbb-6756-fd30-cd4a-1e6da3caf9b0)
"""
AFTER = BEFORE.replace(
    "GPU 1:", "  MIG 2g.10gb     Device  1: (UUID: MIG-22222222-0000-0000-0000-000000000000)\nGPU 1:"
)
CREATED = """\
Successfully created GPU instance ID  3 on GPU  0 using profile MIG 2g.10gb (ID 14)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  3 using profile MIG 2g.10gb (ID  1)
"""
UUID = "GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0"


def want(memory_gib: float, milli: int, **more: object) -> Want:
    share = Share("spatial", int(memory_gib * GIB), milli, milli)
    return Want(key="1.0", share=share, on_cores=False, uuids=(UUID,), device_bytes=40 * GIB, **more)  # type: ignore[arg-type]


def test_profiles_are_read() -> None:
    found = read_profiles(LGIP)
    assert [(p.name, p.id, p.free, p.total, p.sms) for p in found] == [
        ("1g.5gb", 19, 5, 7, 14),
        ("1g.5gb+me", 20, 1, 1, 14),
        ("2g.10gb", 14, 2, 3, 28),
        ("3g.20gb", 9, 1, 2, 42),
        ("4g.20gb", 5, 0, 1, 56),
        ("7g.40gb", 0, 0, 1, 98),
    ]
    assert found[0].memory_bytes == int(4.75 * GIB) and read_profiles("No MIG-enabled devices found.") == []


@pytest.mark.parametrize(
    ("memory_gib", "milli", "name"),
    [
        (4.0, 100, "1g.5gb"),  # 14 of 98 multiprocessors are 143 thousandths
        (4.0, 143, "2g.10gb"),
        (5.0, 100, "2g.10gb"),
        (4.0, 400, "3g.20gb"),
        (4.0, 430, None),  # 42 of 98 are 428; 4g.20gb is not free
        (20.0, 100, None),
    ],
)
def test_the_smallest_profile_that_holds_the_share_and_is_free(
    memory_gib: float, milli: int, name: str | None
) -> None:
    found = plan_profile(read_profiles(LGIP), want(memory_gib, milli))
    assert (found and found.name) == name


class Smi:
    """Answers as ``nvidia-smi`` would, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.made = False
        self.busy = False

    def __call__(self, words: Sequence[str]) -> str:
        line = " ".join(words)
        self.asked.append(line)
        if line == "-L":
            return AFTER if self.made else BEFORE
        if line.endswith("-lgip"):
            return LGIP
        if "-cgi" in line:
            self.made = True
            return CREATED
        if self.busy:
            raise OSError(5, "Unable to destroy GPU instance ID  3: In use by another client")
        return ""


def test_a_job_gets_an_instance_and_gives_it_back_even_to_another_scheduler(tmp_path: Path) -> None:
    smi = Smi()
    applied = Mig(tmp_path / "mig.json", smi).apply(want(8.0, 200))
    assert applied.env == {"CUDA_VISIBLE_DEVICES": "MIG-22222222-0000-0000-0000-000000000000"}
    assert smi.asked == ["-L", "mig -i 0 -lgip", "mig -i 0 -cgi 14 -C", "-L"]
    smi.asked.clear()
    smi.busy = True
    later = Mig(tmp_path / "mig.json", smi)
    later.remove("1.0")
    smi.busy = False
    later.remove("1.0")
    assert smi.asked == ["mig -i 0 -gi 3 -dci", "mig -i 0 -gi 3 -dci", "mig -i 0 -gi 3 -dgi"]
    later.remove("1.0")
    assert len(smi.asked) == 3


def test_only_devices_in_mig_mode_are_cut(tmp_path: Path) -> None:
    modes = {"[N/A]": False, "Disabled": False, "Enabled": True}
    for word, there in modes.items():
        found = Mig.detect(
            tmp_path / "mig.json", lambda _, word=word: f"GPU-other, Disabled\n{UUID}, {word}\n"
        )
        assert (found is not None) is there

    def silent(_: Sequence[str]) -> str:
        raise OSError(2, "No such file or directory: 'nvidia-smi'")

    assert Mig.detect(tmp_path / "mig.json", silent) is None
    smi = Smi()
    other = Mig(tmp_path / "mig.json", smi, uuids=frozenset({"GPU-other"}))
    assert other.apply(want(8.0, 200)).env == {} and smi.asked == []


def test_a_share_that_no_profile_holds_is_an_error_with_nothing_made(tmp_path: Path) -> None:
    smi = Smi()
    with pytest.raises(OSError, match="no MIG profile of GPU 0"):
        Mig(tmp_path / "mig.json", smi).apply(want(30.0, 100))
    assert not smi.made and not (tmp_path / "mig.json").exists()


def test_words_of_a_tool_that_refuses_are_no_instance() -> None:
    told = "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources"
    assert read_created(told) is None and read_created(CREATED) == (0, 3)
    assert read_instances("No devices were found\n") == {}


def test_an_mps_client_starts_with_its_limits_and_leaves_through_the_server() -> None:
    """C60: a client is ended through the server, before its process is."""
    answers = {"get_server_list": "27119\n", "get_client_list 27119": "27133\n27136\n"}
    mps = Mps(answers.__getitem__, {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})
    applied = mps.apply(want(6.0, 400))
    assert applied.env == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=6144M",
    }
    assert applied.stop_commands == ({"argv": [CONTROL], "input": "terminate_client 27119 {pid}\n"},)
    assert mps.clients(27119) == [27133, 27136] and not mps.enforcement.fault_isolation


def test_mps_is_there_only_if_its_daemon_answers() -> None:
    def silent(words: str) -> str:
        raise ConfigError("Cannot find MPS control daemon process")

    assert Mps.detect(silent) is None
    assert Mps(silent).servers() == [] and Mps.detect(lambda _: "") is not None


def test_the_allocators_fraction_is_rounded_down() -> None:
    applied = MemoryFraction().apply(want(10.0 / 3.0, 400))
    assert applied.env == {
        "COTENANT_MEMORY_BYTES": str(int(10 / 3 * GIB)),
        "COTENANT_MEMORY_FRACTION": "0.083333",
    }
    assert (
        merged([applied, Mps(lambda _: "", {}).apply(want(1.0, 500))]).env[
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
        ]
        == "50"
    )
