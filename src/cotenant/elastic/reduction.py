"""How the gradients of a generation are staged and summed: by the order of the run, on its devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from cotenant.elastic.exchange import Group
from cotenant.elastic.gradients import Order, Staging, cover, runs
from cotenant.elastic.lanes import Lane
from cotenant.elastic.memory import Memory
from cotenant.elastic.parts import Part
from cotenant.elastic.rings import Rings
from cotenant.elastic.settings import Settings
from cotenant.elastic.sparse import WithRows
from cotenant.elastic.sums import Sums
from cotenant.elastic.wires import choose

__all__ = ["Stages", "Stagings", "staging"]


Stages = Staging | Rings | WithRows


def staging(
    parameters: Sequence[Any],
    order: Order,
    shares: Sequence[tuple[int, int]],
    group: Group | None,
    memory: Memory,
    *,
    turns: int = 1,
    apart: bool = False,
    arrival: Callable[[], Sequence[int]] = tuple,
    tables: Collection[int] = (),
) -> Stages:
    """Make what takes the gradients of this process's turns, and gives the sums over all processes.

    Parameters
    ----------
    parameters : sequence of Parameter
    order : Order
    shares : sequence of (int, int)
        First leaf of each process, and the one after its last.
    group : Group, optional
        None if there is no other process.
    memory : Memory
    turns : int
        Logical workers of a leaf.
    apart : bool
        See ``Staging``.
    arrival : callable
        See ``Rings``.
    tables : collection of int
        The parameters, by ``id``, whose gradients are sparse.
    """
    numbers = [n for n, parameter in enumerate(parameters) if id(parameter) in tables]
    if numbers:
        dense = [parameter for parameter in parameters if id(parameter) not in tables]
        others = staging(dense, order, shares, group, memory, turns=turns, apart=apart, arrival=arrival)
        return WithRows(parameters, numbers, others)
    if group is None or group.size == 1:
        memory.use(Lane(parameters[0].device if parameters else None, through_host=False))
        if order == "ddp":
            return Rings(parameters, shares, None, memory, arrival)
        return Staging(parameters, shares[-1][1], turns, shares[0], order, apart=apart)
    wire, lane = choose(group, parameters)
    memory.use(lane)
    if order == "ddp":
        return Rings(parameters, shares, wire, memory, arrival)
    leaves = shares[-1][1]
    nodes = [runs(*span) if order == "sequence" else cover(*span, leaves) for span in shares]
    sums = Sums(parameters, wire, nodes, leaves=leaves, order=order, memory=memory)
    return Staging(parameters, leaves, turns, shares[group.rank], order, apart=apart, sums=sums)


class Stagings:
    """What sums the gradients of each part's parameters in the present generation; memory outlasts it.

    Parameters
    ----------
    settings : Settings
    parameters : sequence of Parameter
        Of all parts.
    tables : collection of int
        See ``staging``.
    arrival : callable
        Given the name of a part: see ``Rings``.

    Attributes
    ----------
    memory : Memory
    apart : bool
        See ``Staging``; of those that are made from now on.
    """

    def __init__(
        self,
        settings: Settings,
        parameters: Sequence[Any],
        tables: Collection[int],
        arrival: Callable[[str], Sequence[int]],
    ) -> None:
        self._settings, self._parameters, self._tables = settings, parameters, tables
        self._arrival = arrival
        self.memory = Memory()
        self.apart = False
        self._made: dict[Part, Stages] = {}
        self._shares: Sequence[tuple[int, int]] = ()
        self._group: Group | None = None

    def settle(self, shares: Sequence[tuple[int, int]], group: Group | None) -> None:
        """Another generation, with these shares of the leaves."""
        self._shares, self._group = shares, group
        self._made.clear()

    def choose(self, part: Part) -> Stages:
        """For this part; the same one until the generation is over."""
        if part not in self._made:
            settings = self._settings
            self._made[part] = staging(
                part.of(self._parameters),
                settings.order,
                self._shares,
                self._group,
                self.memory,
                turns=settings.turns,
                apart=self.apart,
                arrival=partial(self._arrival, part.name),
                tables=self._tables,
            )
        return self._made[part]
