"""Cyclic garbage is looked for less often during a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["seldom_collected"]

_ALLOCATIONS = 50_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect after more allocations, and not among what was there before; then as it was.

    A run makes no cycles of its own: what the collector walks through, again and again as the
    queue grows, is all alive. It is left on for what policies and learners may make.
    Nothing is changed for those who turned it off, or who froze objects or chose a rarer
    rhythm themselves.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not 0 < before[0] < _ALLOCATIONS or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
