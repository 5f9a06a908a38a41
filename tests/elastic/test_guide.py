"""The code of the guide runs, alone and under the command, and gives the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "elastic.md"
SCRIPT = re.findall(r"```python\n(import torch\n.*?)```", GUIDE.read_text(), re.S)


@pytest.mark.slow
def test_the_script_gives_the_same_alone_and_on_three_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert len(SCRIPT) == 1
    (tmp_path / "train.py").write_text(SCRIPT[0])
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    outputs = []
    for command in (
        [sys.executable, "train.py"],
        [sys.executable, "-m", "cotenant", "run", "--elastic", "1:3", "--", sys.executable, "train.py"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert re.fullmatch(r"(\d+ steps, loss \d\.\d{9}\n){4}", outputs[0])
    assert "\n32 steps, " in outputs[0]
    assert "generation 1: 3 processes" in done.stderr
