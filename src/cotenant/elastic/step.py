"""One global step, as a script sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    last : bool
        The last of its epoch.
    """

    def __init__(self, process: Process, last: bool) -> None:
        self._process = process
        self.number, self.epoch, self.index = process.place
        self.last = last
        self.done = False

    def __iter__(self) -> Iterator[Any]:
        if self.done:
            raise InputError(f"step {self.number} has had its turns: one inner loop for each step")
        self._process.begin_turns()
        while True:
            yield from self._process.turns()
            if self._process.end_turns():
                break
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
