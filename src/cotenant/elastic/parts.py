"""Several inner loops in one step, each with parameters, an exchange and a commit of its own.

A process that comes in the middle of such a step begins with its script at the beginning of the step. It is
given the state of that moment, and for each loop that is over the sums of gradients and the contexts of all
workers: its own script makes the same updates of them. Nobody goes back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cotenant.elastic.contexts import Context
from cotenant.elastic.sampling import Data, Mark
from cotenant.elastic.state import Place
from cotenant.errors import InputError

if TYPE_CHECKING:
    from cotenant.elastic.process import Process

__all__ = ["WHOLE", "Aside", "Batches", "Given", "Part", "Record", "chosen", "handed", "position"]

_PARTS = 1 << 20
"""More than loops in a step, so that step and loop are one number."""


class Given(NamedTuple):
    """All of a loop that somebody may lack: the sums of gradients, and every worker's context."""

    sums: list[Any]
    contexts: dict[int, Context]

    def packed(self) -> dict[str, Any]:
        """The same as tensors, numbers and text."""
        return {"sums": self.sums, "contexts": {w: context.packed() for w, context in self.contexts.items()}}

    @classmethod
    def unpacked(cls, kept: Mapping[str, Any]) -> Given:
        """What ``packed`` gave."""
        return cls(kept["sums"], {int(w): Context.unpacked(c) for w, c in kept["contexts"].items()})


class Part(NamedTuple):
    """One loop of a step.

    Attributes
    ----------
    name : str
        Of its optimisers as they are kept; empty for the one loop of a step with all parameters.
    numbers : tuple of int, optional
        Of the parameters whose gradients it sums; None are all.
    """

    name: str = ""
    numbers: tuple[int, ...] | None = None

    def of(self, parameters: Sequence[Any]) -> Sequence[Any]:
        """Those whose gradients it sums."""
        return parameters if self.numbers is None else [parameters[n] for n in self.numbers]


WHOLE = Part()


def chosen(optimizers: Sequence[Any], kept: Mapping[str, Any], parameters: Sequence[Any]) -> Part:
    """The loop of these optimisers.

    Raises
    ------
    InputError
        If one of them is not kept, or has no parameter that gets a gradient.
    """
    names = []
    for optimizer in optimizers:
        found = [name for name, one in kept.items() if one is optimizer]
        if not found:
            raise InputError(
                f"step.turn() was given a {type(optimizer).__name__} that is not kept, and takes optimisers that are"
                f" ({', '.join(kept)}): give it to run.keep(optimizer=[...]) before run.steps()"
            )
        names += found
    if not names:
        raise InputError(
            "step.turn() without an optimiser: name those that are stepped after this loop, or iterate over the step"
            " itself"
        )
    theirs = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    numbers = tuple(n for n, parameter in enumerate(parameters) if id(parameter) in theirs)
    if not numbers:
        raise InputError(
            f"step.turn(): {', '.join(names)} has no parameter of the model that takes gradients"
        )
    return Part(",".join(names), numbers)


class Aside:
    """Gradients of parameters that a loop does not sum: what its turns leave there is dropped."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._parameters = parameters
        self._held: list[Any] = []

    def begin(self) -> None:
        """Set aside what is there."""
        self._held = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def give_back(self) -> None:
        """As before ``begin``."""
        for parameter, held in zip(self._parameters, self._held, strict=True):
            parameter.grad = held
        self._held = []


class Batches:
    """The batches of a process's turns, in their order; those of a step for all its loops."""

    def __init__(self, loader: Data) -> None:
        self._loader = loader
        self._source: Iterator[tuple[Any, Mark]] | None = None
        self._read: dict[int, tuple[Any, Mark]] = {}

    def again(self) -> None:
        """Read this step's anew, maybe those of other workers."""
        self._source = None
        self._read.clear()

    def stepped(self, *, epoch: bool) -> None:
        """The step is over, and maybe its epoch."""
        self._read.clear()
        if epoch:
            self._source = None

    def next(
        self, place: Place, workers: Sequence[int], marks: Sequence[Mark], worker: int, part: Part
    ) -> tuple[Any, Mark]:
        """One worker's, and the mark after it; if others may come, each loop is given a copy, whatever is done to it.

        ``marks`` are all workers' at the beginning of the step.
        """
        if worker not in self._read:
            if self._source is None:
                self._source = self._loader.open(place.epoch, place.within, workers, marks)
            found = next(self._source)
            if part is WHOLE:
                return found
            self._read[worker] = found
        return copy.deepcopy(self._read[worker])


class Record:
    """What somebody who comes in the middle of a step lacks.

    Parameters
    ----------
    content : mapping
        The state with which the step began; it is copied.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = copy.deepcopy(dict(content))
        self._given: list[Given] = []

    def add(self, sums: Sequence[Any], contexts: Sequence[Context]) -> None:
        """A loop is over; its sums are copied."""
        copies = [None if tensor is None else tensor.clone() for tensor in sums]
        self._given.append(Given(copies, dict(enumerate(contexts))))

    def content(self) -> dict[str, Any]:
        """To be sent."""
        return self._content | {"loops": [given.packed() for given in self._given]}


def position(process: Process) -> int:
    """How much of the run a process has applied, as a number: loops that are to be replayed count."""
    return process.place.step * _PARTS + process.part + len(process.replay)


def handed(process: Process) -> dict[str, Any]:
    """What a newcomer is sent."""
    if process.record is not None:
        return process.record.content()
    return process.pack() | {"loops": [given.packed() for given in process.replay]}
