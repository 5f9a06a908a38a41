"""The simulated world: continuous time, no ticks.

A job's progress is the integral of its speed (``executors.physics``). Speeds change only when
residents, shares or places change, so only the jobs on those devices are brought up to
date. Saving, loading and cold starts take time, during which the devices are held as they
really would be. Running times are known here alone; no policy sees them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from cotenant.executors.physics import Attempt, Physics
from cotenant.executors.script import Arrivals, Incidents
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.events import Ended, Submitted
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import WHOLE, Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings
from cotenant.model.workload import Behaviours, Workload

__all__ = ["SimulatedExecutor"]

_INF = math.inf
# The end of a run, by far the most frequent, is told by being 0.
_END, _READY, _SAVED, _LEFT_OLD, _GAVE_UP = range(5)
_Entry = tuple[float, int, int, int]


class SimulatedExecutor:
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
    ) -> None:
        self.settings = settings or Settings()
        self.layout = Layout(cluster)
        self._now = 0.0
        self._arrivals = Arrivals(workload)
        self._incidents = Incidents(incidents)
        self._behaviours = Behaviours(workload.frame)
        self._failed: dict[int, int] = {}
        self._left: dict[int, float] = {}
        self._patient: set[int] = set()
        self._runs: dict[int, Attempt] = {}
        self._physics = Physics(self.layout, truth, self.settings, self._runs)
        self._leaving: dict[int, Placement] = {}
        self._left_at: dict[int, int] = {}  # epoch of the entry that ends each leaving
        self._heap: list[_Entry] = []
        self._epoch = 0
        self._outside_s = max(0.0, min(self._arrivals.next_s, self._incidents.next_s))
        self._delay_s = self.settings.decision_latency_s + self.settings.start_s
        self._tells_rates = self.settings.rate_events
        self._out: list[ev.Event] = []
        self.source_hours: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._now

    def wait(self, until: float) -> list[ev.Event]:
        """Events of the next instant, in the documented order."""
        before, heap = self._now, self._heap
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
                if kind > _SAVED:
                    if self._valid(entry):
                        self._due_else(kind, job_id)
                elif (run := self._runs.get(job_id)) is not None and run.epoch == epoch:
                    self._due(kind, run) if kind else self._finish(run)
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
                self._push(job.leave_s, job.id, _GAVE_UP, 0)
            # A job submitted before the clock's present (a trace may start before zero) arrives now.
            self._out.append(Submitted(t, job))
        self._outside_s = max(t, min(arrivals.next_s, incidents.next_s))
        return played

    def _valid(self, entry: _Entry) -> bool:
        if entry[2] == _GAVE_UP:
            return entry[1] in self._patient
        run = self._runs.get(entry[1])
        if entry[2] == _LEFT_OLD:
            return entry[1] in self._leaving and self._left_at.get(entry[1]) == entry[3]
        return run is not None and run.epoch == entry[3]

    def drain(self) -> list[ev.Event]:
        """Events of this instant."""
        out, self._out = self._out, []
        return out

    def idle(self) -> bool:
        """True if nothing is to come."""
        while self._heap and not self._valid(self._heap[0]):
            heappop(self._heap)
        return not self._heap and self._outside_s == _INF

    def running(self) -> Mapping[int, Placement]:
        """What runs."""
        return {job_id: run.place for job_id, run in self._runs.items()}

    def _push(self, t: float, job_id: int, kind: int, epoch: int) -> None:
        heap = self._heap
        heappush(heap, (t, job_id, kind, epoch))
        if len(heap) > 4096 and len(heap) > 4 * (len(self._runs) + len(self._patient)) + 4096:
            heap[:] = [e for e in heap if self._valid(e)]
            heapify(heap)

    def _due(self, kind: int, run: Attempt) -> None:
        if kind == _READY:
            run.paused = False
            self._rerate(run)
        else:
            self._saved(run)

    def _due_else(self, kind: int, job_id: int) -> None:
        if kind == _LEFT_OLD:
            self._release_old(job_id)
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
        heappush(self._heap, (now + left / alone, job_id, _END, epoch))
        if alone != 1.0 and self._tells_rates:
            self._out.append(ev.Rated(now, job_id, alone))
            return True
        return False

    def _start_slowly(self, run: Attempt, resumed: bool) -> bool:
        """Start with a delay, or beside others."""
        job, place, settings = run.job, run.place, self.settings
        self._runs[job.id] = run
        run.shared = place.share.mode != "exclusive"
        loading = settings.decision_latency_s + self._physics.restore_s(job) if resumed else 0.0
        delay = loading if resumed else self._delay_s
        if run.shared:
            self._physics.join(job.id, place)
        if delay > 0:
            self._pause(run, delay, _READY)
        else:
            self._rerate(run, first=True)
        if run.shared:
            self._rerate_devices(place.devices, job.id)
        return bool(self._out)

    def stop(self, job_id: int, suspend: bool) -> None:
        """Save and leave, or just leave."""
        run = self._runs[job_id]
        self._settle(run)
        if not suspend:
            self._interrupt(run, "preempted")
            return
        save = self._physics.save_s(run.job)
        if save > 0:
            self._pause(run, save, _SAVED)
        else:
            self._saved(run)

    def cancel(self, job_id: int) -> None:
        """End a running job for good."""
        run = self._runs[job_id]
        self._settle(run)
        self._leave(run)
        self._out.append(ev.Ended(self._now, job_id, run.attempt, "cancelled", run.total_s - run.left_s))

    def forget(self, job_id: int) -> None:
        """A waiting job will never start."""
        self._left.pop(job_id, None)
        self._failed.pop(job_id, None)
        self._patient.discard(job_id)

    def move(self, job_id: int, place: Placement) -> None:
        """Save here, load there; both held meanwhile."""
        run = self._runs[job_id]
        self._settle(run)
        self._leaving[job_id] = run.place
        self._put(run, place)
        save = self._physics.save_s(run.job)
        if save > 0:
            self._epoch = self._left_at[job_id] = self._epoch + 1
            self._push(self._now + save, job_id, _LEFT_OLD, self._epoch)
        else:
            self._release_old(job_id)
        self._pause(run, save + self._physics.restore_s(run.job), _READY)
        if run.shared:
            self._rerate_devices(run.place.devices, job_id)

    def resize(self, job_id: int, place: Placement) -> None:
        """Change devices (with the price of a restart) or share (at once)."""
        run = self._runs[job_id]
        self._settle(run)
        old = run.place
        was_shared = run.shared
        if was_shared:
            self._physics.part(job_id, old)
        self._put(run, place)
        if place.devices != old.devices:
            self._pause(run, self._physics.save_s(run.job) + self._physics.restore_s(run.job), _READY)
        elif not run.paused:
            self._rerate(run)
        if was_shared:
            self._rerate_devices(old.devices)
        if run.shared:
            self._rerate_devices(run.place.devices, job_id)

    # -- the life of a run -------------------------------------------------------------

    def _finish(self, run: Attempt) -> None:
        job_id, now = run.job.id, self._now
        if run.shared or self._leaving:
            self._settle(run)
            self._leave(run)
        else:
            self.source_hours[run.source] += (now - run.since_s) * len(run.place.devices) / 3600.0
            del self._runs[job_id]
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
        done = run.total_s - run.left_s
        self._out.append(ev.Suspended(self._now, run.job.id, run.attempt, done))

    def _interrupt(self, run: Attempt, outcome: ev.Outcome) -> None:
        """Leave without saving: work since the last checkpoint is lost."""
        self._leave(run)
        done, kept = run.total_s - run.left_s, run.kept_s(self.settings.checkpoint_s)
        self._left[run.job.id] = run.total_s - kept
        self._out.append(ev.Ended(self._now, run.job.id, run.attempt, outcome, kept, done - kept))

    def _leave(self, run: Attempt) -> None:
        job_id = run.job.id
        del self._runs[job_id]
        self._part(job_id, run.place)
        if self._leaving and (old := self._leaving.pop(job_id, None)) is not None:
            self._part(job_id, old)

    def _put(self, run: Attempt, place: Placement) -> None:
        """Give a run another place."""
        run.place = place
        run.shared = place.share.mode != "exclusive"
        run.alone = self._physics.alone_speed(run.job, place)
        if run.shared:
            self._physics.join(run.job.id, place)

    def _part(self, job_id: int, place: Placement) -> None:
        """A place is left; whoever shared it goes on at another speed."""
        if place.share.mode != "exclusive":
            self._physics.part(job_id, place)
            self._rerate_devices(place.devices)

    def _release_old(self, job_id: int) -> None:
        old = self._leaving.pop(job_id)
        self._part(job_id, old)
        self._out.append(ev.Released(self._now, job_id, old.devices))

    def _pause(self, run: Attempt, seconds: float, then: int) -> None:
        run.paused = True
        self._epoch = run.epoch = self._epoch + 1
        if run.rate or run.since_s == self._now:
            run.rate = 0.0
            if self._tells_rates:
                self._out.append(ev.Rated(self._now, run.job.id, 0.0))
        self._push(self._now + seconds, run.job.id, then, run.epoch)

    def _settle(self, run: Attempt) -> None:
        """Bring progress up to the present."""
        now = self._now
        elapsed = now - run.since_s
        if elapsed > 0.0:
            left = run.left_s - elapsed * run.rate
            run.left_s = left if left > 0.0 else 0.0
            hours = elapsed * len(run.place.devices) / 3600.0
            self.source_hours[run.source] += hours
            run.since_s = now

    # -- speeds ------------------------------------------------------------------------

    def _rerate(self, run: Attempt, first: bool = False) -> None:
        if run.paused:
            return
        rate = run.alone * self._physics.normalised(run) if run.shared else run.alone
        before = 1.0 if first else run.rate
        if rate == run.rate:
            return
        self._settle(run)
        run.rate = rate
        self._epoch = run.epoch = self._epoch + 1
        self._push(self._now + run.left_s / rate, run.job.id, _END, run.epoch)
        if rate != before and self._tells_rates:
            self._out.append(ev.Rated(self._now, run.job.id, rate))

    def _rerate_devices(self, devices: tuple[int, ...], but: int = -1) -> None:
        runs = self._runs
        for job_id in self._physics.neighbours(devices):
            if job_id != but and (run := runs.get(job_id)) is not None:
                self._rerate(run)

    def _play_incidents(self, t: float) -> None:
        for event in self._incidents.due(t):
            self._out.append(event)
            if isinstance(event, ev.NodeDown):
                self._lose(set(self.layout.node_devices[event.node]), event.node)
            elif isinstance(event, ev.DeviceDown):
                self._lose({event.device}, -1)

    def _lose(self, devices: set[int], node: int) -> None:
        """Jobs on these devices lose them; a CPU-only job loses its node."""
        hit = self._physics.on(devices, node, self._leaving)
        for job_id in hit:
            run = self._runs[job_id]
            self._settle(run)
            self._interrupt(run, "lost")
