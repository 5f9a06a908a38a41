"""Several processes of a run that fail of the same thing say so once: one traceback, and a line from each of the others."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cotenant.elastic.members import ADDRESS, reachable

if TYPE_CHECKING:
    from cotenant.elastic.process import Process

__all__ = ["ask_first", "install", "interrupts_ignored", "watch"]

_FIRST, _TOLD = "failed", "failed/told"
_LIMIT_S = 2.0
_watched: list[Process] = []
_asked: list[Callable[[BaseException], None]] = []


def install() -> None:
    """In a process that a supervisor has started: uncaught exceptions are told as this module says."""
    if os.environ.get(ADDRESS):
        sys.excepthook = functools.partial(_tell, sys.excepthook)


def watch(process: Process) -> None:
    """Its step and logical worker are told, too."""
    _watched[:] = [process]


def ask_first(asked: Callable[[BaseException], None]) -> None:
    """Before anything is told of an exception this is called, which may end the process."""
    _asked.append(asked)


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """What is started meanwhile is not interrupted by Ctrl-C, which goes to all of a terminal's processes."""
    before = None
    with contextlib.suppress(ValueError):  # not in the main thread
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _tell(
    before: Callable[..., Any], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    for asked in _asked:
        asked(error)
    host, port, name = [*os.environ.get(ADDRESS, "").split(":"), "", ""][:3]
    where = f"process {name}{_place()}"
    store = _store(host, port)
    if store is None:
        sys.stderr.write(f"cotenant: {where} ends: the supervisor that started it is gone\n")
    elif store.compare_set(_FIRST, "", name).decode() == name:
        sys.stderr.write(f"cotenant: {where} failed:\n")
        before(kind, error, trace)
        sys.stderr.flush()
        store.set(_TOLD, "yes")
    else:
        words = " ".join(str(error).split("\n", 1)[:1])
        sys.stderr.write(f"cotenant: {where} failed, too: {kind.__name__}: {words}\n")
        # When one has ended, the supervisor ends the others: not before the traceback is out.
        deadline = time.monotonic() + _LIMIT_S
        while not store.check([_TOLD]) and time.monotonic() < deadline:
            time.sleep(0.02)


def _place() -> str:
    if not _watched:
        return ""
    process = _watched[0]
    if process.in_turns and process.worker is not None:
        return f", logical worker {process.worker}, step {process.place.step}"
    return f", step {process.place.step}"


def _store(host: str, port: str) -> Any:
    """The supervisor's; None if it is gone."""
    if not port.isdigit() or not reachable(host, int(port)):
        return None
    with contextlib.suppress(OSError, RuntimeError):
        from torch.distributed import TCPStore

        limit = datetime.timedelta(seconds=_LIMIT_S)
        return TCPStore(host, int(port), is_master=False, timeout=limit, wait_for_workers=False)
    return None
