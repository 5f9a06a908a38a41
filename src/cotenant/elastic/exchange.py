"""Sums over processes in the fixed order: chunks go to the process that folds them, and come back."""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.elastic.abandon import unless_lost
from cotenant.elastic.gradients import Node, children
from cotenant.elastic.memory import Memory

__all__ = ["Broken", "Group", "Sums", "from_bytes", "to_bytes"]


_WATCH_S = 0.1


class Broken(Exception):  # noqa: N818
    """A process of the group is gone; the group is of no more use."""


def to_bytes(content: Any) -> Any:
    """A byte tensor from which ``from_bytes`` makes the same."""
    import torch

    memory = io.BytesIO()
    torch.save(content, memory)
    return torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)


def from_bytes(data: Any) -> Any:
    """Read ``to_bytes``; nothing in it can run code."""
    import torch

    return torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu", weights_only=True)


class Group:
    """Processes of one generation, connected over loopback by gloo.

    Raises
    ------
    Broken
        From every method, once a process is gone.
    """

    def __init__(
        self, store: Any, rank: int, size: int, lost: Callable[[], bool], *, build_s: float = 20.0
    ) -> None:
        from torch.distributed import ProcessGroupGloo

        self.rank, self.size = rank, size
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = datetime.timedelta(seconds=build_s)
        try:
            # It waits for all others, also for one that has died since it said that it is there.
            made = unless_lost(lambda: ProcessGroupGloo(store, rank, size, options), lost)
        except RuntimeError as error:
            raise Broken(str(error).splitlines()[0]) from None
        if made is None:
            raise Broken("a process was lost")
        self._group = made
        self._group._set_default_timeout(datetime.timedelta(hours=1))
        self._works: list[Any] = []
        self._lost = False
        self._closed = threading.Event()
        threading.Thread(target=self._watch, args=(lost,), daemon=True).start()

    def close(self) -> None:
        """Hang up, so that the others notice."""
        self._closed.set()
        self._works = []
        self._group = None

    def _watch(self, lost: Callable[[], bool]) -> None:
        # Who waits for a process that has left for the next generation would wait for ever: gloo tells
        # only of connections that were closed.
        while not self._closed.wait(_WATCH_S):
            try:
                self._lost = lost()
            except RuntimeError:  # the supervisor is gone
                self._lost = True
            if self._lost:
                for work in self._works:
                    with contextlib.suppress(RuntimeError):
                        work.abort()
                return

    def largest(self, values: Any) -> None:
        """Replace each number of an int64 tensor by the largest that any process has."""
        import torch

        found = [torch.empty_like(values) for _ in range(self.size)]
        self.swap({rank: [found[rank]] for rank in self.others()}, {rank: [values] for rank in self.others()})
        for rank in self.others():
            torch.maximum(values, found[rank], out=values)

    def gather(self, data: Any) -> list[Any]:
        """Byte tensors of all processes, by rank."""
        import torch

        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = data.numel()
        self.largest(sizes)
        found = [torch.empty(int(n), dtype=torch.uint8) for n in sizes]
        found[self.rank] = data
        receive = {rank: [found[rank]] for rank in self.others()}
        self.swap(receive, {rank: [data] for rank in self.others()})
        return found

    def others(self) -> list[int]:
        """Ranks but this one's."""
        return [rank for rank in range(self.size) if rank != self.rank]

    def swap(self, receive: Mapping[int, Sequence[Any]], send: Mapping[int, Sequence[Any]]) -> None:
        """Send and receive tensors, from and to many at once; the order tells which is which."""
        calls = []
        for rank, tensors in receive.items():
            for tag, tensor in enumerate(tensors):
                if tensor.numel():
                    calls.append(lambda r=rank, t=tensor, n=tag: self._group.recv([t], r, n))
        for rank, tensors in send.items():
            for tag, tensor in enumerate(tensors):
                if tensor.numel():
                    calls.append(lambda r=rank, t=tensor, n=tag: self._group.send([t], r, n))
        self._wait(calls)

    def _wait(self, calls: Sequence[Any]) -> None:
        # Only sends and receives: unlike collectives, they can be aborted while they wait.
        if self._group is None or self._lost:
            raise Broken("closed")
        problem = ""
        work = None
        try:
            self._works = [call() for call in calls]
            for work in self._works:
                if self._lost:
                    break
                work.wait()
        except RuntimeError as error:
            problem = str(error).splitlines()[0]
        self._works = []
        del work  # a traceback would keep it, and with it connections that others watch
        if problem or self._lost:
            raise Broken(problem or "a process was lost")


class Sums:
    """Sums of gradients over a group; keeps its buffers from step to step, and in ``memory`` beyond the group."""

    def __init__(
        self,
        parameters: Sequence[Any],
        group: Group,
        nodes: Sequence[Sequence[Node]],
        leaves: int,
        memory: Memory | None = None,
    ) -> None:
        self._parameters, self._group, self._nodes, self._leaves = parameters, group, nodes, leaves
        kinds = sorted({str(p.dtype) for p in parameters})
        self._kinds = [[n for n, p in enumerate(parameters) if str(p.dtype) == kind] for kind in kinds]
        self._memory = memory or Memory()

    def tree(self, mine: Mapping[Node, list[Any]]) -> list[Any]:
        """The sum of all subtrees, joined as the tree says; written into this process's first list."""
        out = mine[self._nodes[self._group.rank][0]]
        for numbers in self._kinds:
            flats = {
                node: self._flat(("flat", number), grads, numbers)
                for number, (node, grads) in enumerate(mine.items())
            }
            bounds = self._bounds(numbers)
            mine_low, mine_high = bounds[self._group.rank]
            parts = {node: flat[mine_low:mine_high] for node, flat in flats.items()}
            receive: dict[int, list[Any]] = {}
            send: dict[int, list[Any]] = {}
            size = mine_high - mine_low
            others = sum(len(self._nodes[rank]) for rank in self._group.others())
            received = self._buffer("parts", others * size, numbers)
            free = iter(received.view(others, size))
            for rank in self._group.others():
                low, high = bounds[rank]
                send[rank] = [flats[node][low:high] for node in self._nodes[self._group.rank]]
                receive[rank] = []
                for node in self._nodes[rank]:
                    parts[node] = next(free)
                    receive[rank].append(parts[node])
            self._group.swap(receive, send)
            folded = self._fold((0, self._leaves), parts)
            whole = self._buffer("sum", bounds[-1][1], numbers)
            whole[mine_low:mine_high].copy_(folded)
            self._group.swap(
                {rank: [whole[slice(*bounds[rank])]] for rank in self._group.others()},
                {rank: [whole[mine_low:mine_high]] for rank in self._group.others()},
            )
            self._unflat(whole, out, numbers)
        return out

    def chain(self, mine: Sequence[list[Any]]) -> list[Any]:
        """The sum of all turns, one after the other, through the processes in order."""
        group = self._group
        last = group.size - 1
        for numbers in self._kinds:
            size = self._bounds(numbers)[-1][1]
            running = self._buffer("sum", size, numbers)
            if group.rank == 0:
                self._fill(running, mine[0], numbers)
            else:
                group.swap({group.rank - 1: [running]}, {})
                for grads in mine:
                    running.add_(self._flat("turn", grads, numbers))
            if group.rank < last:
                group.swap({}, {group.rank + 1: [running]})
                group.swap({last: [running]}, {})
            else:
                group.swap({}, {rank: [running] for rank in group.others()})
            self._unflat(running, mine[0], numbers)
        return mine[0]

    def _bounds(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        size = sum(self._parameters[n].numel() for n in numbers)
        cuts = [size * rank // self._group.size for rank in range(self._group.size + 1)]
        return list(itertools.pairwise(cuts))

    def _buffer(self, role: Any, size: int, numbers: Sequence[int]) -> Any:
        return self._memory.take(role, size, self._parameters[numbers[0]].dtype)

    def _flat(self, key: Any, grads: Sequence[Any], numbers: Sequence[int]) -> Any:
        flat = self._buffer(key, sum(self._parameters[n].numel() for n in numbers), numbers)
        self._fill(flat, grads, numbers)
        return flat

    def _fill(self, flat: Any, grads: Sequence[Any], numbers: Sequence[int]) -> None:
        offset = 0
        for number in numbers:
            size = self._parameters[number].numel()
            part = flat[offset : offset + size]
            if grads[number] is None:
                part.zero_()
            else:
                part.view(self._parameters[number].shape).copy_(grads[number])
            offset += size

    def _unflat(self, flat: Any, grads: list[Any], numbers: Sequence[int]) -> None:
        import torch

        offset = 0
        for number in numbers:
            parameter = self._parameters[number]
            if grads[number] is None:
                grads[number] = torch.empty_like(parameter, requires_grad=False)
            part = flat[offset : offset + parameter.numel()]
            grads[number].copy_(part.view(parameter.shape))
            offset += parameter.numel()

    def _fold(self, node: Node, parts: Mapping[Node, Any]) -> Any:
        if node in parts:
            return parts[node]
        left, right = children(node)
        return self._fold(left, parts).add_(self._fold(right, parts))
