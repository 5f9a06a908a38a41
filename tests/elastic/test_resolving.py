"""No name server is asked for the names of connections to the store."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import threading
from typing import Any

import pytest

from cotenant.elastic.resolving import _retries, no_questions

MAPPED = ("::ffff:127.0.0.1", 80, 0, 0)


def _asked(context: Any) -> int:
    """How many questions a name server of this thread, which answers none, is asked while an address is looked up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        port = server.getsockname()[1]

        def look() -> None:
            with contextlib.suppress(OSError), context:
                socket.getnameinfo(MAPPED, 0)

        def at_ours() -> None:
            state = _retries()
            assert state is not None
            # <resolv.h>: a try of one second; the first server's address lies behind 20 bytes.
            state[0], state[1] = 1, 1
            raw = ctypes.cast(state, ctypes.POINTER(ctypes.c_ubyte * 28)).contents
            raw[20:28] = [socket.AF_INET, 0, *port.to_bytes(2), 127, 0, 0, 1]
            look()

        thread = threading.Thread(target=at_ours)
        thread.start()
        thread.join()
        questions = 0
        with contextlib.suppress(BlockingIOError):
            while server.recv(512):
                questions += 1
        return questions


def test_no_name_server_is_asked_meanwhile_and_again_afterwards() -> None:
    if _retries() is None:
        pytest.skip("not the C library of GNU")
    assert _asked(contextlib.nullcontext()) > 0
    assert _asked(no_questions()) == 0
    with no_questions():
        assert _retries()[1] == 0  # type: ignore[index]
    assert _retries()[1] > 0  # type: ignore[index]
