"""A campaign: measures the sets of a file on a device until they are known or the budget ends.

The folder holds ``journal.jsonl`` (every measurement, the only thing that is needed to go on),
the tables and ``manifest.json``. The same command in the same folder goes on where the last one ended, whether that
was finished, interrupted or killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.hashes import sha256_of
from cotenant.profiles.measure.fleet import Fleet
from cotenant.profiles.measure.jobsfile import MeasureFile
from cotenant.profiles.measure.machine import describe_machine, describe_versions
from cotenant.profiles.measure.records import SCHEMA, Journal, JournalStart, Repeat
from cotenant.profiles.measure.schedule import Next, Schedule
from cotenant.profiles.measure.tables import INTERVALS, PAIRS, SOLOS, Tables, make_tables, write_tables
from cotenant.profiles.measure.target import Target
from cotenant.profiles.stopping import stoppable
from cotenant.profiles.wholefile import write_whole

__all__ = ["JOURNAL", "KIND", "MANIFEST", "Campaign", "Outcome", "Progress"]

JOURNAL, MANIFEST, KIND = "journal.jsonl", "manifest.json", "cotenant-measurement"
_TABLES_EVERY_S = 20.0


class Progress(msgspec.Struct, frozen=True):
    """What is told while it goes on.

    Parameters
    ----------
    done : int
        Measurements so far, of all sessions.
    used_s, budget_s : float
    reason : str
        What is measured next.
    last : Repeat or None
    """

    done: int
    used_s: float
    budget_s: float
    reason: str
    last: Repeat | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended.

    Parameters
    ----------
    tables : Tables
    complete : bool
        Every set is known to the width asked for, or was tried as often as allowed.
    interrupted : bool
    used_s : float
        By all sessions.
    repeats : int
    put_off : tuple of str
        Jobs that did not come to a step in what the budget left them; a larger one tries them again.
    skipped : dict of str to str
        Jobs that failed and are not tried again unless asked for, with why.
    """

    tables: Tables
    complete: bool
    interrupted: bool
    used_s: float
    repeats: int
    put_off: tuple[str, ...] = ()
    skipped: dict[str, str] = {}


class Campaign:
    """Measures a file's jobs on a target into a folder.

    Parameters
    ----------
    file : MeasureFile
    target : Target
    folder : Path
        New, empty, or of an earlier session of the same campaign.
    retry_failed : bool
        Try jobs again that failed in earlier sessions; those that never ran may be other ones than then.
    command : sequence of str
        For the manifest.
    tell : callable, optional
        Told before each measurement.
    remark : callable, optional
        Told, once, of each way in which a job fails, and of jobs that report no step.
    """

    def __init__(
        self,
        file: MeasureFile,
        target: Target,
        folder: Path,
        *,
        retry_failed: bool = False,
        command: Sequence[str] = (),
        tell: Callable[[Progress], None] | None = None,
        remark: Callable[[str], None] | None = None,
    ) -> None:
        self.file, self.target, self.folder = file, target, folder
        self._retry = retry_failed
        self._command, self._tell, self._remark = list(command), tell, remark
        self._told: set[tuple[str, str, str]] = set()
        settings = file.settings
        self.clock = settings.clock or ("available" if target.kind == "cpu" else "wall")
        self.resident = target.kind == "cpu" if settings.resident is None else settings.resident
        if self.resident and target.mps:
            raise ConfigError("resident jobs cannot be suspended under MPS; set resident = false")
        self._budget_s = settings.seconds("budget")

    def run(self) -> Outcome:
        """Measure.

        Raises
        ------
        ConfigError
            If the folder holds something else.
        """
        _claim(self.folder)
        journal = Journal(self.folder / JOURNAL, self._start(), others=self._retry)
        complete = interrupted = False
        epoch_ns = time.monotonic_ns()
        try:
            with stoppable(), _off_the_cores(self.target):
                complete = self._measure(journal, epoch_ns)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            journal.note_time((time.monotonic_ns() - epoch_ns) / 1e9)
            journal.close()
        tables = self._write(journal.repeats, complete, interrupted, journal.used_s)
        schedule = Schedule(self.file, journal.session, retry=self._retry)
        return Outcome(
            tables=tables,
            complete=complete,
            interrupted=interrupted,
            used_s=journal.used_s,
            repeats=len(journal.repeats),
            put_off=tuple(schedule.put_off(journal.repeats)),
            skipped=schedule.skipped(journal.repeats),
        )

    def _measure(self, journal: Journal, epoch_ns: int) -> bool:
        """The loop; True if nothing was left to do."""
        schedule = Schedule(self.file, journal.session, retry=self._retry)
        self._say_skipped(schedule, journal)
        before_s = journal.used_s
        written_s = 0.0
        fleet = Fleet(
            self.file,
            self.target,
            self.folder,
            self.clock,
            self.resident,
            until_s=epoch_ns / 1e9 + self._budget_s - before_s,
            remark=self._remark,
        )
        try:
            while True:
                now_s = (time.monotonic_ns() - epoch_ns) / 1e9
                left_s = self._budget_s - before_s - now_s
                chosen = schedule.next(journal.repeats, now_s, left_s)
                if chosen is None:
                    return not self._open_sets(schedule, journal, now_s)
                self._say(journal, before_s + now_s, chosen)
                repeat = fleet.measure(chosen.jobs, session=journal.session, epoch_ns=epoch_ns)
                journal.add(repeat)
                self._complain(repeat)
                if now_s - written_s > _TABLES_EVERY_S:
                    written_s = now_s
                    journal.note_time(now_s)
                    self._write(journal.repeats, False, False, before_s + now_s)
        finally:
            with _deaf():
                fleet.close()

    def _open_sets(self, schedule: Schedule, journal: Journal, now_s: float) -> bool:
        """Whether more time would have been used."""
        if schedule.put_off(journal.repeats):
            return True
        return schedule.next(journal.repeats, now_s, float("inf")) is not None

    def _complain(self, repeat: Repeat) -> None:
        """Tell of failures, each once, with the place of the job's output."""
        for failure in repeat.failures:
            what = (failure.job, failure.what, failure.detail)
            if self._remark is not None and what not in self._told:
                text = f"{' + '.join(repeat.jobs)}: {failure.job} {failure.what} ({failure.detail})"
                log = self.folder / "logs" / f"{failure.job}-1.log"
                if log.exists() and log.stat().st_size:
                    text += f"; its output: {log}"
                self._remark(text)
            self._told.add(what)

    def _say_skipped(self, schedule: Schedule, journal: Journal) -> None:
        if self._remark is None:
            return
        for name, why in schedule.skipped(journal.repeats).items():
            self._remark(
                f"{name} is left out, with its sets: in an earlier session it failed ({why}); "
                "--retry-failed tries it again"
            )

    def _say(self, journal: Journal, used_s: float, chosen: Next) -> None:
        if self._tell is not None:
            last = journal.repeats[-1] if journal.repeats else None
            self._tell(Progress(len(journal.repeats), used_s, self._budget_s, chosen.reason, last))

    def _start(self) -> JournalStart:
        return JournalStart(
            schema=SCHEMA,
            jobs=[msgspec.to_builtins(job) for job in self.file.jobs],
            device=self.target.name,
            machine={**describe_machine(self.target), **describe_versions()},
            clock=self.clock,
            seed=self.file.settings.seed,
        )

    def _write(self, repeats: Sequence[Repeat], complete: bool, interrupted: bool, used_s: float) -> Tables:
        tables = make_tables(self.file, self.target, repeats)
        write_tables(self.folder, tables)
        manifest: dict[str, Any] = {
            "kind": KIND,
            "schema": SCHEMA,
            "command": self._command,
            "status": "complete" if complete else "interrupted" if interrupted else "budget used",
            "versions": describe_versions(),
            "machine": describe_machine(self.target),
            "settings": msgspec.to_builtins(self.file.settings),
            "clock": self.clock,
            "resident": self.resident,
            "jobs": [msgspec.to_builtins(job) for job in self.file.jobs],
            "measurements": len(repeats),
            "sessions": len({r.session for r in repeats}),
            "used_s": round(used_s, 1),
            "sha256": {name: sha256_of(self.folder / name) for name in (PAIRS, SOLOS, INTERVALS)},
        }
        write_whole(
            self.folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        )
        return tables


def _claim(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; measurements need a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / JOURNAL).exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds no {JOURNAL} but other files; give a new or empty folder")


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """While jobs are being ended, a second Ctrl-C must not leave half of them."""
    try:
        before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _off_the_cores(target: Target) -> Iterator[None]:
    """Keep ourselves off the cores that are measured, where there are others."""
    if target.kind != "cpu" or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    others = before - set(target.cores)
    try:
        if others:
            os.sched_setaffinity(0, others)
        yield
    finally:
        os.sched_setaffinity(0, before)
