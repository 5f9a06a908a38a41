"""The status file: one page of memory that a job, its shepherd and the scheduler share.

The job writes how far it is; the shepherd writes orders and the share that is allowed now. Every
field is one aligned machine word, written by one store, so nobody reads half a number and nobody
waits. Of little-endian machines only (all that PyTorch runs on).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "CAN_SUSPEND",
    "MAGIC",
    "ORDER_SUSPEND",
    "RUNTIME_ATTACHED",
    "SAVING_NOW",
    "SIZE_BYTES",
    "STATE_SAVED",
    "Status",
    "StatusFile",
]

MAGIC = b"CTST0001"
SIZE_BYTES = 4096
RUNTIME_ATTACHED, CAN_SUSPEND, STATE_SAVED, SAVING_NOW = 1, 2, 4, 8
ORDER_SUSPEND = 1

# Offsets in units of the field's size.
_STEPS, _TOTAL, _LAST_NS, _FLAGS, _STATE_BYTES, _STATE_STEP, _ORDER = 1, 2, 3, 5, 6, 7, 8
_SHARE_VERSION, _SLEPT_NS, _BUSY_NS = 10, 11, 12
_MEAN_STEP_S = 4
_COMPUTE_MILLI, _COMPUTE_LIMIT_MILLI = 18, 19


class Status(NamedTuple):
    """What a status file says at one moment.

    Attributes
    ----------
    steps, total : int
        Steps done, over suspensions; steps in all, 0 if unknown.
    last_step_ns : int
        Monotonic clock at the end of the last step; 0 before the first.
    mean_step_s : float
        Wall-clock seconds from step to step, exponentially weighted.
    flags : int
        Sum of ``RUNTIME_ATTACHED``, ``CAN_SUSPEND``, ``STATE_SAVED``, ``SAVING_NOW``.
    state_bytes, state_step : int
        Of the state saved last.
    order : int
        ``ORDER_SUSPEND`` or 0.
    compute_milli, compute_limit_milli, share_version : int
        Guarantee and ceiling in thousandths of a device; 0 is none.
    slept_ns, busy_ns : int
        Time that the step gate made the job sleep; time inside steps.
    """

    steps: int
    total: int
    last_step_ns: int
    mean_step_s: float
    flags: int
    state_bytes: int
    state_step: int
    order: int
    compute_milli: int
    compute_limit_milli: int
    share_version: int
    slept_ns: int
    busy_ns: int


class StatusFile:
    """A status file, mapped.

    Parameters
    ----------
    path : path
        Made if it is not there; an empty file becomes a status file.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If the file is something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < SIZE_BYTES:
                os.ftruncate(descriptor, SIZE_BYTES)
            self._map = mmap.mmap(descriptor, SIZE_BYTES)
        finally:
            os.close(descriptor)
        found = bytes(self._map[:8])
        if found not in (MAGIC, bytes(8)):
            self._map.close()
            raise ValueError(f"{self.path}: no status file, it begins with {found!r}")
        self._map[:8] = MAGIC
        whole = memoryview(self._map)
        # A cast view stores a whole word at once; struct.pack_into writes byte by byte.
        self._words, self._floats, self._halves = whole.cast("Q"), whole.cast("d"), whole.cast("I")

    def read(self) -> Status:
        """All fields."""
        words, halves = self._words, self._halves
        return Status(
            words[_STEPS],
            words[_TOTAL],
            words[_LAST_NS],
            self._floats[_MEAN_STEP_S],
            words[_FLAGS],
            words[_STATE_BYTES],
            words[_STATE_STEP],
            words[_ORDER],
            halves[_COMPUTE_MILLI],
            halves[_COMPUTE_LIMIT_MILLI],
            words[_SHARE_VERSION],
            words[_SLEPT_NS],
            words[_BUSY_NS],
        )

    # -- the job's side --------------------------------------------------------------

    def begin(self, steps: int, total: int, flags: int) -> None:
        """A job is attached; ``steps`` it has done in earlier lives."""
        self._words[_STEPS], self._words[_TOTAL] = steps, total
        self._words[_FLAGS] = flags

    def stepped(self, steps: int, end_ns: int, mean_step_s: float, busy_ns: int) -> None:
        """A step has ended; ``busy_ns`` in all steps so far."""
        words = self._words
        self._floats[_MEAN_STEP_S] = mean_step_s
        words[_LAST_NS], words[_BUSY_NS], words[_STEPS] = end_ns, busy_ns, steps

    def slept(self, slept_ns: int) -> None:
        """The gate made the job sleep for so long, in all."""
        self._words[_SLEPT_NS] = slept_ns

    def saving(self, now: bool) -> None:
        """State is being written, or is not any more."""
        flags = self._words[_FLAGS]
        self._words[_FLAGS] = flags | SAVING_NOW if now else flags & ~SAVING_NOW

    def saved(self, step: int, size_bytes: int) -> None:
        """State is whole and on disk."""
        self._words[_STATE_BYTES], self._words[_STATE_STEP] = size_bytes, step
        self._words[_FLAGS] |= STATE_SAVED

    @property
    def order(self) -> int:
        """What the job is asked to do; 0 is nothing."""
        return self._words[_ORDER]

    @property
    def compute_limit_milli(self) -> int:
        """Ceiling allowed now; 0 is none."""
        return self._halves[_COMPUTE_LIMIT_MILLI]

    # -- the shepherd's side ---------------------------------------------------------

    def give_order(self, order: int) -> None:
        """Ask something of the job: ``ORDER_SUSPEND``, or 0 to take it back."""
        self._words[_ORDER] = order

    def reshare(self, compute_milli: int, compute_limit_milli: int) -> None:
        """Change what the job may use."""
        self._halves[_COMPUTE_MILLI], self._halves[_COMPUTE_LIMIT_MILLI] = compute_milli, compute_limit_milli
        self._words[_SHARE_VERSION] += 1

    def close(self) -> None:
        """Unmap; the file stays."""
        for view in (self._words, self._floats, self._halves):
            view.release()
        self._map.close()
