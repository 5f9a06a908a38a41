"""A process that writes a log of digests while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.elastic.contexts import Context
from cotenant.elastic.digests import Digests, open_log
from cotenant.elastic.parts import WHOLE, Part
from cotenant.elastic.process import Process

__all__ = ["Recorded", "plain_or_recorded"]


class Recorded(Process):
    """As ``Process``, with a log."""

    def __init__(self, log: Digests, *given: Any) -> None:
        super().__init__(*given)
        self.log = log
        self._apart = True  # the gradient of each worker by itself

    def begin_turns(self, part: Part = WHOLE) -> None:
        super().begin_turns(part)
        self.log.begin(self.place.step)

    def turns(self) -> Iterator[Any]:
        mine = [worker for worker in self._mine if self.loader.count(self.place.within, worker)]
        for batch, worker in zip(super().turns(), mine, strict=True):
            self.log.enter(worker, _now(), batch)
            yield batch
            after = _now()
            after.notes = self._notes
            self.log.leave(worker, after)

    def end_turns(self) -> bool:
        done = super().end_turns()
        if done:
            self.log.summed()
        return done

    def advance(self) -> None:
        self.log.updated()
        super().advance()

    def _settle(self, group: Any) -> None:
        super()._settle(group)
        self.log.settled(self)


def _now() -> Context:
    import numpy as np

    current: Any = getattr(np.random, "get_bit_generator")  # noqa: B009 - NumPy's types leave it out
    return Context.leave(current())


def plain_or_recorded(model: Any, parts: Any, given: tuple[Any, ...]) -> Process:
    """A process, which writes digests if the environment asks for them.

    Raises
    ------
    InputError
    """
    log = open_log(model, parts)
    return Process(*given) if log is None else Recorded(log, *given)
