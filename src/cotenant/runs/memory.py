"""Memory that reading and drawing left over, given back before a long run."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["frugal_frames", "tidy_memory"]

_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 1 << 20


def tidy_memory() -> bool:
    """Give freed memory back to the system, and have large arrays given back as soon as they are freed.

    Only the GNU C library is told: by itself it raises the size from which it does so up to 32 MiB
    (``mallopt``, ``M_MMAP_THRESHOLD``), and columns that grow leave holes. Elsewhere nothing happens.

    Returns
    -------
    bool
        Whether there was a library to tell.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not (hasattr(library, "mallopt") and hasattr(library, "malloc_trim")):
        return False
    library.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    library.malloc_trim(0)
    return True


def frugal_frames() -> None:
    """Have the data frame library give freed memory back at once; call it before that is loaded.

    It brings its own allocator, which keeps much of what reading and sorting used. A setting in the
    environment (``_RJEM_MALLOC_CONF``) takes precedence. Processes started later inherit it.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
