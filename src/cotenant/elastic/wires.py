"""What carries gradients: gloo from host memory, or NCCL from GPU to GPU. Neither was run on a GPU yet."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.elastic.abandon import unless_lost
from cotenant.elastic.exchange import Broken, Group, from_bytes, to_bytes
from cotenant.elastic.lanes import Lane
from cotenant.elastic.sums import Wire

__all__ = ["Nccl", "Way", "choose", "decide"]

_LOOK_S = 0.0002
Way = tuple[bool, str]
"""Whether a process could use NCCL, and which GPU is its own."""


def decide(ways: Sequence[Way]) -> bool:
    """Whether all processes exchange by NCCL: each must be able to, with a GPU of its own.

    >>> decide([(True, "a"), (True, "b")]), decide([(True, "a"), (True, "a")])
    (True, False)
    """
    return all(able for able, _ in ways) and len({gpu for _, gpu in ways}) == len(ways)


def choose(group: Group, parameters: Sequence[Any]) -> tuple[Wire, Lane]:
    """What gradients go by in this group, the same on all its processes, and from which memory.

    Raises
    ------
    Broken
    """
    gpus = sorted({str(p.device) for p in parameters if p.device.type == "cuda"})
    every = all(p.device.type == "cuda" for p in parameters)
    device = next((p.device for p in parameters if p.device.type == "cuda"), None)
    if not gpus:
        return group, Lane()
    mine = (every and len(gpus) == 1 and _has_nccl(), _name(device))
    ways = [from_bytes(data) for data in group.gather(to_bytes(mine))]
    if decide([(bool(able), str(gpu)) for able, gpu in ways]):
        return Nccl(group, device), Lane(device, through_host=False)
    return group, Lane(device, through_host=True)


def _has_nccl() -> bool:
    from torch import distributed as dist

    return bool(dist.is_available() and dist.is_nccl_available())


def _name(device: Any) -> str:
    import torch

    found = torch.cuda.get_device_properties(device)
    return str(getattr(found, "uuid", device))


class Nccl:
    """The processes of a group, connected by NCCL; only sends and receives, so that sums keep their order.

    Parameters
    ----------
    group : Group
        Tells who is lost: NCCL itself would wait for ever.
    device : torch.device
    make : callable, optional
        Makes PyTorch's process group from store, rank and size.

    Raises
    ------
    Broken
        A process was lost before all were connected.
    """

    def __init__(self, group: Group, device: Any, make: Callable[[Any, int, int], Any] | None = None) -> None:
        from torch.distributed import PrefixStore

        self.rank, self.size = group.rank, group.size
        self._group, self._device = group, device
        self._nccl = (make or _made)(PrefixStore("nccl", group.store), self.rank, self.size)

        # At once, not within the first exchange: there the host would wait for a dead process where nothing looks.
        def connect() -> bool:
            self._nccl.eager_connect_single_device(device)
            return True

        try:
            connected = unless_lost(connect, lambda: group.lost)
        except RuntimeError as error:
            raise Broken(str(error).splitlines()[0]) from None
        if connected is None:
            raise Broken("a process was lost")

    def others(self) -> list[int]:
        """Ranks but this one's."""
        return self._group.others()

    def swap(self, receive: Mapping[int, Sequence[Any]], send: Mapping[int, Sequence[Any]]) -> None:
        """Send and receive tensors of the device; between two processes in the order of the sequences.

        Raises
        ------
        Broken
        """
        incoming = [(rank, t) for rank, tensors in receive.items() for t in tensors if t.numel()]
        outgoing = [(rank, t) for rank, tensors in send.items() for t in tensors if t.numel()]
        if not incoming and not outgoing:
            return
        try:
            self._nccl._start_coalescing(self._device)
            for rank, tensor in incoming:
                self._nccl.recv([tensor], rank, 0)
            for rank, tensor in outgoing:
                self._nccl.send([tensor], rank, 0)
            self._wait(self._nccl._end_coalescing(self._device))
        except RuntimeError as error:
            raise Broken(str(error).splitlines()[0]) from None

    def _wait(self, work: Any) -> None:
        while not work.is_completed():
            if self._group.lost:
                self._nccl.abort()
                raise Broken("a process was lost")
            time.sleep(_LOOK_S)
        work.wait()  # the computation's stream goes on behind it


def _made(store: Any, rank: int, size: int) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = datetime.timedelta(hours=1)
    return ProcessGroupNCCL(store, rank, size, options)
