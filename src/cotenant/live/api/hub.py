"""Server-sent events: every change told to every reader, none of whom can hold up the others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from cotenant.errors import CotenantError
from cotenant.live.api.problems import HttpError
from cotenant.live.views import Caller, Service

__all__ = ["Hub"]


class _Told(msgspec.Struct, frozen=True):
    number: int
    kind: str
    facts: dict[str, Any]

    def line(self) -> bytes:
        kind = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.kind)
        data = msgspec.json.encode({"n": self.number, "kind": self.kind, "facts": self.facts}, enc_hook=str)
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self.number, kind.encode("ascii", "replace"), data)

    def seen_by(self, caller: Caller) -> bool:
        """A tenant is told of its own jobs, and of what is nobody's."""
        if caller.admin or self.facts.get("tenant") == caller.tenant:
            return True
        return not {"tenant", "tenants", "id", "job"} & self.facts.keys()


class _Reader:
    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.waiting: deque[bytes] = deque()
        self.ready = asyncio.Event()
        self.lost = False


class Hub:
    """Hands on what a service tells.

    Parameters
    ----------
    service : Service
    backlog : int
        Changes kept for readers that come back.
    queue : int
        Changes that a reader may lag behind.
    readers : int
        Most readers at once.
    heartbeat_s : float
    """

    def __init__(
        self, service: Service, *, backlog: int, queue: int, readers: int, heartbeat_s: float
    ) -> None:
        self._service, self._queue, self._most, self._heartbeat_s = service, queue, readers, heartbeat_s
        self._told: deque[_Told] = deque(maxlen=backlog)
        self._fresh: deque[_Told] = deque()
        self._lock = threading.Lock()
        self._readers: set[_Reader] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Any = None
        self._closing = False
        self._base = 0  # number of the last change before we listened

    @property
    def readers(self) -> int:
        """Readers at this moment."""
        return len(self._readers)

    def open(self) -> None:
        """Begin to listen; call it in the event loop."""
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(CotenantError):
            self._base = self._service.status().events
        self._stop = self._service.subscribe(self._hear)

    def close(self) -> None:
        """Listen no more, and let readers go."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        self._closing = True
        for reader in self._readers:
            reader.ready.set()

    def _hear(self, number: int, kind: str, facts: dict[str, Any]) -> None:
        """In the scheduler's own thread: hand over and return at once."""
        with self._lock:
            first = not self._fresh
            self._fresh.append(_Told(number, kind, facts))
        if not first:
            return
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._spread)
        except RuntimeError:
            # The server has ended: nobody listens, and whoever tells must not be hurt by that.
            with self._lock:
                self._fresh.clear()

    def _spread(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, deque()
        # How far a job is will be told again soon; changes of state will not.
        self._told.extend(told for told in fresh if told.kind != "progress")
        if not self._readers:
            return
        lines = [(told, told.line()) for told in fresh]
        for reader in self._readers:
            for told, line in lines:
                if not told.seen_by(reader.caller):
                    continue
                if len(reader.waiting) >= self._queue:
                    reader.lost = True
                    break
                reader.waiting.append(line)
            reader.ready.set()

    def begin(self, caller: Caller, last: int | None) -> AsyncIterator[bytes]:
        """A new reader's stream.

        Parameters
        ----------
        last : int or None
            Number of the last change it has seen; None: tell from now on.

        Raises
        ------
        HttpError
            503: too many readers.
        """
        if len(self._readers) >= self._most or self._closing:
            raise HttpError(
                503,
                "BusyError",
                f"{len(self._readers)} readers of events already",
                hint="close other pages, or ask GET /v1/status now and then",
                headers={"retry-after": "5"},
            )
        return self._stream(_Reader(caller), last)

    def _missed(self, caller: Caller, last: int | None) -> bytes:
        if last is None:
            return b": listening\n\n"
        newest = self._told[-1].number if self._told else self._base
        oldest = self._told[0].number - 1 if len(self._told) == self._told.maxlen else self._base
        if last > newest or last < oldest:
            # Too long ago, or of another life of the scheduler: whoever reads must look anew.
            return b"event: reset\ndata: {}\n\n"
        late = itertools.dropwhile(lambda told: told.number <= last, self._told)
        missed = [told.line() for told in late if told.seen_by(caller)]
        return (
            b"".join(missed[-self._queue :]) if len(missed) <= self._queue else b"event: reset\ndata: {}\n\n"
        )

    async def _stream(self, reader: _Reader, last: int | None) -> AsyncIterator[bytes]:
        # Counted only from here: a stream that nobody ever read from would never be taken off again.
        self._readers.add(reader)
        try:
            yield b"retry: 2000\n\n" + self._missed(reader.caller, last)
            while True:
                try:
                    await asyncio.wait_for(reader.ready.wait(), self._heartbeat_s)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                reader.ready.clear()
                if reader.waiting:
                    lines, reader.waiting = reader.waiting, deque()
                    yield b"".join(lines)
                if reader.lost:
                    # With a number to come back with, it would get what it missed, and so fall behind again.
                    yield b"event: reset\ndata: {}\n\n"
                    return
                if self._closing:
                    return
        finally:
            self._readers.discard(reader)
