"""How an attempt ended, from what is known at its end. Standard library alone."""

from __future__ import annotations

import signal

from cotenant.executors.local.layout import STATE_SAVED, SUSPENDED_CODE

__all__ = ["MEMORY_WORDS", "judge", "kills", "machine_kills", "saved_as_asked"]

MEMORY_WORDS = (
    b"MemoryError",
    b"OutOfMemoryError",
    b"CUDA out of memory",
    b"CUBLAS_STATUS_ALLOC_FAILED",
    b"DefaultCPUAllocator: can't allocate memory",
    b"std::bad_alloc",
    b"Cannot allocate memory",
)
"""Of the last lines of a job's errors, where the kernel itself did not say so."""

_TERMINATED = 128 + signal.SIGTERM
"""Code of our runtime, and of shells, after TERM."""


def saved_as_asked(flags: int, state_step: int, steps: int) -> bool:
    """Whether the state on disk is that of the last step done."""
    return bool(flags & STATE_SAVED) and state_step == steps


def judge(
    codes: list[int],
    *,
    asked: str,
    saved: bool,
    memory_kills: int,
    machine_kills: int,
    tail: bytes,
    taken: str = "",
) -> tuple[str, int, int, str]:
    """Outcome, exit code, signal and a sentence.

    Parameters
    ----------
    codes : list of int
        Of each rank, in the order in which they ended; negative: the signal.
    asked : {"", "suspend", "terminate", "kill"}
        How it was asked to stop.
    saved : bool
        Whether its state is saved, at the last step done.
    memory_kills, machine_kills : int
        Processes that the kernel killed for want of memory since the attempt began: in its cgroup, and in
        the whole machine.
    tail : bytes
        The end of its errors.
    taken : str
        What others took from it before it could begin: no fault of its own.

    Examples
    --------
    >>> judge([0], asked="", saved=False, memory_kills=0, machine_kills=0, tail=b"")
    ('done', 0, 0, '')
    >>> judge([-9], asked="", saved=False, memory_kills=1, machine_kills=1, tail=b"")[:3]
    ('out-of-memory', 0, 9)
    """
    bad = [code for code in codes if code != 0]
    # The first that failed is the cause: the others were ended because of it.
    first = bad[0] if bad else 0
    code, number = (first, 0) if first >= 0 else (0, -first)
    if not bad:
        return "done", 0, 0, ""
    # A job that got TERM because it did not leave in time may still have saved before it went.
    leaving = (0, SUSPENDED_CODE, _TERMINATED) if asked == "suspend" else (0, SUSPENDED_CODE)
    if saved and asked in ("", "suspend") and all(c in leaving for c in codes):
        return "suspended", code, 0, ""
    if not asked and all(c in (0, SUSPENDED_CODE) for c in codes):
        told = f"left with code {SUSPENDED_CODE}, but its saved state is not of its last step"
        return "failed", code, 0, told
    if memory_kills > 0:
        return "out-of-memory", code, number, "killed by the kernel at its memory limit"
    if not asked and number == signal.SIGKILL and machine_kills > 0:
        return "out-of-memory", code, number, "killed by the kernel, which had no memory left"
    said = next((word.decode() for word in MEMORY_WORDS if word in tail), "")
    if not asked and said:
        return "out-of-memory", code, number, f"its last words name it: {said}"
    if not asked and taken:
        return "lost", code, number, taken
    if asked:
        return "killed", code, number, f"stopped as asked ({asked})"
    if number:
        return "failed", 0, number, f"ended by signal {number} ({_name(number)})"
    return "failed", code, 0, f"left with code {code}"


def kills(path: str) -> int:
    """Processes that the kernel killed for want of memory, by a file with a line ``oom_kill NUMBER``."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            for line in file:
                words = line.split()
                if len(words) == 2 and words[0] == b"oom_kill":
                    return int(words[1])
    except (OSError, ValueError):
        return 0
    return 0


def machine_kills() -> int:
    """The same in the whole machine, since it started."""
    return kills("/proc/vmstat")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
