"""Gradients of turns, summed in an order that does not depend on how many processes there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cotenant.elastic.sums import Sums

__all__ = ["Node", "Order", "Staging", "children", "cover", "runs", "share"]

Order = Literal["blocks", "sequence", "ddp"]
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


def runs(first: int, end: int) -> list[Node]:
    """What a process with leaves first..end-1 sums by itself in the order ``sequence``: only the first adds.

    >>> runs(0, 3), runs(3, 5)
    ([(0, 3)], [(3, 4), (4, 5)])
    """
    return [(n, n + 1) for n in range(first, end)] if first else [(0, end)]


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

    Where a turn's gradient is added to that of the turn before, autograd does it itself, layer by layer: no
    second set of gradients is there, and what is added is still in the caches. It is the same sum as long as
    autograd adds to each parameter once in a turn, and the script leaves ``grad`` alone. A turn of which that
    is not true is noticed (``failed``): the step is to be taken again with each turn's gradient ``apart``.

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
    apart : bool
        Each turn begins without gradients.
    sums : Sums, optional
        Of a group of several processes: given what is ready as soon as it is.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        leaves: int,
        turns: int,
        span: tuple[int, int],
        order: Order,
        *,
        apart: bool = False,
        sums: Sums | None = None,
    ) -> None:
        self.parameters = parameters
        self._leaves, self._turns, self._order = leaves, turns, order
        self._first, self._end = span
        self._wanted = runs(*span) if order == "sequence" else cover(*span, leaves)
        self._sums = sums
        self._staged: set[Node] = set()
        self._used = [False] * len(parameters)
        self._out: list[Any] = []
        self.done: dict[Node, list[Any]] = {}
        self._held: list[Any] = []
        # Autograd's sum over the turns of a block is that of the block, whatever is added how often.
        self.apart = apart or turns > 1
        self.failed = False
        self._running: int | None = None
        self._before: list[tuple[Any, int]] = []

    def begin(self) -> None:
        """Set aside what is there before the first turn: gradients of earlier steps."""
        self._held = self._take()
        self._running, self.failed = None, False
        self.done.clear()
        self._staged.clear()
        self._used = [False] * len(self.parameters)

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
        if self.apart:
            self._store(leaf, leaf + 1)
            return
        if self._running is None:
            self._running = leaf
        else:
            self._check()
        if self._goes_on(self._running, leaf + 1):
            self._before = [(grad, -1 if grad is None else grad._version) for grad in self._grads()]
            return
        self._store(self._running, leaf + 1)
        self._running, self._before = None, []  # which would keep gradients until the next step

    def _goes_on(self, first: int, leaf: int) -> bool:
        """Whether this leaf is added, by itself, to the sum of all from the first one."""
        if leaf == self._end:
            return False
        # Pairs of neighbours of which the left is even are subtrees of every tree.
        return first == 0 if self._order == "sequence" else leaf == first + 1 and first % 2 == 0

    def _check(self) -> None:
        """What autograd has added in this turn; where it had nothing, zeros are added as ``add`` does."""
        zeros = []
        for grad, (before, version) in zip(self._grads(), self._before, strict=True):
            if before is None:
                zeros.append(grad)
            elif grad is not before or grad._version > version + 1:
                self.failed = True
            elif grad._version == version:
                zeros.append(grad)
        for grad in zeros:
            if grad is not None:
                grad.add_(0.0)

    def _store(self, first: int, end: int) -> None:
        taken = self._take()
        if self._order == "sequence":
            if self._first == 0 and first > 0:
                taken = add(self.done.pop((0, first)), taken)
                first = 0
            self.done[first, end] = taken
        else:
            self.done[first, end] = taken
            for node in self._wanted:
                if node[0] <= first < node[1]:
                    self._merge(node)
        self._stage()

    def _stage(self) -> None:
        """Hand on what is complete; its memory is free then, but for one set into which the sum will go."""
        for number, node in enumerate(self._wanted):
            if self._sums is None or node in self._staged or node not in self.done:
                continue
            grads = self.done.pop(node)
            self._used = [used or grad is not None for used, grad in zip(self._used, grads, strict=True)]
            self._sums.stage(number, grads)
            self._staged.add(node)
            self._out = grads

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

    def used(self) -> list[bool]:
        """Which parameters have got a gradient in this process's turns, if there are other processes."""
        return self._used

    def rows(self) -> dict[int, Any]:
        """None: no gradient is sparse, see ``sparse.WithRows``."""
        return {}

    def add_rows(self, found: Sequence[Any]) -> None:
        """None."""

    def total(self) -> list[Any]:
        """The sums over all workers of all processes; None where nobody of this process has a gradient.

        Raises
        ------
        Broken
        """
        if self._sums is None:
            return self.done[0, self._leaves]
        out, self._out = self._out, []
        return self._sums.total(out)

    def arrival(self, worker: int) -> tuple[int, ...]:
        """Nothing: here the order in which gradients arrive is of no matter."""
        del worker
        return ()

    def finish(self, sums: Sequence[Any], workers: int) -> None:
        """Set every ``grad`` to what was held plus the mean; None where nobody has a gradient."""
        import torch

        # Sums that another process kept may come from the host.
        sums = [None if t is None else t.to(p.device) for p, t in zip(self.parameters, sums, strict=True)]
        found = [tensor for tensor in sums if tensor is not None]
        if found:
            torch._foreach_div_(found, float(workers))
        for parameter, held, mean in zip(self.parameters, self._held, sums, strict=True):
            parameter.grad = mean if held is None else held if mean is None else held.add_(mean)
        self._held, self._out = [], []
        self.done.clear()

    def _take(self) -> list[Any]:
        taken = self._grads()
        for parameter in self.parameters:
            parameter.grad = None
        return taken

    def _grads(self) -> list[Any]:
        return [parameter.grad for parameter in self.parameters]


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
