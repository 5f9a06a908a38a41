"""The order ``ddp``: raw gradients of all turns, summed as DistributedDataParallel's rings would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from cotenant.elastic.ddp import Arrival, Layout, fold, layouts
from cotenant.elastic.memory import Memory
from cotenant.elastic.sums import Wire
from cotenant.errors import InputError

__all__ = ["Rings"]

_WINDOW = 1 << 22
"""Elements that are exchanged at a time: what is received needs little memory beside the rows."""


class Rings:
    """Stages a gradient for each of this process's workers, and sums over all workers of all processes.

    Parameters
    ----------
    parameters : sequence of Parameter
    shares : sequence of (int, int)
        First worker of each process, and the one after its last.
    group : Wire, optional
        None if there is one process.
    memory : Memory
        Where rows and buffers are kept.
    arrival : callable
        Gives the order of arrival of the first step's gradients, which is empty during that step.
    """

    apart = True
    failed = False

    def __init__(
        self,
        parameters: Sequence[Any],
        shares: Sequence[tuple[int, int]],
        group: Wire | None,
        memory: Memory,
        arrival: Callable[[], Sequence[int]],
    ) -> None:
        self.parameters, self._shares, self._group, self._memory = parameters, shares, group, memory
        self._lane, self._arrival = memory.lane, arrival
        self._rank = 0 if group is None else group.rank
        self._first, self._end = shares[self._rank]
        self._workers = shares[-1][1]
        self._layouts: list[Layout] = []
        self._laid: tuple[int, ...] | None = None
        self._rows: list[list[Any]] = []
        self._views: list[list[list[Any]]] = []
        self._held: list[Any] = []
        self._spare: list[Any] = []
        self._used = False
        self._watch: Arrival | None = None

    def begin(self) -> None:
        """Set aside the gradients of earlier steps, and see where this step's are to lie."""
        self._held = self._take()
        self._unwatch()
        self._spare, self._used = [None] * len(self.parameters), False
        arrival = tuple(self._arrival())
        if self._laid != arrival:
            self._lay(arrival)
        if not arrival and self._first == 0:
            self._watch = Arrival(self.parameters)

    def _lay(self, arrival: tuple[int, ...]) -> None:
        self._layouts = layouts(self.parameters, arrival, self._workers)
        take = self._memory.take
        self._rows = [
            [take(("row", n), layout.kind.size, layout.kind.dtype) for layout in self._layouts]
            for n in range(self._end - self._first)
        ]
        self._views = [
            [layout.kind.views(flat) for layout, flat in zip(self._layouts, row, strict=True)]
            for row in self._rows
        ]
        self._laid = arrival

    def give_back(self) -> None:
        """As before ``begin``: the turns are for nothing."""
        self._unwatch()
        self._take()
        for parameter, held in zip(self.parameters, self._held, strict=True):
            parameter.grad = held

    def ended(self, worker: int) -> None:
        """A worker's turn is over.

        Raises
        ------
        InputError
            If some parameters got a gradient and others did not: DDP would stop there.
        """
        if worker == 0:
            self._unwatch()
        taken = self._take()
        missing = [n for n, grad in enumerate(taken) if grad is None]
        if missing and len(missing) < len(taken):
            shapes = ", ".join(f"{n} of shape {tuple(self.parameters[n].shape)}" for n in missing[:5])
            raise InputError(
                f"no gradient for parameter {shapes} in a turn of logical worker {worker}: DDP stops there"
                " (find_unused_parameters=False), and so does order='ddp'; use order='blocks'"
            )
        if not missing:
            import torch

            torch._foreach_mul_(taken, 1.0 / self._workers)
            self._used, self._spare = True, taken
        for layout, views in zip(self._layouts, self._views[worker - self._first], strict=True):
            layout.kind.fill(self._lane, views, taken)

    def arrival(self, worker: int) -> tuple[int, ...]:
        """The order of arrival, if this was the turn in which it was recorded."""
        found = () if worker or self._watch is None else tuple(self._watch.order)
        return found if len(found) == len(self.parameters) else ()

    def used(self) -> list[bool]:
        """Which parameters have got a gradient in this process's turns: all or none."""
        return [self._used] * len(self.parameters)

    def rows(self) -> dict[int, Any]:
        """None: no gradient is sparse, see ``sparse.WithRows``."""
        return {}

    def add_rows(self, found: Sequence[Any]) -> None:
        """None."""

    def total(self) -> list[Any]:
        """The means over all workers of all processes.

        Raises
        ------
        Broken
        """
        self._lane.settle()
        for number, layout in enumerate(self._layouts):
            rows = [row[number] for row in self._rows]
            for low in range(0, layout.kind.size, _WINDOW):
                self._sum(layout, rows, low, min(low + _WINDOW, layout.kind.size))
            layout.kind.empty(self._lane, self._views[0][number], self._spare, self.parameters)
        return self._spare

    def _sum(self, layout: Layout, rows: list[Any], low: int, high: int) -> None:
        """One window, into the first row."""
        group = self._group
        if group is None or group.size == 1:
            fold([row[low:high] for row in rows], low, layout.pieces, rows[0][low:high])
            return
        cuts = [low + (high - low) * rank // group.size for rank in range(group.size + 1)]
        bounds = list(itertools.pairwise(cuts))
        mine = slice(*bounds[self._rank])
        size = mine.stop - mine.start
        count = self._workers - len(rows)
        received = iter(self._memory.take("parts", count * size, layout.kind.dtype).view(count, size))
        receive = {rank: [next(received) for _ in range(*self._shares[rank])] for rank in group.others()}
        group.swap(receive, {rank: [row[slice(*bounds[rank])] for row in rows] for rank in group.others()})
        every = [
            row
            for rank in range(group.size)
            for row in (receive[rank] if rank != self._rank else [row[mine] for row in rows])
        ]
        fold(every, mine.start, layout.pieces, rows[0][mine])
        group.swap(
            {rank: [rows[0][slice(*bounds[rank])]] for rank in group.others()},
            {rank: [rows[0][mine]] for rank in group.others()},
        )

    def finish(self, sums: Sequence[Any], workers: int) -> None:
        """Set every ``grad`` to what was held plus the mean over so many workers, which ``sums`` is already."""
        sums = [None if t is None else t.to(p.device) for p, t in zip(self.parameters, sums, strict=True)]
        for parameter, held, mean in zip(self.parameters, self._held, sums, strict=True):
            parameter.grad = mean if held is None else held if mean is None else held.add_(mean)
        self._held, self._spare = [], []

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _take(self) -> list[Any]:
        taken = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return taken
