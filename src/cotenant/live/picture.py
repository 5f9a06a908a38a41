"""The read model: what people see, kept up to date by the events that are on disk.

The loop's thread tells it of committed events; any thread asks. Ended jobs stay here until there
are many, then only the log knows them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cotenant.live.causes import Causes, Present
from cotenant.live.entries import ENDED, Entry, Triple, view_of
from cotenant.live.views import JobView, Resident
from cotenant.model import events as ev
from cotenant.model.liveports import Clock, Progress
from cotenant.model.placement import counts_on

__all__ = ["Asked", "Picture", "Told"]

Asked = Callable[[int], tuple[str, ...]]
"""The command of a job's request."""

Told = Callable[[int, str, dict[str, Any]], None]
"""Number of the event, its kind, and plain facts."""

_KEPT = 5000


class Picture(Causes):
    """Jobs, who is where, and counts, as the log tells them.

    Parameters
    ----------
    clock : Clock
    names : sequence of str
        What devices are called, by number.
    types : sequence of str
        Their types, by number.
    asked : callable, optional
        The command of a job's request; asked when the job is first looked at.
    kept : int
        How many ended jobs are remembered.

    Attributes
    ----------
    events : int
        Events seen.
    opened : Opened or None
        The log's first event.
    """

    def __init__(
        self,
        clock: Clock,
        names: Sequence[str] = (),
        types: Sequence[str] = (),
        *,
        asked: Asked | None = None,
        kept: int = _KEPT,
    ) -> None:
        super().__init__(types, kept=kept)
        self._asked = asked
        self.events = 0
        self._clock, self._names = clock, tuple(names)
        self._lock = threading.RLock()
        self._listeners: list[Told] = []

    # -- told by the loop --------------------------------------------------------------

    def see(self, events: Iterable[ev.Event]) -> None:
        """Take the next events; they are on disk."""
        with self._lock:
            for event in events:
                self.events += 1
                self.fold(event)
                if isinstance(event, ev.Submitted) and self._asked is not None:
                    self.know(event.job.id, self._asked(event.job.id))
                if self._listeners:
                    self._tell(event)

    def recall(self, events: Iterable[ev.Event]) -> None:
        """Take events of before: nobody is told of them."""
        with self._lock:
            for event in events:
                self.events += 1
                self.fold(event)

    def know(self, job_id: int, command: tuple[str, ...]) -> None:
        """What a job runs."""
        with self._lock:
            if (entry := self._entries.get(job_id)) is not None:
                entry.command = command

    def report(self, report: object) -> None:
        """Take what a job says of itself, which is not in the log."""
        if not isinstance(report, Progress):
            return
        with self._lock:
            entry = self._entries.get(report.id)
            if entry is None or entry.status in ENDED:
                return
            entry.steps, entry.total_steps = report.steps, report.total or entry.total_steps
            entry.step_s = report.step_s or entry.step_s
            entry.memory_used_bytes, entry.cpu_s = report.memory_bytes, report.cpu_s
            entry.serial = report.serial
            if self._listeners:
                facts = {**msgspec.to_builtins(report), "tenant": entry.job.tenant}
                facts.pop("type", None)
                self._pass_on(self.events, "progress", facts)

    def subscribe(self, told: Told) -> Callable[[], None]:
        """Be told of every change from now on; returns how to stop."""
        with self._lock:
            self._listeners.append(told)

        def stop() -> None:
            with self._lock:
                if told in self._listeners:
                    self._listeners.remove(told)

        return stop

    def _tell(self, event: ev.Event) -> None:
        facts: dict[str, Any] = msgspec.to_builtins(event)
        kind = str(facts.pop("e", event.__struct_config__.tag))
        job_id = facts["job"]["id"] if kind == "submitted" else facts.get("id", -1)
        if (entry := self._entries.get(job_id)) is not None:
            facts |= {
                "id": job_id,
                "tenant": entry.job.tenant,
                "name": entry.job.name,
                "status": entry.status,
            }
        facts["wall"] = self._clock.wall(event.t)
        self._pass_on(self.events, kind, facts)

    def _pass_on(self, number: int, kind: str, facts: dict[str, Any]) -> None:
        for told in tuple(self._listeners):
            told(number, kind, facts)

    # -- asked by anybody --------------------------------------------------------------

    def name_of(self, device: int) -> str:
        """What a device is called."""
        return self._names[device] if 0 <= device < len(self._names) else f"device {device}"

    def entry(self, job_id: int) -> Entry | None:
        """What is kept of a job; read only. None if it is unknown here."""
        with self._lock:
            return self._entries.get(job_id)

    def has_ended(self, job_id: int) -> bool:
        """Whether a job has ended for good; those that were never heard of have not."""
        with self._lock:
            entry = self._entries.get(job_id)
            known = 0 <= job_id < self._counts["submitted"]
            return known if entry is None else entry.status in ENDED

    def job(self, job_id: int) -> JobView | None:
        """One job; None if it is unknown here: never submitted, or long ended."""
        with self._lock:
            entry = self._entries.get(job_id)
            return None if entry is None else self._view(entry)

    def show(self, entry: Entry, reason: str = "") -> JobView:
        """How an entry that is not kept here would be shown."""
        with self._lock:
            found = view_of(
                entry,
                now=self._clock.now(),
                wall=self._clock.wall,
                names=self.name_of,
                predicted=None,
                ahead=0,
            )
        return msgspec.structs.replace(found, reason=reason) if reason else found

    def blank(self) -> Picture:
        """Another of the same machine that has seen nothing."""
        return Picture(self._clock, self._names, self._types, asked=self._asked, kept=self._kept)

    def jobs(self, *, tenant: str | None = None, live_only: bool = False, limit: int = 1000) -> list[JobView]:
        """The newest ``limit`` of them, newest last; of all tenants, or of one."""
        with self._lock:
            found = []
            for job_id in sorted(self._entries, reverse=True):
                entry = self._entries[job_id]
                if (live_only and entry.status in ENDED) or tenant not in (None, entry.job.tenant):
                    continue
                found.append(entry)
                if len(found) >= limit:
                    break
            ranks = self._ranks()
            return [self._view(entry, ranks) for entry in reversed(found)]

    def named(self, name: str, tenant: str | None) -> int | None:
        """Number of the newest job of that name that is remembered."""
        with self._lock:
            for job_id in sorted(self._entries, reverse=True):
                job = self._entries[job_id].job
                if job.name == name and tenant in (None, job.tenant):
                    return job_id
        return None

    def residents(self, device: int) -> tuple[Resident, ...]:
        """Who is on a device."""
        with self._lock:
            return tuple(self._resident(self._entries[i], device) for i in sorted(self._on.get(device, ())))

    def held(self, device: int) -> tuple[int, int]:
        """Memory and compute (in thousandths) that residents hold on a device; -1: all of it."""
        with self._lock:
            memory = milli = 0
            for job_id in self._on.get(device, ()):
                share = self._entries[job_id].share
                if share.mode == "exclusive":
                    return -1, 1000
                memory += share.memory_bytes
                milli += share.compute_milli
            return memory, milli

    def used(self, device: int) -> int:
        """Memory that its residents say they use, each divided by its devices."""
        with self._lock:
            entries = [self._entries[i] for i in self._on.get(device, ())]
            return sum(e.memory_used_bytes // max(len(e.devices), 1) for e in entries)

    def device_state(self, device: int) -> str:
        """``up``, ``drained``, or ``down: why``."""
        with self._lock:
            if device in self._down:
                return f"down: {self._down[device]}"
            return "drained" if self._drained or device in self._drained_devices else "up"

    def free(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Devices on which a job could start, and those that stand idle because they are drained."""
        with self._lock:
            return self._free()

    def drained_words(self) -> str:
        """Idle devices that are drained, and what would let jobs start there; empty if there is none."""
        with self._lock:
            return self._drained_words()

    def present(self, job_id: int) -> Present | None:
        """Why a job waits now; None if it does not, or is held by its owner."""
        with self._lock:
            entry = self._entries.get(job_id)
            if entry is None or not self._waits(entry):
                return None
            return self._present(entry, self._ranks().get(job_id, 0))

    def held_by(self, tenant: str) -> int:
        """Devices that the jobs of a tenant hold, those of one job counted where it will be."""
        with self._lock:
            return self._held_by(tenant)

    def foreign(self, device: int) -> tuple[int, tuple[int, ...]]:
        """Memory of a device that processes outside the scheduler hold, and their pids."""
        with self._lock:
            return self._foreign.get(device, (0, ()))

    def counts(self) -> dict[str, int]:
        """Jobs submitted, ended by outcome, and live by status."""
        with self._lock:
            live = dict.fromkeys(("waiting", "held", "running", "paused", "stopping", "suspended"), 0)
            for entry in self._entries.values():
                if entry.status in live:
                    live[entry.status] += 1
            return {**self._counts, **live}

    def live_of(self, tenant: str) -> int:
        """Live jobs of a tenant."""
        with self._lock:
            return sum(1 for e in self._entries.values() if e.job.tenant == tenant and e.status not in ENDED)

    def _view(self, entry: Entry, ranks: Mapping[int, int] | None = None) -> JobView:
        waits = self._waits(entry)
        if waits and ranks is None:
            ranks = self._ranks()
        ahead = (ranks or {}).get(entry.job.id, 0) if waits else 0
        if not entry.command and self._asked is not None:
            entry.command = self._asked(entry.job.id)
        predicted = self._predicted(entry, entry.devices[0]) if entry.devices else None
        found = view_of(
            entry,
            now=self._clock.now(),
            wall=self._clock.wall,
            names=self.name_of,
            predicted=predicted,
            ahead=ahead,
            beside=self.beside(entry, entry.devices),
        )
        return msgspec.structs.replace(found, reason=self._present(entry, ahead).words) if waits else found

    def _predicted(self, entry: Entry, device: int) -> Triple | None:
        ids = self._on.get(device, ())
        if entry.job.id not in ids or device >= len(self._types):
            return None
        if len(ids) == 1:
            return 1.0, 1.0, 1.0
        models = tuple(sorted(self._entries[i].job.model for i in ids))
        told = self._foretold.get((self._types[device], models))
        return None if told is None else told[models.index(entry.job.model)]

    def _resident(self, entry: Entry, device: int) -> Resident:
        share, sample = entry.share, entry.sample
        return Resident(
            id=entry.job.id,
            name=entry.job.name,
            compute_milli=counts_on(share, self.beside(entry, (device,))),
            compute_limit_milli=share.compute_limit_milli,
            memory_bytes=share.memory_bytes or entry.job.memory_bytes,
            mode=share.mode,
            predicted_speed=self._predicted(entry, device),
            measured_speed=sample.co_speed if sample is not None and sample.co_speed else None,
        )
