"""Waking the loop: at once when it is idle, and in bunches when many submit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Waker"]

_BUNCH_S = 0.02


class Waker:
    """Passes on the first call at once; those that follow within 20 ms are one call at the end of them.

    So a submission to an idle scheduler waits for nothing, and a thousand of them a second are taken
    up fifty times a second: each time the loop looks costs a transaction.

    Parameters
    ----------
    wake : callable
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._last = -1.0
        self._due = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._later, name="cotenant-wake", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to look at; from any thread."""
        now = time.monotonic()
        if now - self._last >= _BUNCH_S:
            self._last = now
            self._wake()
        else:
            self._due.set()

    def _later(self) -> None:
        while True:
            self._due.wait()
            if self._closed:
                return
            time.sleep(_BUNCH_S)
            self._due.clear()
            self._last = time.monotonic()
            self._wake()

    def close(self) -> None:
        """Pass nothing on any more."""
        self._closed = True
        self._due.set()
        self._thread.join(1.0)
