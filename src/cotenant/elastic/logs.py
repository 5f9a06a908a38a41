"""Reads a run's log of digests, put together from the files of its processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cotenant.elastic.digests import FORMAT
from cotenant.errors import InputError

__all__ = ["Key", "Log", "apart", "read"]

Key = tuple[int, str, int, int]
"""Step, kind, part (which of the step's inner loops), and worker or number of the update; 0 where there is none."""
_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "run": {
        "format": int,
        "identity": dict,
        "parameters": list,
        "buffers": list,
        "modules": list,
        "rank": int,
    },
    "state": {
        "when": str,
        "parameters": list,
        "buffers": list,
        "optimizer": dict,
        "rest": dict,
        "settings": dict,
    },
    "turn": {
        "part": int,
        "worker": int,
        "samples": (list, type(None)),
        "batch": dict,
        "before": dict,
        "buffers": list,
        "events": list,
        "after": dict,
        "notes": dict,
        "left": list,
        "since": (int, type(None)),
        "gradients": (list, type(None)),
    },
    "sum": {"part": int, "gradients": list},
    "update": {
        "part": int,
        "number": int,
        "optimizer": str,
        "settings": list,
        "gradients": list,
        "parameters": list,
        "state": dict,
    },
}
_LISTS = {"parameters": "parameters", "gradients": "parameters", "buffers": "buffers", "left": "buffers"}


class Log(NamedTuple):
    """A run's digests.

    Attributes
    ----------
    identity : dict
        As the last process wrote it.
    parameters, buffers, modules : list of str
        Their names, in the order of the lists of digests, and in the numbering of modules' events.
    types : list of str
        Of the parameters: ``float32[3, 4]``.
    records : dict
        Lines by ``Key``; kind is ``before``, ``turn``, ``sum``, ``update`` or ``after``.
    contradictions : list of str
        Where processes, or lives, of this one run disagree.
    """

    identity: dict[str, str]
    parameters: list[str]
    types: list[str]
    buffers: list[str]
    modules: list[str]
    records: dict[Key, dict[str, Any]]
    contradictions: list[str]

    @property
    def steps(self) -> list[int]:
        """Steps of which more is known than how the one before them ended."""
        return sorted({key[0] for key in self.records})

    def workers(self, step: int, part: int) -> set[int]:
        """Logical workers of which there is a record."""
        return {key[3] for key in self.records if key[:3] == (step, "turn", part)}

    def parts(self, step: int) -> list[int]:
        """The inner loops of a step."""
        return sorted({key[2] for key in self.records if key[0] == step})

    def named(self, record: Mapping[str, Any], field: str) -> dict[str, Any]:
        """A list of digests by name; what is not there is left out."""
        names: list[str] = getattr(self, _LISTS.get(field, "parameters"))
        values = record[field]
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    def optimizer(self, state: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """State of an optimiser by parameter and kind: ``exp_avg of layer.weight``."""
        return {
            f"{kind} of {name}": value
            for kind, row in state.items()
            for name, value in zip(self.parameters, row, strict=True)
            if value is not None
        }

    def before(self, step: int) -> dict[str, Any] | None:
        """The state a step began with; that with which the one before ended, if only that is known."""
        return self.records.get((step, "before", 0, 0)) or self.records.get((step - 1, "after", 0, 0))


def read(folder: Path) -> Log:
    """Read all files of a folder; a torn last line is passed over.

    Raises
    ------
    InputError
        Names file and line of what cannot be read.
    """
    heads: dict[str, Any] = {}
    records: dict[Key, dict[str, Any]] = {}
    wrong = []
    for path in _files(folder):
        begun = False
        for number, record in _lines(path):
            where = f"{path}:{number}"
            kind = _checked(record, where)
            if kind == "run":
                begun = True
                _head(heads, record, where)
                continue
            if not begun:
                raise InputError(
                    f"{where}: a line before the one of kind 'run': the file's beginning is missing"
                )
            _fits(record, heads, where)
            key = _key(kind, record)
            if key in records and records[key] != record:
                what = apart(records[key], record)
                wrong.append(
                    f"step {key[0]}: {path.name}:{number} has another {key[1]} than a file before it ({what})"
                )
            records[key] = record
    if not records:
        raise InputError(
            f"{folder}: processes have begun a log there, and have taken no step of which they wrote"
        )
    names, types = zip(*heads["parameters"], strict=True) if heads["parameters"] else ((), ())
    log = Log(heads["identity"], list(names), list(types), heads["buffers"], heads["modules"], records, wrong)
    return log._replace(contradictions=wrong + _resumed(log))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise InputError(f"{folder}: {found}; give the folder that a run wrote its digests to")
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise InputError(
            f"{folder}: no digests there; give the run elastic.Run(digests={str(folder)!r}), or set"
            f" COTENANT_ELASTIC_DIGESTS={folder} for it"
        )
    return files


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line) if line else None
        except ValueError:  # also of bytes that are no text
            if number < len(lines) or number == 1:
                raise InputError(
                    f"{path}:{number}: not a line of a log of digests (damaged, or no JSON)"
                ) from None
            continue  # a process was killed while it wrote
        if record is not None:
            yield number, record


def _checked(record: Any, where: str) -> str:
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind not in _FIELDS:
        raise InputError(f"{where}: not a line of a log of digests (kind {kind!r})")
    if kind == "run" and record.get("format") != FORMAT:
        raise InputError(
            f"{where}: format {record.get('format')}, this version of cotenant reads {FORMAT}; log both runs with one"
            " version"
        )
    fields = _FIELDS[str(kind)] | ({} if kind == "run" else {"step": int})
    for name, types in fields.items():
        if name not in record or not isinstance(record[name], types):
            raise InputError(
                f"{where}: {kind} without a proper {name!r}: the file is damaged, or not from cotenant"
            )
    return str(kind)


def _head(heads: dict[str, Any], record: dict[str, Any], where: str) -> None:
    for name in ("parameters", "buffers", "modules"):
        if name in heads and heads[name] != record[name]:
            raise InputError(
                f"{where}: other {name} than in a file before it: two runs of different models in one folder; give each"
                " run its own"
            )
    heads.update({name: record[name] for name in ("identity", "parameters", "buffers", "modules")})


def _fits(record: Mapping[str, Any], heads: Mapping[str, Any], where: str) -> None:
    for field, names in _LISTS.items():
        values = record.get(field)
        if values is not None and len(values) != len(heads[names]):
            raise InputError(
                f"{where}: {len(values)} {field} where the run has {len(heads[names])}: the file is damaged"
            )
    events = record.get("events", ())
    if len(events) % 2:
        raise InputError(f"{where}: half an event: the file is damaged")


def _key(kind: str, record: Mapping[str, Any]) -> Key:
    if kind == "state":
        return int(record["step"]), str(record["when"]), 0, 0
    own = record.get("worker", record.get("number", 0))
    return int(record["step"]), kind, int(record["part"]), int(own)


def apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Fields in which two records differ."""
    return ", ".join(sorted(name for name in {*a, *b} if a.get(name) != b.get(name)))


def _resumed(log: Log) -> list[str]:
    """Where a process began with another state than the step before had ended with."""
    found = []
    for step, kind, _, _ in sorted(log.records):
        ended = log.records.get((step - 1, "after", 0, 0))
        if kind == "before" and ended is not None:
            begun = log.records[step, "before", 0, 0]
            names = [
                name for name in ("parameters", "buffers", "optimizer", "rest") if begun[name] != ended[name]
            ]
            if names:
                found.append(
                    f"step {step} was begun with another state than step {step - 1} ended with ({', '.join(names)})"
                )
    return found
