"""``--devices FILE``: commands that foretell know device types of one's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from cotenant.profiles.corerates import core_sets, core_type

Run = Callable[..., subprocess.CompletedProcess[str]]

OWN = """
[[device]]
name = "Z1"
memory_mib = 2000
bandwidth_gbs = 2000
tflops = { fp32 = 40, fp16 = 300 }
source = "made up"
"""
SMALL = """
import torch
from torch import nn

def build(batch):
    return nn.Linear(1024, 1024), torch.randn(batch, 1024)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "small.py").write_text(SMALL)
    return tmp_path


@pytest.mark.parametrize("command", ["memory", "resources"])
def test_a_type_of_ones_own_is_foretold(command: str, cotenant: Run, here: Path) -> None:
    pytest.importorskip("torch", reason="graphs of networks need the extra torch")
    words = ("predict", command, "small.py:build", "--batch", "8", "--device", "Z1", "--json")
    refused = cotenant(*words, cwd=here)
    assert refused.returncode == 2 and 'no device type "Z1"' in refused.stderr
    done = cotenant(*words, "--devices", "own.toml", cwd=here)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (row,) = told["fits"] if command == "memory" else told["devices"]
    assert row["device_type"] == "Z1"
    assert row["verdict"] == "fits"
    # The variable does the same, and a wrong file is told with its name.
    assert cotenant(*words, cwd=here, env={"COTENANT_DEVICES": "own.toml"}).returncode == 0
    missing = cotenant(*words, "--devices", "gone.toml", cwd=here)
    assert missing.returncode == 1 and "gone.toml: No such file" in missing.stderr


def test_interference_takes_a_type_of_ones_own_for_one_that_nobody_measured(
    cotenant: Run, here: Path
) -> None:
    words = ("predict", "interference", "LM/b8", "LM/b16", "--device", "Z1", "--fit", "pairs.csv")
    head = "row_id,source,gpu_type,a_model,a_batch,b_model,b_batch,a_norm,b_norm,status"
    rows = [f"r{i},own,V100,LM,8,LM,{16 + i},0.6,0.{5 + i},ok" for i in range(4)]
    (here / "pairs.csv").write_text("\n".join([head, *rows]) + "\n")
    assert 'no measured device type "Z1"' in cotenant(*words, cwd=here).stderr
    done = cotenant(*words, "--devices", "own.toml", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "Z1: nothing was measured there" in done.stderr


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    """A cache in which every number of cores is measured already; the rates are made up."""
    rates = {
        "flops": {"fp32": 1e11, "fp64": 5e10},
        "copy_bytes_per_s": 2e10,
        "busy_share": 1.0,
        "numpy": version("numpy"),
        "date": "2026-01-02",
    }
    kept = tmp_path / "cache" / "cotenant" / "cores.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({core_type(cores): rates for cores in core_sets()}))
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_this_machine_s_core_sets_are_rows(cotenant: Run, cache: dict[str, str]) -> None:
    done = cotenant("devices", "--here", "--json", env=cache)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["devices"]
    assert [row["name"] for row in rows] == [core_type(cores) for cores in core_sets()]
    assert rows[0]["tflops"] == {"fp32": 0.1, "fp64": 0.05} and rows[0]["host"]
    table = cotenant("devices", "--here", env=cache)
    assert f"{core_type(core_sets()[0])}: measured here on 2026-01-02" in table.stderr
    name = f"cpu:{core_sets()[0][0]}"
    one = cotenant("devices", name, env=cache)
    assert "as the system reports it" in one.stdout and core_type(core_sets()[0]) in one.stdout
    both = cotenant("devices", "--here", name, env=cache)
    assert both.returncode == 1 and "for one type leave it out" in both.stderr


def test_cores_are_foretold_beside_gpus(cotenant: Run, here: Path, cache: dict[str, str]) -> None:
    pytest.importorskip("torch", reason="graphs of networks need the extra torch")
    core = f"cpu:{core_sets()[0][0]}"
    words = ("predict", "resources", "small.py:build", "--batch", "8", "--json")
    done = cotenant(*words, "--device", f"V100,{core}", cwd=here, env=cache)
    assert done.returncode == 0, done.stderr
    gpu, cpu = json.loads(done.stdout)["devices"]
    assert (gpu["device_type"], cpu["device_type"]) == ("V100", core_type(core_sets()[0]))
    # Forward 2 * 8 * 1024 * 1024 FLOPs, and the weight's gradient as much: 34 MFLOP at 64% of 100 GFLOP/s,
    # 0.5 ms; 4 MiB of weights are read, of gradients written, and read, read and written by the step.
    assert 0.5e-3 < cpu["iteration_s"]["mean"] < 4e-3
    assert cpu["verdict"] == "fits"
    alone = cotenant(*words[:-1], "--device", core, cwd=here, env=cache)
    assert "from rates of cores that were measured here (roofline)" in alone.stdout
    memory = ("predict", "memory", "small.py:build", "--batch", "8")
    told = cotenant(*memory, "--device", core, "--json", cwd=here, env=cache)
    (row,) = json.loads(told.stdout)["fits"]
    assert row["device_type"] == core_type(core_sets()[0]) and row["verdict"] == "fits"
    mixed = cotenant(*memory, "--device", f"V100,{core}", cwd=here, env=cache)
    assert mixed.returncode == 2 and "ask for GPU types and for core sets apart" in mixed.stderr
