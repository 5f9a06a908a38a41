"""What a supervisor tells whoever gives it places, in a file: where processes are, and why the run ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cotenant.elastic.slots import Slot

__all__ = ["Account"]


class Account:
    """A file of one JSON object, replaced when something changes: a reader sees the old one or the new one.

    ``order`` is the word of the last ``order WORD`` in the control file, ``places`` are those with a process (also
    one that is about to leave), ``done`` says that these are the ones wanted and all have joined, ``refused`` why they will not be,
    ``why`` what ended the run. ``killed`` counts the processes that were killed; ``killed_by`` is the signal of the last one, found
    at ``killed_at_s`` of the clock that counts since the machine started.

    Parameters
    ----------
    path : path, optional
        Without one, nobody is told.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._told: dict[str, Any] = {}
        self.order = self.refused = self.why = ""
        self._killed, self._signal, self._killed_at_s = 0, 0, 0.0

    def __bool__(self) -> bool:
        return self._path is not None

    def killed(self, signal: int) -> None:
        """A process was killed; the next ``tell`` says so."""
        self._killed, self._signal = self._killed + 1, signal
        self._killed_at_s = round(time.clock_gettime(time.CLOCK_BOOTTIME), 3)

    def tell(self, places: Iterable[Slot], *, done: bool) -> None:
        """Write how things are, if they are not as they were.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        told = {
            "order": self.order,
            "places": sorted(str(place) for place in places),
            "done": done and not self.refused,
            "refused": self.refused,
            "why": self.why,
            **(
                {"killed": self._killed, "killed_by": self._signal, "killed_at_s": self._killed_at_s}
                if self._killed and not self.why  # else nobody takes its place
                else {}
            ),
        }
        if self._path is None or told == self._told:
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(json.dumps(told))
        beside.replace(self._path)
        self._told = told
