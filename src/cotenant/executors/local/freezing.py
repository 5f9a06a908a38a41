"""Holding a cgroup's processes still, where there is a freezer. Standard library alone."""

from __future__ import annotations

import os
import time

__all__ = ["Freezer"]

_PATIENCE_S = 0.2


class Freezer:
    """A cgroup's freezer: version 2's ``cgroup.freeze`` or version 1's ``freezer.state``.

    Parameters
    ----------
    path : str
        That file; empty: there is none, and everything here answers no.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._words = (b"1", b"0") if path.endswith("cgroup.freeze") else (b"FROZEN", b"THAWED")
        self.frozen = False

    def freeze(self) -> bool:
        """Whether all processes stand still."""
        if not self._write(self._words[0]):
            return False
        self.frozen = True
        end = time.monotonic() + _PATIENCE_S
        while not self._still():
            if time.monotonic() > end:
                # A process that waits for a device cannot be frozen yet; a signal waits with it.
                self.thaw()
                return False
            time.sleep(0.002)
        return True

    def thaw(self) -> None:
        """Let them go on; does nothing if they are not frozen."""
        if self.frozen:
            self._write(self._words[1])
            self.frozen = False

    def release(self) -> None:
        """Let them go on, whoever froze them: what is frozen by version 1 cannot even be killed."""
        self._write(self._words[1])
        self.frozen = False

    def _write(self, word: bytes) -> bool:
        if not self.path:
            return False
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
        except OSError:
            return False
        try:
            os.write(descriptor, word)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _still(self) -> bool:
        events = self.path.replace("cgroup.freeze", "cgroup.events")
        try:
            with open(events, "rb") as file:  # noqa: PTH123
                text = file.read()
        except OSError:
            return True
        return b"frozen 1" in text if events != self.path else text.strip() == b"FROZEN"
