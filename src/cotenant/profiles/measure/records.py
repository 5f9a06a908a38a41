"""What a measurement leaves behind, and the journal that keeps it through anything.

The journal is one JSON value a line, appended and flushed to disk after each measurement. A
process that is killed leaves at worst half a last line, which is not read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.measure.worker import JobFailure

__all__ = ["Journal", "JournalStart", "Member", "Repeat", "Session"]

SCHEMA = 1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One job in one measurement.

    Parameters
    ----------
    job : str
    steps : int
    seconds : float
        Time of these steps.
    speed : float
        Steps per second by the campaign's clock.
    taken : float or None
        Share of the time that others took from it; None if unknown.
    ran_share : float or None
        Time on the cores over the window (by the campaign's clock), summed over threads.
    cpu_s_per_step : float or None
    memory_mib : float or None
        CPUs: resident set. NVIDIA: device memory.
    device_busy_pct : float or None
        NVIDIA: SM share of this process, where the driver tells.
    switches_per_s, faults_per_step : float or None
    """

    job: str
    steps: int
    seconds: float
    speed: float
    taken: float | None = None
    ran_share: float | None = None
    cpu_s_per_step: float | None = None
    memory_mib: float | None = None
    device_busy_pct: float | None = None
    switches_per_s: float | None = None
    faults_per_step: float | None = None


class Repeat(msgspec.Struct, frozen=True, kw_only=True, tag="repeat", tag_field="kind"):
    """One measurement of one set of jobs.

    Parameters
    ----------
    session : int
        Which run of the command made it; speeds are compared within one.
    at_s : float
        Seconds since that session began, at the middle of the window.
    jobs : tuple of str
        Sorted; a job that is there twice is named twice.
    window_s : float
    members : tuple of Member
        In the order of ``jobs``; empty after a failure.
    device : dict
        Means of the device's meters in the window; those that are missing are absent.
    failures : tuple of JobFailure
        Of the jobs that failed. Where others were alive, they are not named.
    """

    session: int
    at_s: float
    jobs: tuple[str, ...]
    window_s: float = 0.0
    members: tuple[Member, ...] = ()
    device: dict[str, float] = {}
    failures: tuple[JobFailure, ...] = ()

    @property
    def taken(self) -> float:
        """Largest share of time that others took from any of the jobs, as far as known."""
        return max((member.taken or 0.0 for member in self.members), default=0.0)


class Session(msgspec.Struct, frozen=True, kw_only=True, tag="session", tag_field="kind"):
    """A mark of time used, written now and then and at the end of a session."""

    session: int
    used_s: float


class JournalStart(msgspec.Struct, frozen=True, kw_only=True, tag="start", tag_field="kind"):
    """The first line: what is measured, and on what.

    Parameters
    ----------
    schema : int
    jobs : list
        Job specifications, as in the file.
    device : str
    machine : dict
    clock : str
    seed : int
    """

    schema: int
    jobs: list[dict[str, Any]]
    device: str
    machine: dict[str, Any]
    clock: str
    seed: int


class Journal:
    """An append-only file of measurements.

    Parameters
    ----------
    path : Path
    start : JournalStart
        Written if the file is new; otherwise it must agree with what is there.
    others : bool
        Whether jobs that never ran may be other ones than they were then; ``start`` is then written again.

    Raises
    ------
    ConfigError
        If the file belongs to other jobs, another device, machine, clock or seed.
    """

    def __init__(self, path: Path, start: JournalStart, *, others: bool = False) -> None:
        self.path = path
        self._others = others
        self.repeats: list[Repeat] = []
        self._used: dict[int, float] = {}
        self._begun = False
        if path.exists() and path.stat().st_size:
            self._load(start)
        self._file = path.open("ab")
        if not self._begun:
            self._write(start)
        self.session = max([0, *self._used, *(r.session for r in self.repeats)]) + 1
        self.note_time(0.0)

    def _load(self, start: JournalStart) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            # The line that was being written when the process was killed.
            os.truncate(self.path, len(whole))
        latest: JournalStart | None = None
        for count, line in enumerate(whole.splitlines(), 1):
            try:
                found = msgspec.json.decode(line, type=Repeat | Session | JournalStart)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{self.path}:{count}: is no line of a journal: {error}") from None
            if isinstance(found, JournalStart):
                latest = found
            elif isinstance(found, Session):
                self._used[found.session] = max(self._used.get(found.session, 0.0), found.used_s)
            else:
                self.repeats.append(found)
            if whole and count == 1 and latest is None:
                raise ConfigError(f"{self.path}: does not begin as a journal of measurements")
        if latest is not None:
            self._begun = self._agrees(latest, start)

    def _agrees(self, found: JournalStart, start: JournalStart) -> bool:
        """Whether the journal's jobs are those of ``start``; False where only jobs that never ran are not.

        Raises
        ------
        ConfigError
            If they do not agree, or something else does not.
        """
        ran = {member.job for repeat in self.repeats for member in repeat.members}
        kept = found
        if self._others:
            before = {str(job["name"]): job for job in found.jobs}
            jobs = [before.get(job["name"], job) if job["name"] in ran else job for job in start.jobs]
            gone = [
                job for name, job in before.items() if name in ran and name not in {j["name"] for j in jobs}
            ]
            kept = msgspec.structs.replace(found, jobs=[*jobs, *gone])
        _compare(self.path, kept, start)
        return kept.jobs == found.jobs

    def add(self, repeat: Repeat) -> None:
        """Keep a measurement, on disk when this returns."""
        self.repeats.append(repeat)
        self._write(repeat)

    def note_time(self, used_s: float) -> None:
        """Keep the time that this session has used."""
        self._used[self.session] = used_s
        self._write(Session(session=self.session, used_s=used_s))

    @property
    def used_s(self) -> float:
        """Time used by all sessions."""
        return sum(self._used.values())

    def _write(self, value: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(value) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def _compare(path: Path, found: JournalStart, wanted: JournalStart) -> None:
    have: Mapping[str, Any] = msgspec.to_builtins(found)
    want: Mapping[str, Any] = msgspec.to_builtins(wanted)
    for name in ("schema", "device", "clock", "seed", "jobs", "machine"):
        if have[name] != want[name]:
            shown = "" if name in ("jobs", "machine") else f" ({have[name]}, now {want[name]})"
            raise ConfigError(
                f"{path}: was begun with {'other' if name == 'jobs' else 'another'} {name}{shown}; measurements of both do not mix: "
                "give another folder, or the same file of jobs"
            )
