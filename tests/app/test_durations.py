"""A duration that is none is refused by every command in the same words, with the same exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

JOBS = "[measure]\ndevice = 'cpu:0'\n[[job]]\nname = 'a'\ncommand = ['true']\n"
COMMANDS = {
    "--elapsed": ("predict", "runtime", "history.csv"),
    "--iteration": ("predict", "resources", "small.py:build"),
    "--every": ("profile",),
    "--for": ("profile",),
    "--budget": ("measure", "jobs.toml", "-o", "out"),
}


@pytest.mark.parametrize("option", sorted(COMMANDS))
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("soon", "is no duration"),
        ("5 parsecs", "is no duration"),
        ("-3s", "is no duration"),
        ("0s", "must be positive"),
    ],
)
def test_one_wording_and_one_exit_code(
    inside: Run, tmp_path: Path, option: str, text: str, told: str
) -> None:
    (tmp_path / "history.csv").write_text("name,submit_s,duration_s,gpus\na,0,100,1\n")
    (tmp_path / "jobs.toml").write_text(JOBS)
    words = (
        *COMMANDS[option],
        f"{option}={text}",
        *(["--", "true"] if option in ("--every", "--for") else []),
    )
    done = inside(*words)
    if (option, text) == ("--elapsed", "0s"):
        assert done.returncode == 0  # a job that has just begun
        return
    assert done.stderr == f"error: {option} {text}: {told}; write one such as 230ms, 90s, 5min or 2h\n"
    assert done.returncode == 2
