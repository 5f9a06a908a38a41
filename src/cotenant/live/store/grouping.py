"""Group commit: those who come while the disk is busy are written together, by one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from cotenant.errors import StoreError

__all__ = ["Grouped"]

T = TypeVar("T")
R = TypeVar("R")


class _Entry(Generic[T, R]):
    def __init__(self, items: Sequence[T]) -> None:
        self.items = items
        self.results: list[R] | None = None
        self.error: Exception | None = None
        self.leads = False
        self.called = threading.Event()


class Grouped(Generic[T, R]):
    """Calls ``write`` for many callers at once.

    Parameters
    ----------
    write : callable
        Gets the items of all who wait, in order, and returns as many results; durable when it returns. If
        it raises, everyone in the group is told so.
    most : int
        Items in one group at most (a single caller's are never split).
    """

    def __init__(self, write: Callable[[list[T]], list[R]], *, most: int = 1000) -> None:
        self._write = write
        self._most = most
        self._gate = threading.Lock()
        self._busy = False
        self._queue: list[_Entry[T, R]] = []

    def submit(self, items: Sequence[T]) -> list[R]:
        """Wait until the items are written, and return their results."""
        entry: _Entry[T, R] = _Entry(items)
        with self._gate:
            self._queue.append(entry)
            entry.leads, self._busy = not self._busy, True
        if not entry.leads:
            entry.called.wait()
        if entry.leads:
            self._lead()
        if entry.error is not None:
            # One error object raised in many threads would mix up their tracebacks.
            raise type(entry.error)(*entry.error.args) from entry.error
        return entry.results or []

    def _lead(self) -> None:
        """Write the group at the head of the queue, ours first in it, and call the next leader."""
        with self._gate:
            group = self._next_group()
        try:
            self._write_group(group)
        finally:
            self._hand_on(group)

    def _hand_on(self, group: list[_Entry[T, R]]) -> None:
        with self._gate:
            # The next one begins before those who are served wake up.
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].called.set()
            else:
                self._busy = False
        for entry in group[1:]:
            entry.called.set()

    def _next_group(self) -> list[_Entry[T, R]]:
        count, total = 0, 0
        for entry in self._queue:
            total += len(entry.items)
            if count and total > self._most:
                break
            count += 1
        group, self._queue = self._queue[:count], self._queue[count:]
        return group

    def _write_group(self, group: list[_Entry[T, R]]) -> None:
        try:
            results = self._write([item for entry in group for item in entry.items])
        except Exception as error:
            for entry in group:
                entry.error = error
            return
        except BaseException:
            # Ctrl-C hit the one that writes for all; the others must not wait for ever.
            for entry in group:
                entry.error = StoreError("interrupted while requests were written; ask again")
            raise
        start = 0
        for entry in group:
            entry.results = results[start : start + len(entry.items)]
            start += len(entry.items)
