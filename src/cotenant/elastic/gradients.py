"""Gradients of turns, summed in an order that does not depend on how many processes there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

__all__ = ["Node", "Order", "Staging", "children", "cover", "share"]

Order = Literal["blocks", "sequence"]
Node = tuple[int, int]
"""A subtree: its first leaf, and the one after its last."""


def children(node: Node) -> tuple[Node, Node]:
    """The two subtrees of one; the left has a power of two leaves.

    >>> children((0, 6))
    ((0, 4), (4, 6))
    """
    low, high = node
    half = 1 << ((high - low - 1).bit_length() - 1)
    return (low, low + half), (low + half, high)


def cover(first: int, end: int, leaves: int) -> list[Node]:
    """The largest subtrees of the whole tree that lie within leaves first..end-1.

    >>> cover(1, 4, 8), cover(0, 4, 8)
    ([(1, 2), (2, 4)], [(0, 4)])
    """

    def inside(node: Node) -> list[Node]:
        if node[0] >= end or node[1] <= first:
            return []
        if first <= node[0] and node[1] <= end:
            return [node]
        left, right = children(node)
        return inside(left) + inside(right)

    return inside((0, leaves))


def share(leaves: int, processes: int) -> list[tuple[int, int]]:
    """Which leaves each process has: neighbours, as evenly as can be.

    >>> share(4, 3)
    [(0, 2), (2, 3), (3, 4)]
    """
    small, more = divmod(leaves, processes)
    starts = [rank * small + min(rank, more) for rank in range(processes + 1)]
    return list(itertools.pairwise(starts))


class Staging:
    """The gradients of this process's turns at one step.

    Parameters
    ----------
    parameters : sequence of Parameter
    leaves : int
        Blocks of the tree, or logical workers if the order is ``sequence``.
    turns : int
        Logical workers of one leaf; their sum is autograd's own.
    span : (int, int)
        First leaf of this process, and the one after its last.
    order : "blocks" or "sequence"
    """

    def __init__(
        self, parameters: Sequence[Any], leaves: int, turns: int, span: tuple[int, int], order: Order
    ) -> None:
        self.parameters = parameters
        self._leaves, self._turns, self._order = leaves, turns, order
        self._first = span[0]
        self._wanted = cover(*span, leaves)
        self.done: dict[Node, list[Any]] = {}
        self._held: list[Any] = []

    def begin(self) -> None:
        """Set aside what is there before the first turn: gradients of earlier steps."""
        self._held = self._take()

    def give_back(self) -> None:
        """As before ``begin``: the turns are for nothing."""
        self._take()
        self.done.clear()
        for parameter, held in zip(self.parameters, self._held, strict=True):
            parameter.grad = held

    def ended(self, worker: int) -> None:
        """A worker's turn is over."""
        if (worker + 1) % self._turns:
            return
        leaf = worker // self._turns
        taken = self._take()
        if self._order == "sequence":
            if self._first == 0 and leaf > 0:
                taken = add(self.done.pop((0, leaf)), taken)
                self.done[0, leaf + 1] = taken
            else:
                self.done[leaf, leaf + 1] = taken
            return
        self.done[leaf, leaf + 1] = taken
        for node in self._wanted:
            if node[0] <= leaf < node[1]:
                self._merge(node)

    def _merge(self, node: Node) -> bool:
        if node in self.done:
            return True
        if node[1] - node[0] == 1:
            return False
        left, right = children(node)
        if not (self._merge(left) and self._merge(right)):
            return False
        self.done[node] = add(self.done.pop(left), self.done.pop(right))
        return True

    def finish(self, sums: Sequence[Any], workers: int) -> None:
        """Set every ``grad`` to what was held plus the mean; None where nobody has a gradient."""
        import torch

        found = [tensor for tensor in sums if tensor is not None]
        if found:
            torch._foreach_div_(found, float(workers))
        for parameter, held, mean in zip(self.parameters, self._held, sums, strict=True):
            parameter.grad = mean if held is None else held if mean is None else held.add_(mean)
        self._held = []
        self.done.clear()

    def _take(self) -> list[Any]:
        taken = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return taken


def add(left: list[Any], right: list[Any]) -> list[Any]:
    """Left plus right, in the left's memory where it can be.

    A gradient that is not there counts as zeros, added all the same: -0 + 0 is +0 wherever it happens.
    """
    import torch

    both = [n for n, (a, b) in enumerate(zip(left, right, strict=True)) if a is not None and b is not None]
    if both:
        torch._foreach_add_([left[n] for n in both], [right[n] for n in both])
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        if a is None and b is not None:
            left[number] = b.add_(0.0)
        elif b is None and a is not None:
            a.add_(0.0)
    return left
