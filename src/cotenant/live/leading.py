"""Being the one scheduler: the lease is taken, prolonged by a thread of its own, and lost only loudly."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from cotenant.errors import FencedError, FullError, StoreError
from cotenant.model.liveports import Lease, Store

__all__ = ["PATIENCE_S", "TTL_S", "Leader", "lead"]

TTL_S = 1.5
"""How long the lease of a leader that has gone silent lasts; one that has ended needs no waiting."""
_POLL_S = 0.1
PATIENCE_S = 30.0
"""How long the server of the log may be away before a leader ends."""
_log = logging.getLogger("cotenant.live")


def lead(
    store: Store, owner: str, *, wait: bool, stopped: threading.Event, ttl_s: float = TTL_S
) -> Lease | None:
    """Take the lease; None if somebody else leads and we do not wait, or were stopped.

    Parameters
    ----------
    wait : bool
        Stand by until it is free.
    stopped : Event
        Ends the waiting.
    """
    failing_since = 0.0
    while not stopped.is_set():
        try:
            lease = store.acquire(owner, ttl_s)
            failing_since = 0.0
        except StoreError as error:
            if not wait:
                raise
            lease = None
            if not failing_since:
                failing_since = time.monotonic()
                _log.warning("standing by, and the log cannot be reached: %s", error)
        if lease is not None or not wait:
            return lease
        stopped.wait(_POLL_S)
    return None


class Leader:
    """Keeps the lease until it is given up or lost.

    Parameters
    ----------
    store : Store
    lease : Lease
    lost : callable
        Called once, from the heartbeat's thread, with the reason, when this scheduler must act no more.
    """

    def __init__(self, store: Store, lease: Lease, lost: Callable[[Exception], None]) -> None:
        self.lease = lease
        self._store, self._lost = store, lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="cotenant-lease", daemon=True)
        self.late = 0

    def start(self) -> None:
        """Begin to prolong it."""
        self._thread.start()

    def _beat(self) -> None:
        every_s = self.lease.ttl_s / 3.0
        good = time.monotonic()
        while not self._ended.wait(every_s):
            try:
                self._store.renew(self.lease)
                if time.monotonic() - good > self.lease.ttl_s:
                    self.late += 1
                good = time.monotonic()
            except FencedError as error:
                self._tell(error)
                return
            except StoreError as error:
                # Nobody can take over a log that cannot be written; whoever can write fences us.
                silent_s = time.monotonic() - good
                if not isinstance(error, FullError):
                    _log.warning("the lease could not be prolonged for %.1f s: %s", silent_s, error)
                if silent_s > PATIENCE_S and not isinstance(error, FullError):
                    self._tell(error)
                    return

    def _tell(self, error: Exception) -> None:
        if not self._ended.is_set():
            self._lost(error)

    def give_up(self) -> None:
        """Let a successor begin at once."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(self.lease.ttl_s)
        try:
            self._store.release(self.lease)
        except (StoreError, FencedError) as error:
            _log.warning("the lease could not be given up, it runs out by itself: %s", error)

    def abandon(self) -> None:
        """It is lost: tell nobody more."""
        self._ended.set()


def owner_name() -> str:
    """Who we are, for people: host and process."""
    return f"{os.uname().nodename}:{os.getpid()}"
