"""Where two logs of digests part, and what that speaks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cotenant.elastic.digests import FORMAT
from cotenant.errors import InputError

__all__ = ["Difference", "Log", "compare", "read"]


class Log(NamedTuple):
    """A run's digests, put together from the files of its processes.

    Attributes
    ----------
    identity : dict
        As the last process wrote it.
    records : dict
        By (step, kind, worker): kind is ``before``, ``turn``, ``sum`` or ``after``; worker is -1 but for turns.
    contradictions : list of str
        Where processes, or lives, of this one run disagree.
    """

    identity: dict[str, str]
    records: dict[tuple[int, str, int], dict[str, Any]]
    contradictions: list[str]

    @property
    def steps(self) -> list[int]:
        """Steps of which something is known."""
        return sorted({key[0] for key in self.records})


class Difference(NamedTuple):
    """Where two runs part.

    Attributes
    ----------
    step, worker : int
        Worker is None where it is none's: the sum, the update.
    cause : {"state", "loader", "rng", "kernel", "reduction", "optimiser"}
    tensors : list of str
        What differs first.
    evidence : str
    """

    step: int
    worker: int | None
    cause: str
    tensors: list[str]
    evidence: str

    @property
    def module(self) -> str | None:
        """Of the first tensor, if it belongs to one."""
        name = self.tensors[0] if self.tensors else ""
        return name.rpartition(".")[0] or None


def read(folder: Path) -> Log:
    """Read all files of a folder; a torn last line is passed over.

    Raises
    ------
    InputError
    """
    identity: dict[str, str] = {}
    records: dict[tuple[int, str, int], dict[str, Any]] = {}
    wrong = []
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise InputError(f"{folder}: no digests there; set COTENANT_ELASTIC_DIGESTS={folder} for the run")
    for path in files:
        for number, record in _lines(path):
            if record.get("kind") == "run":
                if record.get("format") != FORMAT:
                    raise InputError(
                        f"{path}:{number}: format {record.get('format')}, {FORMAT} can be read here"
                    )
                identity = record["identity"]
                continue
            kind = str(record.get("when", record["kind"]))
            key = (int(record["step"]), kind, int(record.get("worker", -1)))
            if key in records and records[key] != record:
                wrong.append(f"step {key[0]}: {path.name}:{number} has another {kind} than a file before it")
            records[key] = record
    return Log(identity, records, wrong)


def _lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line) if line else None
        except ValueError:
            if number < len(lines):
                raise InputError(f"{path}:{number}: not a line of a log of digests") from None
            continue
        if record is not None:
            found.append((number, record))
    return found


def compare(a: Log, b: Log) -> Difference | None:
    """The first difference; None if everything that both know is the same.

    Raises
    ------
    InputError
        If they have no step in common.
    """
    common = sorted({key[0] for key in a.records} & {key[0] for key in b.records})
    if not common:
        raise InputError(f"no step in common: steps {_span(a)} there, {_span(b)} here")
    for step in common:
        found = _state(step, _before(a, step), _before(b, step)) or _turns(step, a, b)
        if found is None:
            found = _sum(step, a, b) or _after(step, a, b)
        if found is not None:
            return found
    return None


def _span(log: Log) -> str:
    return f"{log.steps[0]} to {log.steps[-1]}" if log.steps else "none"


def _before(log: Log, step: int) -> dict[str, Any] | None:
    return log.records.get((step, "before", -1)) or log.records.get((step - 1, "after", -1))


def _differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [name for name in {**a, **b} if a.get(name) != b.get(name)]


def _state(step: int, a: dict[str, Any] | None, b: dict[str, Any] | None) -> Difference | None:
    if a is None or b is None:
        return None
    for what in ("parameters", "optimizer", "buffers"):
        names = _differ(a[what], b[what])
        if names:
            return Difference(
                step, None, "state", names, f"{what} differ before the step: other state to begin with"
            )
    return None


def _turns(step: int, a: Log, b: Log) -> Difference | None:
    workers = [key[2] for key in sorted(a.records) if key[:2] == (step, "turn") and key in b.records]
    for worker in workers:
        one, other = a.records[step, "turn", worker], b.records[step, "turn", worker]
        drawn = _differ(one["before"], other["before"])
        more = _differ(one["after"], other["after"])
        buffers, left = (_differ(one[key], other[key]) for key in ("buffers", "left"))
        gradients = _differ(one["gradients"], other["gradients"])
        notes = _differ(one["notes"], other["notes"])
        if one["batch"] != other["batch"]:
            return Difference(step, worker, "loader", ["batch"], "parameters are the same, batches differ")
        if drawn:
            why = "batches are the same, random generators differ before the turn"
            return Difference(step, worker, "rng", drawn, why)
        if buffers:
            return Difference(step, worker, "state", buffers, "buffers differ before the turn")
        if more:
            why = "the same before the turn; within it other random numbers were drawn, or more, or fewer"
            return Difference(step, worker, "rng", more, why)
        if gradients or left or notes:
            why = "batch, parameters, buffers and random numbers are the same, what was computed from them is not"
            return Difference(step, worker, "kernel", gradients or left or notes, why)
    return None


def _sum(step: int, a: Log, b: Log) -> Difference | None:
    key = (step, "sum", -1)
    if key not in a.records or key not in b.records:
        return None
    names = _differ(a.records[key]["gradients"], b.records[key]["gradients"])
    if not names:
        return None
    there, here = ({k for k in log.records if k[:2] == (step, "turn")} for log in (a, b))
    lacking = there != here
    why = "gradients of workers are the same, their mean differs"
    if lacking:
        why += f" (of {len(there ^ here)} workers only one of the two runs has a record)"
    return Difference(step, None, "reduction", names, why)


def _after(step: int, a: Log, b: Log) -> Difference | None:
    key = (step, "after", -1)
    if key not in a.records or key not in b.records:
        return None
    one, other = a.records[key], b.records[key]
    names = [name for what in ("parameters", "optimizer", "rest") for name in _differ(one[what], other[what])]
    if names:
        why = "the mean gradient is the same, what the script and its optimiser made of it is not"
        before = _before(a, step), _before(b, step)
        settings = [state["settings"] for state in before if state is not None]
        if len(settings) == 2 and settings[0] != settings[1]:
            why += f"; settings of the optimiser: {settings[0]} and {settings[1]}"
        return Difference(step, None, "optimiser", names, why)
    return None
