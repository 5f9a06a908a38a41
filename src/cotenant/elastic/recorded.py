"""Processes that write a log of digests while they train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cotenant.elastic.contexts import Context
from cotenant.elastic.digests import Digests
from cotenant.elastic.parts import WHOLE, Part
from cotenant.elastic.process import Process
from cotenant.elastic.sharded_process import ShardedProcess

__all__ = ["recorded"]


class _Recorded(Process):
    """As ``Process``, with a log."""

    log: Digests
    _order: tuple[int, list[Any]] | None = None

    def open(self) -> None:
        super().open()
        self.log.settled(self)

    def begin_turns(self, part: Part = WHOLE) -> None:
        self.log.begin(self.place.step, part.of(self.parameters))
        super().begin_turns(part)

    def turns(self) -> Iterator[Any]:
        for batch in super().turns():
            worker = self.worker
            if not self.log.active or worker is None:
                yield batch
                continue
            self.log.enter(_now(), batch, self._samples(worker))
            yield batch
            after = _now()
            after.notes = self._notes
            self.log.leave(worker, self.since(worker), after)

    def _samples(self, worker: int) -> list[Any] | None:
        """Which samples the worker reads; None if the data has no order to look it up in."""
        if not hasattr(self.loader, "order"):
            return None
        epoch, within = self.place[1:]
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self.loader.order(epoch)
        order, size = self._order[1], getattr(self.loader, "batch_size", 1)
        places = [(within * size + n) * self.settings.workers + worker for n in range(size)]
        return [order[place] for place in places if place < len(order)]

    def since(self, worker: int) -> int | None:
        """The first worker whose gradient is in what this one leaves; None if it leaves none to see."""
        turns = self.settings.turns
        return worker // turns * turns

    def end_turns(self) -> bool:
        done = super().end_turns()
        if done:
            self.log.summed()
        return done

    def advance(self) -> None:
        self.log.updated()
        super().advance()


class _RecordedWhole(_Recorded):
    """Each worker's gradient is by itself in the steps that are logged, and only in those."""

    def _settle(self, group: Any) -> None:
        super()._settle(group)
        self.log.settled(self)
        self._separate()  # also if a step is taken again

    def begin_turns(self, part: Part = WHOLE) -> None:
        super().begin_turns(part)
        self._separate()

    def _separate(self) -> None:
        several = self.settings.workers > self.settings.leaves or self.settings.order == "ddp"
        self._staging.apart = several or self._stagings.apart or self.log.active


class _RecordedShards(_Recorded, ShardedProcess):
    """Gradients are summed over processes within ``backward``: those of a single worker cannot be seen."""

    def since(self, worker: int) -> int | None:
        del worker
        return None


def recorded(folder: Path, every: int, *, sharded: bool) -> Callable[..., Process]:
    """What makes a process with a log: its arguments are those of ``Process``, or of ``ShardedProcess``."""

    def make(*given: Any) -> Process:
        model, parts = given[2], given[4]
        process = (_RecordedShards if sharded else _RecordedWhole)(*given)
        process.log = Digests(folder, every, model, parts)
        return process

    return make


def _now() -> Context:
    import numpy as np

    current: Any = getattr(np.random, "get_bit_generator")  # noqa: B009 - NumPy's types leave it out
    return Context.leave(current())
