"""How PyTorch's DistributedDataParallel sums gradients over gloo, element by element.

The recipe is of PyTorch's inside (``torch/csrc/distributed/c10d/reducer.cpp`` and gloo's ``allreduce.cc``),
not a promise: it holds for the versions that the tests have compared with DDP itself, see ``VERIFIED``.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from cotenant.elastic.lanes import Kind
from cotenant.errors import InputError

__all__ = ["VERIFIED", "Arrival", "Layout", "check_version", "fold", "identity", "layouts", "ring"]

VERIFIED = ("2.13",)
"""Versions of PyTorch with which ``order="ddp"`` was found equal to DDP."""
_FIRST_BYTES = 1 << 20
_LATER_BYTES = 25 << 20
_SEGMENT_BYTES = 1 << 20
Piece = tuple[int, int, int]
"""First element, the one after the last, and the process whose chunk of the ring they are."""


def check_version(*, strict: bool) -> bool:
    """Whether this version of PyTorch is one of ``VERIFIED``; if not, that is said on standard error.

    Parameters
    ----------
    strict : bool
        Refuse others.

    Raises
    ------
    InputError
    """
    import torch

    version = ".".join(str(torch.__version__).split(".")[:2])
    if version in VERIFIED:
        return True
    text = (
        f"order='ddp' was compared with DistributedDataParallel of PyTorch {', '.join(VERIFIED)}, this is {version}:"
        " grade statistical against DDP (among numbers of processes bits stay equal)"
    )
    if strict:
        raise InputError(f"{text}; this run asks for bitwise: use one of these versions, or another order")
    sys.stderr.write(f"cotenant: {text}\n")
    return False


def identity() -> dict[str, str]:
    """What the layout depends on beside the order of arrival."""
    return {"buckets": f"DDP, {_FIRST_BYTES} then {_LATER_BYTES} bytes; gloo's ring, {_SEGMENT_BYTES}"}


def ring(elements: int, element_bytes: int, processes: int) -> list[Piece]:
    """The chunks of gloo's ring over a buffer, in their order; none is empty.

    The sum of chunk c starts at process c-1 and goes down the ring to c.

    >>> ring(10, 4, 3)
    [(0, 4, 0), (4, 8, 1), (8, 10, 2)]
    """
    total = elements * element_bytes
    segments = max(-(-total // _SEGMENT_BYTES), 2 * processes)
    segments = -(-segments // processes) * processes
    chunk = -(-total // segments // element_bytes) * (segments // processes) if total else 0
    bounds = [min(elements, chunk * number) for number in range(processes)] + [elements]
    return [(low, high, n) for n, (low, high) in enumerate(itertools.pairwise(bounds)) if low < high]


class Layout(NamedTuple):
    """Buckets of one data type, one after the other.

    Attributes
    ----------
    kind : Kind
    pieces : list of (int, int, int)
        Chunks of the rings of all buckets.
    """

    kind: Kind
    pieces: list[Piece]


def layouts(parameters: Sequence[Any], arrival: Sequence[int], processes: int) -> list[Layout]:
    """DDP's buckets: one for each data type at the first step, then by the order of arrival.

    Parameters
    ----------
    parameters : sequence of Parameter
        In the order of declaration.
    arrival : sequence of int
        The order in which the gradients of process 0 arrived at the first step; empty before.
    processes : int
    """
    from torch import distributed as dist

    if arrival:
        ordered = [parameters[n] for n in arrival]
        none_sparse = [False] * len(ordered)
        limits = [_FIRST_BYTES, _LATER_BYTES]
        buckets, _ = dist._compute_bucket_assignment_by_size(ordered, limits, none_sparse, list(arrival))
    else:
        buckets, _ = dist._compute_bucket_assignment_by_size(list(parameters), [sys.maxsize], [])
    found: dict[Any, list[list[int]]] = {}
    for bucket in buckets:
        found.setdefault(parameters[bucket[0]].dtype, []).append(list(bucket))
    return [_layout(parameters, several, processes) for several in found.values()]


def _layout(parameters: Sequence[Any], buckets: list[list[int]], processes: int) -> Layout:
    pieces: list[Piece] = []
    offset = 0
    for bucket in buckets:
        size = sum(parameters[n].numel() for n in bucket)
        chunks = ring(size, parameters[bucket[0]].element_size(), processes)
        pieces += [(offset + low, offset + high, number) for low, high, number in chunks]
        offset += size
    return Layout(Kind(parameters, [n for bucket in buckets for n in bucket]), pieces)


def fold(rows: Sequence[Any], low: int, pieces: Sequence[Piece], out: Any) -> None:
    """Sum rows in the order of the ring; what the rows held is lost.

    Parameters
    ----------
    rows : sequence of Tensor, (elements,)
        The same elements of each worker; the first is number ``low`` of the buffer.
    low : int
    pieces : sequence of (int, int, int)
        Of the whole buffer.
    out : Tensor, (elements,)
        May be one of the rows.
    """
    count, high = len(rows), low + out.numel()
    for first, end, chunk in pieces:
        a, b = max(first, low) - low, min(end, high) - low
        if a >= b:
            continue
        total = rows[(chunk - 1) % count][a:b]
        for number in range(2, count + 1):
            total.add_(rows[(chunk - number) % count][a:b])
        if total.data_ptr() != out[a:b].data_ptr():
            out[a:b].copy_(total)


class Arrival:
    """Records in which order a turn's gradients arrive.

    Attributes
    ----------
    order : list of int
        Numbers of parameters.
    again : bool
        One of them arrived twice: there was more than one backward pass.
    """

    def __init__(self, parameters: Sequence[Any]) -> None:
        self.order: list[int] = []
        self.again = False
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._hook(number))
            for number, parameter in enumerate(parameters)
        ]

    def _hook(self, number: int) -> Any:
        def arrived(_: Any) -> None:
            if number in self.order:
                self.again = True
            else:
                self.order.append(number)

        return arrived

    def stop(self) -> None:
        """Look no longer; say on standard error what DDP would do otherwise."""
        if self.again and self._handles:
            sys.stderr.write(
                "cotenant: order='ddp', and backward() more than once in a turn: DDP sums over its processes in each of"
                " them, but those under no_sync(): grade statistical against DDP, unless all but the last are. Add the"
                " losses to have one\n"
            )
        for handle in self._handles:
            handle.remove()
        self._handles = []
