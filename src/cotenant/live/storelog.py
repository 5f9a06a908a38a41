"""The loop's log, kept by a store: an instant's events and the requests in them, in one transaction."""

from __future__ import annotations

from typing import Protocol

from cotenant.engine.log import LogWriter
from cotenant.model.events import Event
from cotenant.model.liveports import Lease, Store

__all__ = ["StoreLog"]


class _Reads(Protocol):
    @property
    def done_seq(self) -> int: ...


class StoreLog(LogWriter):
    """What the loop writes to.

    Parameters
    ----------
    store : Store
    lease : Lease
    executor : LiveExecutor
        Knows the last request whose events it handed to the loop.

    Raises
    ------
    StoreError, FencedError
        From ``write``: the loop ends, and nothing of that instant is carried out.
    """

    def __init__(self, store: Store, lease: Lease, executor: _Reads) -> None:
        super().__init__()
        self._store, self._lease, self._executor = store, lease, executor

    def write(self, batch: list[Event]) -> None:
        """Make a batch durable, and note which requests are in it."""
        self.events = self._store.append(self._lease, batch, self._executor.done_seq)
