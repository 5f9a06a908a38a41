"""Candidates in an order of the policy's own: by level of work left.

``Candidates`` keeps waiting jobs by their integer ``key``. Here it is given copies whose key says
the level first: what waits makes no progress, so the copy stays true until the job leaves.
"""

from __future__ import annotations

import copy
import heapq

from cotenant.model.placement import Placement
from cotenant.model.plan import Hold, Start
from cotenant.model.records import JobRecord, Status, order_key
from cotenant.model.view import View
from cotenant.policies.company.candidates import Candidates
from cotenant.policies.company.verdicts import Bounds, Verdicts
from cotenant.policies.queues.classes import DemandLine
from cotenant.policies.queues.fairness import BANDS
from cotenant.policies.queues.levels import TOP, level

__all__ = ["LEVEL_STEP", "RankedCandidates", "banned", "learned_top"]

LEVEL_STEP = 1 << 36
"""Of keys: above all ids, below a step of priority."""
_BAND_STEP = LEVEL_STEP // BANDS
"""Of keys: one band of what tenants used lately, within a level."""
_SWEEP = 256
_MOST_VERDICTS = 1 << 19
"""When so many verdicts are kept, some 100 MiB, all is worked out anew from what is there: sets come and go."""


def learned_top(view: View) -> int:
    """The top level that the policy has noted."""
    return int(view.memo.get("top", TOP)) if view.memo else TOP


def banned(view: View) -> list[tuple[int, tuple[str, ...]]]:
    """Sets that turned out slower than any may be: device type and sorted models."""
    return [(kind, tuple(models)) for kind, *models in view.memo.get("bad", ())] if view.memo else []


def _bands(view: View) -> dict[str, int]:
    """The bands of tenants that the policy has noted."""
    found: dict[str, int] = view.memo.get("bands", {}) if view.memo else {}
    return found


class RankedCandidates(Candidates):
    """Candidates by priority, level, what their tenants used lately (if noted), submission; jobs for which devices are kept are none.

    Attributes
    ----------
    claimed : dict of int to JobRecord
        Waiting jobs for which devices are kept, by id.
    tenants : dict of str to int
        How many jobs of each tenant wait, if any.
    top : int
        The top level, as the policy has noted it.
    """

    def __init__(self, view: View, bounds: Bounds) -> None:
        self.top = learned_top(view)
        self.bad, self._bands = banned(view), _bands(view)
        self._noted = view.memo
        super().__init__(view, bounds)
        for kind, models in self.bad:
            self._verdicts.ban(kind, models)

    def stale(self) -> bool:
        """Whether the forecast has changed since everything was judged, or more is kept than is worth it."""
        return self._verdicts.count > _MOST_VERDICTS or super().stale()

    def renew(self) -> bool:
        """Take up what the policy has noted since; whether levels are others by it."""
        memo = self._view.memo
        if memo is self._noted:
            return False
        self._noted = memo
        top, bad, bands = learned_top(self._view), banned(self._view), _bands(self._view)
        if self.top == top and self.bad == bad and self._bands == bands:
            return False
        others, same_bans = self.top != top, self.bad == bad
        self.top, self._bands = top, bands
        if same_bans:
            self._rerank()
        else:
            self._ban(bad)
            self._fill()
        return others

    def _ban(self, bad: list[tuple[int, tuple[str, ...]]]) -> None:
        verdicts, slots = self._verdicts, self._groups.slots
        for kind, models in self.bad:
            if (kind, models) not in bad:
                verdicts.allow(kind, models)
                verdicts.reconsider(kind, models, slots)
        for kind, models in bad:
            if (kind, models) not in self.bad:
                verdicts.ban(kind, models)
                verdicts.reconsider(kind, models, slots)
        self.bad = bad

    def _rerank(self) -> None:
        """Who has another place in the order now leaves, and comes anew."""
        records = self._view.records
        moved = [
            record
            for job_id, ranked in self._copies.items()
            if self._rank(record := records[job_id]) != ranked.key
        ]
        if len(moved) > len(self._copies) // 4:
            self._fill()
            return
        for record in moved:
            self._withdraw(record)
            self.enqueued(record)

    def _fill(self) -> None:
        self._copies: dict[int, JobRecord] = {}
        self.tenants: dict[str, int] = {}
        self.claimed: dict[int, JobRecord] = {}
        self._awake: dict[int, None] = {}
        self._asleep: dict[int, list[int]] = {}
        self._late: list[tuple[float, int]] = []
        super()._fill()

    def _rank(self, record: JobRecord) -> int:
        """The key by which a job is kept here."""
        key = record.key
        if self._bands:
            key += self._bands.get(record.job.tenant, 0) * _BAND_STEP
        if record.started_s >= 0.0:
            key += level(record, record.rated_s, self.top) * LEVEL_STEP
        return key

    def _ranked(self, record: JobRecord) -> JobRecord:
        ranked = copy.copy(record)
        ranked.key = self._rank(record)
        return ranked

    def level(self, record: JobRecord) -> int:
        """The level of a waiting job as it is ranked: 0 is a newcomer's."""
        return (record.key - order_key(record.id, record.priority)) // LEVEL_STEP

    def enqueued(self, record: JobRecord) -> None:
        """A job waits, in its place in the order, or is kept devices for."""
        if record.reserved:
            self.claimed[record.id] = record
            self._awake[record.id] = None
            return
        ranked = self._copies[record.id] = self._ranked(record)
        tenant = record.job.tenant
        self.tenants[tenant] = self.tenants.get(tenant, 0) + 1
        super().enqueued(ranked)

    def dequeued(self, record: JobRecord) -> None:
        """A job waits no more."""
        ranked = self._copies.pop(record.id, None)
        if ranked is None:
            self.claimed.pop(record.id, None)
            self._awake.pop(record.id, None)
            return
        ranked.status = record.status
        self._left(ranked)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came or went, or are kept for a job: that is no gain for others."""
        records, reserved = self._view.records, self._ledger.reserved
        owners = {reserved[d]: None for d in devices if d in reserved}
        gone = [job for job in self.claimed if job not in owners and not self.claimed[job].reserved]
        for job_id in owners:
            if job_id not in self.claimed:
                record = records[job_id]
                self._withdraw(record)
                self.claimed[job_id] = record
            self._awake[job_id] = None
        dropped = False
        for job_id in gone:
            record = self.claimed.pop(job_id)
            self._awake.pop(job_id, None)
            if not record.status and job_id in records:
                dropped = True
                self.enqueued(record)
        if dropped or not (owners or gone):
            super().capacity(devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Devices are empty: who waited for that is looked at again."""
        for job_id in self._asleep.pop(record.id, ()):
            if job_id in self.claimed:
                self._awake[job_id] = None
        super().vacated(record, place)

    def restless(self, now: float) -> list[int]:
        """Jobs that devices are kept for, less those that wait for a job which stops."""
        while self._late and self._late[0][0] <= now:
            job_id = heapq.heappop(self._late)[1]
            if job_id in self.claimed:
                self._awake[job_id] = None
        return sorted(self._awake)

    def sleep(self, job_id: int, stopping: int, until_s: float) -> None:
        """Nothing can be done for a job before another has stopped, its devices change, or it is overdue."""
        del self._awake[job_id]
        self._asleep.setdefault(stopping, []).append(job_id)
        if until_s < float("inf"):
            heapq.heappush(self._late, (until_s, job_id))
            if len(self._late) > 2 * len(self.claimed) + _SWEEP:
                self._late = sorted({entry for entry in self._late if entry[1] in self.claimed})

    def _withdraw(self, record: JobRecord) -> None:
        ranked = self._copies.pop(record.id, None)
        if ranked is not None:
            ranked.status = Status.STOPPING  # the copy's: lines then pass over it without a search
            self._left(ranked)

    def _left(self, ranked: JobRecord) -> None:
        tenant = ranked.job.tenant
        self.tenants[tenant] -= 1
        if not self.tenants[tenant]:
            del self.tenants[tenant]
        super().dequeued(ranked)

    def first_waiting(self) -> list[tuple[JobRecord, DemandLine]]:
        """The first of each demand, in order."""
        found = [(d.head, d) for d in self._waiting.values() if d.head is not None]
        found.sort(key=_key)
        return found

    @property
    def verdicts(self) -> Verdicts:
        """What the forecast says of sets."""
        return self._verdicts

    def held(self, record: JobRecord) -> Hold | None:
        """Why a job waits, unless that was said already."""
        return self.hold(record) if self._view.records[record.id].hold is None else None

    def anywhere(self, record: JobRecord, *, alone: bool, beside: bool) -> Start | None:
        """On free devices, else beside the neighbours that it delays least."""
        start = self.alone(record) if alone else None
        return self.together(record) if start is None and beside else start


def _key(entry: tuple[JobRecord, DemandLine]) -> int:
    return entry[0].key
