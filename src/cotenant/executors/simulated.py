"""The simulated world: continuous time, no ticks.

A job's progress is the integral of its speed (``executors.progress``). Speeds change only when
residents, shares or places change, so only the jobs on those devices are brought up to
date. Saving, loading and cold starts take time, during which the devices are held as they
really would be. Running times are known here alone; no policy sees them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from cotenant.executors.attempt import Attempt
from cotenant.executors.company import is_plain
from cotenant.executors.progress import END, GAVE_UP, LEFT_OLD, READY, SAMPLE, SAVED, TRANSFER
from cotenant.executors.script import Arrivals, Incidents
from cotenant.executors.storing import Storing
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.events import Ended, Submitted
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import WHOLE, Placement
from cotenant.model.poolevents import TierResized
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings
from cotenant.model.workload import Behaviours, Workload

__all__ = ["SimulatedExecutor"]

_INF = math.inf


class SimulatedExecutor(Storing):
    """Plays a workload on a cluster.

    Parameters
    ----------
    workload : Workload
    cluster : Cluster
    truth : Truth, optional
        How fast things really are; without it every job runs at its device type's speed
        and sharing costs nothing, which only count-mode tests want.
    settings : Settings, optional
    incidents : sequence of Event
        What befalls the cluster and what users ask for, by time: failures, returns, drains,
        cancellations, changed priorities and ceilings.
    seed : int
        Of what samples measure (``executors.samples``).

    Attributes
    ----------
    source_hours : dict of str to float
        Device-hours run alone, and under speeds that were measured, composed or modelled.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        *,
        truth: Truth | None = None,
        settings: Settings | None = None,
        incidents: Sequence[ev.Event] = (),
        seed: int = 0,
    ) -> None:
        super().__init__(Layout(cluster), truth, settings or Settings(), seed)
        self._arrivals = Arrivals(workload)
        self._incidents = Incidents(incidents)
        self._behaviours = Behaviours(workload.frame)
        self._failed: dict[int, int] = {}
        self._left: dict[int, float] = {}
        self._outside_s = max(0.0, min(self._arrivals.next_s, self._incidents.next_s))
        self._delay_s = self.settings.decision_latency_s + self.settings.start_s

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._now

    def wait(self, until: float) -> list[ev.Event]:
        """Events of the next instant, in the documented order."""
        before, heap, runs = self._now, self._heap, self._runs
        while True:  # an instant of void entries, or one without rate events, has nothing to tell
            t, played = self._outside_s, False
            if heap and (first := heap[0][0]) < t:
                if first > until:
                    break
                self._now = t = first
            elif t > until or t == _INF:
                break
            else:
                self._now = t
                played = self._come(t)
            while heap and heap[0][0] <= t:
                _, job_id, kind, epoch = entry = heappop(heap)
                if kind > SAVED:
                    if self._valid(entry):
                        self._due_else(kind, job_id)
                elif (run := runs.get(job_id)) is not None and run.epoch == epoch:
                    if kind:
                        self._due(kind, run)
                    elif run.end_s > t:
                        # It was slowed down since.
                        run.due_s = run.end_s
                        heappush(heap, (run.end_s, job_id, END, epoch))
                    else:
                        self._finish(run)
            if out := self._out:
                self._out = []
                if played:
                    # A request to cancel comes last: the rest of this instant has happened to the job already.
                    out.sort(key=lambda event: isinstance(event, ev.CancelRequested))
                return out
        self._now = until if until < _INF else before
        return []

    def _come(self, t: float) -> bool:
        """What comes from outside at this time; True if that is more than arrivals."""
        arrivals, incidents = self._arrivals, self._incidents
        played = incidents.next_s <= t
        if played:
            self._play_incidents(t)
        while arrivals.next_s <= t:
            job = arrivals.take()
            if job.leave_s > 0:
                self._patient.add(job.id)
                self._push(job.leave_s, job.id, GAVE_UP, 0)
            # A job submitted before the clock's present (a trace may start before zero) arrives now.
            self._out.append(Submitted(t, job))
        self._outside_s = max(t, min(arrivals.next_s, incidents.next_s))
        return played

    def drain(self) -> list[ev.Event]:
        """Events of this instant."""
        out, self._out = self._out, []
        return out

    def idle(self) -> bool:
        """True if nothing is to come."""
        while self._heap and not self._valid(self._heap[0]):
            heappop(self._heap)
        return not self._heap and self._outside_s == _INF

    def schedule(self, event: ev.Event) -> None:
        """Let an event of the cluster happen, at its time or now."""
        self._incidents.add(event)
        self._outside_s = max(self._now, min(self._arrivals.next_s, self._incidents.next_s))

    def running(self) -> Mapping[int, Placement]:
        """What runs."""
        return {job_id: run.place for job_id, run in self._runs.items()}

    def _due(self, kind: int, run: Attempt) -> None:
        if kind == READY:
            run.paused = False
            self._rerate(run)
        else:
            self._saved(run)

    def _due_else(self, kind: int, job_id: int) -> None:
        if kind == LEFT_OLD:
            self._release_old(job_id)
        elif kind == SAMPLE:
            if self._samples is not None and (told := self._samples.due(self._runs[job_id], self._now)):
                self._out.append(told)
        elif kind == TRANSFER:
            self._transferred(job_id)
        else:
            self.forget(job_id)
            self._out.append(ev.Rejected(self._now, job_id, "left"))

    def start(self, job: Job, place: Placement, attempt: int, resumed: bool) -> bool:
        """Begin or go on; see ``model.ports.Executor``."""
        job_id, now = job.id, self._now
        behaviour = self._behaviours[job_id]
        total = behaviour.duration_s
        if behaviour.failed_after_s:
            total = (*behaviour.failed_after_s, total)[self._failed.get(job_id, 0)]
        left = self._left.pop(job_id, total) if self._left else total
        if self._patient:
            self._patient.discard(job_id)
        alone = self._physics.alone_speed(job, place)
        if place.share is not WHOLE or resumed or self._delay_s > 0.0:
            run = Attempt(job, behaviour, place, attempt, total, left, total - left, now, alone)
            return self._start_slowly(run, resumed)
        # Most starts of most runs: whole devices, which work from this instant on.
        self._epoch = epoch = self._epoch + 1
        self._runs[job_id] = Attempt(
            job, behaviour, place, attempt, total, left, total - left, now, alone, alone, epoch
        )
        heappush(self._heap, (now + left / alone, job_id, END, epoch))
        if self._samples is not None:
            self._samples.begin(self._runs[job_id], now)
        if alone != 1.0 and self._tells_rates:
            self._out.append(ev.Rated(now, job_id, alone))
            return True
        return False

    def _start_slowly(self, run: Attempt, resumed: bool) -> bool:
        """Start with a delay, or beside others."""
        job, place, delay = run.job, run.place, self._delay_s
        self._runs[job.id] = run
        met = False
        if place.share.mode != "exclusive":
            run.shared, run.plain = True, is_plain(run)
            met = self._companies.join(run, place)
        if resumed:
            delay = self.settings.decision_latency_s + self._physics.restore_s(job, place)
        if resumed and self._store is not None and self._load_from(self._store, run):
            pass
        elif delay > 0:
            self._pause(run, delay, READY)
        elif met or not run.plain:
            self._rerate(run, before=1.0)
        else:
            self._change(run, run.alone, "alone", before=1.0)
        if met:
            self._rerate_devices(place.devices, run)
        return bool(self._out)

    def stop(self, job_id: int, suspend: bool) -> None:
        """Save and leave, or just leave."""
        run = self._runs[job_id]
        self._settle(run)
        if not suspend:
            self._interrupt(run, "preempted")
            return
        if self._store is not None:
            self._save_to(self._store, run)
            return
        save = self._physics.save_s(run.job, run.place)
        if save > 0:
            self._pause(run, save, SAVED)
        else:
            self._saved(run)

    def cancel(self, job_id: int) -> None:
        """End a running job for good."""
        run = self._runs[job_id]
        self._settle(run)
        self._leave(run)
        self.forget(job_id)
        self._out.append(ev.Ended(self._now, job_id, run.attempt, "cancelled", run.total_s - run.left_s))

    def forget(self, job_id: int) -> None:
        """A waiting job will never start."""
        if self._samples is not None:
            self._samples.forget(job_id)
        if self._store is not None:
            self._forget_copy(self._store, job_id)
        self._left.pop(job_id, None)
        self._failed.pop(job_id, None)
        self._patient.discard(job_id)

    def move(self, job_id: int, place: Placement) -> None:
        """Save here, load there; both held meanwhile."""
        run = self._runs[job_id]
        self._settle(run)
        self._leaving[job_id] = old = run.place
        self._put(run, place)
        save = self._physics.save_s(run.job, old)
        if save > 0:
            self._epoch = self._left_at[job_id] = self._epoch + 1
            self._push(self._now + save, job_id, LEFT_OLD, self._epoch)
        else:
            self._release_old(job_id)
        self._pause(run, save + self._physics.restore_s(run.job, place), READY)
        if run.shared:
            self._rerate_devices(run.place.devices, run)

    def resize(self, job_id: int, place: Placement) -> None:
        """Change devices (with the price of a restart) or share (at once)."""
        run = self._runs[job_id]
        self._settle(run)
        old = run.place
        was_shared = run.shared
        if was_shared:
            self._companies.part(run, old)
        self._put(run, place)
        if place.devices != old.devices:
            price = self._physics.save_s(run.job, old) + self._physics.restore_s(run.job, place)
            self._pause(run, price, READY)
        elif not run.paused:
            self._rerate(run)
        if was_shared:
            self._rerate_devices(old.devices)
        if run.shared:
            self._rerate_devices(run.place.devices, run)

    # -- the life of a run -------------------------------------------------------------

    def _finish(self, run: Attempt) -> None:
        job_id, now, place = run.job.id, self._now, run.place
        if self._samples is not None:
            self._samples.forget(job_id)
        if self._leaving:
            self._settle(run)
            self._leave(run)
        else:
            # As _settle and _leave, without the calls.
            self.source_hours[run.source] += (now - run.since_s) * len(place.devices) / 3600.0
            del self._runs[job_id]
            if run.shared and self._companies.part(run, place):
                self._rerate_devices(place.devices)
        behaviour = run.behaviour
        if behaviour.failed_after_s:
            failed = self._failed.pop(job_id, 0)
            if failed < len(behaviour.failed_after_s):
                self._failed[job_id] = failed + 1
                self._out.append(ev.Ended(now, job_id, run.attempt, "failed", run.total_s, run.total_s))
                return
        self._out.append(Ended(now, job_id, run.attempt, behaviour.outcome, run.total_s))  # type: ignore[arg-type]

    def _saved(self, run: Attempt) -> None:
        self._leave(run)
        self._left[run.job.id] = run.left_s
        if self._store is not None:
            self._store.complete(run.job.id)
        done = run.total_s - run.left_s
        self._out.append(ev.Suspended(self._now, run.job.id, run.attempt, done))

    def _interrupt(self, run: Attempt, outcome: ev.Outcome) -> None:
        """Leave without saving: work since the last checkpoint is lost."""
        self._leave(run)
        done, kept = run.total_s - run.left_s, run.kept_s(self.settings.checkpoint_s)
        self._left[run.job.id] = run.total_s - kept
        if self._store is not None:
            self._lost_copy(self._store, run.job.id, kept)
        self._out.append(ev.Ended(self._now, run.job.id, run.attempt, outcome, kept, done - kept))

    def _leave(self, run: Attempt) -> None:
        job_id = run.job.id
        if self._samples is not None:
            self._samples.stop(job_id)
        del self._runs[job_id]
        self._part(run, run.place)
        if self._leaving and (old := self._leaving.pop(job_id, None)) is not None:
            self._part(run, old)

    def _release_old(self, job_id: int) -> None:
        old = self._leaving.pop(job_id)
        self._part(self._runs[job_id], old)
        self._out.append(ev.Released(self._now, job_id, old.devices))

    def _play_incidents(self, t: float) -> None:
        for event in self._incidents.due(t):
            self._out.append(event)
            if isinstance(event, ev.NodeDown):
                self._lose(set(self.layout.node_devices[event.node]), event.node)
            elif isinstance(event, ev.DeviceDown):
                self._lose({event.device}, -1)
            elif self._store is not None and isinstance(event, TierResized):
                self._resize_tier(self._store, event)

    def _lose(self, devices: set[int], node: int) -> None:
        """Jobs on these devices lose them; a CPU-only job loses its node."""
        hit = [
            job_id
            for job_id, run in self._runs.items()
            if (run.place.node == node >= 0)
            or not devices.isdisjoint(run.place.devices)
            or (job_id in self._leaving and not devices.isdisjoint(self._leaving[job_id].devices))
        ]
        for job_id in sorted(hit):
            run = self._runs[job_id]
            self._settle(run)
            self._interrupt(run, "lost")
