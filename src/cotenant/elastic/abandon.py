"""A call that cannot be interrupted, and need not be waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["unless_lost"]

_Made = TypeVar("_Made")
_LOOK_S = 0.05


def unless_lost(make: Callable[[], _Made], lost: Callable[[], bool]) -> _Made | None:
    """What ``make`` returns or raises; None if it is of no use any more, though ``make`` may go on.

    The thread is no daemon: the interpreter waits at its end for what is still within a library that
    would not survive it.

    Parameters
    ----------
    make : callable
        Runs in a thread of its own.
    lost : callable
        Asked again and again meanwhile.
    """
    found: list[_Made] = []
    problems: list[Exception] = []
    done = threading.Event()

    def run() -> None:
        try:
            found.append(make())
        except Exception as error:
            problems.append(error)
        done.set()

    threading.Thread(target=run, name="elastic-group").start()
    while not done.wait(_LOOK_S):
        if lost():
            return None
    if problems:
        raise problems[0]
    return found[0]
