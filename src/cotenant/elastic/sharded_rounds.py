"""Collectives of ``fully_shard`` in rounds: gradients are added worker by worker, whatever the number of processes.

Process p takes workers p, p + P, p + 2P, ...; in each round, one turn on every process, what a group of
parameters reduces is added in the order of the workers onto the sum of the rounds before. So the order is
0, 1, ..., N-1 for any P, as in gradient accumulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from cotenant.errors import InputError

__all__ = ["Gather", "OrderedReduce", "Round"]


class Round:
    """What all groups of parameters know of the turn under way.

    Attributes
    ----------
    live : sequence of bool
        For each process: its turn counts; if not, what it sends is dropped.
    number : int
        Of the turn, from 0 at each step; -1 between steps.
    """

    def __init__(self) -> None:
        self.live: Sequence[bool] = ()
        self.number = -1


class Gather(AllGather):  # type: ignore[misc]
    """The all-gather of a group of parameters.

    Parameters
    ----------
    broken : callable
        Called when a process is gone; does not return then.
    """

    def __init__(self, broken: Callable[[], None]) -> None:
        self._broken = broken

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Any:
        """Memory for the whole parameters."""
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, async_op: bool = False) -> Any:
        """Put together what all processes have."""
        import torch.distributed as dist

        try:
            return dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        except RuntimeError:
            self._broken()
            raise


class OrderedReduce(ReduceScatter):  # type: ignore[misc]
    """The reduce-scatter of one group of parameters.

    Parameters
    ----------
    round_ : Round
    name : str
        Of the module, for messages.
    broken : callable
        Called when a process is gone; does not return then.
    """

    def __init__(self, round_: Round, name: str, broken: Callable[[], None]) -> None:
        self._round, self._name, self._broken = round_, name, broken
        self._sum: Any = None
        self._done = -1

    def begin(self) -> None:
        """A step begins: nothing has been summed."""
        self._sum, self._done = None, -1

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Any:
        """Memory for what is sent, and for the sum."""
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Any, input_tensor: Any, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Sum the parts of several processes for this one."""
        import torch
        import torch.distributed as dist

        received = torch.empty_like(input_tensor)
        try:
            dist.all_to_all_single(received, input_tensor, group=group)
        except RuntimeError:
            self._broken()
            raise
        self._add(output_tensor, received.view(group.size(), -1))

    def alone(self, output: Any) -> None:
        """With one process nothing is exchanged: the hook that follows the reduction does the sum."""
        self._add(output, output.clone().view(1, -1))

    def _add(self, output: Any, parts: Any) -> None:
        turn = self._round
        if turn.number < 0:
            raise InputError(
                "backward() between steps: gradients of a sharded model are summed in the inner loop only"
            )
        if self._done == turn.number:
            raise InputError(
                f"{self._name or 'the model'} reduced its gradient twice in one turn: call backward() once, on the sum"
                " of the losses, and call each fully_shard module once in forward"
            )
        self._done = turn.number
        begun = self._sum is not None
        if begun:
            output.copy_(self._sum)
        for part, live in zip(parts, turn.live, strict=True):
            if live and begun:
                output.add_(part)
            elif live:
                output.copy_(part)
                begun = True
        self._sum = output
