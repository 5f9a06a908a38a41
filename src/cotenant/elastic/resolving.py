"""Connections to PyTorch's store that do not depend on a name server.

A TCPStore, to write it into its messages, asks for the name of whom it connects to, although that is 127.0.0.1: it
asks by the address ::ffff:127.0.0.1, which no file of hosts names, so the question goes to the name server. One that
does not answer costs 5 s each time it is asked, and each process of a run asks a dozen times before its first step.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

__all__ = ["no_questions"]

_READY = 1


@contextlib.contextmanager
def no_questions() -> Iterator[None]:
    """Meanwhile this thread asks no name server: addresses have no names, names none but those of /etc/hosts.

    Where the C library is not that of GNU, nothing is changed.
    """
    retries = _retries()
    if retries is None:
        yield
        return
    before = retries[1]
    retries[1] = 0
    try:
        yield
    finally:
        retries[1] = before


def _retries() -> ctypes.Array[ctypes.c_int] | None:
    # The public struct of <resolv.h> begins with seconds of a try, how many tries there are, and bits of options.
    try:
        library = ctypes.CDLL(None)
        state, start = library.__res_state, library.__res_init
    except (OSError, AttributeError):
        return None
    start.restype = ctypes.c_int
    state.restype = ctypes.POINTER(ctypes.c_int * 3)
    found: ctypes.Array[ctypes.c_int] = state().contents
    return found if found[2] & _READY or start() == 0 else None
