"""A log of digests: what each logical worker was given and gave at each step, and what became of it.

One file a process and life, of JSON lines, only ever appended to. ``diff`` compares two such folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotenant.elastic.contexts import Context
from cotenant.elastic.hashing import of_generators, of_many, of_tensor, of_value
from cotenant.errors import InputError

__all__ = ["EVERY", "FOLDER", "FORMAT", "Digests", "open_log"]

FORMAT = 1
FOLDER = "COTENANT_ELASTIC_DIGESTS"
"""Environment variable: the folder to write to."""
EVERY = "COTENANT_ELASTIC_DIGESTS_EVERY"
"""Environment variable: only every so many steps."""


class Digests:
    """Writes one process's file.

    Parameters
    ----------
    folder : path
    every : int
        Steps 0, every, 2 every, ... are logged.
    model : Module
    parts : mapping
        Optimisers and so on by kind and name, as ``Run.keep`` has them.
    """

    def __init__(self, folder: Path, every: int, model: Any, parts: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder, self._every, self._parts = folder, every, parts
        self._model = model
        self._named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._file: int | None = None
        self._step, self._active, self._complete = 0, False, -1
        self._turn: dict[str, Any] = {}

    def settled(self, process: Any) -> None:
        """Write who this is and what its bits depend on."""
        if self._file is None:
            self._file = self._create()
        self._write(
            kind="run",
            format=FORMAT,
            every=self._every,
            rank=process.rank,
            size=process.size,
            identity=process.identity(),
        )

    def _create(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.glob("*.jsonl")))
        while True:
            path = self._folder / f"{number:05}-{os.getpid()}.jsonl"
            # A number may be taken twice by processes that start at once: the process id tells them apart.
            try:
                return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                number += 1

    def _write(self, **record: Any) -> None:
        if self._file is not None:
            # One write a line: what a killed process had written stays.
            os.write(self._file, (json.dumps(record, separators=(",", ":")) + "\n").encode())

    def begin(self, step: int) -> None:
        """Decide whether this step is logged; the state it begins with, if nobody knows it yet."""
        self._step, self._active = step, step % self._every == 0
        if self._active and self._complete != step:
            self._state("before")

    def enter(self, worker: int, context: Context, batch: Any) -> None:
        """What the worker is given."""
        if self._active:
            self._turn = {
                "batch": of_value(batch),
                "before": of_generators(context.generators()),
                "buffers": self._buffers(),
            }

    def leave(self, worker: int, context: Context) -> None:
        """What it gave."""
        if self._active:
            self._write(
                kind="turn",
                step=self._step,
                worker=worker,
                **self._turn,
                after=of_generators(context.generators()),
                notes=dict(context.notes),
                left=self._buffers(),
                gradients=self._gradients(),
            )

    def summed(self) -> None:
        """The mean over all workers."""
        if self._active:
            self._write(kind="sum", step=self._step, gradients=self._gradients())

    def updated(self) -> None:
        """The state after the step."""
        if self._active:
            self._state("after")
            self._complete = self._step + 1

    def _gradients(self) -> dict[str, int | None]:
        return {name: of_many([p.grad]) for name, p in self._named}

    def _buffers(self) -> dict[str, int]:
        return {name: of_tensor(tensor) for name, tensor in self._model.named_buffers()}

    def _state(self, when: str) -> None:
        names = {id(p): name for name, p in self._named}
        optimizers: dict[str, int] = {}
        settings: dict[str, Any] = {}
        for name, one in self._parts["optimizer"].items():
            state = one.state_dict()
            groups = getattr(one, "param_groups", [])
            order = [names.get(id(p), "") for group in groups for p in group["params"]]
            settings[name] = [_plain(group) for group in state.get("param_groups", [])]
            for number, values in state.get("state", {}).items():
                place = order[number] if isinstance(number, int) and number < len(order) else str(number)
                for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
                    optimizers[f"{name}: {key} of {place}"] = of_value(value)
        rest = {
            f"{kind} {name}": of_value(one.state_dict())
            for kind in ("scheduler", "scaler", "extra")
            for name, one in self._parts.get(kind, {}).items()
            if hasattr(one, "state_dict")
        }
        self._write(
            kind="state",
            step=self._step,
            when=when,
            parameters={name: of_tensor(p) for name, p in self._model.named_parameters()},
            buffers=self._buffers(),
            optimizer=optimizers,
            settings=settings,
            rest=rest,
        )


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a parameter group: learning rate and so on."""
    kept = {key: value for key, value in group.items() if key != "params"}
    return {key: value if _simple(value) else of_value(value) for key, value in sorted(kept.items())}


def _simple(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_simple(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def open_log(model: Any, parts: Mapping[str, Mapping[str, Any]]) -> Digests | None:
    """What the environment asks for; None if that is nothing.

    Raises
    ------
    InputError
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    every = os.environ.get(EVERY, "1")
    if not every.isdigit() or int(every) < 1:
        raise InputError(f"{EVERY} is {every!r}: it must be a number of steps, at least 1")
    return Digests(Path(folder), int(every), model, parts)
