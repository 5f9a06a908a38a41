"""Memory as a sweep over the operators: what lives at once, and what an allocator makes of it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np

from cotenant.model.quantities import MIB
from cotenant.profiles.graph.ir import Graph, Role
from cotenant.profiles.graph.optimisers import find_optimiser

__all__ = [
    "CachingAllocator",
    "Peak",
    "doubtful_peak",
    "moment_bytes",
    "peak_of",
    "reserved_bytes",
    "state_bytes",
]


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """What lives when most lives. Bytes; the parts add up to the total.

    Parameters
    ----------
    total_bytes : int
    weight_bytes, gradient_bytes, optimiser_bytes, input_bytes : int
        Weights include buffers. Gradients are those of weights that exist at the peak.
    activation_bytes : int
        Saved by the forward pass and still there.
    temporary_bytes : int
        Everything else: gradients of activations, results on their way, an optimiser's moment.
    at : int
        Index of the operator; the number of operators if the optimiser's step is the peak.
    """

    total_bytes: int
    weight_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    input_bytes: int
    activation_bytes: int
    temporary_bytes: int
    at: int


def state_bytes(graph: Graph) -> int:
    """Bytes that the optimiser keeps."""
    if not graph.options.training:
        return 0
    return round(find_optimiser(graph.options.optimiser).state * _trained_bytes(graph))


def _trained_bytes(graph: Graph) -> int:
    return graph.trained * _item_bytes(graph)


def _item_bytes(graph: Graph) -> int:
    return 2 if graph.options.precision in {"bf16", "fp16"} else 4


def moment_bytes(graph: Graph) -> int:
    """Bytes that the optimiser's step holds for a moment."""
    if not graph.options.training:
        return 0
    rule = find_optimiser(graph.options.optimiser)
    sizes = graph.touched_sizes or graph.trained_sizes
    return rule.moment_bytes(sizes, _item_bytes(graph), grouped=graph.options.device == "gpu")


def peak_of(graph: Graph) -> Peak:
    """Peak of live bytes in a step that is not the first, by liveness.

    The optimiser's state is there all the time; gradients come to life in the backward pass and
    stay until the next step begins.
    """
    end = len(graph.ops)
    change = np.zeros(end + 2, np.int64)
    for storage in graph.storages:
        change[max(storage.born, 0)] += storage.size_bytes
        change[storage.dies + 1] -= storage.size_bytes
    live = np.cumsum(change)[: end + 1]
    inside = np.fromiter((op.workspace_bytes for op in graph.ops), np.int64, end)
    live[:end] += inside
    if end:
        live[end] += moment_bytes(graph)
    at = int(np.argmax(live))
    parts = dict.fromkeys(("weight", "gradient", "input", "activation", "temporary"), 0)
    for storage in graph.storages:
        if max(storage.born, 0) <= at <= storage.dies:
            parts[_PART[storage.role] if not _is_temporary(storage.role, storage.saved) else "temporary"] += (
                storage.size_bytes
            )
    parts["temporary"] += moment_bytes(graph) if at == end else int(inside[at])
    state = state_bytes(graph)
    return Peak(
        total_bytes=sum(parts.values()) + state,
        weight_bytes=parts["weight"],
        gradient_bytes=parts["gradient"],
        optimiser_bytes=state,
        input_bytes=parts["input"],
        activation_bytes=parts["activation"],
        temporary_bytes=parts["temporary"],
        at=at,
    )


def doubtful_peak(graph: Graph, doubt: float) -> int:
    """Peak if what comes and goes were larger by a share: another moment may then be the peak."""
    end = len(graph.ops)
    change, coming = np.zeros(end + 2, np.int64), np.zeros(end + 2, np.int64)
    for storage in graph.storages:
        for counted in (change, coming) if storage.role == "activation" else (change,):
            counted[max(storage.born, 0)] += storage.size_bytes
            counted[storage.dies + 1] -= storage.size_bytes
    inside = np.fromiter((op.workspace_bytes for op in graph.ops), np.int64, end)
    live, moving = np.cumsum(change)[: end + 1], np.cumsum(coming)[: end + 1]
    moving[:end] += inside
    live[:end] += inside
    if end:
        live[end] += moment_bytes(graph)
        moving[end] += moment_bytes(graph)
    return int((live + doubt * moving).max()) + state_bytes(graph)


_PART: dict[Role, str] = {
    "parameter": "weight",
    "buffer": "weight",
    "gradient": "gradient",
    "input": "input",
    "activation": "activation",
}


def _is_temporary(role: Role, saved: bool) -> bool:
    return role == "activation" and not saved


class CachingAllocator:
    """PyTorch's caching allocator for CUDA, as far as sizes go.

    Requests are rounded up to 512 bytes. Those up to 1 MiB come out of segments of 2 MiB; those
    below 10 MiB out of segments of 20 MiB; larger ones get a segment of their own, rounded up to
    2 MiB. The smallest free block that is large enough is taken and split, and free neighbours
    are joined; segments are never given back. (PyTorch documentation, "CUDA semantics", memory
    management; constants of c10/cuda/CUDACachingAllocator.)
    """

    _ROUND, _SMALL, _SMALL_SEGMENT = 512, MIB, 2 * MIB
    _MIDDLE, _MIDDLE_SEGMENT, _LARGE_ROUND = 10 * MIB, 20 * MIB, 2 * MIB

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self._next = 0
        # Per pool, free blocks by (size, address); per block, its end and whether it is free.
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._size: dict[int, int] = {}
        self._pool: dict[int, bool] = {}
        self._is_free: set[int] = set()
        self._before: dict[int, int] = {}
        self._after: dict[int, int] = {}

    def allocate(self, size_bytes: int) -> int:
        """Address of a block for this many bytes."""
        size = max(-(-size_bytes // self._ROUND) * self._ROUND, self._ROUND)
        small = size <= self._SMALL
        pool = self._free[small]
        place = bisect_left(pool, (size, 0))
        address = pool.pop(place)[1] if place < len(pool) else self._segment(size, small)
        self._is_free.discard(address)
        rest = self._size[address] - size
        if rest >= self._ROUND if small else rest > self._SMALL:
            self._split(address, size, small)
        return address

    def free(self, address: int) -> None:
        """Give a block back to the pool, joined with its free neighbours."""
        after = self._after.get(address)
        if after is not None and after in self._is_free:
            self._join(address, after)
        before = self._before.get(address)
        if before is not None and before in self._is_free:
            self._free[self._pool[before]].remove((self._size[before], before))
            self._is_free.discard(before)
            self._join(before, address)
            address = before
        self._release(address)

    def _segment(self, size: int, small: bool) -> int:
        if small:
            whole = self._SMALL_SEGMENT
        elif size < self._MIDDLE:
            whole = self._MIDDLE_SEGMENT
        else:
            whole = -(-size // self._LARGE_ROUND) * self._LARGE_ROUND
        address = self._next
        # A gap, so that blocks of different segments are never neighbours.
        self._next += whole + 1
        self.reserved_bytes += whole
        self._size[address], self._pool[address] = whole, small
        return address

    def _split(self, address: int, size: int, small: bool) -> None:
        rest = address + size
        self._size[rest], self._pool[rest] = self._size[address] - size, small
        self._size[address] = size
        after = self._after.pop(address, None)
        if after is not None:
            self._after[rest], self._before[after] = after, rest
        self._after[address], self._before[rest] = rest, address
        self._release(rest)

    def _join(self, address: int, after: int) -> None:
        if after in self._is_free:
            self._free[self._pool[after]].remove((self._size[after], after))
            self._is_free.discard(after)
        self._size[address] += self._size.pop(after)
        del self._pool[after], self._before[after]
        beyond = self._after.pop(after, None)
        if beyond is None:
            self._after.pop(address, None)
        else:
            self._after[address], self._before[beyond] = beyond, address

    def _release(self, address: int) -> None:
        insort(self._free[self._pool[address]], (self._size[address], address))
        self._is_free.add(address)


def _requests(graph: Graph) -> Iterator[tuple[bool, int]]:
    """(allocated, storage) in the order of the step, for storages that the step makes."""
    born: dict[int, list[int]] = {}
    dies: dict[int, list[int]] = {}
    for number, storage in enumerate(graph.storages):
        if storage.born >= 0:
            born.setdefault(storage.born, []).append(number)
            dies.setdefault(storage.dies, []).append(number)
    for at in range(len(graph.ops) + 1):
        yield from ((True, number) for number in born.get(at, ()))
        yield from ((False, number) for number in dies.get(at, ()) if at < len(graph.ops))


@lru_cache(maxsize=16)
def reserved_bytes(graph: Graph, *, held_bytes: int = 0, steps: int = 2) -> int:
    """What PyTorch's CUDA allocator has reserved after some training steps.

    Parameters
    ----------
    graph : Graph
    held_bytes : int
        Held by libraries all the time, taken from the same allocator.
    steps : int
        Two show the steady state: in the first, the optimiser's state is made.
    """
    allocator = CachingAllocator()
    for storage in graph.storages:
        if storage.born < 0 and storage.size_bytes:
            allocator.allocate(storage.size_bytes)
    if held_bytes:
        allocator.allocate(held_bytes)
    item, rule = _item_bytes(graph), find_optimiser(graph.options.optimiser)
    kept: list[int] = []
    for step in range(steps):
        for address in kept:
            allocator.free(address)
        kept = _play(graph, allocator)
        if graph.options.training:
            if step == 0:
                for size in graph.trained_sizes:
                    for _ in range(round(rule.state)):
                        allocator.allocate(size * item)
            sizes = graph.touched_sizes or graph.trained_sizes
            moment = [allocator.allocate(round(size * item * rule.grouped)) for size in sizes]
            for address in moment if rule.grouped else ():
                allocator.free(address)
    return allocator.reserved_bytes


def _play(graph: Graph, allocator: CachingAllocator) -> list[int]:
    """One pass over the step; addresses of what outlives it."""
    held: dict[int, int] = {}
    for allocated, number in _requests(graph):
        if allocated:
            held[number] = allocator.allocate(graph.storages[number].size_bytes)
        elif number in held:
            allocator.free(held.pop(number))
    return list(held.values())
