"""The simulated world: continuous time, no ticks.

A job's progress is the integral of its speed::

    speed = type speed x min over its devices of normalised speed (neighbours, shares, mode)
            x locality x granted/declared devices (elastic jobs)

Speeds change only when residents, shares or places change, so only the jobs on those
devices are brought up to date. Saving, loading and cold starts take time, during which
the devices are held as they really would be.

This module alone reads the truth: running times, and speeds under sharing.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI, WHOLE, Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings
from cotenant.model.workload import Behaviour, Workload

__all__ = ["SimulatedExecutor"]

_INF = math.inf
_END, _READY, _SAVED, _LEFT_OLD, _GAVE_UP = range(5)
_Entry = tuple[float, int, int, int]


class _Run(msgspec.Struct, gc=False, eq=False):
    """An attempt in the world. ``epoch`` dates its entry in the heap: a later one voids it."""

    job: Job
    place: Placement
    attempt: int
    total_s: float
    left_s: float
    saved_s: float
    since_s: float
    shared: bool
    alone: float
    rate: float = 0.0
    epoch: int = 0
    paused: bool = False
    source: str = "alone"


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
        self._truth = truth
        self._now = 0.0
        self._pairs = workload.pairs()
        self._incidents = sorted(incidents, key=lambda e: e.t)
        self._incident = 0
        self._incident_s = self._incidents[0].t if self._incidents else _INF
        self._behaviours: dict[int, Behaviour] = {}
        self._failed: dict[int, int] = {}
        self._left: dict[int, float] = {}
        self._patient: set[int] = set()
        self._runs: dict[int, _Run] = {}
        self._sharers: dict[int, tuple[int, ...]] = {}
        self._leaving: dict[int, Placement] = {}
        self._heap: list[_Entry] = []
        self._epoch = 0
        self._out: list[ev.Event] = []
        self._solo: dict[tuple[str, int], float] = {}
        self._co: dict[tuple[str, tuple[str, ...], int], tuple[float, str]] = {}
        self.source_hours: defaultdict[str, float] = defaultdict(float)
        self._advance()

    # -- time ------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._now

    def wait(self, until: float) -> list[ev.Event]:
        """Events of the next instant, in the documented order."""
        while True:  # only without rate events has an instant nothing to tell
            heap, runs = self._heap, self._runs
            t = self._submit_s
            while heap:
                entry = heap[0]
                if entry[2] == _END:  # by far the most frequent kind: checked here, without a call
                    run = runs.get(entry[1])
                    valid = run is not None and run.epoch == entry[3]
                else:
                    valid = self._valid(entry)
                if valid:
                    if entry[0] < t:
                        t = entry[0]
                    break
                heappop(heap)
            if self._incident_s < t:
                t = self._incident_s
            if t < self._now:
                t = self._now
            if t > until:
                self._now = until
                return []
            if t == _INF:
                return []
            self._now = t
            played = self._incident_s <= t
            if played:
                self._play_incidents(t)
            while self._submit_s <= t:
                self._submit()
            while heap and heap[0][0] <= t:
                entry = heappop(heap)
                if entry[2] != _END:
                    if self._valid(entry):
                        self._due(entry)
                    heap = self._heap  # it may have been swept
                elif (run := runs.get(entry[1])) is not None and run.epoch == entry[3]:
                    self._finish(run)
                    heap = self._heap
            out, self._out = self._out, []
            if played:
                # A request to cancel comes last: the rest of this instant has happened to the job already.
                out.sort(key=lambda event: isinstance(event, ev.CancelRequested))
            if out:
                return out

    def _valid(self, entry: _Entry) -> bool:
        if entry[2] == _GAVE_UP:
            return entry[1] in self._patient
        run = self._runs.get(entry[1])
        if entry[2] == _LEFT_OLD:
            return run is not None and entry[1] in self._leaving
        return run is not None and run.epoch == entry[3]

    def drain(self) -> list[ev.Event]:
        """Events of this instant."""
        out, self._out = self._out, []
        return out

    def running(self) -> Mapping[int, Placement]:
        """What runs, by job."""
        return {job_id: run.place for job_id, run in self._runs.items()}

    def _advance(self) -> None:
        """Look at the next job to come."""
        self._next = next(self._pairs, None)
        self._submit_s = self._next[0].submit_s if self._next is not None else _INF

    def _submit(self) -> None:
        if self._next is None:
            return
        job, behaviour = self._next
        self._behaviours[job.id] = behaviour
        if job.leave_s > 0:
            self._patient.add(job.id)
            self._push(job.leave_s, job.id, _GAVE_UP, 0)
        # A job submitted before the clock's present (a trace may start before zero) arrives now.
        self._out.append(ev.Submitted(self._now, job))
        self._advance()

    def _push(self, t: float, job_id: int, kind: int, epoch: int) -> None:
        heappush(self._heap, (t, job_id, kind, epoch))
        if len(self._heap) > 4 * (len(self._runs) + len(self._patient)) + 4096:
            self._heap = [e for e in self._heap if self._valid(e)]
            heapq.heapify(self._heap)

    def _due(self, entry: _Entry) -> None:
        kind, job_id = entry[2], entry[1]
        if kind == _READY:
            run = self._runs[job_id]
            run.paused = False
            self._rerate(run)
        elif kind == _SAVED:
            self._saved(self._runs[job_id])
        elif kind == _LEFT_OLD:
            self._release_old(job_id)
        else:
            self.forget(job_id)
            self._out.append(ev.Rejected(self._now, job_id, "left"))

    # -- orders ----------------------------------------------------------------------

    def start(self, job: Job, place: Placement, attempt: int, resumed: bool) -> bool:
        """Begin or go on; see ``model.ports.Executor``."""
        job_id, now, settings = job.id, self._now, self.settings
        behaviour = self._behaviours[job_id]
        total = behaviour.duration_s
        if behaviour.failed_after_s:
            failed = self._failed.get(job_id, 0)
            if failed < len(behaviour.failed_after_s):
                total = behaviour.failed_after_s[failed]
        left = self._left.pop(job_id, total) if self._left else total
        shared = place.share is not WHOLE and place.share.mode != "exclusive"
        alone = self._alone_speed(job, place)
        run = _Run(job, place, attempt, total, left, total - left, now, shared, alone)
        self._runs[job_id] = run
        if self._patient:
            self._patient.discard(job_id)
        delay = settings.decision_latency_s + (self._restore_s(job) if resumed else settings.start_s)
        if run.shared:
            self._join(job_id, place)
        if delay > 0:
            self._pause(run, delay, _READY)
        elif run.shared:
            self._rerate(run, first=True)
        else:
            rate = run.rate = run.alone
            self._epoch += 1
            run.epoch = self._epoch
            heapq.heappush(self._heap, (now + left / rate, job_id, _END, run.epoch))
            if rate != 1.0 and self.settings.rate_events:
                self._out.append(ev.Rated(now, job_id, rate))
        if run.shared:
            self._rerate_beside(run)
        return bool(self._out)

    def stop(self, job_id: int, suspend: bool) -> None:
        """Save and leave, or just leave."""
        run = self._runs[job_id]
        self._settle(run)
        if not suspend:
            self._interrupt(run, "preempted")
            return
        save = self._save_s(run.job)
        if save > 0:
            self._pause(run, save, _SAVED)
        else:
            self._saved(run)

    def cancel(self, job_id: int) -> None:
        """End a running job for good."""
        run = self._runs[job_id]
        self._settle(run)
        self._leave(run)
        self._behaviours.pop(job_id, None)
        done = run.total_s - run.left_s
        self._out.append(ev.Ended(self._now, job_id, run.attempt, "cancelled", done))

    def forget(self, job_id: int) -> None:
        """A waiting job will never start."""
        self._behaviours.pop(job_id, None)
        self._left.pop(job_id, None)
        self._failed.pop(job_id, None)
        self._patient.discard(job_id)

    def move(self, job_id: int, place: Placement) -> None:
        """Save here, load there; both held meanwhile."""
        run = self._runs[job_id]
        self._settle(run)
        self._leaving[job_id] = run.place
        run.place = place
        run.shared = place.share.mode != "exclusive"
        run.alone = self._alone_speed(run.job, place)
        if run.shared:
            self._join(job_id, place)
        save = self._save_s(run.job)
        if save > 0:
            self._push(self._now + save, job_id, _LEFT_OLD, 0)
        else:
            self._release_old(job_id)
        self._pause(run, save + self._restore_s(run.job), _READY)
        if run.shared:
            self._rerate_beside(run)

    def resize(self, job_id: int, place: Placement) -> None:
        """Change devices (with the price of a restart) or share (at once)."""
        run = self._runs[job_id]
        self._settle(run)
        old = run.place
        was_shared = run.shared
        if was_shared:
            self._part(job_id, old)
        run.place = place
        run.shared = place.share.mode != "exclusive"
        run.alone = self._alone_speed(run.job, place)
        if run.shared:
            self._join(job_id, place)
        if place.devices != old.devices:
            self._pause(run, self._save_s(run.job) + self._restore_s(run.job), _READY)
        elif not run.paused:
            self._rerate(run)
        if was_shared:
            self._rerate_devices(old.devices)
        if run.shared:
            self._rerate_beside(run)

    # -- the life of a run -------------------------------------------------------------

    def _finish(self, run: _Run) -> None:
        job_id = run.job.id
        if run.shared or self._leaving:
            self._settle(run)
            self._leave(run)
        else:
            hours = (self._now - run.since_s) * len(run.place.devices) / 3600.0
            self.source_hours[run.source] += hours
            del self._runs[job_id]
        behaviour = self._behaviours[job_id]
        failed = self._failed.get(job_id, 0) if behaviour.failed_after_s else 0
        if failed < len(behaviour.failed_after_s):
            self._failed[job_id] = failed + 1
            self._out.append(ev.Ended(self._now, job_id, run.attempt, "failed", run.total_s, run.total_s))
            return
        del self._behaviours[job_id]
        if failed:
            del self._failed[job_id]
        self._out.append(ev.Ended(self._now, job_id, run.attempt, behaviour.outcome, run.total_s))  # type: ignore[arg-type]

    def _saved(self, run: _Run) -> None:
        self._leave(run)
        self._left[run.job.id] = run.left_s
        done = run.total_s - run.left_s
        self._out.append(ev.Suspended(self._now, run.job.id, run.attempt, done))

    def _interrupt(self, run: _Run, outcome: ev.Outcome) -> None:
        """Leave without saving: work since the last checkpoint is lost."""
        self._leave(run)
        done, kept = run.total_s - run.left_s, run.saved_s
        every = self.settings.checkpoint_s
        if every > 0 and run.job.suspendable:
            kept = max(kept, math.floor(done / every) * every)
        self._left[run.job.id] = run.total_s - kept
        self._out.append(ev.Ended(self._now, run.job.id, run.attempt, outcome, kept, done - kept))

    def _leave(self, run: _Run) -> None:
        job_id = run.job.id
        del self._runs[job_id]
        if run.shared:
            self._part(job_id, run.place)
            self._rerate_devices(run.place.devices)
        old = self._leaving.pop(job_id, None) if self._leaving else None
        if old is not None and old.share.mode != "exclusive":
            self._part(job_id, old)
            self._rerate_devices(old.devices)

    def _release_old(self, job_id: int) -> None:
        old = self._leaving.pop(job_id)
        if old.share.mode != "exclusive":
            self._part(job_id, old)
            self._rerate_devices(old.devices)
        self._out.append(ev.Released(self._now, job_id, old.devices))

    def _pause(self, run: _Run, seconds: float, then: int) -> None:
        run.paused = True
        self._epoch += 1
        run.epoch = self._epoch
        if run.rate or run.since_s == self._now:
            run.rate = 0.0
            if self.settings.rate_events:
                self._out.append(ev.Rated(self._now, run.job.id, 0.0))
        self._push(self._now + seconds, run.job.id, then, run.epoch)

    def _settle(self, run: _Run) -> None:
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

    def _rerate(self, run: _Run, first: bool = False) -> None:
        if run.paused:
            return
        rate = run.alone * self._normalised(run) if run.shared else run.alone
        before = 1.0 if first else run.rate
        if rate == run.rate:
            return
        self._settle(run)
        run.rate = rate
        self._epoch += 1
        run.epoch = self._epoch
        self._push(self._now + run.left_s / rate, run.job.id, _END, run.epoch)
        if rate != before and self.settings.rate_events:
            self._out.append(ev.Rated(self._now, run.job.id, rate))

    def _rerate_beside(self, run: _Run) -> None:
        self._rerate_devices(run.place.devices, run.job.id)

    def _rerate_devices(self, devices: tuple[int, ...], but: int = -1) -> None:
        sharers, runs = self._sharers, self._runs
        beside: Sequence[int] = sharers.get(devices[0], ())
        for device in devices:
            if sharers.get(device, ()) != beside:
                beside = sorted({j for d in devices for j in sharers.get(d, ())})
                break
        for job_id in beside:
            if job_id != but:
                run = runs.get(job_id)
                if run is not None:
                    self._rerate(run)

    def _normalised(self, run: _Run) -> float:
        """Speed beside its neighbours, relative to alone: the slowest device decides."""
        worst, source, last = _INF, "alone", None
        for device in run.place.devices:
            ids = self._sharers[device]
            key = (ids, self.layout.device_type[device])
            if key == last:
                continue
            last = key
            speed, where = self._beside(run, ids, key[1])
            if speed < worst:
                worst, source = speed, where
        run.source = source
        return worst

    def _beside(self, run: _Run, ids: tuple[int, ...], kind: int) -> tuple[float, str]:
        job, share = run.job, run.place.share
        if len(ids) == 1:
            return self._ceiling(run), "alone"
        if share.mode == "time-sliced":
            slice_s = self.settings.slice_s
            return slice_s / (slice_s + self.settings.slice_switch_s) / len(ids), "time-sliced"
        others = [self._runs[i] for i in ids if i != job.id]
        if self._partitioned(run) and all(self._partitioned(o) for o in others):
            # Everyone has the fraction it declared, and its running time is for that fraction.
            return self._ceiling(run), "partitioned"
        key = (job.model, tuple(sorted(o.job.model for o in others)), kind)
        found = self._co.get(key)
        if found is None:
            name = self.layout.types[kind].name
            if self._truth is None:
                found = (1.0, "modelled")
            else:
                found = (self._truth.co_speed(key[0], key[1], name), self._truth.source(key[0], key[1], name))
            self._co[key] = found
        return min(found[0], self._ceiling(run)), found[1]

    @staticmethod
    def _partitioned(run: _Run) -> bool:
        return (
            0 < run.job.compute_milli < DEVICE_MILLI
            and run.place.share.compute_milli >= run.job.compute_milli
        )

    @staticmethod
    def _ceiling(run: _Run) -> float:
        needs = run.job.compute_milli or DEVICE_MILLI
        return min(1.0, run.place.share.compute_limit_milli / needs)

    def _alone_speed(self, job: Job, place: Placement) -> float:
        """Speed with its devices to itself: type, locality, and size for elastic jobs."""
        devices, layout = place.devices, self.layout
        if not devices:
            return 1.0
        blocks = layout.blocks(devices)
        if blocks is not None and len(blocks) == 1 and len(devices) == job.gpus:
            kind = layout.bay_type[blocks[0][0]]
            known = self._solo.get((job.model, kind))
            return known if known is not None else self._solo_speed(job.model, kind)
        kinds = {layout.device_type[d] for d in devices}
        speed = min(self._solo_speed(job.model, k) for k in kinds)
        widest = max(layout.bay_size[b] for k in kinds for b in layout.type_bays[k])
        if len(layout.nodes_of(devices)) > -(-len(devices) // widest):
            speed *= self.settings.span_speed
        return speed * len(devices) / max(job.gpus, 1)

    def _solo_speed(self, model: str, kind: int) -> float:
        key = (model, kind)
        speed = self._solo.get(key)
        if speed is None:
            name = self.layout.types[kind].name
            known = self._truth.solo_speed(model, name) if self._truth else self.layout.types[kind].speed
            speed = self._solo[key] = known
        return speed

    def _state_s(self, job: Job) -> float:
        size = job.state_bytes or job.memory_bytes * self.settings.state_fraction
        return size / self.settings.state_bytes_per_s

    def _save_s(self, job: Job) -> float:
        return self._state_s(job)

    def _restore_s(self, job: Job) -> float:
        return self.settings.restore_s + self._state_s(job)

    # -- who shares what -----------------------------------------------------------------

    def _join(self, job_id: int, place: Placement) -> None:
        for device in place.devices:
            ids = self._sharers.get(device, ())
            self._sharers[device] = tuple(sorted((*ids, job_id))) if ids else (job_id,)

    def _part(self, job_id: int, place: Placement) -> None:
        for device in place.devices:
            ids = tuple(j for j in self._sharers[device] if j != job_id)
            if ids:
                self._sharers[device] = ids
            else:
                del self._sharers[device]

    # -- incidents -----------------------------------------------------------------------

    def _play_incidents(self, t: float) -> None:
        due = []
        while self._incident < len(self._incidents) and self._incidents[self._incident].t <= t:
            due.append(self._incidents[self._incident])
            self._incident += 1
        left = self._incident < len(self._incidents)
        self._incident_s = self._incidents[self._incident].t if left else _INF
        for event in due:
            self._out.append(event)
            if isinstance(event, ev.NodeDown):
                self._lose(set(self.layout.node_devices[event.node]), event.node)
            elif isinstance(event, ev.DeviceDown):
                self._lose({event.device}, -1)

    def _lose(self, devices: set[int], node: int) -> None:
        """Jobs on these devices lose them; a CPU-only job loses its node."""
        hit = sorted(
            job_id
            for job_id, run in self._runs.items()
            if (run.place.node == node >= 0)
            or not devices.isdisjoint(run.place.devices)
            or (job_id in self._leaving and not devices.isdisjoint(self._leaving[job_id].devices))
        )
        for job_id in hit:
            run = self._runs[job_id]
            self._settle(run)
            self._interrupt(run, "lost")
