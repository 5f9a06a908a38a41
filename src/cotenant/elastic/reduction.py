"""How the gradients of a generation are staged and summed: by the order of the run, on its devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from cotenant.elastic.exchange import Group
from cotenant.elastic.gradients import Order, Staging, cover, runs
from cotenant.elastic.lanes import Lane
from cotenant.elastic.memory import Memory
from cotenant.elastic.rings import Rings
from cotenant.elastic.sparse import WithRows
from cotenant.elastic.sums import Sums
from cotenant.elastic.wires import choose

__all__ = ["Stages", "staging"]


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
