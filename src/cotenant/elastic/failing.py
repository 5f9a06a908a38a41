"""Several processes of a run that fail of the same thing say so once: one traceback, and a line from each of the others."""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import os
import signal
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cotenant.elastic.members import ADDRESS, reachable
from cotenant.elastic.resolving import no_questions
from cotenant.errors import CotenantError

if TYPE_CHECKING:
    from cotenant.elastic.process import Process

__all__ = ["FOREIGN", "ask_first", "install", "start_process", "watch"]

_PLACES = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
FOREIGN = tuple(f"{Path(place).resolve()}{os.sep}" for place in [*_PLACES, str(Path(__file__).parents[1])])
"""Where code lies that is not the user's: Python, what is installed, cotenant."""
_FIRST, _TOLD = "failed", "failed/told"
_LIMIT_S = 20.0
_watched: list[Process] = []
_asked: list[Callable[[BaseException], None]] = []


def install() -> None:
    """In a process that a supervisor has started: uncaught exceptions are told as this module says."""
    if os.environ.get(ADDRESS):
        sys.excepthook = functools.partial(_tell, sys.excepthook)


def watch(watched: Process) -> None:
    """Its step and logical worker are told, too."""
    _watched[:] = [watched]


def ask_first(asked: Callable[[BaseException], None]) -> None:
    """Before anything is told of an exception this is called, which may end the process."""
    _asked.append(asked)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """What is started meanwhile is not interrupted by Ctrl-C, which goes to all of a terminal's processes."""
    before = None
    with contextlib.suppress(ValueError):  # not in the main thread
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def start_process(command: Sequence[str], threads: int, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start one of a run, with these environment variables added."""
    # Large pages: memory that PyTorch takes anew at every step costs half as much.
    env = {"OMP_NUM_THREADS": str(threads), "THP_MEM_ALLOC_ENABLE": "1", **os.environ, **more}
    with _interrupts_ignored():
        return subprocess.Popen(command, env=env)  # noqa: S603


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
        own = [one for one in traceback.extract_tb(trace) if not one.filename.startswith(("<", *FOREIGN))]
        if isinstance(error, CotenantError) and own:
            # It says what to do; through which of our functions it came helps nobody.
            text = f"Traceback, your code:\n{''.join(traceback.format_list(own))}{kind.__name__}: {error}\n"
        else:
            with contextlib.redirect_stderr(io.StringIO()) as written:
                before(kind, error, trace)
            text = written.getvalue()
        # In one piece: lines of the others would get between.
        sys.stderr.write(f"cotenant: {where} failed:\n{text}")
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
    mine = _watched[0]
    if mine.in_turns and mine.worker is not None:
        return f", logical worker {mine.worker}, step {mine.place.step}"
    return f", step {mine.place.step}"


def _store(host: str, port: str) -> Any:
    """The supervisor's; None if it is gone."""
    if _watched and _watched[0].member is not None:
        # Whoever connects anew to one that is just dying may be let in, and then waits, and PyTorch writes about it.
        return _watched[0].member.answering()
    if not port.isdigit() or not reachable(host, int(port)):
        return None
    with contextlib.suppress(OSError, RuntimeError):
        from torch.distributed import TCPStore

        limit = datetime.timedelta(seconds=_LIMIT_S)
        with no_questions():
            return TCPStore(host, int(port), is_master=False, timeout=limit, wait_for_workers=False)
    return None
