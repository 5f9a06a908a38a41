"""The loop's log, kept by a store: an instant's events and the requests in them, in one transaction.

A full disk is waited for, and so is, for a while, a database server that went away: nothing is decided nor
carried out meanwhile, jobs run on in the care of their shepherds, and what they are is still shown. Ending instead
would need somebody to start the scheduler again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cotenant.engine.log import LogWriter
from cotenant.errors import FullError, LostError
from cotenant.live.leading import PATIENCE_S
from cotenant.model.events import Event
from cotenant.model.liveports import Accepted, Lease, Store

__all__ = ["PatientReads", "StoreLog", "patiently"]

_RETRY_S = 0.5
_log = logging.getLogger("cotenant.live")
R = TypeVar("R")


class _Reads(Protocol):
    @property
    def done_seq(self) -> int: ...


def patiently(act: Callable[[], R], ended: threading.Event | None, most_s: float = PATIENCE_S) -> R:
    """Do something with the log, again and again while its disk is full, or its server away.

    Parameters
    ----------
    act : callable
        What may be repeated.
    ended : Event, optional
        Ends the waiting; without it there is none.
    most_s : float
        How long a server may be away.

    Raises
    ------
    FullError, LostError
        What is still so when the waiting is over.
    """
    since = 0.0
    while True:
        try:
            found = act()
            break
        except (FullError, LostError) as error:
            now = time.monotonic()
            if not since:
                since, full = now, isinstance(error, FullError)
                until = "there is room" if full else f"the log is back (for {most_s:g} s at most)"
                _log.error("nothing is started or ended until %s: %s", until, error)
            over = isinstance(error, LostError) and now - since >= most_s
            if over or ended is None or ended.wait(_RETRY_S):
                raise
    if since:
        _log.warning("the log can be used again, after %.1f s", time.monotonic() - since)
    return found


class PatientReads:
    """A store as the loop reads it: what it asks waits for a server that is away (``patiently``).

    Parameters
    ----------
    store : Store
    ended : Event
        Set when the loop is to end.
    """

    def __init__(self, store: Any, ended: threading.Event) -> None:
        self._store, self._ended = store, ended

    def waiting(self, after_seq: int, limit: int = 1000) -> list[Accepted]:
        """Requests accepted after that one, in order."""
        found: list[Accepted] = patiently(lambda: self._store.waiting(after_seq, limit), self._ended)
        return found

    def job(self, job_id: int) -> Accepted | None:
        """The request that submitted a job; None if there is no such job."""
        found: Accepted | None = patiently(lambda: self._store.job(job_id), self._ended)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class StoreLog(LogWriter):
    """What the loop writes to.

    Parameters
    ----------
    store : Store
    lease : Lease
    executor : LiveExecutor
        Knows the last request whose events it handed to the loop.
    ended : Event, optional
        Set when the loop is to end. With it, a full disk is waited for until then, and a server that is away
        for ``PATIENCE_S``.

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
        self.events = patiently(
            lambda: self._store.append(self._lease, batch, self._executor.done_seq), self._ended
        )
