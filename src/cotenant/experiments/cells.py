"""Independent pieces of work over processes: the same results with one process or with many."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from cotenant.errors import CotenantError

__all__ = ["run_cells"]

_C = TypeVar("_C")
_R = TypeVar("_R")


def run_cells(
    work: Callable[[_C], _R], cells: Sequence[_C], workers: int, done: Callable[[_C, _R], None]
) -> None:
    """Call ``work`` for each cell, and ``done`` in this process whenever one has its result.

    With more than one worker, ``work`` and the cells must pickle. An interrupt ends the processes at
    once: what ``work`` keeps must appear whole or not at all.

    Raises
    ------
    CotenantError
        If a process was killed; and whatever ``work`` raises.
    """
    workers = max(1, min(workers, len(cells)))
    if workers == 1:
        for cell in cells:
            done(cell, work(cell))
        return
    # Spawned, not forked: no threads or locks of this process are copied.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        futures = {pool.submit(work, cell): cell for cell in cells}
        for future in as_completed(futures):
            done(futures[future], future.result())
    except KeyboardInterrupt:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    except BrokenProcessPool:
        raise CotenantError("a process was killed, perhaps for memory; try --workers 1") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process alone answers Ctrl-C
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """Leave with the main process: nobody waits for the results."""
    parent: Any = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
