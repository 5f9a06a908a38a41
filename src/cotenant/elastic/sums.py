"""Sums over processes in the fixed order: chunks go to the process that folds them, and come back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cotenant.elastic.gradients import Node, Order, children
from cotenant.elastic.lanes import kinds
from cotenant.elastic.memory import Memory

__all__ = ["Sums", "Wire"]


class Wire(Protocol):
    """What carries tensors among the processes of a group."""

    rank: int
    size: int

    def others(self) -> list[int]:
        """Ranks but this one's."""

    def swap(self, receive: Mapping[int, Sequence[Any]], send: Mapping[int, Sequence[Any]]) -> None:
        """Send and receive tensors; raises ``Broken`` once a process is gone."""


class Sums:
    """Sums of gradients over a group.

    What a process has ready is copied into the buffers of the exchange at once (``stage``), on a GPU while the
    next worker computes; ``total`` exchanges. Buffers are kept in ``memory``.

    Parameters
    ----------
    parameters : sequence of Parameter
    wire : Wire
    nodes : sequence of sequence of (int, int)
        What each process has ready after its turns, in order.
    leaves : int
    order : "blocks" or "sequence"
    memory : Memory
        Of the wire's lane.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        wire: Wire,
        nodes: Sequence[Sequence[Node]],
        *,
        leaves: int,
        order: Order,
        memory: Memory,
    ) -> None:
        self._parameters, self._wire, self._nodes, self._leaves = parameters, wire, nodes, leaves
        self._order, self._memory, self._lane = order, memory, memory.lane
        self._kinds = kinds(parameters)
        # The order of a chain begins with this process's own memory, if it is the first.
        chain = order == "sequence"
        roles = ["sum" if chain and wire.rank == 0 else ("flat", n) for n in range(len(nodes[wire.rank]))]
        self._flats = [[memory.take(role, kind.size, kind.dtype) for kind in self._kinds] for role in roles]
        self._views = [
            [kind.views(flat) for kind, flat in zip(self._kinds, flats, strict=True)] for flats in self._flats
        ]

    def stage(self, number: int, grads: Sequence[Any]) -> None:
        """Begin to copy gradients to where they are exchanged from.

        Parameters
        ----------
        number : int
            Which of this process's nodes they are.
        grads : sequence of Tensor or None
        """
        for kind, views in zip(self._kinds, self._views[number], strict=True):
            kind.fill(self._lane, views, grads)

    def total(self, out: list[Any]) -> list[Any]:
        """The sum of what all processes have staged, written into gradients.

        Raises
        ------
        Broken
        """
        self._lane.settle()
        for number, kind in enumerate(self._kinds):
            mine = [flats[number] for flats in self._flats]
            whole = self._memory.take("sum", kind.size, kind.dtype)
            if self._order == "sequence":
                self._chain(mine, whole)
            else:
                self._tree(mine, whole)
            kind.empty(self._lane, kind.views(whole), out, self._parameters)
        return out

    def _tree(self, mine: Sequence[Any], whole: Any) -> None:
        wire = self._wire
        cuts = [whole.numel() * rank // wire.size for rank in range(wire.size + 1)]
        bounds = [slice(*pair) for pair in itertools.pairwise(cuts)]
        own = bounds[wire.rank]
        parts = {node: flat[own] for node, flat in zip(self._nodes[wire.rank], mine, strict=True)}
        others = sum(len(self._nodes[rank]) for rank in wire.others())
        size = own.stop - own.start
        # Room for more processes, too: a larger generation finds memory that has been used. What is not used is
        # only addresses, on the host.
        room = max(others * size, whole.numel() if self._lane.place == "cpu" else 0)
        taken = self._memory.take("parts", room, whole.dtype)[: others * size]
        free = iter(taken.view(others, size))
        receive: dict[int, list[Any]] = {rank: [] for rank in wire.others()}
        for rank in wire.others():
            for node in self._nodes[rank]:
                parts[node] = next(free)
                receive[rank].append(parts[node])
        wire.swap(receive, {rank: [flat[bounds[rank]] for flat in mine] for rank in wire.others()})
        whole[own].copy_(self._fold((0, self._leaves), parts))
        wire.swap(
            {rank: [whole[bounds[rank]]] for rank in wire.others()},
            {rank: [whole[own]] for rank in wire.others()},
        )

    def _fold(self, node: Node, parts: Mapping[Node, Any]) -> Any:
        if node in parts:
            return parts[node]
        left, right = children(node)
        return self._fold(left, parts).add_(self._fold(right, parts))

    def _chain(self, mine: Sequence[Any], whole: Any) -> None:
        # One after the other, through the processes in order; the first one's sum is in ``whole`` already.
        wire = self._wire
        last = wire.size - 1
        if wire.rank:
            wire.swap({wire.rank - 1: [whole]}, {})
            for flat in mine:
                whole.add_(flat)
        if wire.rank < last:
            wire.swap({}, {wire.rank + 1: [whole]})
            wire.swap({last: [whole]}, {})
        else:
            wire.swap({}, {rank: [whole] for rank in wire.others()})
