"""What a request to terminate means to whoever has started processes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["stoppable"]


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """A request to terminate is an interrupt, too: it leaves no job behind."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
