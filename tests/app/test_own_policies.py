"""Policies of one's own on the command line: what is wrong with them, and where."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoDecide", "has no decide(view): it needs a class with a method decide(view)"),
        ("Forgetful", "does not store its parameter depth: store it under its own name"),
        ("Positional", "must take keyword-only parameters"),
        ("Absent", "has no 'Absent'; it has: Forgetful, Positional"),
    ],
)
def test_a_policy_that_breaks_the_rules_is_wrong_usage_wherever_it_is_named(
    inside: Run, jobs_csv: Path, name: str, message: str
) -> None:
    (jobs_csv.parent / "bugs.py").write_text(
        "from cotenant import Params, Plan\n\n\n"
        "class NoDecide(Params):\n    pass\n\n\n"
        "class Forgetful(Params):\n"
        "    def __init__(self, *, depth: int = 1) -> None:\n        self.d = depth\n\n"
        "    def decide(self, view):\n        return Plan()\n\n\n"
        "class Positional:\n"
        "    def __init__(self, depth):\n        self.depth = depth\n\n"
        "    def decide(self, view):\n        return Plan()\n"
    )
    for words in (
        ["policies", f"bugs.py:{name}"],
        ["simulate", "jobs.csv", "-p", f"bugs.py:{name}", "--gpus", "2"],
    ):
        done = inside(*words)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stdout == ""
        assert "fault of cotenant" not in done.stderr


def test_an_error_in_a_policy_names_its_file_and_line(inside: Run, jobs_csv: Path, mine_py: Path) -> None:
    done = inside("simulate", str(jobs_csv), "-p", "mine.py:Failing:after_s=60", "--gpus", "2")
    assert done.returncode == 1
    line = 1 + mine_py.read_text().split("\n").index('            raise ValueError("boom")')
    assert f"raised ValueError: boom (mine.py:{line}, in decide); see out/runs/" in done.stderr
