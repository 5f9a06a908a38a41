"""A log of digests: what each logical worker was given and gave at each step, and what became of it.

One file a process and life, of JSON lines, only ever appended to. ``diff`` compares two such folders. Lines hold
lists of digests, in the order of the names in the line ``run`` at the file's beginning:

=========  ==============================================================================================
kind       what it holds
=========  ==============================================================================================
run        names, what the bits depend on, and which process this is; again when it has become another
state      before a step and after it: parameters, buffers of worker 0, optimisers, and whatever else is kept;
           settings of optimisers, schedulers and scalers
turn       of one worker: samples, batch, generators and buffers before and after, modules' events, gradients of
           the parameters that its loop is for
sum        the mean gradients of all workers, of these parameters
update     at the end of an optimiser's step: gradients of its own parameters, its settings, and what it made
=========  ==============================================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from cotenant.elastic.calls import Calls
from cotenant.elastic.contexts import Context
from cotenant.elastic.hashing import of_generators, of_many, of_tensor, of_value
from cotenant.errors import InputError

__all__ = ["EVERY", "FOLDER", "FORMAT", "Digests", "wanted"]

FORMAT = 3
FOLDER = "COTENANT_ELASTIC_DIGESTS"
"""Environment variable: the folder to write to."""
EVERY = "COTENANT_ELASTIC_DIGESTS_EVERY"
"""Environment variable: only every so many steps."""
_SAMPLES = 32
"""So many samples of a batch are named."""


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

    Attributes
    ----------
    active : bool
        Whether the step under way is logged.
    """

    def __init__(self, folder: Path, every: int, model: Any, parts: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder, self._every, self._parts = folder, every, parts
        self._model = model
        self._named = list(model.named_parameters())
        self._places = {id(p): place for place, (_, p) in enumerate(self._named)}
        self._calls = Calls(model)
        self._file: int | None = None
        self._told: dict[str, Any] = {}
        self._step, self.active, self._complete = 0, False, -1
        self._turn: dict[str, Any] = {}
        self._summed: set[int] = set()
        self._updates = self._part = 0
        self._known: dict[tuple[int, str], tuple[Any, int, int]] = {}
        for name, one in parts["optimizer"].items():
            if hasattr(one, "register_step_post_hook"):
                one.register_step_post_hook(lambda optimizer, *_, name=name: self._stepped(name, optimizer))

    # -- the file --------------------------------------------------------------------

    def settled(self, process: Any) -> None:
        """Write who this is and what its bits depend on, if that is new."""
        if self._file is None:
            self._file = self._create()
        told = {"rank": process.rank, "size": process.size, "identity": process.identity()}
        if told != self._told:
            self._told = told
            self._write(
                kind="run",
                format=FORMAT,
                every=self._every,
                parameters=[[name, _kind(p)] for name, p in self._named],
                buffers=[name for name, _ in self._model.named_buffers()],
                modules=self._calls.names,
                **told,
            )

    def _create(self) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            number = len(list(self._folder.glob("*.jsonl")))
            while True:
                path = self._folder / f"{number:05}-{os.getpid()}.jsonl"
                # A number may be taken twice by processes that start at once: the process id tells them apart.
                try:
                    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
                except FileExistsError:
                    number += 1
        except OSError as error:
            raise InputError(
                f"folder of digests {self._folder}: {error.strerror}; give another one"
            ) from None

    def _write(self, **record: Any) -> None:
        if self._file is not None:
            # One write a line: what a killed process had written stays.
            os.write(self._file, (json.dumps(record, separators=(",", ":")) + "\n").encode())

    # -- the step --------------------------------------------------------------------

    def begin(self, step: int, summed: Sequence[Any]) -> None:
        """Decide whether this step is logged; the state it begins with, if nobody knows it yet.

        ``summed`` are the parameters whose gradients this inner loop sums. Those of others are no part of the
        training: what is there depends on which turns this process has had.
        """
        self._summed = {id(parameter) for parameter in summed}
        if self.active and step == self._step:  # one of several inner loops
            self._part += 1
            self._calls.attach()
            return
        self._step, self.active, self._updates, self._part = step, step % self._every == 0, 0, 0
        if self.active:
            self._calls.attach()
            if self._complete != step:
                self._state("before")

    def enter(self, context: Context, batch: Any, samples: Sequence[Any] | None) -> None:
        """What the worker whose turn begins is given."""
        if self.active:
            named = None if samples is None else [_name(one) for one in samples[:_SAMPLES]]
            self._turn = {
                "samples": named,
                "batch": _parts(batch),
                "before": of_generators(context.generators()),
                "buffers": self._buffers(),
            }
            self._calls.begin()

    def leave(self, worker: int, since: int | None, context: Context) -> None:
        """What it gave; gradients are the sum of those from worker ``since`` on, None if there are none to see."""
        if self.active:
            self._write(
                kind="turn",
                step=self._step,
                part=self._part,
                worker=worker,
                **self._turn,
                events=self._calls.end(),
                after=of_generators(context.generators()),
                notes=dict(context.notes),
                left=self._buffers(),
                since=since,
                gradients=None if since is None else self._gradients(self._summed),
            )

    def summed(self) -> None:
        """The mean over all workers."""
        if self.active:
            self._calls.detach()
            self._write(
                kind="sum",
                step=self._step,
                part=self._part,
                gradients=self._gradients(self._summed, once=True),
            )

    def updated(self) -> None:
        """The state after the step."""
        if self.active:
            self._state("after")
            for place in range(len(self._named)):  # gradients are not to live longer for this
                self._known.pop((place, "grad"), None)
            self._complete = self._step + 1
            self._calls.detach()
        self.active = False

    # -- what there is ---------------------------------------------------------------

    def _stepped(self, name: str, optimizer: Any) -> None:
        if self.active:
            groups = optimizer.param_groups
            own = {id(parameter) for group in groups for parameter in group["params"]}
            self._write(
                kind="update",
                step=self._step,
                part=self._part,
                number=self._updates,
                optimizer=name,
                settings=[_plain(group) for group in groups],
                gradients=self._gradients(own, once=True),
                parameters=self._parameters(),
                state=self._of_optimizer(name, optimizer),
            )
            self._updates += 1

    def _gradients(self, own: Set[int], *, once: bool = False) -> list[int | None]:
        """With ``once`` those that nobody wrote to since they were last digested so are not read again."""
        grads = [p.grad if id(p) in own else None for _, p in self._named]
        if not once:
            return [of_many([grad]) for grad in grads]
        return [None if grad is None else self._once((n, "grad"), grad) for n, grad in enumerate(grads)]

    def _parameters(self) -> list[int]:
        return [of_tensor(p) for _, p in self._named]

    def _buffers(self) -> list[int]:
        return [of_tensor(tensor) for _, tensor in self._model.named_buffers()]

    def _of_optimizer(self, name: str, optimizer: Any) -> dict[str, list[int | None]]:
        """Digests by kind of state, in the order of parameters; tensors that nobody wrote to are not read again."""
        found: dict[str, list[int | None]] = {}
        for parameter, values in getattr(optimizer, "state", {}).items():
            place = self._places.get(id(parameter))
            if place is None or not isinstance(values, Mapping):
                continue
            for key, value in values.items():
                row = found.setdefault(str(key), [None] * len(self._named))
                row[place] = self._once((place, f"{name} {key}"), value)
        return found

    def _once(self, key: tuple[int, str], value: Any) -> int:
        version = getattr(value, "_version", None)
        if version is None or hasattr(
            value, "full_tensor"
        ):  # writing to a shard does not count for the whole
            return of_value(value)
        kept, then, digest = self._known.get(key, (None, -1, 0))
        if kept is not value or then != version:
            digest = of_value(value)
            self._known[key] = (value, version, digest)
        return digest

    def _state(self, when: str) -> None:
        rest, settings = dict[str, int](), dict[str, Any]()
        for name, one in self._parts["optimizer"].items():
            for number, group in enumerate(getattr(one, "param_groups", ())):
                settings[f"{_label('optimizer', name)} group {number}"] = _plain(group)
        for kind in ("scheduler", "scaler", "extra"):
            for name, one in self._parts.get(kind, {}).items():
                if hasattr(one, "state_dict"):
                    label, state = _label(kind, name), one.state_dict()
                    rest[label] = of_value(state)
                    if kind != "extra":
                        settings[label] = _plain(state)
        self._write(
            kind="state",
            step=self._step,
            when=when,
            parameters=self._parameters(),
            buffers=self._buffers(),
            optimizer={name: self._of_optimizer(name, one) for name, one in self._parts["optimizer"].items()},
            rest=rest,
            settings=settings,
        )


def _kind(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _name(sample: Any) -> int | str:
    return sample if isinstance(sample, int) else str(sample)


def _parts(batch: Any) -> dict[str, int]:
    """Digests of a batch, by its parts if it has some."""
    if isinstance(batch, Mapping):
        return {f"batch[{key!r}]": of_value(item) for key, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        return {f"batch[{number}]": of_value(item) for number, item in enumerate(batch)}
    return {"batch": of_value(batch)}


def _label(kind: str, name: str) -> str:
    """An object that is kept: the only one of its kind is named like it."""
    return name if name == kind else f"{kind} {name}"


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a parameter group or a schedule, the learning rate first: ``{"lr": 0.1, "phases[0].end": 3}``."""
    found = {
        name: value for key, item in state.items() if key != "params" for name, value in _flat(str(key), item)
    }
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != "lr", pair[0])))


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item)
    elif _simple(value):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _flat(f"{name}[{number}]", item)
    else:
        yield name, f"digest {of_value(value):08x}"


def _simple(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_simple(item) for item in value)
    if isinstance(value, float):
        return value == value  # noqa: PLR0124 - what is not a number is not equal to itself in a comparison
    return value is None or isinstance(value, (bool, int, str))


def wanted(given: str | Path | bool | None, every: int, state: Path | None) -> tuple[Path, int] | None:
    """Where digests go, and how often: the environment stands above what a script says.

    Parameters
    ----------
    given : path or bool, optional
        True: the folder ``digests`` beside the checkpoints.
    every : int
    state : path, optional
        Folder of checkpoints.

    Raises
    ------
    InputError
    """
    asked, often = os.environ.get(FOLDER), os.environ.get(EVERY)
    if often and (not often.isdigit() or int(often) < 1):
        raise InputError(f"{EVERY} is {often!r}: it must be a number of steps, at least 1")
    folder = asked or given
    if not folder:
        return None
    if folder is True:
        if state is None:
            raise InputError(
                "digests=True, and no state folder: give elastic.Run(digests=FOLDER), or state=FOLDER"
            )
        folder = state / "digests"
    if not isinstance(folder, (str, Path)):
        raise InputError(f"digests is {folder!r}: it must be a folder, or True")
    return Path(folder), int(often) if often else every
