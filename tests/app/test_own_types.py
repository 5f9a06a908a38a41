"""``--devices FILE``: commands that foretell know device types of one's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

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
