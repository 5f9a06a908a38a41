"""The daemon's own log: short lines for who watches, JSON lines in a rotated file for later.

Nothing secret is ever given to it: no tokens, no variables and no commands of jobs.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cotenant.model import events as ev
from cotenant.model.quantities import format_duration
from cotenant.report.reasons import meaning
from cotenant.report.tables import show

__all__ = ["LOG_FILE", "UNDONE", "Teller", "begin_logging"]

LOG_FILE = "daemon.log"
UNDONE = ("not-as-foretold", "outside-prediction")
"""Rules by which a company that failed is parted."""
_BYTES, _KEEP = 8 << 20, 4
_log = logging.getLogger("cotenant.live")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "where": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


class _Short(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        word = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{clock}  {word}{record.getMessage()}"


class _Kept(logging.handlers.RotatingFileHandler):
    """Keeps count of its bytes itself: the one of the library asks the disk three times for each line."""

    _bytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, into a new file where this one would grow too long."""
        try:
            line = self.format(record) + self.terminator
            size = len(line.encode())
            if self.stream is not None and self._bytes + size > self.maxBytes:
                self.doRollover()
            if self.stream is None:
                self.stream = self._open()
                self._bytes = os.fstat(self.stream.fileno()).st_size
            self.stream.write(line)
            self.stream.flush()
            self._bytes += size
        except Exception:
            self.handleError(record)


def begin_logging(state: Path, *, quiet: bool = False) -> None:
    """Write what the daemon does to ``daemon.log`` in the state folder, and to standard error unless quiet."""
    root = logging.getLogger("cotenant")
    root.setLevel(logging.INFO)
    root.propagate = False
    for old in tuple(root.handlers):
        root.removeHandler(old)
        old.close()
    path = state / LOG_FILE
    path.touch(mode=0o600)
    kept = _Kept(path, maxBytes=_BYTES, backupCount=_KEEP, encoding="utf-8", delay=True)
    kept.setFormatter(_Json())
    root.addHandler(kept)
    if not quiet:
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(_Short())
        root.addHandler(shown)
    # A disk that is full must not end the scheduler, nor fill the terminal.
    logging.raiseExceptions = False


class Teller:
    """An observer that says in a line what happens to jobs.

    Parameters
    ----------
    names : callable
        What a device is called.
    """

    def __init__(self, names: Callable[[int], str]) -> None:
        self._device = names
        self._names: dict[int, str] = {}
        self._since: dict[int, float] = {}

    def recall(self, events: Iterable[ev.Event]) -> None:
        """What happened before is not told again."""
        for event in events:
            self._note(event)

    def see(self, events: Iterable[ev.Event]) -> None:
        """Tell of events that are on disk now."""
        for event in events:
            self._note(event)
            if (told := self._told(event)) is not None:
                level, line = told
                facts = {"kind": event.__struct_config__.tag, "job": _job_of(event), "t": event.t}
                _log.log(level, line, extra={"facts": facts})
            if isinstance(event, (ev.Ended, ev.Rejected)) and getattr(event, "final", True):
                self._names.pop(event.id, None)
                self._since.pop(event.id, None)

    def _note(self, event: ev.Event) -> None:
        if isinstance(event, ev.Submitted):
            self._names[event.job.id] = event.job.name
        elif isinstance(event, ev.Started):
            self._since[event.id] = event.t

    def _job(self, job_id: int) -> str:
        return f"job {job_id} {show(self._names.get(job_id, ''))}".rstrip()

    def _ended(self, event: ev.Ended) -> str:
        lasted = format_duration(max(event.t - self._since.get(event.id, event.t), 0.0))
        code = f", exit code {event.code}" if event.outcome == "failed" else ""
        detail = f": {event.detail}" if event.detail else ""
        again = "" if event.final else "; it waits for another attempt"
        return f"{self._job(event.id)} {event.outcome} after {lasted}{code}{detail}{again}"

    def _told(self, event: ev.Event) -> tuple[int, str] | None:
        info, warning = logging.INFO, logging.WARNING
        match event:
            case ev.Submitted():
                return info, f"{self._job(event.job.id)} submitted"
            case ev.Started():
                where = ", ".join(map(self._device, event.devices)) or "the host's cores"
                word = "resumed" if event.resumed else "started"
                again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
                return info, f"{self._job(event.id)} {word} on {where}{again}"
            case ev.Stopping():
                how = "leaves, to go on later," if event.suspend else "leaves"
                whom = f" for job {event.beneficiary}" if event.beneficiary >= 0 else ""
                return info, f"{self._job(event.id)} {how}{whom}{_misjudged(event)}"
            case ev.Suspended():
                how = "ended to make room; its checkpoints are its own affair" if event.own else "suspended"
                return info, f"{self._job(event.id)} {how}"
            case ev.Ended():
                return info if event.outcome in ("done", "cancelled") else warning, self._ended(event)
            case ev.Rejected():
                return info, f"{self._job(event.id)} ended without running: {meaning(event.reason)}"
            case ev.ProcessKilled():
                return (
                    warning,
                    f"a process of {self._job(event.id)} was killed (signal {event.signal}) and is replaced",
                )
            case ev.TenantsChanged():
                return (
                    info,
                    f"tenants as in tenants.toml now: {', '.join(t.name for t in event.tenants) or 'none'}",
                )
            case ev.DeviceDown():
                return warning, f"{self._device(event.device)} is down: {event.cause or 'no reason given'}"
            case ev.DeviceUp():
                return info, f"{self._device(event.device)} is back"
            case _:
                return None


def _misjudged(event: ev.Stopping) -> str:
    """Where a set is undone: what was measured, and what was predicted."""
    facts = event.why.facts
    if event.why.rule not in UNDONE or "speed" not in facts:
        return ""
    told = f": beside the others {show(str(facts.get('slowest', '')))} runs at {facts['speed']:.2f} of its speed alone"
    if "predicted" in facts:
        low, high = facts["predicted_low"], facts["predicted_high"]
        told += f", predicted {facts['predicted']:.2f} ({low:.2f}-{high:.2f})"
    return f"{told}; this set is not formed again"


def _job_of(event: ev.Event) -> int | None:
    return event.job.id if isinstance(event, ev.Submitted) else getattr(event, "id", None)
