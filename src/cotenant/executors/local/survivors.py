"""Processes of an attempt whose shepherd is dead: they are found, and ended before anybody says that it is lost.

Three marks lead to them, because a job may shed any one: the variable ``COTENANT_STATUS`` that it inherited,
the session of its shepherd, and its cgroup.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from cotenant.executors.local.layout import stat_fields

__all__ = ["end_survivors", "survivors"]


def survivors(status_path: str, session: int, groups: Iterable[int] = ()) -> list[int]:
    """Processes that live and bear a mark of the attempt.

    Parameters
    ----------
    status_path : str
        Value of ``COTENANT_STATUS``: no other attempt has it.
    session : int
        Number of the dead shepherd's session; 0: not looked at. A number in use as a session is not given to
        a new process, so while one survivor is in it, it means the same.
    groups : iterable of int
        Processes of its cgroup.
    """
    mark = b"COTENANT_STATUS=" + os.fsencode(status_path)
    found = set(groups)
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        pid = int(name)
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if (session and os.getsid(pid) == session and pid != session) or _bears(name, mark):
                found.add(pid)
    return sorted(pid for pid in found if _lives(pid))


def _bears(name: str, mark: bytes) -> bool:
    with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
        return mark in file.read().split(b"\0")


def _lives(pid: int) -> bool:
    state = stat_fields(pid)[:1]
    return bool(state) and state[0] not in (b"Z", b"X")


def end_survivors(status_path: str, session: int, groups: Iterable[int] = ()) -> bool:
    """Kill them; True once nobody is left. Call it again while it says False.

    They are stopped before any is killed, so that none can start another meanwhile.
    """
    left = survivors(status_path, session, groups)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
    return not left
