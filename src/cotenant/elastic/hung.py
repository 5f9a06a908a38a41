"""Which processes of a run live, and yet do nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from cotenant.errors import InputError

__all__ = ["END", "EXCHANGE", "JOIN", "SCRIPT", "TURNS", "Hung", "is_stopped"]

JOIN, TURNS, EXCHANGE, SCRIPT, END = "join", "turns", "exchange", "script", "end"
"""What a process tells that it does: wait to become a member, or for the first; turns; the exchange of a step; all
between; what follows the loop over the steps."""
_STOPPED_S = 1.0
"""A process that waits to become a member, or for others, and has been stopped for so long, is hung."""
_MOST_S = 0.2
"""A look counts as no more than this: who looks may have been stopped, too, and everybody with it."""


def is_stopped(process: int) -> bool:
    """Whether it is stopped by SIGSTOP, SIGTSTP or a terminal; False where the system does not tell."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # The name in brackets may hold anything, brackets too.
    return text.rpartition(")")[2].split()[:1] == ["T"]


class Hung:
    """Counts for how long each process has been seen to do nothing.

    Parameters
    ----------
    limit_s : float, optional
        So long a process may be at its turns, or at what the script does between them, before it counts as
        hung; None is for ever.

    Raises
    ------
    InputError
    """

    def __init__(self, limit_s: float | None) -> None:
        if limit_s is not None and not 0 < limit_s < math.inf:
            raise InputError(f"--hang-after {limit_s:g}: it must be more than 0 seconds, and a number")
        self._limit_s = limit_s
        self._looked_s: float | None = None
        self._still: dict[str, float] = {}
        self._stopped: dict[str, float] = {}
        self._last: dict[str, str] = {}

    def look(
        self,
        now_s: float,
        processes: Mapping[str, int],
        told: Callable[[str], str],
        waiting: Callable[[str], bool],
    ) -> dict[str, str]:
        """Processes to be killed, with the reason, by name.

        Parameters
        ----------
        now_s : float
            Of a monotonic clock.
        processes : mapping of str to int
            Process ids by name.
        told : callable
            What a process said last that it does, and at which step: ``turns 17``.
        waiting : callable
            Whether a process is being waited for until a generation is complete.
        """
        since_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, _MOST_S)
        self._looked_s = now_s
        found: dict[str, str] = {}
        for name, process in processes.items():
            stopped = is_stopped(process)
            self._stopped[name] = self._stopped.get(name, 0.0) + since_s if stopped else 0.0
            if self._stopped[name] >= _STOPPED_S and waiting(name):
                found[name] = "is stopped, and others wait for it to join"
            elif self._limit_s is not None:
                self._look_closer(name, told(name), since_s, found)
        for kept in (self._still, self._stopped, self._last):
            for name in [one for one in kept if one not in processes]:
                del kept[name]
        return found

    def _look_closer(self, name: str, text: str, since_s: float, found: dict[str, str]) -> None:
        same = self._last.get(name) == text
        self._last[name] = text
        self._still[name] = self._still.get(name, 0.0) + since_s if same else 0.0
        if self._limit_s is None or self._still[name] < self._limit_s or not text:
            return
        what = text.split(maxsplit=1)[0]
        if what in (TURNS, SCRIPT):
            found[name] = f"has been at {text} for more than {self._limit_s:g} s"
        elif self._stopped[name] >= _STOPPED_S:
            found[name] = f"is stopped, at {text}"
