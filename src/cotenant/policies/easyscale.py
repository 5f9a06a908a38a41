"""EasyScale: elastic jobs of logical workers grow onto whatever devices raise throughput most (SC'23).

Card: ``docs/policies/easyscale.md``.
"""

from __future__ import annotations

import math
from operator import attrgetter

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Reason, Resize, Start, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_resize, over_ceiling
from cotenant.model.view import View
from cotenant.policies.elastic.giveback import give_back
from cotenant.policies.elastic.newcomers import Memory, Newcomers, Running
from cotenant.policies.elastic.workplan import Increment, Planner, Room, is_elastic
from cotenant.policies.space.fit import place_whole

__all__ = ["EasyScale"]

_FIXED = Why("first-that-fits")
_SLOWER = 1.0 - 1e-9


class EasyScale(Params):
    """Jobs without devices first, then increments by gain for each device.

    Parameters
    ----------
    hetero : bool
        Whether a job may use several device types at once, where its grade of reproducibility and the
        setting ``mixed_types`` permit it.
    most_waste : float
        Largest share of the capability of a job's devices that an increment may leave unused.
    round_s : float
        Seconds between two rounds of increments.
    patience_s : float
        How long a job from which devices were taken waits for devices of the same type before it takes
        others.

    Raises
    ------
    ConfigError
        If a parameter is out of range.

    References
    ----------
    M. Li and others, "EasyScale: Elastic Training with Consistent Accuracy and Improved Utilization on
    GPUs", SC 2023, doi.org/10.1145/3581784.3607054; artifact github.com/sUntvoOk/EasyScale_info_for_SC23.
    """

    made_for = "elastic-jobs"

    def __init__(
        self,
        *,
        hetero: bool = True,
        most_waste: float = 0.3,
        round_s: float = 60.0,
        patience_s: float = 300.0,
    ) -> None:
        if not 0.0 <= most_waste <= 1.0:
            raise ConfigError(f"most_waste of easyscale must lie in [0, 1], found {most_waste}")
        if not 0.0 < round_s < math.inf or not 0.0 <= patience_s < math.inf:
            raise ConfigError(
                f"round_s of easyscale must be positive and patience_s 0 or more, both finite, found {round_s} "
                f"and {patience_s}"
            )
        self.hetero, self.most_waste = hetero, most_waste
        self.round_s, self.patience_s = round_s, patience_s

    def decide(self, view: View) -> Plan:
        """Undo what did not help, start what fits, take back what is guaranteed to others, then grow."""
        lines, elastic = view.index(Newcomers), view.index(Running)
        running = elastic.jobs
        if not (lines.active or running or view.memo):
            return EMPTY
        memory = Memory.of(view.memo)
        planner = Planner(view, hetero=self.hetero, most_waste=self.most_waste)
        memory, undone = self._judge(view, memory)
        if undone:
            return Plan(tuple(undone), memo=memory.told(view), again=True)
        start, holds = self._next(view, planner, lines)
        if start is not None:
            return Plan((start,), again=True)
        if elastic.grown and lines.active:
            reclaimed = self._reclaim(view, memory, lines, elastic.grown)
            if reclaimed is not None:
                return reclaimed
        if not running:
            return Plan(tuple(holds), memo={} if view.memo else None)
        return self._grow(view, memory, planner, holds)

    # -- jobs without devices ------------------------------------------------------------

    def _next(self, view: View, planner: Planner, lines: Newcomers) -> tuple[Start | None, list[Decision]]:
        """The first job in queue order that fits; and why the first of each demand that does not waits."""
        best: JobRecord | None = None
        start: Start | None = None
        holds: list[Decision] = []
        for line in lines.to_look_at():
            record = line.first()
            if best is not None and record.key > best.key:
                continue
            full = bool(line.tenant) and over_ceiling(view.books, record, _least(record))
            found = None if full else self._place(view, planner, record)
            if found is not None:
                best, start = record, found
            elif record.hold is None:
                holds.append(_hold(view, record))
        if start is None:
            lines.looked()
        return start, sorted(holds, key=attrgetter("id"))

    @staticmethod
    def _place(view: View, planner: Planner, record: JobRecord) -> Start | None:
        job = record.job
        if not is_elastic(job):
            return place_whole(view, record, _FIXED)
        room = Room(view)
        for kind in planner.start_kinds(record):
            devices = room.find(record.shape, kind, job.min_gpus, ())
            if devices is not None and view.refusal(record, devices) is None:
                why = Why("elastic-start", {"gpus": len(devices), "most_gpus": job.max_gpus})
                return Start(record.id, devices, why=why)
        return None

    # -- taking back ---------------------------------------------------------------------

    def _reclaim(self, view: View, memory: Memory, lines: Newcomers, grown: set[int]) -> Plan | None:
        """Devices beyond their least from elastic jobs, for the first guaranteed job that can have enough."""
        for record in sorted((line.first() for line in lines.active), key=attrgetter("key")):
            least = _least(record)
            if record.job.job_class != "guaranteed" or over_ceiling(view.books, record, least):
                continue
            taken = give_back(view, record, least, grown)
            if taken:
                return self._taken(view, memory, taken)
        return None

    def _taken(self, view: View, memory: Memory, taken: list[Resize]) -> Plan:
        lost, trials = dict(memory.lost), dict(memory.trials)
        for resize in taken:
            place = view.records[resize.id].place
            gone = sorted(set(place.devices) - set(resize.devices)) if place is not None else []
            lost[str(resize.id)] = [view.layout.device_type[gone[0]], view.now + self.patience_s]
            trials.pop(str(resize.id), None)
        new = msgspec.structs.replace(memory, lost=lost, trials=trials)
        return Plan(tuple(taken), memo=new.plain(view), again=True)

    # -- growth --------------------------------------------------------------------------

    @staticmethod
    def _judge(view: View, memory: Memory) -> tuple[Memory, list[Resize]]:
        """Give back what a job grew by, if its measured speed fell."""
        if not memory.trials:
            return memory, []
        trials, caps, undo = {}, dict(memory.caps), []
        for key, (attempt, speed, devices) in memory.trials.items():
            record = view.records.get(int(key))
            if record is None or record.place is None or record.attempt != attempt:
                continue
            if record.status == Status.RUNNING and record.rate > 0.0:
                if record.rate >= speed * _SLOWER:
                    continue
                before, share = tuple(devices), record.place.share
                if check_resize(view.books, record, before, share, view.now) is None:
                    facts = {"speed_before": speed, "speed_measured": record.rate, "gpus_after": len(before)}
                    undo.append(Resize(record.id, before, share, Why("no-faster", facts)))
                    caps[key] = len(before)
                    continue
            trials[key] = [attempt, speed, devices]
        return msgspec.structs.replace(memory, trials=trials, caps=caps), undo

    def _grow(self, view: View, memory: Memory, planner: Planner, holds: list[Decision]) -> Plan:
        """One round: each job's best increments, greedily, at most one for each job."""
        now, next_s = view.now, (math.floor(view.now / self.round_s) + 1) * self.round_s
        if now != math.floor(now / self.round_s) * self.round_s:
            wake = next_s if self._may_grow(view, memory, planner) else None
            return Plan(tuple(holds), memo=memory.told(view), wake_at_s=wake)
        growth = _Growth(view, planner, memory, self._closed(view))
        decisions = growth.accepted()
        trials, lost = dict(memory.trials), {k: v for k, v in memory.lost.items() if v[1] > now}
        for resize in decisions:
            record = view.records[resize.id]
            lost.pop(str(resize.id), None)
            if view.settings.rate_events and record.place is not None:
                trials[str(resize.id)] = [record.attempt, record.rate, list(record.place.devices)]
        new = msgspec.structs.replace(memory, trials=trials, lost=lost)
        wake = next_s if decisions or growth.later or lost else None
        return Plan((*holds, *decisions), memo=new.told(view), wake_at_s=wake)

    @staticmethod
    def _closed(view: View) -> frozenset[int]:
        """Device types on which nobody grows, as a job waits for them."""
        closed: set[int] = set()
        for line in view.index(Newcomers).active:
            record = line.first()
            if not closed.issuperset(line.shape.types) and not over_ceiling(
                view.books, record, _least(record)
            ):
                closed.update(line.shape.types)
        return frozenset(closed)

    @staticmethod
    def _may_grow(view: View, memory: Memory, planner: Planner) -> bool:
        """Whether any elastic job could have more or other devices, at a first look."""
        if not any(view.ledger.free_count):
            return False
        records = (view.records[i] for i in view.index(Running).jobs)
        return any(
            r.place is not None
            and (planner.mixes(r.job) or len(r.place.devices) < memory.caps.get(str(r.id), r.job.max_gpus))
            for r in records
        )


class _Growth:
    """The increments of one round.

    Attributes
    ----------
    later : bool
        Whether a job may propose in the next round what it cannot in this one.
    """

    def __init__(self, view: View, planner: Planner, memory: Memory, closed: frozenset[int]) -> None:
        self.later = False
        self._view, self._planner, self._memory, self._closed = view, planner, memory, closed
        self._room = Room(view)
        self._added: dict[str, int] = {}
        self._host = False

    def _proposed(self) -> list[tuple[bool, Increment]]:
        view, found = self._view, []
        open_ = tuple(
            k for k in range(len(view.layout.types)) if k not in self._closed and view.ledger.free_count[k]
        )
        if not open_:
            return []
        for job_id in sorted(view.index(Running).jobs):
            record, key = view.records[job_id], str(job_id)
            if record.status != Status.RUNNING:
                continue
            if record.started_s >= view.now or key in self._memory.trials:
                self.later = True
                continue
            most = min(record.job.max_gpus, self._memory.caps.get(key, record.job.max_gpus))
            kind, until_s = self._memory.lost.get(key, (-1, 0.0))
            like = until_s > view.now
            kinds = tuple(k for k in open_ if k == kind) if like else open_
            for increment in self._planner.increments(record, self._room, most, kinds):
                found.append((not like, increment))
        return found

    def accepted(self) -> list[Resize]:
        """Sorted by gain for each device, ties to more devices; those replacing what was taken go first."""
        found: list[Resize] = []
        seen: set[int] = set()
        for _, one in sorted(
            self._proposed(), key=lambda p: (p[0], -p[1].gain, -p[1].more, p[1].id, p[1].kind)
        ):
            if one.id not in seen and (resize := self._resize(one)) is not None:
                seen.add(one.id)
                found.append(resize)
        return found

    def _resize(self, one: Increment) -> Resize | None:
        view, record = self._view, self._view.records[one.id]
        place, job = record.place, record.job
        added = self._added.get(job.tenant, 0)
        host = bool(job.cpu_milli or job.host_memory_bytes)
        if place is None or (host and self._host) or over_ceiling(view.books, record, added + one.more):
            return None
        more = self._room.find(record.shape, one.kind, one.more, place.devices)
        if more is None:
            return None
        devices = tuple(sorted((*self._kept(place.devices, dict(one.less)), *more)))
        if check_resize(view.books, record, devices, place.share, view.now) is not None:
            self.later = True
            return None
        self._room.take(more)
        self._added[job.tenant], self._host = added + one.more, self._host or host
        facts = {
            "type": view.layout.types[one.kind].name,
            "gpus_before": len(place.devices),
            "gpus_after": len(devices),
            "gain_per_gpu": round(one.gain, 6),
            "waste_share": round(one.waste_share, 6),
        }
        return Resize(record.id, devices, place.share, Why("increment", facts))

    def _kept(self, devices: tuple[int, ...], less: dict[int, int]) -> list[int]:
        """A job's devices without so many of each type, the highest numbers."""
        kept = []
        for device in reversed(devices):
            kind = self._view.layout.device_type[device]
            if less.get(kind, 0):
                less[kind] -= 1
            else:
                kept.append(device)
        return kept


def _least(record: JobRecord) -> int:
    """Devices without which a job does not start."""
    return record.job.min_gpus if is_elastic(record.job) else record.job.gpus


def _hold(view: View, record: JobRecord) -> Hold:
    refusal = view.limit_refusal(record) if over_ceiling(view.books, record, _least(record)) else None
    if refusal is not None:
        return Hold(record.id, refusal.reason, refusal.facts)
    if not is_elastic(record.job):
        return Hold(record.id, *view.why_not(record))
    free = max(view.ledger.free_count[kind] for kind in record.shape.types)
    return Hold(record.id, Reason.NO_CAPACITY, {"needs_gpus": record.job.min_gpus, "free_gpus": free})
