"""The code of the guide runs, and what it says of the bits is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.runtime import SUSPENDED, StatusFile
from cotenant.runtime.statefiles import list_states

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "runtime.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)


def _run(folder: Path, code: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_first_script_runs_by_itself_and_ends_the_same_when_suspended(tmp_path: Path) -> None:
    assert len(BLOCKS) == 3
    script = BLOCKS[0]
    whole = _run(tmp_path, script)
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout.startswith("100 steps, loss ")
    assert list(tmp_path.iterdir()) == []
    status, state = tmp_path / "status", tmp_path / "state"
    StatusFile(status).give_order(1)
    where = {"COTENANT_STATUS": str(status), "COTENANT_STATE": str(state)}
    for life in range(2):  # with the order given before it starts, it leaves after one step each time
        left = _run(tmp_path, script, **where)
        assert (left.returncode, left.stdout) == (SUSPENDED, ""), left.stderr
        (saved,) = list_states(state)
        assert saved.step == life + 1
    StatusFile(status).give_order(0)
    assert _run(tmp_path, script, **where).stdout == whole.stdout


def test_loops_of_ones_own_run(tmp_path: Path) -> None:
    done = _run(tmp_path, BLOCKS[0] + BLOCKS[1] + "print(run.done, run.epoch)\n")
    # Three epochs of 200 samples in sixteens.
    assert done.stdout.splitlines()[-1:] == ["39 3"], done.stderr


@pytest.mark.slow
def test_the_trial_comes_out_as_promised(tmp_path: Path) -> None:
    done = _run(tmp_path, BLOCKS[2])
    assert done.returncode == 0, done.stderr
