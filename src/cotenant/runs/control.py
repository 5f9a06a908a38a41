"""How a run hears that it should stop, and says how far it has come."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from cotenant.model.events import Closed, Ended, Event, Rejected

__all__ = ["Control", "Stoppable", "on_interrupt"]


class Stoppable(Protocol):
    """Anything that ends soon after ``stop``."""

    def stop(self) -> None:
        """End soon."""


class Control:
    """One process's switch for its runs, and an observer of each.

    Parameters
    ----------
    finished : callable, optional
        Told the number of jobs that ended, batch by batch.
    """

    def __init__(self, finished: Callable[[int], None] | None = None) -> None:
        self._finished = finished
        self._current: Stoppable | None = None
        self.stopped = False
        self.interrupted = False

    def attach(self, loop: Stoppable) -> None:
        """Name the loop that runs now; it is stopped at once if the switch was thrown before."""
        self._current = loop
        self.interrupted = False
        if self.stopped:
            loop.stop()

    def stop(self) -> None:
        """Stop the present run and every later one. Safe in a signal handler."""
        self.stopped = True
        if self._current is not None:
            self._current.stop()

    def see(self, events: Sequence[Event]) -> None:
        """Take a batch of events, as an observer of the loop."""
        if events and type(events[-1]) is Closed:
            self.interrupted = events[-1].interrupted
        if self._finished is not None:
            ended = sum(1 for e in events if (type(e) is Ended and e.final) or type(e) is Rejected)
            self._finished(ended)


@contextlib.contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` at the first Ctrl-C (or termination request); the second one ends at once.

    Outside the main thread nothing is changed: Python delivers signals there alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def first(number: int, _: Any) -> None:
        for one, handler in before.items():
            signal.signal(one, handler)
        act()

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
