"""An ordered stop: ask to save, grace, drain, TERM, grace, KILL; the whole tree. Standard library alone.

The grace to save is worked out from what is known: three steps (the order is obeyed at a step's end, and the
step under way may have just begun), and twice what the last save took, or what its size takes at a slow disk's
pace. It is never under ``suspend_s`` of the spec, and is prolonged, four times at most, while the job says
that it is saving.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time

from cotenant.executors.local import layout
from cotenant.executors.local.trees import signal_tree

# The module typing would cost a fifth of the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Stop", "grace_s"]

_SLOW_DISK = 50e6
_POLL_S = 0.02
_HOOK_S = 5.0
_PROLONGED = 4.0
_RANK = {"rest": 0, "suspend": 1, "terminate": 2, "kill": 3}


def grace_s(least_s: float, step_s: float, last_save_s: float, state_bytes: int) -> float:
    """Seconds given to save.

    >>> grace_s(10.0, step_s=0.5, last_save_s=0.0, state_bytes=0)
    10.0
    >>> grace_s(10.0, step_s=2.0, last_save_s=20.0, state_bytes=10**9)       # 3 x 2 + 2 x 20
    46.0
    """
    save_s = last_save_s or state_bytes / _SLOW_DISK
    step_s = step_s if 0.0 < step_s < 1e6 else 0.0
    return max(least_s, 3.0 * step_s + 2.0 * save_s)


class Stop:
    """Goes through the stages of one stop; ``step`` is called until nobody is left.

    Parameters
    ----------
    shepherd : Shepherd
        Whose job it is.
    mode : {"rest", "suspend", "terminate", "kill"}
        ``rest``: the job itself has ended, and left processes behind.
    """

    def __init__(self, shepherd: Any, mode: str) -> None:
        self._shepherd, self.mode = shepherd, mode
        self._spec: dict[str, Any] = shepherd.spec
        self._began = time.monotonic()
        self._stage = ""
        self._until = self._limit = self._leave_s = 0.0
        self._enter(self._first(mode), self._began)

    def harder(self, mode: str) -> None:
        """Ask again, in a way that waits less; a gentler one changes nothing."""
        if _RANK[mode] > _RANK[self.mode]:
            self.mode = mode
            if not (mode == "terminate" and self._stage in ("term", "kill")):
                self._enter(self._first(mode), time.monotonic())

    def step(self, now: float) -> float | None:
        """Do what is due; returns seconds until the next look."""
        if self._stage == "ask":
            saving = layout.read_word(self._shepherd.status, layout.FLAGS_AT) & layout.SAVING_NOW
            if saving:  # once it has saved it still needs a moment to leave
                self._until = min(max(self._until, now + self._leave_s), self._limit)
            if now < self._until:
                self._note_save(now)
                return _POLL_S * 5
            self._enter("hook", now)
        if self._stage == "drain" and (now >= self._until or self._quiet()):
            self._enter("hook", now)
        if self._stage == "term" and now >= self._until:
            self._enter("kill", now)
        if self._stage == "kill":
            self._kill()
        return _POLL_S if self._stage in ("kill", "drain") else max(self._until - now, 0.0)

    def _first(self, mode: str) -> str:
        can = layout.RUNTIME_ATTACHED | layout.CAN_SUSPEND
        able = layout.read_word(self._shepherd.status, layout.FLAGS_AT) & can == can
        if mode == "suspend" and able:
            return "ask"
        if mode in ("kill", "rest") and not self._spec.get("stop_commands"):
            return "kill" if mode == "kill" else "term"
        return "drain" if self._spec.get("stop_commands") and able else "hook"

    def _enter(self, stage: str, now: float) -> None:
        spec, status = self._spec, self._shepherd.status
        self._stage = stage
        if stage in ("ask", "drain"):
            layout.write_word(status, layout.ORDER_AT, layout.ORDER_SUSPEND)
            step_s = struct.unpack("<d", os.pread(status, 8, layout.STEP_S_AT).ljust(8, b"\0"))[0]
            wait_s = grace_s(
                float(spec["suspend_s"]),
                step_s,
                float(spec.get("save_s", 0.0)),
                layout.read_word(status, layout.STATE_BYTES_AT),
            )
            wait_s = min(wait_s, float(spec["term_s"])) if stage == "drain" else wait_s
            self._until, self._limit = now + wait_s, now + wait_s * _PROLONGED
            self._leave_s = wait_s
            self._steps = layout.read_word(status, layout.STEPS_AT)
        elif stage == "hook":
            self._hooks()
            self._enter("kill" if self.mode == "kill" else "term", time.monotonic())
        elif stage == "term":
            signal_tree(os.getpid(), signal.SIGTERM)
            # What a job that has ended left behind gets less time: nobody waits for its result.
            self._until = now + float(spec["term_s"]) * (0.4 if self.mode == "rest" else 1.0)

    def _note_save(self, now: float) -> None:
        self._shepherd.save_s = now - self._began

    def _quiet(self) -> bool:
        """The job has come to the end of its step, and gives the device no new work."""
        status = self._shepherd.status
        flags = layout.read_word(status, layout.FLAGS_AT)
        return bool(flags & layout.SAVING_NOW) or layout.read_word(status, layout.STEPS_AT) != self._steps

    def _hooks(self) -> None:
        """Take leave of servers that the job shares with others, before any signal."""
        commands = self._spec.get("stop_commands") or []
        if not commands:
            return
        import subprocess

        for one in commands:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                for pid in self._shepherd.ranks or [0]:
                    words = str(one.get("input", "")).replace("{pid}", str(pid))
                    subprocess.run(  # noqa: S603
                        one["argv"], input=words.encode(), timeout=_HOOK_S, capture_output=True, check=False
                    )

    def _kill(self) -> None:
        path = self._spec.get("kill_file")
        if path:
            with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:  # noqa: PTH123
                file.write(b"1")
        signal_tree(os.getpid(), signal.SIGSTOP)
        signal_tree(os.getpid(), signal.SIGKILL)
        self._shepherd.freezer.thaw()
