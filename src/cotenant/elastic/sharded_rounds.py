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

_GATHER, _REDUCE, _ENDED = 0, 1, 2
_DOES = ("puts together", "sums the gradient of")
_ALL = (
    "each fully_shard module must be called on every process, in every turn, in the same order: call them all (and add 0"
    " times what is not used to the loss), or give those that are left out now and then to the fully_shard call around them"
)


class Round:
    """What all groups of parameters know of the turn under way, and that all processes take it in the same way.

    Before each collective the processes tell each other which one it is: where they differ, they would wait for each
    other for ever, or take one group's numbers for another's.

    Parameters
    ----------
    broken : callable
        Called when a process is gone; does not return then.

    Attributes
    ----------
    live : sequence of bool
        For each process: its turn counts; if not, what it sends is dropped.
    number : int
        Of the turn, from 0 at each step; -1 between steps.
    """

    def __init__(self, broken: Callable[[], None]) -> None:
        self._broken = broken
        self.live: Sequence[bool] = ()
        self.number = -1
        self._names: list[str] = []
        self._moment = 0
        self._reduced: list[int] = []
        self._before: list[int] | None = None

    def number_of(self, name: str) -> int:
        """The number of a group of parameters, by the name of its module."""
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def name_of(self, group: int) -> str:
        """The name of its module."""
        return self._names[group] or "the model"

    def begin(self, number: int, live: Sequence[bool]) -> None:
        """A turn begins."""
        self.number, self.live = number, live
        self._moment += 1
        self._reduced = []
        if number == 0:
            self._before = None

    def ended(self, process_group: Any) -> None:
        """A turn is over on this process.

        Raises
        ------
        InputError
            If other groups of parameters had gradients than in the turn before, or on another process.
        """
        self.agree(_ENDED, 0, process_group)
        if self._before is not None and self._reduced != self._before:
            turns = [", ".join(map(self.name_of, one)) or "none" for one in (self._before, self._reduced)]
            raise InputError(f"gradients of {turns[0]} in one turn, of {turns[1]} in the next; {_ALL}")
        self._before = self._reduced

    def over(self) -> None:
        """All turns of the step are."""
        self.number = -1
        self._moment += 1

    def reduces(self, group: int) -> None:
        """A group's gradient is summed in this turn."""
        self._reduced.append(group)

    def agree(self, what: int, group: int, process_group: Any) -> None:
        """See that all processes are at the same collective.

        Raises
        ------
        InputError
        """
        import torch
        import torch.distributed as dist

        size = process_group.size()
        if size == 1:
            return
        mine = torch.tensor([self._moment, what, group])
        all_of = torch.empty(3 * size, dtype=mine.dtype)
        try:
            dist.all_gather_single(all_of, mine, group=process_group)
        except RuntimeError:
            self._broken()
            raise
        rows = all_of.view(size, 3).tolist()
        if any(row != rows[0] for row in rows):
            told = [
                f"process {rank} {'is at the end of a turn' if kind == _ENDED else f'{_DOES[kind]} {self.name_of(one)}'}"
                for rank, (_, kind, one) in enumerate(rows)
            ]
            raise InputError(f"{'; '.join(told)}; {_ALL}")


class Gather(AllGather):  # type: ignore[misc]
    """The all-gather of a group of parameters.

    Parameters
    ----------
    round_ : Round
    group : int
        Of parameters, its number.
    broken : callable
        Called when a process is gone; does not return then.
    """

    def __init__(self, round_: Round, group: int, broken: Callable[[], None]) -> None:
        self._round, self._group, self._broken = round_, group, broken

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Any:
        """Memory for the whole parameters."""
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, async_op: bool = False) -> Any:
        """Put together what all processes have."""
        import torch.distributed as dist

        self._round.agree(_GATHER, self._group, group)
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
    group : int
        Of parameters, its number.
    broken : callable
        Called when a process is gone; does not return then.
    """

    def __init__(self, round_: Round, group: int, broken: Callable[[], None]) -> None:
        self._round, self._group, self._broken = round_, group, broken
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

        self._round.agree(_REDUCE, self._group, group)
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
                f"{turn.name_of(self._group)} reduced its gradient twice in one turn: call backward() once, on the sum"
                " of the losses, and call each fully_shard module once in forward"
            )
        self._done = turn.number
        turn.reduces(self._group)
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
