"""The real binding over a library of our own: devices, processes, what is missing, what is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import ConfigError

READ = """
import json, msgspec, sys
from cotenant.errors import ConfigError
from cotenant.profiles.samplers.nvml import NvmlSampler
try:
    sampler = NvmlSampler(*sys.argv[1:])
except ConfigError as error:
    print(json.dumps({"error": str(error)}))
    sys.exit(0)
found = [msgspec.to_builtins(sampler.read()) for _ in range(2)]
sampler.close()
sampler.close()
print(json.dumps(found))
"""


def _read(library: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", READ, *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_devices_and_processes_come_through_the_binding(nvml_library: Path) -> None:
    first, _ = _read(nvml_library)
    gpu = first["devices"][0]
    assert (gpu["device"], gpu["index"], gpu["model"]) == ("GPU-aa", 0, "NVIDIA A100-SXM4-80GB")
    assert (gpu["busy_pct"], gpu["memory_busy_pct"], gpu["power_w"]) == (87.0, 41.0, 245.5)
    assert (gpu["memory_total_mib"], gpu["memory_used_mib"]) == (81559.0, 3000.0)
    processes = {p["pid"]: p for p in first["processes"]}
    assert processes[101]["memory_used_mib"] == 2000.0
    assert processes[101]["busy_pct"] == 50.0  # samples of 40 and 60
    assert processes[102]["busy_pct"] == 20.0


def test_nvml_never_gives_what_it_does_not_measure(nvml_library: Path) -> None:
    gpu = _read(nvml_library)[0]["devices"][0]
    assert gpu["sm_active_pct"] is None
    assert gpu["sm_occupancy_pct"] is None
    assert gpu["dram_active_pct"] is None


def test_what_is_not_supported_is_missing_and_not_zero(nvml_library: Path) -> None:
    first, _ = _read(nvml_library)
    old = first["devices"][1]
    assert old["device"] == "GPU-bb"
    assert old["memory_total_mib"] is None
    assert old["busy_pct"] is None
    assert old["power_w"] is None
    # The driver withholds the memory of process 102.
    assert [p["memory_used_mib"] for p in first["processes"] if p["pid"] == 102] == [None]


def test_a_lost_device_is_a_failure_and_the_others_go_on(nvml_library: Path) -> None:
    first, second = _read(nvml_library)
    assert [d["device"] for d in first["devices"]] == ["GPU-aa", "GPU-bb"]
    assert [f["device"] for f in first["failures"]] == ["GPU-cc"]
    assert "lost" in first["failures"][0]["reason"]
    assert second["failures"] == first["failures"]


def test_samples_of_processes_are_used_once(nvml_library: Path) -> None:
    _, second = _read(nvml_library)
    # The second call asks from the last time stamp on, and there is nothing new: not zero.
    assert [p["busy_pct"] for p in second["processes"]] == [None, None]


def test_one_device_by_index_or_uuid_and_an_unknown_one(nvml_library: Path) -> None:
    assert [d["device"] for d in _read(nvml_library, "GPU-bb")[0]["devices"]] == ["GPU-bb"]
    assert [d["device"] for d in _read(nvml_library, "0")[0]["devices"]] == ["GPU-aa"]
    assert "NVML lists: 0 (GPU-aa), 1 (GPU-bb)" in _read(nvml_library, "7")["error"]


def test_no_driver_is_said_in_words() -> None:
    from cotenant.profiles.samplers.nvml import NvmlSampler

    if shutil.which("nvidia-smi") is not None:
        pytest.skip("there is a driver here")
    with pytest.raises(ConfigError, match="NVIDIA driver"):
        NvmlSampler()
