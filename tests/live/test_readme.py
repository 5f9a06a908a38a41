"""What the README shows of the live scheduler is what happens: its commands are run, and its answers compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _shown() -> list[tuple[list[str], str]]:
    """Commands of the section, and what it shows below each."""
    text = (ROOT / "README.md").read_text()
    section = text.partition("\n## Run your jobs\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```\n(\$ cotenant .*?)```", section, re.S)
    found = []
    for part in block.split("$ cotenant ")[1:]:
        command, _, answer = part.partition("\n")
        found.append((command.split(), answer))
    return found


def _plain(text: str) -> list[str]:
    """Without what differs from run to run: ports, processes, folders, the bits of a loss; in any order."""
    text = re.sub(r"(?<=:)\d{4,5}\b|(?<=process )\d+|(?<=loss )[\d.e-]+", "N", text)
    return sorted(re.sub(r"/\S+/daemon\.log", "LOG", text).splitlines())


@pytest.mark.slow
def test_the_commands_answer_as_shown_and_both_jobs_end_with_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example trains with PyTorch")
    env = {**os.environ, "COTENANT_STATE_DIR": str(tmp_path / "state"), "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "train.py", tmp_path / "examples")
    losses = []
    shown = _shown()
    assert [words[0] for words, _ in shown] == [
        "up", "submit", "submit", "suspend", "resume", "wait", "logs", "logs", "down",
    ]  # fmt: skip

    def run(words: list[str]) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cotenant", *words],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout + done.stderr

    try:
        for words, answer in shown:
            told = run(words)
            assert _plain(told) == _plain(answer), words
            if words[0] == "logs":
                losses.append(told)
    finally:
        subprocess.run(
            [sys.executable, "-m", "cotenant", "down", "--jobs", "cancel"],
            env=env, capture_output=True, timeout=300, check=False,
        )  # fmt: skip
    assert losses[0] == losses[1]
