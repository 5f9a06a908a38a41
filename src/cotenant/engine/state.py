"""State: a fold of events, and the sole mutable owner of the cluster's picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.engine.clusterfold import ClusterFold
from cotenant.engine.livefold import LiveFold
from cotenant.engine.tierfold import with_tiers
from cotenant.errors import IllegalEventError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.hosts import ledger_of
from cotenant.model.layout import Layout
from cotenant.model.placement import WHOLE, Placement
from cotenant.model.plan import Reason
from cotenant.model.queue import PendingQueue
from cotenant.model.records import PLAIN, JobRecord, Status, order_key
from cotenant.model.rules import Books
from cotenant.model.service import ServiceCounts
from cotenant.model.settings import Settings
from cotenant.model.shape import ShapeTable
from cotenant.model.ties import shape_after
from cotenant.model.usage import Usage, ancestry
from cotenant.model.view import HOOKS

__all__ = ["State"]

_PENDING, _RUNNING, _ENDED = Status.PENDING, Status.RUNNING, Status.ENDED
# Names of their own: looking up members of an enumeration is slow on the hot path.


class State(LiveFold, ClusterFold):
    """The present, as folded from all events so far.

    Parameters
    ----------
    cluster : Cluster
    settings : Settings

    Attributes
    ----------
    records : dict of int to JobRecord
        Live jobs that take part; ended ones leave nothing behind.
    counts : dict of str to int
        Jobs submitted, and ended by outcome; they always add up.
    """

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        LiveFold.__init__(self)
        ClusterFold.__init__(self)
        self.settings = settings
        self.layout = Layout(cluster)
        self.ledger = ledger_of(self.layout)
        self.shapes = ShapeTable(self.layout, settings)
        self.records: dict[int, JobRecord] = {}
        self.running: dict[int, JobRecord] = {}
        self.queue = PendingQueue()
        self.books = Books(self.ledger, settings, self.records)
        self.books.limits = {t.name: t.limit_gpus for t in cluster.tenants if t.limit_gpus is not None}
        self.now = 0.0
        self.version = 0
        self.service = ServiceCounts()
        self.counts_service = True
        self.counts = dict.fromkeys(("submitted", "done", "failed", "cancelled", "lost", "rejected"), 0)
        self._untold = not settings.rate_events  # then what holds up work is reckoned, not told
        self.hooks: dict[str, list[Callable[..., None]]] = {name: [] for name in (*HOOKS, "tenants")}
        self._enqueued, self._dequeued = self.hooks["enqueued"], self.hooks["dequeued"]
        self._placed, self._vacated = self.hooks["placed"], self.hooks["vacated"]
        self._rated, self._capacity = self.hooks["rated"], self.hooks["capacity"]
        self.appliers = with_tiers(self.books, self._appliers())

    def _appliers(self) -> dict[type, Callable[[Any], Any]]:
        """What each kind of event changes; they return something where the loop must act upon it."""
        return {
            **dict.fromkeys((ev.Refused, ev.Foretold, ev.Closed), self._nothing),
            **self.live_appliers(),
            ev.Opened: self._opened,
            ev.Submitted: self._submitted,
            ev.Rejected: self._rejected,
            ev.Started: self._started,
            ev.Rated: self._on_rated,
            ev.Sampled: self._sampled,
            ev.Stopping: self._stopping,
            ev.Suspended: self._suspended,
            ev.Ended: self._ended,
            ev.Moved: self._moved,
            ev.Released: self._released,
            ev.Resized: self._resized,
            ev.Reserved: self._reserved,
            ev.Held: self._held,
            **self.cluster_appliers(),
            ev.CancelRequested: self._cancel_requested,
            ev.PriorityChanged: self._priority,
            ev.TenantLimitChanged: self._tenant_limit,
            ev.MemoSaved: self._memo_saved,
        }

    def track_usage(self, half_life_s: float) -> None:
        """Fold each tenant's decayed usage too; ask before the first event.

        Raises
        ------
        ConfigError
            If the half-life is not positive and finite.
        """
        self.usage = Usage(half_life_s, ancestry(self.cluster.tenants), lambda: self.now)
        self._placed.append(self.usage.placed)
        self._vacated.append(self.usage.vacated)

    def apply(self, event: ev.Event) -> None:
        """Fold one event.

        Raises
        ------
        IllegalEventError
            If the event cannot have happened in this state.
        """
        self.now = event.t
        self.version += 1
        self.appliers[type(event)](event)

    def apply_by(self, appliers: dict[type, Callable[[Any], Any]], event: ev.Event) -> None:
        """As ``apply``, by appliers that are watched."""
        self.now = event.t
        self.version += 1
        appliers[type(event)](event)

    def go_live(self) -> None:
        """Jobs are real processes from here on: call it before the first event."""
        self.books.live = self.ledger.turns_stay = True

    def _nothing(self, event: ev.Event) -> None:
        """This event changes no state."""

    @property
    def cluster(self) -> Cluster:
        """The cluster as described, with the tenants of now."""
        return self.layout.cluster

    def _opened(self, event: ev.Opened) -> None:
        self.policy = event.policy
        if self.books.live:  # those of now may be others: then the log says so later
            self._set_tenants(event.cluster.tenants)

    def _cancel_requested(self, event: ev.CancelRequested) -> bool:
        return True

    # -- jobs ------------------------------------------------------------------------

    def _submitted(self, event: ev.Submitted) -> tuple[Reason, dict[str, Any]] | None:
        """Returns why the job can never run, if so."""
        job, t = event.job, event.t
        job_id, priority = job.id, job.priority
        if job_id in self.records or job_id in self.held:
            raise IllegalEventError(f"job {job_id} is submitted at {t} but lives already")
        predicted = event.expected_s[0] if event.expected_s else job.estimate_s
        shape = self.shapes.count(job)
        # As JobRecord.of, without the call.
        record = JobRecord(job, shape, t, predicted, job_id, priority, order_key(job_id, priority), t)
        self.records[job_id] = record
        self.counts["submitted"] += 1
        self.queue.push(record)
        for hook in self._enqueued:
            hook(record)
        return shape.never

    def _rejected(self, event: ev.Rejected) -> None:
        if event.id in self.held:
            record = self.held.pop(event.id)
        else:
            record = self._expect(event.id, event, Status.PENDING)
            self._leave_queue(record)
            self._unreserve(record)
            del self.records[record.id]
        record.status = Status.ENDED
        self.counts["cancelled" if event.reason in ("cancelled", "left") else "rejected"] += 1

    def _started(self, event: ev.Started) -> None:
        job_id, devices = event.id, event.devices
        record = self.records.get(job_id)
        if record is None or record.status:
            record = self._expect(job_id, event, _PENDING)
        record.place = place = Placement(devices, event.share or WHOLE, event.node)
        record.status = _RUNNING
        self.queue.count -= 1  # as its method left, without the call
        if event.resumed:
            record.suspended = False
        elif record.work_s:
            record.work_s = 0.0
        record.attempt = event.attempt
        record.serial += 1
        record.started_s = record.rated_s = event.t
        record.rate = 1.0
        if self._untold:
            record.rated_s += self.settings.startup_s(record.job, event.resumed)
        if record.hold is not None:
            record.hold = None
        self.running[job_id] = record
        if record.reserved:
            self._unreserve(record)
        job = record.job
        self.ledger.occupy(job_id, place, job.cpu_milli, job.host_memory_bytes)
        self.books.used[job.tenant] += len(devices)
        for hook in self._dequeued:
            hook(record)
        for placed in self._placed:
            placed(record, place)

    def _on_rated(self, event: ev.Rated) -> None:
        record = self.running.get(event.id)
        if record is None:
            record = self._expect_running(event.id, event)
        record.work_s += record.rate * (event.t - record.rated_s)
        record.rated_s = event.t
        record.rate = event.rate
        for hook in self._rated:
            hook(record)

    def _sampled(self, event: ev.Sampled) -> None:
        record = self._expect(event.id, event, Status.RUNNING)
        record.sample, record.predicted_s = event, event.work_s
        for hook in (*self._rated, *self.hooks["sampled"]):
            hook(record)

    def _stopping(self, event: ev.Stopping) -> None:
        record = self._expect(event.id, event, Status.RUNNING)
        record.status = Status.STOPPING
        for hook in (*self._rated, *self.hooks["stopping"]):
            hook(record)

    def _suspended(self, event: ev.Suspended) -> None:
        record = self._expect_running(event.id, event)
        kind = self._leave_devices(record, event.t)
        record.work_s = event.work_s
        record.suspended = True
        self._requeue(record, event.t, kind)

    def _ended(self, event: ev.Ended) -> None:
        record = self.running.get(event.id)
        if record is None:
            record = self._expect_running(event.id, event)
        kind = self._leave_devices(record, event.t)
        if event.final:
            record.status = _ENDED
            del self.records[event.id]
            self.counts[event.outcome] += 1
            if self.counts_service:
                self.service.add(record.ran_s * (record.job.gpus or 1))
            return
        if event.outcome == "failed":
            record.failures += 1
        elif event.outcome == "lost":
            record.losses += 1
        # What a checkpoint kept is the start of the next attempt's work.
        record.work_s = event.work_s if event.outcome != "failed" else 0.0
        record.suspended = record.work_s > 0.0
        self._requeue(record, event.t, kind)

    def _moved(self, event: ev.Moved) -> None:
        record = self._expect(event.id, event, Status.RUNNING)
        job = record.job
        place = Placement(event.devices, event.share or WHOLE)
        record.serial += 1
        self.ledger.begin_move(record.id, place, job.cpu_milli, job.host_memory_bytes)
        self._arrive(record, place, event.t)

    def _released(self, event: ev.Released) -> None:
        record = self.records.get(event.id)
        old = self.ledger.leaving.get(event.id)
        if record is None or old is None:
            raise IllegalEventError(f"job {event.id} releases devices at {event.t} but leaves none")
        self.ledger.end_move(event.id)
        if record.real is not PLAIN:
            record.note(process=None)
        for vacated in self._vacated:
            vacated(record, old)

    def _resized(self, event: ev.Resized) -> None:
        record = self._expect(event.id, event, Status.RUNNING)
        job, old = record.job, record.place
        assert old is not None  # noqa: S101 - RUNNING implies a place
        place = Placement(event.devices, event.share or WHOLE)
        if event.in_place:
            self._shift(record, old, place)
            return
        self.ledger.vacate(record.id, job.cpu_milli, job.host_memory_bytes)
        for vacated in self._vacated:
            vacated(record, old)
        record.serial += place.devices != old.devices
        self.ledger.occupy(record.id, place, job.cpu_milli, job.host_memory_bytes)
        self.books.used[job.tenant] += len(place.devices) - len(old.devices)
        self._arrive(record, place, event.t if place.devices != old.devices else None)

    def _reserved(self, event: ev.Reserved) -> None:
        record = self._expect(event.id, event, Status.PENDING)
        old, record.reserved = record.reserved, event.devices
        self.ledger.set_reserved(record.id, event.devices, old)
        for hook in self._capacity:
            hook((*old, *event.devices))

    def _held(self, event: ev.Held) -> None:
        self._expect(event.id, event, Status.PENDING).hold = event.reason

    def _priority(self, event: ev.PriorityChanged) -> None:
        record = self.live(event.id)
        if record is None:
            return
        pending = not record.status
        if pending:
            for hook in self._dequeued:
                hook(record)
        record.priority = event.priority
        record.key = order_key(record.id, event.priority)
        self.queue.reorder(record)
        if record.status != Status.HELD:
            for hook in self._enqueued if pending else self._rated:
                hook(record)

    def _tenant_limit(self, event: ev.TenantLimitChanged) -> None:
        if event.limit_gpus is None:
            self.books.limits.pop(event.tenant, None)
        else:
            self.books.limits[event.tenant] = event.limit_gpus
        for hook in self._capacity:
            hook(())

    # -- helpers ---------------------------------------------------------------------

    def _arrive(self, record: JobRecord, place: Placement, moved_s: float | None) -> None:
        """A running job has another place; on other devices it first loads what it saved."""
        record.place = place
        if self._untold and moved_s is not None:
            record.pause(moved_s, self.settings.reload_s(record.job))
        for placed in self._placed:
            placed(record, place)

    def _leave_queue(self, record: JobRecord) -> None:
        record.status = Status.ENDED
        self.queue.left(record)
        for hook in self._dequeued:
            hook(record)

    def _leave_devices(self, record: JobRecord, now: float) -> int:  # their type; -1: none
        job, job_id, ledger = record.job, record.id, self.ledger
        if ledger.leaving and (old := ledger.leaving.get(job_id)) is not None:
            ledger.end_move(job_id)
            for vacated in self._vacated:
                vacated(record, old)
        del self.running[job_id]
        record.ran_s += now - record.started_s
        record.place = None
        record.rate = 0.0
        record.rated_s = now
        place = ledger.vacate(job_id, job.cpu_milli, job.host_memory_bytes)
        self.books.used[job.tenant] -= len(place.devices)
        for vacated in self._vacated:
            vacated(record, place)
        return self.layout.device_type[place.devices[0]] if place.devices else -1

    def _requeue(self, record: JobRecord, now: float, kind: int = -1) -> None:
        record.queued_s = now
        shape = shape_after(record, kind, self.shapes, live=self.books.live)
        if shape is not record.shape or record.real.reshaped:
            record = self._renewed(record)
            record.shape = shape
        if record.real is not PLAIN:
            record.note(process=None, paused=False, reshaped=False, settling=())
            if record.held:
                self._hold(record)
                return
        record.status = Status.PENDING
        record.hold = None
        self.queue.push(record)
        for hook in self._enqueued:
            hook(record)

    def _unreserve(self, record: JobRecord) -> None:
        if record.reserved:
            old, record.reserved = record.reserved, ()
            self.ledger.set_reserved(record.id, (), old)
            for hook in self._capacity:
                hook(old)

    def _expect(self, job_id: int, event: ev.Event, status: Status) -> JobRecord:
        record = self.records.get(job_id)
        if record is None or record.status != status:
            found = "unknown" if record is None else record.status.name
            raise IllegalEventError(
                f"{type(event).__name__} for job {job_id} at {event.t}: expected {status.name}, found {found}"
            )
        return record

    def _expect_running(self, job_id: int, event: ev.Event) -> JobRecord:
        record = self.running.get(job_id)
        if record is None:
            raise IllegalEventError(f"{type(event).__name__} for job {job_id} at {event.t}: it does not run")
        return record
