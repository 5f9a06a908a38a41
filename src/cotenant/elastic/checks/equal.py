"""Runs a script on one and on several processes, and compares what it did at each step."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cotenant.elastic.checks.findings import D0_ROUNDED, Finding
from cotenant.elastic.diff import Difference, compare
from cotenant.elastic.digests import EVERY, FOLDER
from cotenant.elastic.logs import read
from cotenant.elastic.replicas import UNCHECKED
from cotenant.elastic.supervisor import Supervisor
from cotenant.errors import InputError

__all__ = ["CAUSES", "Outcome", "Start", "Trial", "run_equal"]

CAUSES = {
    "state": "they begin with other parameters or buffers: a model made before elastic.Run, or read from elsewhere",
    "loader": "other samples, or samples with other noise: a data set that draws from a generator of its own, that goes"
    " by time, hash or the order of a set or of files",
    "rng": "other random numbers within a turn: how many are drawn, or whether, follows the process",
    "kernel": "the same numbers in, others out: an operator without deterministic kernel, or something that the script"
    " keeps from turn to turn (a cache, a counter, grad)",
    "reduction": "the gradients of the workers are the same, their sum is not: something changes grad in a turn",
    "optimiser": "the gradient is the same, what the script makes of it is not: something that follows the number of"
    " processes behind the inner loop, or is done once for each turn",
}
"""Likely causes, in words."""


class Trial(NamedTuple):
    """How a script is run.

    Attributes
    ----------
    script : Path
    arguments : sequence of str
    steps : int
        Of each run.
    processes : sequence of int
        The first is what the others are compared with.
    limit_s : float
        One run may take so long.
    """

    script: Path
    arguments: Sequence[str]
    steps: int
    processes: Sequence[int] = (1, 2, 3)
    limit_s: float = 600.0


class Outcome(NamedTuple):
    """What was seen.

    Attributes
    ----------
    processes : list of int
        Numbers of processes that were tried: those that the run allows.
    steps : int
        Steps compared.
    difference : Difference or None
        The first, between the first number of processes and ``other``.
    other : int
    again : bool
        Whether two runs on the first number of processes differ, too: then it is not D0 either.
    contradictions : list of str
        Where processes of one run have not the same.
    identity : list of str
        What differs in what their bits depend on.
    findings : list of Finding
        Operators that PyTorch has no deterministic kernel for, on this device.
    """

    processes: list[int]
    steps: int
    difference: Difference | None
    other: int
    again: bool
    contradictions: list[str]
    identity: list[str]
    findings: list[Finding]

    @property
    def equal(self) -> bool:
        """Whether all runs, and all processes of each, have the same."""
        return self.difference is None and not self.contradictions


Start = Callable[[Sequence[str], Mapping[str, str], Path], Any]


def run_equal(
    trial: Trial, tell: Callable[[str], None] = lambda text: None, start: Start | None = None
) -> Outcome:
    """Run it and compare.

    Parameters
    ----------
    trial : Trial
    tell : callable
        Given a line at each run.
    start : callable, optional
        Starts a process that calls ``watched.main`` with these words, with these environment variables and its
        output in this file; by default Python.

    Raises
    ------
    InputError
        If it fails, takes too long, or takes no step of an elastic run.
    """
    from cotenant.elastic.identity import grade

    with tempfile.TemporaryDirectory(prefix="cotenant-check-") as name:
        folder = Path(name)
        first, *others = trial.processes
        play = functools.partial(_play, trial, tell, start or _start)
        most = play(first, folder / "first")
        kept = read(folder / "first" / "digests")
        others = [count for count in others if count <= most]
        found, other, identity, wrong = None, first, list[str](), list[str]()
        for count in others:
            play(count, folder / str(count))
            log = read(folder / str(count) / "digests")
            found, other = compare(kept, log), count
            wrong = [f"on {count} processes: {text}" for text in log.contradictions]
            if found is not None or wrong:
                identity = grade(kept.identity, log.identity)[1]
                break
        again = False
        if found is not None:  # is it D0, at least?
            play(first, folder / "again")
            again = compare(kept, read(folder / "again" / "digests")) is not None
        findings = _heard(folder, trial.script)
        steps = len({key[0] for key in kept.records if key[1] == "turn"})
    return Outcome([first, *others], steps, found, other, again, wrong, identity, findings)


def _start(words: Sequence[str], more: Mapping[str, str], output: Path) -> Any:
    command = [sys.executable, "-m", "cotenant.elastic.checks.watched", *words]
    with output.open("ab") as file:
        return subprocess.Popen(command, env={**os.environ, **more}, stdout=file, stderr=subprocess.STDOUT)  # noqa: S603


def _play(trial: Trial, tell: Callable[[str], None], start: Start, count: int, folder: Path) -> int:
    """Run it; the most processes that it allows."""
    folder.mkdir()
    tell(f"{trial.steps} steps on {count} process{'es' if count > 1 else ''}")
    words = [str(folder), str(trial.steps), str(trial.script), *trial.arguments]
    fixed = {"OMP_NUM_THREADS": "1", FOLDER: str(folder / "digests"), EVERY: "1", UNCHECKED: "1"}
    supervisor = Supervisor(
        [], count, count, restarts=0, start=lambda env: start(words, {**fixed, **env}, folder / "output")
    )
    code = _wait(supervisor, trial.limit_s)
    heard = _lines(folder)
    last = _end(folder / "output")
    on = f"{trial.script} on {count} process{'es' if count > 1 else ''}"
    if code is None:
        raise InputError(f"{on}: not done after {trial.limit_s:g} s (--timeout)\n{last}")
    if code:
        raise InputError(f"{on} failed with exit code {code}:\n{last}")
    if not any((folder / "digests").glob("*.jsonl")):
        raise InputError(
            f"{on} took no step of an elastic run: move it over first (docs/elastic.md), or give it arguments behind --"
        )
    return min(int(one["most"]) for one in heard if "most" in one)


def _end(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    return "\n".join([line for line in lines if line.strip()][-8:])


def _wait(supervisor: Supervisor, limit_s: float) -> int | None:
    deadline = time.monotonic() + limit_s
    try:
        while supervisor.poll() is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)
        return supervisor.poll()
    finally:
        supervisor.close()


def _lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob("heard-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _heard(folder: Path, script: Path) -> list[Finding]:
    kept: dict[tuple[str, int, str], Finding] = {}
    for one in (line for part in sorted(folder.iterdir()) for line in _lines(part) if "operator" in line):
        path = Path(one["file"] or script)
        if path.resolve() == script.resolve():
            path = script
        backward = "backward" in one["operator"]
        kept[str(path), one["line"], one["operator"]] = Finding(
            path,
            one["line"],
            1,
            "operator-at-run-time",
            *D0_ROUNDED,
            f"{one['operator']} in {_short(one['text'])}",
            "PyTorch has no deterministic kernel for it on this device: elastic.Run lets it refuse"
            + (" (the operator whose gradient this is stands further up)" if backward else ""),
            "another operator, or this part on the CPU",
        )
    return list(kept.values())
