"""Folds what happens only where jobs are real: processes, what owners ask, use from outside, restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.errors import IllegalEventError
from cotenant.model import events as ev
from cotenant.model.asking import asked_job, asked_place, check_asked, check_suspend
from cotenant.model.cluster import Tenant
from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.plan import Reason, Refusal
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import Source

__all__ = ["LEAVE", "LiveFold"]

LEAVE = "leave"
"""Answer of a fold: the loop must take the job off its devices, state saved."""


class LiveFold(Source):
    """The part of the state that simulated runs never touch.

    Attributes
    ----------
    held : dict of int to JobRecord
        Live jobs that take no part: held by their users, or waiting for other jobs.
    policy : str
        Whose memo is kept.
    """

    def __init__(self) -> None:
        self.held: dict[int, JobRecord] = {}
        self.policy = ""
        self.memo: Any = None

    def live_appliers(self) -> dict[type, Callable[[Any], Any]]:
        """What each kind of live event changes; they return something where the loop must act upon it."""
        return {
            ev.Restarted: self._restarted,
            ev.Launched: self._launched,
            ev.SuspendRequested: self._suspend_requested,
            ev.ResumeRequested: self._resume_requested,
            ev.ResizeRequested: self._resize_requested,
            ev.Paused: self._paused,
            ev.Resettled: self._resettled,
            ev.ForeignUse: self._foreign_use,
            ev.Awaited: self._awaited,
            ev.TenantsChanged: self._tenants_changed,
            ev.ProcessKilled: self._process_killed,
        }

    def live(self, job_id: int) -> JobRecord | None:
        """A live job's record, whether it takes part or not."""
        return self.records.get(job_id) or self.held.get(job_id)

    def _memo_saved(self, event: ev.MemoSaved) -> None:
        self.memo = event.memo

    def _restarted(self, event: ev.Restarted) -> None:
        if event.policy != self.policy:
            self.memo, self.policy = None, event.policy

    def _launched(self, event: ev.Launched) -> None:
        record = self.running.get(event.id)
        if record is None or event.serial != record.serial:
            found = "it does not run" if record is None else f"its place has serial {record.serial}"
            raise IllegalEventError(f"job {event.id} is launched at {event.t} as {event.serial}, but {found}")
        record.note(process=event)

    # -- held ------------------------------------------------------------------------

    def _suspend_requested(self, event: ev.SuspendRequested) -> Refusal | str | None:
        """Returns ``LEAVE``, or why it cannot, if the job runs."""
        record = self.live(event.id)
        if record is None:
            return None
        if record.status == Status.RUNNING and (refusal := check_suspend(self.books, record)):
            return refusal
        record.note(held=True)
        if record.status == Status.PENDING:
            self._set_aside(record)
        return LEAVE if record.status == Status.RUNNING else None

    def _resume_requested(self, event: ev.ResumeRequested) -> str | None:
        """Returns something if the job is to go on where it was paused, or is about to be."""
        record = self.live(event.id)
        if record is None:
            return None
        record.note(held=False)
        if record.status == Status.HELD:
            self._back(record, event.t)
        still = record.status == Status.RUNNING and not record.job.suspendable
        return "go on" if record.paused or still else None

    def _awaited(self, event: ev.Awaited) -> None:
        record = self.live(event.id)
        if record is None or record.status not in (Status.PENDING, Status.HELD):
            raise IllegalEventError(f"job {event.id} awaits others at {event.t}, but it does not wait")
        record.note(awaits=event.after)
        if record.status == Status.PENDING and event.after:
            self._set_aside(record)
        elif record.status == Status.HELD:
            self._back(record, event.t)

    def _set_aside(self, record: JobRecord) -> None:
        """A waiting job takes part no more."""
        record.status = Status.HELD
        self.queue.left(record)
        for hook in self.hooks["dequeued"]:
            hook(record)
        self._unreserve(record)
        self._hold(record)

    def _hold(self, record: JobRecord) -> None:
        record.status = Status.HELD
        record.hold = Reason.HELD_BY_USER if record.held else Reason.AWAITS_JOBS
        del self.records[record.id]
        self.held[record.id] = record

    def _back(self, record: JobRecord, now: float) -> None:
        if record.held or record.awaits:
            record.hold = Reason.HELD_BY_USER if record.held else Reason.AWAITS_JOBS
            return
        del self.held[record.id]
        self.records[record.id] = record
        self._requeue(record, now)

    # -- shares ----------------------------------------------------------------------

    def _resize_requested(self, event: ev.ResizeRequested) -> Refusal | Placement | None:
        """Returns where a running job goes on, or why nothing changes."""
        record = self.live(event.id)
        if record is None:
            return None
        job = asked_job(record.job, event)
        if isinstance(job, Refusal):
            return job
        if record.status in (Status.PENDING, Status.HELD):
            refusal = check_asked(record, job, self.shapes.of(job, record.shape.tied))
            if refusal is None:
                self._ask(record, job)
            return refusal
        if record.status != Status.RUNNING:
            return Refusal(Reason.NOT_RUNNING)
        found = asked_place(self.books, record, job, event, event.t)
        if isinstance(found, Placement):
            record.job, record.shape = job, self.shapes.of(job, record.shape.tied)
            record.note(reshaped=True)
        return found

    def _shift(self, record: JobRecord, old: Placement, place: Placement) -> None:
        """The same processes go on elsewhere: until they have, the job holds what it leaves, too."""
        job, ledger = record.job, self.ledger
        ledger.vacate(record.id, job.cpu_milli, job.host_memory_bytes)
        for vacated in self.hooks["vacated"]:
            vacated(record, old)
        ledger.occupy(record.id, place, job.cpu_milli, job.host_memory_bytes)
        places = [place]
        if left := tuple(d for d in old.devices if d not in place.devices):
            places.insert(0, Placement(left, old.share))
            ledger.keep(record.id, places[0])
        self.books.used[job.tenant] += len(place.devices) - len(old.devices)
        record.note(settling=old.devices, shifts=record.real.shifts + 1)
        record.place = place
        for each in places:
            for placed in self.hooks["placed"]:
                placed(record, each)

    def _resettled(self, event: ev.Resettled) -> None:
        record = self.running.get(event.id)
        if record is None or not record.settling:
            raise IllegalEventError(
                f"job {event.id} has resettled at {event.t}, but it was not resized in place"
            )
        left = self.ledger.leaving.get(record.id)
        self.ledger.end_move(record.id)
        record.serial += event.again
        record.note(settling=())
        for vacated in self.hooks["vacated"] if left is not None else ():
            vacated(record, left)

    def _ask(self, record: JobRecord, job: Job) -> None:
        queued = record.status == Status.PENDING
        status, record.status = record.status, Status.ENDED
        if queued:
            self.queue.left(record)
            for hook in self.hooks["dequeued"]:
                hook(record)
            self._unreserve(record)
        record.status = status
        renewed = self._renewed(record)
        renewed.job, renewed.shape = job, self.shapes.of(job, record.shape.tied)
        if queued:
            self.queue.push(renewed)
            for hook in self.hooks["enqueued"]:
                hook(renewed)

    def _renewed(self, record: JobRecord) -> JobRecord:
        """A record of its own for a job that asks for something else from now on.

        Queues find out lately, and by its record alone, that a job is no more among those that ask for the same.
        """
        renewed = msgspec.structs.replace(record)
        (self.held if record.status == Status.HELD else self.records)[record.id] = renewed
        record.status = Status.ENDED
        return renewed

    def _paused(self, event: ev.Paused) -> None:
        record = self.running.get(event.id)
        if record is None:
            raise IllegalEventError(f"job {event.id} is paused at {event.t}, but it does not run")
        # Its user asked for it: if it loses its place now, it does not come back by itself.
        record.note(paused=event.paused, held=event.paused)
        if event.paused:
            record.work_s, record.rated_s, record.rate = record.work_at(event.t), event.t, 0.0
            for hook in self.hooks["rated"]:
                hook(record)

    def _foreign_use(self, event: ev.ForeignUse) -> None:
        self.ledger.set_foreign(event.device, event.memory_bytes, event.pids)
        for hook in self.hooks["capacity"]:
            hook((event.device,))

    def _tenants_changed(self, event: ev.TenantsChanged) -> None:
        self._set_tenants(event.tenants)
        for hook in (*self.hooks["tenants"], *self.hooks["capacity"]):
            hook(())

    def _set_tenants(self, tenants: tuple[Tenant, ...]) -> None:
        layout = self.ledger.layout
        layout.cluster = msgspec.structs.replace(layout.cluster, tenants=tenants)
        self.books.limits = {t.name: t.limit_gpus for t in tenants if t.limit_gpus is not None}

    def _process_killed(self, event: ev.ProcessKilled) -> None:
        """Its supervisor sees to it: the job holds what it holds."""

    # -- of the state ----------------------------------------------------------------

    def _requeue(self, record: JobRecord, now: float, kind: int = -1) -> None:
        raise NotImplementedError

    def _unreserve(self, record: JobRecord) -> None:
        raise NotImplementedError
