"""The read model: what people see, kept up to date by the events that are on disk.

The loop's thread tells it of committed events; any thread asks. Ended jobs stay here until there
are many, then only the log knows them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cotenant.live.entries import ENDED, Entry, Triple, ended_words, view_of
from cotenant.live.views import JobView, Resident
from cotenant.model import events as ev
from cotenant.model.liveports import AttemptPaused, Clock, Progress
from cotenant.model.placement import WHOLE
from cotenant.report.phrases import facts_in_words
from cotenant.report.reasons import meaning

__all__ = ["Picture", "Told"]

Told = Callable[[int, str, dict[str, Any]], None]
"""Number of the event, its kind, and plain facts."""

_KEPT = 5000


class Picture:
    """Jobs, who is where, and counts, as the log tells them.

    Parameters
    ----------
    clock : Clock
    names : sequence of str
        What devices are called, by number.
    types : sequence of str
        Their types, by number.
    asked : callable, optional
        What a job's request said beside the ``Job``: its command, and the jobs it waits for.
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
        asked: Callable[[int], tuple[tuple[str, ...], tuple[int, ...]]] | None = None,
        kept: int = _KEPT,
    ) -> None:
        self.events = 0
        self.opened: ev.Opened | None = None
        self._clock, self._names, self._types, self._asked = clock, tuple(names), tuple(types), asked
        self._entries: dict[int, Entry] = {}
        self._ended: deque[int] = deque()
        self._kept = kept
        self._waiting: dict[int, None] = {}
        self._on: dict[int, list[int]] = {}
        self._leaving: dict[int, tuple[int, ...]] = {}
        self._foretold: dict[tuple[str, tuple[str, ...]], tuple[Triple, ...]] = {}
        self._counts = dict.fromkeys(("submitted", *sorted(ENDED)), 0)
        self._down: dict[int, str] = {}
        self._drained = False
        self._lock = threading.RLock()
        self._listeners: list[Told] = []

    # -- told by the loop --------------------------------------------------------------

    def see(self, events: Iterable[ev.Event]) -> None:
        """Take the next events; they are on disk."""
        with self._lock:
            for event in events:
                self.events += 1
                handler = _HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event)
                if self._listeners:
                    self._tell(event)

    def report(self, report: object) -> None:
        """Take what a job says of itself, and whether it is paused: neither is in the log."""
        if not isinstance(report, (Progress, AttemptPaused)):
            return
        with self._lock:
            entry = self._entries.get(report.id)
            if entry is None or entry.status in ENDED:
                return
            if isinstance(report, AttemptPaused):
                if entry.status in ("running", "paused"):
                    entry.status = "paused" if report.paused else "running"
                    entry.reason = "paused by signal, holding its memory" if report.paused else ""
                kind: str = "paused"
            else:
                kind = "progress"
                entry.steps, entry.total_steps = report.steps, report.total or entry.total_steps
                entry.step_s = report.step_s or entry.step_s
                entry.memory_used_bytes, entry.cpu_s = report.memory_bytes, report.cpu_s
            entry.serial = report.serial
            if self._listeners:
                facts = {**msgspec.to_builtins(report), "tenant": entry.job.tenant}
                self._pass_on(self.events, kind, facts)

    def ended_as(self, job_id: int, code: int | None, detail: str) -> None:
        """How the process of a job that ends ended: exit code (negative: signal), and words."""
        with self._lock:
            if (entry := self._entries.get(job_id)) is not None:
                entry.exit_code, entry.detail = code, detail

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

    # -- folding -----------------------------------------------------------------------

    def _on_opened(self, event: ev.Opened) -> None:
        if self.opened is None:
            self.opened = event
        if not self._types:
            self._types = tuple(k for node in event.cluster.nodes for k, n in node.gpus for _ in range(n))

    def _submitted(self, event: ev.Submitted) -> None:
        job = event.job
        command, after = self._asked(job.id) if self._asked is not None else ((), ())
        entry = Entry(job, priority=job.priority, expected_s=event.expected_s, command=command, after=after)
        self._entries[job.id] = entry
        self._waiting[job.id] = None
        self._counts["submitted"] += 1

    def _rejected(self, event: ev.Rejected) -> None:
        if (entry := self._entries.get(event.id)) is None:
            return
        cancelled = event.reason in ("cancelled", "left")
        numbers = f" ({facts_in_words(event.facts)})" if event.facts else ""
        entry.reason = "cancelled while it waited" if cancelled else f"{meaning(event.reason)}{numbers}"
        self._end(entry, "cancelled" if cancelled else "rejected", event.t)

    def _started(self, event: ev.Started) -> None:
        if (entry := self._entries.get(event.id)) is None:
            return
        self._waiting.pop(event.id, None)
        entry.status, entry.attempt, entry.node, entry.why = (
            "running",
            event.attempt,
            event.node,
            event.why.rule,
        )
        entry.hold, entry.facts, entry.exit_code, entry.detail = "", {}, None, ""
        entry.rate, entry.rated_s, entry.since_s = 1.0, event.t, event.t
        if entry.started_s < 0:
            entry.started_s = event.t
        if not event.resumed:
            entry.work_s, entry.steps = 0.0, 0
        entry.after = ()
        self._place(entry, event.devices)
        entry.share = event.share or WHOLE

    def _rated(self, event: ev.Rated) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.work_s, entry.rated_s = entry.work_at(event.t), event.t
            entry.rate = event.rate

    def _sampled(self, event: ev.Sampled) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.sample = event

    def _stopping(self, event: ev.Stopping) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.work_s = entry.work_at(event.t)
            entry.rated_s = event.t
            entry.status = "stopping"
            whom = f" for job {event.beneficiary}" if event.beneficiary >= 0 else ""
            entry.reason = f"{'saves its state' if event.suspend else 'leaves its devices'}{whom}"

    def _suspended(self, event: ev.Suspended) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.suspensions += 1
            entry.work_s = event.work_s
            self._requeue(entry, "held" if entry.held else "suspended")

    def _on_ended(self, event: ev.Ended) -> None:
        if (entry := self._entries.get(event.id)) is None:
            return
        entry.work_s = event.work_s
        entry.exit_code = getattr(event, "code", None) if entry.exit_code is None else entry.exit_code
        entry.detail = getattr(event, "detail", "") or entry.detail
        if not event.final:
            entry.reason = f"attempt {event.attempt} ended: {event.outcome}"
            self._requeue(entry, "held" if entry.held else "waiting")
            return
        if event.outcome == "done" and entry.exit_code is None:
            entry.exit_code = 0
        entry.reason = ended_words(event.outcome, entry, event.t - max(entry.since_s, 0.0))
        self._end(entry, event.outcome, event.t)

    def _requeue(self, entry: Entry, status: str) -> None:
        entry.status = status
        self._place(entry, ())
        entry.sample, entry.share = None, WHOLE
        self._waiting[entry.job.id] = None

    def _end(self, entry: Entry, status: str, t: float) -> None:
        entry.status, entry.ended_s = status, t
        self._waiting.pop(entry.job.id, None)
        last = entry.devices
        self._place(entry, ())
        entry.devices = last  # where it ran stays to be seen
        self._counts[status] += 1
        self._ended.append(entry.job.id)
        while len(self._ended) > self._kept:
            self._entries.pop(self._ended.popleft(), None)

    def _moved(self, event: ev.Moved) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            old = entry.devices
            self._place(entry, tuple(sorted({*old, *event.devices})))
            entry.share = event.share or WHOLE

    def _released(self, event: ev.Released) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            self._place(entry, tuple(d for d in entry.devices if d not in event.devices))

    def _resized(self, event: ev.Resized) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            self._place(entry, event.devices)
            entry.share = event.share or WHOLE

    def _on_held(self, event: ev.Held) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.hold, entry.facts = str(event.reason), event.facts

    def _priority(self, event: ev.PriorityChanged) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.priority = event.priority

    def _on_foretold(self, event: ev.Foretold) -> None:
        told = tuple(zip(event.mean, event.low, event.high, strict=True))
        self._foretold[(event.device_type, event.models)] = told

    def _device_down(self, event: ev.DeviceDown) -> None:
        self._down[event.device] = event.cause or "down"

    def _device_up(self, event: ev.DeviceUp) -> None:
        self._down.pop(event.device, None)

    def _on_drained(self, event: ev.Drained | ev.Undrained) -> None:
        self._drained = isinstance(event, ev.Drained)

    def _place(self, entry: Entry, devices: tuple[int, ...]) -> None:
        job_id = entry.job.id
        for device in entry.devices:
            if job_id in self._on.get(device, ()):
                self._on[device].remove(job_id)
        entry.devices = devices
        for device in devices:
            self._on.setdefault(device, []).append(job_id)

    # -- asked by anybody --------------------------------------------------------------

    def name_of(self, device: int) -> str:
        """What a device is called."""
        return self._names[device] if 0 <= device < len(self._names) else f"device {device}"

    def entry(self, job_id: int) -> Entry | None:
        """What is kept of a job; read only. None if it is unknown here."""
        with self._lock:
            return self._entries.get(job_id)

    def job(self, job_id: int) -> JobView | None:
        """One job; None if it is unknown here: never submitted, or long ended."""
        with self._lock:
            entry = self._entries.get(job_id)
            return None if entry is None else self._view(entry)

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
            ranks = {job_id: i for i, job_id in enumerate(sorted(self._waiting))}
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

    def device_state(self, device: int) -> str:
        """``up``, ``drained``, or ``down: why``."""
        with self._lock:
            if device in self._down:
                return f"down: {self._down[device]}"
            return "drained" if self._drained else "up"

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
        if entry.status in ("waiting", "suspended"):
            at = sum(1 for i in self._waiting if i < entry.job.id) if ranks is None else ranks[entry.job.id]
        else:
            at = 0
        predicted = self._predicted(entry, entry.devices[0]) if entry.devices else None
        return view_of(
            entry,
            now=self._clock.now(),
            wall=self._clock.wall,
            names=self.name_of,
            predicted=predicted,
            ahead=at,
        )

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
            compute_milli=share.compute_milli,
            compute_limit_milli=share.compute_limit_milli,
            memory_bytes=share.memory_bytes or entry.job.memory_bytes,
            mode=share.mode,
            predicted_speed=self._predicted(entry, device),
            measured_speed=sample.co_speed if sample is not None and sample.co_speed else None,
        )


_HANDLERS: dict[type, Callable[[Picture, Any], None]] = {
    ev.Opened: Picture._on_opened,
    ev.Submitted: Picture._submitted,
    ev.Rejected: Picture._rejected,
    ev.Started: Picture._started,
    ev.Rated: Picture._rated,
    ev.Sampled: Picture._sampled,
    ev.Stopping: Picture._stopping,
    ev.Suspended: Picture._suspended,
    ev.Ended: Picture._on_ended,
    ev.Moved: Picture._moved,
    ev.Released: Picture._released,
    ev.Resized: Picture._resized,
    ev.Held: Picture._on_held,
    ev.PriorityChanged: Picture._priority,
    ev.Foretold: Picture._on_foretold,
    ev.DeviceDown: Picture._device_down,
    ev.DeviceUp: Picture._device_up,
    ev.Drained: Picture._on_drained,
    ev.Undrained: Picture._on_drained,
}
