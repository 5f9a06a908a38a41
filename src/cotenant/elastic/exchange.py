"""Processes of one generation, and what they send each other."""

from __future__ import annotations

import contextlib
import datetime
import io
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.elastic.abandon import unless_lost

__all__ = ["Broken", "Group", "from_bytes", "to_bytes"]


_WATCH_S = 0.1
_PATIENCE_S = 5.0
_NEVER_SENT = 1 << 30
_AT_ONCE = datetime.timedelta(milliseconds=1)
_PATIENT = datetime.timedelta(hours=1)
"""Of one wait for another process, whose turn or checkpoint may be a long one; who is lost is noticed otherwise."""


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

        self.rank, self.size, self.store = rank, size, store
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
        self._lost = False
        self._closed = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(lost,), daemon=True)
        watcher.start()
        self._unwatch = weakref.finalize(self, _end, self._closed, watcher)

    def close(self) -> None:
        """Hang up, so that the others notice."""
        self._group = None
        self._unwatch()

    def _watch(self, lost: Callable[[], bool]) -> None:
        # Who waits for a process that has left for the next generation would wait for ever: gloo tells
        # only of connections that were closed.
        while not self._closed.wait(_WATCH_S):
            try:
                self._lost = lost()
            except RuntimeError:  # the supervisor is gone
                self._lost = True
            group = self._group
            if self._lost and group is not None:
                _interrupt(group, self.others())
                return
            del group  # while it waits it holds no connections that others watch

    @property
    def lost(self) -> bool:
        """Whether a process is known to be gone, or this one has hung up."""
        return self._lost or self._group is None

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
        # Only sends and receives: unlike collectives, they can be interrupted while they wait.
        if self._group is None or self._lost:
            raise Broken("closed")
        problem = ""
        work, works = None, []
        try:
            works = [call() for call in calls]
            for work in works:
                if self._lost:
                    break
                work.wait(_PATIENT)
        except RuntimeError as error:
            problem = str(error).splitlines()[0]
        # A traceback would keep them, and with them connections that others watch.
        del work, works
        if problem or self._lost:
            raise Broken(problem or "a process was lost")


def _end(closed: threading.Event, watcher: threading.Thread) -> None:
    """End a thread that asks the store; also when Python ends: C++ that comes back to it then aborts the process."""
    closed.set()
    if watcher is not threading.current_thread():
        watcher.join(_PATIENCE_S)


def _interrupt(group: Any, others: Sequence[int]) -> None:
    """Let every call that waits in a group of gloo raise ``RuntimeError``; the group is of no more use.

    Nothing in Python aborts a send or a receive that waits. A receive that runs into its time-out, however,
    puts all connections of its group in error, and with them all that waits there.
    """
    import torch

    for rank in others:
        with contextlib.suppress(RuntimeError):
            group.recv([torch.empty(1)], rank, _NEVER_SENT).wait(_AT_ONCE)
