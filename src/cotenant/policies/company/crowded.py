"""Running jobs that their neighbours slow down, as measured: who gains by a device of its own."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.plan import Plan, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_stop
from cotenant.model.view import Index, View
from cotenant.policies.company.ranked import learned_top
from cotenant.policies.elastic.sizes import size_speed
from cotenant.policies.preemption.yielding import tier
from cotenant.policies.queues.levels import level, work_left_s
from cotenant.policies.space.fit import Speeds

__all__ = ["Crowded", "part", "parted"]

_SWEEP = 256
_REMEMBERED = 128


class Crowded(Index):
    """Jobs that would end sooner on devices of their own, by how much, net of the price of moving.

    Attributes
    ----------
    gain_s : dict of int to float
        Seconds of all its devices by which a job would end sooner if it moved, as of its last change of speed.
    suffering : dict of int to float
        Guaranteed jobs beside others that are slower than ``floor`` of their speed alone, and how fast they are.
    """

    def __init__(self, view: View, margin: float, floor: float) -> None:
        self._view, self._margin, self._floor = view, margin, floor
        self._speeds = Speeds(view)
        self.gain_s: dict[int, float] = {}
        self.suffering: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._first: tuple[int, list[int]] | None = None
        # Events only note who may have changed; it is worked out once, when somebody asks.
        self._changed: dict[int, None] = dict.fromkeys(view.running)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """It and its neighbours are looked at again."""
        self._around(place)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """It left its neighbours."""
        if record.id not in self._view.ledger.held:
            self._forget(record.id)
            self._changed.pop(record.id, None)
        self._around(place)

    def _around(self, place: Placement) -> None:
        residents, changed, devices = self._view.ledger.residents, self._changed, place.devices
        if len(devices) == 1:
            here = residents[devices[0]]
            if len(here) > 1:
                changed.update(dict.fromkeys(here))
            elif here and self._matters(here[0]):
                changed[here[0]] = None
            return
        last: tuple[int, ...] = ()
        for device in devices:
            here = residents[device]
            if here != last:
                for job_id in here:
                    changed[job_id] = None
                last = here

    def _matters(self, job_id: int) -> bool:
        """Whether something is to be changed although a job is alone on this device."""
        return job_id in self.gain_s or job_id in self.suffering or self._holds_more(job_id)

    def _holds_more(self, job_id: int) -> bool:
        place = self._view.running[job_id].place
        return place is not None and len(place.devices) > 1

    def rated(self, record: JobRecord) -> None:
        """Its measured speed changed, or it stops."""
        place = record.place
        if place is not None and len(place.devices) == 1:
            job_id = record.id
            if (
                len(self._view.ledger.residents[place.devices[0]]) < 2
                and job_id not in self.gain_s
                and job_id not in self.suffering
            ):
                return  # most often: alone before and after
        self._changed[record.id] = None

    def turn(self) -> None:
        """Bring everything up to the present."""
        changed = self._changed
        if not changed:
            return
        running = self._view.running
        for job_id in changed:
            record = running.get(job_id)
            if record is None:
                self._forget(job_id)
            else:
                self._judge(record)
        changed.clear()

    def _forget(self, job_id: int) -> None:
        self.suffering.pop(job_id, None)
        if self.gain_s.pop(job_id, None) is not None:
            self._first = None

    def _judge(self, record: JobRecord) -> None:
        gain_s = self._gain_s(record)
        before = self.gain_s.get(record.id, 0.0)
        if gain_s == before:
            return
        self._first = None
        if gain_s > 0.0:
            self.gain_s[record.id] = gain_s
            heapq.heappush(self._heap, (-gain_s, record.id))
            if len(self._heap) > 2 * len(self.gain_s) + _SWEEP:
                self._heap = [(-g, j) for j, g in self.gain_s.items()]
                heapq.heapify(self._heap)
        else:
            del self.gain_s[record.id]

    def _gain_s(self, record: JobRecord) -> float:
        view, place = self._view, record.place
        self.suffering.pop(record.id, None)
        if record.status != Status.RUNNING or place is None or not place.devices or not record.rate > 0.0:
            return 0.0
        devices, residents = place.devices, view.ledger.residents
        if len(residents[devices[0]]) == 1 and all(len(residents[d]) == 1 for d in devices):
            return 0.0
        alone = self._speeds.of(record.job.model, view.layout.device_type[devices[0]])
        if len(devices) != record.job.gpus:
            alone *= size_speed(view.settings, record.job, len(devices))
        if record.rate < self._floor * alone and record.job.job_class == "guaranteed":
            self.suffering[record.id] = record.rate / alone
        if record.rate >= alone or not record.job.suspendable or record.predicted_s <= 0.0:
            return 0.0
        left_s = work_left_s(record.predicted_s, record.work_s)
        gain_s = left_s / record.rate - left_s / alone
        price_s = view.settings.reload_s(record.job)
        return gain_s - price_s if gain_s > self._margin * price_s else 0.0

    def first(self, count: int) -> list[int]:
        """So many jobs, those that gain most first. After ``turn``."""
        if self._first is not None and self._first[0] == count:
            return self._first[1]
        heap, gain_s, found = self._heap, self.gain_s, list[tuple[float, int]]()
        while heap and len(found) < count:
            entry = heapq.heappop(heap)
            if gain_s.get(entry[1]) == -entry[0] and not (found and found[-1] == entry):
                found.append(entry)
        for entry in found:
            heapq.heappush(heap, entry)
        self._first = count, [job_id for _, job_id in found]
        return self._first[1]


def part(view: View, crowded: Crowded, label: Callable[[Job], str]) -> Plan | None:
    """Undo a company in which somebody is slower than any may be, and never form it again.

    The one of them gives way that would for a newcomer; a sufferer none of whose company can be
    stopped now must bear it. ``label`` says by what a job is known in the sets that are not formed again.
    """
    for sufferer in sorted(crowded.suffering):
        record = view.running[sufferer]
        place = record.place
        if place is None or view.now < record.rated_s:
            continue
        here = [view.running[j] for j in sorted({j for d in place.devices for j in view.residents(d)})]
        if len(here) < 2 or any(r.status != Status.RUNNING or r.id in view.ledger.leaving for r in here):
            continue
        facts: dict[str, object] = {
            "slowest": record.job.name,
            "speed": round(crowded.suffering[sufferer], 3),
        }
        plan = parted(view, here, record, facts, "not-as-foretold", label)
        if plan is not None:
            return plan
    return None


def parted(  # noqa: PLR0917
    view: View,
    here: list[JobRecord],
    sufferer: JobRecord,
    facts: dict[str, object],
    why: str,
    label: Callable[[Job], str],
) -> Plan | None:
    """One of these leaves, for the sake of ``sufferer``; None if nobody can be stopped now."""
    place = sufferer.place
    if place is None:
        return None
    order = sorted(here, key=lambda r: (tier(r), -level(r, view.now, learned_top(view)), -r.id))
    victim = next((r for r in order if check_stop(view.books, r, True, view.now) is None), None)
    if victim is None:
        return None
    stop = Stop(victim.id, True, sufferer.id, Why(why, facts))
    kind = view.layout.device_type[place.devices[0]]
    shared = max((view.residents(d) for d in place.devices), key=len)
    bad = [kind, *sorted(label(view.running[j].job) for j in shared)]
    memo = view.memo or {}
    known = memo.get("bad", [])
    if bad not in known:
        known = [*known, bad][-_REMEMBERED:]
    return Plan((stop,), memo={**memo, "bad": known}, again=True)
