"""The loop's log, kept by a store: an instant's events and the requests in them, in one transaction.

A full disk is waited for: nothing is decided nor carried out meanwhile, jobs run on in the care of their
shepherds, and what they are is still shown. Ending instead would need somebody to start the scheduler again.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from cotenant.engine.log import LogWriter
from cotenant.errors import FullError
from cotenant.model.events import Event
from cotenant.model.liveports import Lease, Store

__all__ = ["StoreLog"]

_RETRY_S = 0.5
_log = logging.getLogger("cotenant.live")


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
    ended : Event, optional
        Set when the loop is to end. With it, a full disk is waited for until then.

    Raises
    ------
    StoreError, FencedError
        From ``write``: the loop ends, and nothing of that instant is carried out.
    """

    def __init__(
        self, store: Store, lease: Lease, executor: _Reads, ended: threading.Event | None = None
    ) -> None:
        super().__init__()
        self._store, self._lease, self._executor = store, lease, executor
        self._ended = ended

    def write(self, batch: list[Event]) -> None:
        """Make a batch durable, and note which requests are in it."""
        waited = False
        while True:
            try:
                self.events = self._store.append(self._lease, batch, self._executor.done_seq)
                break
            except FullError as error:
                if not waited:
                    _log.error("nothing is started or ended until there is room: %s", error)
                waited = True
                if self._ended is None or self._ended.wait(_RETRY_S):
                    raise
        if waited:
            _log.warning("there is room for the log again")
