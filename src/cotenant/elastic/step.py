"""One global step, as a script sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.elastic.parts import WHOLE, Part, chosen
from cotenant.elastic.process import Process
from cotenant.errors import InputError

__all__ = ["Step"]


class Step:
    """One global step: iterate over it for the batches of this process's logical workers.

    Attributes
    ----------
    number : int
        Of the step, from 0, over all epochs.
    epoch, index : int
        Epoch, and step of it.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self.number, self.epoch, self.index = process.place
        self.done = self._whole = False
        self._last = process.loader.counted and process.ends_epoch()

    @property
    def last(self) -> bool:
        """Whether it is the last of its epoch; for streams, known after the inner loop.

        Raises
        ------
        InputError
            If it is not known yet.
        """
        if not self.done and not self._process.loader.counted:
            raise InputError("step.last: which step of streams is the last is known after the inner loop")
        return self._last

    def __iter__(self) -> Iterator[Any]:
        if self.done or self._process.part:
            raise InputError(
                f"step {self.number} has had its turns: one inner loop for each step, or several of step.turn(optimizer)"
            )
        yield from self._loop(WHOLE)
        self._whole = True

    def turn(self, *optimizers: Any) -> Iterator[Any]:
        """One of several inner loops: over the same batches, for the parameters of these optimisers.

        After it their ``grad`` is the mean over all workers, that of all other parameters is as it was before.
        The update is made behind the loop; the next loop's turns see it. Each worker goes on with the random
        numbers where its turn in the loop before ended. As many loops as you like, the same on all processes.

        Parameters
        ----------
        *optimizers : Optimizer
            That are kept; one or more.

        Raises
        ------
        InputError
            If one is not kept, if the loop before was left before its end, or after the plain loop of the step.
        """
        process = self._process
        part = chosen(optimizers, process.optimizers, process.parameters)
        if self._whole or process.in_turns:
            why = "was left before its end" if process.in_turns else "was that of all parameters"
            raise InputError(f"step.turn() in step {self.number}: the inner loop before {why}")
        return self._loop(part)

    def _loop(self, part: Part) -> Iterator[Any]:
        self.done = False
        self._process.begin_turns(part)
        while not self._process.replayed():
            yield from self._process.turns()
            if self._process.end_turns():
                break
        self._last = self._process.ends_epoch()
        self.done = True

    def note(self, **values: float) -> None:
        """Within a turn: note numbers of this logical worker (its loss, say), see ``mean``.

        Raises
        ------
        InputError
            Outside of the inner loop, or of something that is not one number.
        """
        self._process.note({name: _number(name, value) for name, value in values.items()})

    def mean(self, name: str) -> float:
        """After the turns: the mean of what the logical workers noted, summed in their order.

        Raises
        ------
        InputError
            If nobody noted such a thing.
        """
        noted = [c.notes[name] for c in self._process.contexts if name in c.notes]
        if not noted or not self.done:
            raise InputError(f"nothing noted as {name!r}: call step.note({name}=...) in the inner loop first")
        return sum(noted) / len(noted)


def _number(name: str, value: Any) -> float:
    shape = getattr(value, "shape", ())
    many = f" of shape {tuple(shape)}" if shape else ""
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):  # text, nothing, several numbers, a complex one
        kind = type(value).__name__
        raise InputError(
            f"step.note({name}=...) was given a {kind}{many}: it takes one number, such as loss.item(); of several"
            " give the mean"
        ) from None
