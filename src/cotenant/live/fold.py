"""What the events of a live log say of each job, each device, and how many there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cotenant.live.entries import ENDED, Entry, Triple, ended_words
from cotenant.model import events as ev
from cotenant.model.asking import asked_job
from cotenant.model.placement import WHOLE, Share
from cotenant.model.plan import Refusal
from cotenant.report.phrases import facts_in_words
from cotenant.report.reasons import meaning

__all__ = ["LiveFold"]

_ASKED = "asked-by-owner"


class LiveFold:
    """Folds events, one at a time; jobs that ended are remembered until there are ``kept`` of them.

    Parameters
    ----------
    types : sequence of str
        Types of devices, by number; those of the log's first event if empty.
    kept : int

    Attributes
    ----------
    opened : Opened or None
        The log's first event.
    """

    def __init__(self, types: Sequence[str] = (), *, kept: int = 5000) -> None:
        self.opened: ev.Opened | None = None
        self._types, self._kept = tuple(types), kept
        self._entries: dict[int, Entry] = {}
        self._ended: deque[int] = deque()
        self._waiting: dict[int, None] = {}
        self._on: dict[int, list[int]] = {}
        self._foretold: dict[tuple[str, tuple[str, ...]], tuple[Triple, ...]] = {}
        self._counts = dict.fromkeys(("submitted", *sorted(ENDED)), 0)
        self._down: dict[int, str] = {}
        self._drained = False
        self._drained_devices: set[int] = set()
        self._foreign: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._reserved: dict[int, tuple[int, ...]] = {}
        self._limits: dict[str, int | None] = {}
        self._memory: tuple[int, ...] = ()

    def fold(self, event: ev.Event) -> None:
        """Take one event."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _on_opened(self, event: ev.Opened) -> None:
        if self.opened is None:
            self.opened = event
        self._limits = {tenant.name: tenant.limit_gpus for tenant in event.cluster.tenants}
        memory = {kind.name: kind.memory_bytes for kind in event.cluster.types}
        self._memory = tuple(
            memory[k] for node in event.cluster.nodes for k, n in node.gpus for _ in range(n)
        )
        if not self._types:
            self._types = tuple(k for node in event.cluster.nodes for k, n in node.gpus for _ in range(n))

    def _submitted(self, event: ev.Submitted) -> None:
        job = event.job
        entry = Entry(job, priority=job.priority, expected_s=event.expected_s)
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
        self._reserved.pop(event.id, None)
        entry.status, entry.attempt, entry.node, entry.why = (
            "running",
            event.attempt,
            event.node,
            event.why.rule,
        )
        entry.hold, entry.facts, entry.exit_code, entry.detail, entry.reason = "", {}, None, "", ""
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
            entry.reason = f"leaves its devices{whom}{', to go on later' if event.suspend else ''}"

    def _suspended(self, event: ev.Suspended) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.suspensions += 1
            entry.work_s, entry.own = event.work_s, event.own
            self._requeue(entry, "held" if entry.held else "suspended")

    def _on_ended(self, event: ev.Ended) -> None:
        if (entry := self._entries.get(event.id)) is None:
            return
        entry.work_s = event.work_s
        if event.outcome in ("done", "failed"):
            # What could not be started left with no code.
            entry.exit_code = None if event.outcome == "failed" and not event.code else event.code
        entry.detail = event.detail
        if not event.final:
            entry.own = event.own
            self._requeue(entry, "held" if entry.held else "waiting")
            return
        began_s = max(entry.since_s, 0.0)
        ended_s = max(event.t - event.ago_s, began_s)
        entry.reason = ended_words(event.outcome, entry, ended_s - began_s)
        self._end(entry, event.outcome, ended_s)

    def _requeue(self, entry: Entry, status: str) -> None:
        entry.status = status
        self._place(entry, ())
        entry.sample, entry.share = None, WHOLE
        entry.hold, entry.facts = "", {}
        self._waiting[entry.job.id] = None

    def _end(self, entry: Entry, status: str, t: float) -> None:
        entry.status, entry.ended_s = status, t
        self._waiting.pop(entry.job.id, None)
        self._reserved.pop(entry.job.id, None)
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
            both = tuple(sorted({*entry.devices, *event.devices}))
            self._place(entry, both if event.in_place else event.devices)
            entry.settles = event.devices if event.in_place else ()
            entry.share = event.share or WHOLE
            if entry.wish is not None and event.why.rule == _ASKED:
                # What its owner asked for holds for its next places, too.
                entry.job, entry.wish = entry.wish, None

    def _resettled(self, event: ev.Resettled) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            self._place(entry, event.devices)

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
        drained = isinstance(event, ev.Drained)
        if event.device >= 0:
            (self._drained_devices.add if drained else self._drained_devices.discard)(event.device)
        else:
            self._drained = drained

    def _launched(self, event: ev.Launched) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.serial = event.serial

    def _suspend_requested(self, event: ev.SuspendRequested) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.held = True
            if entry.status in ("waiting", "suspended"):
                entry.status = "held"

    def _resume_requested(self, event: ev.ResumeRequested) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.held = False
            if entry.status == "held":
                entry.status = "suspended" if entry.work_s > 0.0 else "waiting"

    def _resize_requested(self, event: ev.ResizeRequested) -> None:
        entry = self._entries.get(event.id)
        if entry is None or isinstance(job := asked_job(entry.job, event), Refusal):
            return
        if entry.status in ("waiting", "held", "suspended"):
            entry.job = job
        else:
            entry.wish = job

    def _paused(self, event: ev.Paused) -> None:
        if (entry := self._entries.get(event.id)) is not None and entry.status in ("running", "paused"):
            entry.work_s, entry.rated_s = entry.work_at(event.t), event.t
            entry.status = "paused" if event.paused else "running"
            entry.reason = "stopped by signal; it holds its memory" if event.paused else ""

    def _foreign_use(self, event: ev.ForeignUse) -> None:
        if event.memory_bytes or event.pids:
            self._foreign[event.device] = (event.memory_bytes, event.pids)
        else:
            self._foreign.pop(event.device, None)

    def _on_reserved(self, event: ev.Reserved) -> None:
        if event.devices:
            self._reserved[event.id] = event.devices
        else:
            self._reserved.pop(event.id, None)

    def _process_killed(self, event: ev.ProcessKilled) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.killed += event.count - (entry.killed_of[1] if entry.killed_of[0] == event.serial else 0)
            entry.killed_of = event.serial, event.count

    def _tenants(self, event: ev.TenantsChanged) -> None:
        self._limits = {tenant.name: tenant.limit_gpus for tenant in event.tenants}

    def _tenant_limit(self, event: ev.TenantLimitChanged) -> None:
        self._limits[event.tenant] = event.limit_gpus

    def _awaited(self, event: ev.Awaited) -> None:
        if (entry := self._entries.get(event.id)) is not None:
            entry.after = event.after

    def beside(self, entry: Entry, devices: Sequence[int]) -> list[list[Share]]:
        """For each of these devices of a job, the shares of the others there; empty once it has ended."""
        mine, found = entry.job.id, []
        for device in devices:
            there = self._on.get(device, [])
            found.append([self._entries[i].share for i in there if i != mine] if mine in there else [])
        return found

    def _place(self, entry: Entry, devices: tuple[int, ...]) -> None:
        job_id = entry.job.id
        for device in entry.devices:
            if job_id in self._on.get(device, ()):
                self._on[device].remove(job_id)
        entry.devices, entry.settles = devices, ()
        for device in devices:
            self._on.setdefault(device, []).append(job_id)


_HANDLERS: dict[type, Callable[[LiveFold, Any], None]] = {
    ev.Opened: LiveFold._on_opened,
    ev.Submitted: LiveFold._submitted,
    ev.Rejected: LiveFold._rejected,
    ev.Started: LiveFold._started,
    ev.Rated: LiveFold._rated,
    ev.Sampled: LiveFold._sampled,
    ev.Stopping: LiveFold._stopping,
    ev.Suspended: LiveFold._suspended,
    ev.Ended: LiveFold._on_ended,
    ev.Moved: LiveFold._moved,
    ev.Released: LiveFold._released,
    ev.Resized: LiveFold._resized,
    ev.Resettled: LiveFold._resettled,
    ev.Held: LiveFold._on_held,
    ev.PriorityChanged: LiveFold._priority,
    ev.Foretold: LiveFold._on_foretold,
    ev.DeviceDown: LiveFold._device_down,
    ev.DeviceUp: LiveFold._device_up,
    ev.Drained: LiveFold._on_drained,
    ev.Undrained: LiveFold._on_drained,
    ev.Launched: LiveFold._launched,
    ev.SuspendRequested: LiveFold._suspend_requested,
    ev.ResumeRequested: LiveFold._resume_requested,
    ev.ResizeRequested: LiveFold._resize_requested,
    ev.Paused: LiveFold._paused,
    ev.ForeignUse: LiveFold._foreign_use,
    ev.Awaited: LiveFold._awaited,
    ev.Reserved: LiveFold._on_reserved,
    ev.ProcessKilled: LiveFold._process_killed,
    ev.TenantsChanged: LiveFold._tenants,
    ev.TenantLimitChanged: LiveFold._tenant_limit,
}
