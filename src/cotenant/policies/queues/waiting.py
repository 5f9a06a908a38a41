"""Waiting jobs in lines: one line for all that fit and fail together.

Jobs that ask for the same whole devices are blocked together, so only the head of each
line is ever looked at. Jobs for which devices are being emptied are claims, not in line.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord, Status
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.preemption.ranking import Ranking
from cotenant.policies.preemption.victims import Order, Standing, Victims

__all__ = ["NO_VICTIM", "Claim", "Line", "Waiting"]

NO_VICTIM: Standing = (-(1 << 62), 0.0)
"""Limit of a line that no preemption helps."""

_Key = tuple[int, float, int]
_Entry = tuple[_Key, JobRecord, "Line"]
_SWEEP = 64
_RUNNING = Status.RUNNING


class Line:
    """Waiting jobs with the same needs.

    Attributes
    ----------
    heap : list of (key, record, line)
        With entries of jobs that left; swept when they outnumber the others.
    count : int
        Jobs in line.
    blocked : bool
        The head was tried, and nothing has been gained since.
    limit : (int, float)
        Standing that a victim of the head that was tried had to fall below.
    costs : tuple of Order
        For each type, what its bays cost (``Victims.costs``); known once it was blocked.
    shape : Shape
        Of one of the jobs.
    """

    __slots__ = ("blocked", "costs", "count", "heap", "limit", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.heap: list[_Entry] = []
        self.count = 0
        self.blocked = False
        self.limit = NO_VICTIM
        self.costs: tuple[Order, ...] | None = None


class Claim:
    """A waiting job and the devices that are being emptied for it."""

    __slots__ = ("devices", "record")

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        self.devices = record.reserved


class Waiting(Index):
    """Lines and claims.

    Attributes
    ----------
    live : dict of int to entry
        Jobs in line: (key, record, line); a key is (minus priority, rank, id).
    open, blocked : dict of Line to None
        Lines with jobs: blocked, or not.
    turns : bool
        Whether ``turn`` has anything to look at.
    doubtful : dict of Line to None
        Blocked lines whose search did not try all: to be looked at again whatever happens.
    claims : dict of int to Claim
    ready, broken : set of int
        Claims whose devices are all empty; claims of which a device failed or is drained.
    freed : bool
        Devices have become free since the policy last cleared this.
    """

    def __init__(self, view: View, ranking: Ranking) -> None:
        self._view, self._ranking = view, ranking
        self._ledger, self._rank = view.ledger, ranking.rank
        self._victims: Victims | None = None
        # Most rankings never change as a whole.
        self._versioned = type(ranking).version is not Ranking.version
        self._timed = type(ranking).rank_until_s is not Ranking.rank_until_s
        self._build()

    def _build(self) -> None:
        self._version = self._ranking.version(self._view)
        self.live: dict[int, _Entry] = {}
        self.claims: dict[int, Claim] = {}
        self.ready: set[int] = set()
        self.broken: set[int] = set()
        self._lines: dict[tuple[int, str | None], Line] = {}
        self._groups: dict[tuple[Any, ...], Line] = {}
        self.open: dict[Line, None] = {}
        self._claimed: dict[int, int] = {}
        self._timers: list[tuple[float, int, _Entry]] = []
        self.blocked: dict[Line, None] = {}
        self.doubtful: dict[Line, None] = {}
        self.freed = True
        self.turns = self._versioned
        for record in self._view.queue:
            self.enqueued(record)

    # -- hooks -----------------------------------------------------------------------

    def enqueued(self, record: JobRecord) -> None:
        """A job gets in line, or takes up its claim again."""
        if record.reserved:
            self._claim(record)
            return
        line, live = self._find_line(record), self.live
        key = (-record.priority, self._rank(self._view, record), record.id)
        entry = (key, record, line)
        if not line.blocked:
            self.open[line] = None
        elif key < self._head(line)[0]:
            self._reopen(line)
        live[record.id] = entry
        line.count += 1
        heapq.heappush(line.heap, entry)
        if len(line.heap) > 2 * line.count + _SWEEP:
            line.heap = [e for e in line.heap if live.get(e[1].id) is e]
            heapq.heapify(line.heap)
        if self._timed and (until := self._ranking.rank_until_s(self._view, record)) < math.inf:
            heapq.heappush(self._timers, (until, record.id, entry))
            self.turns = True

    def dequeued(self, record: JobRecord) -> None:
        """A job leaves its line; the next in a blocked line has its own reason to wait."""
        entry = self.live.get(record.id)
        if entry is None:
            return
        line = entry[2]
        if line.blocked and self._head(line) is entry:
            self._reopen(line)
        del self.live[record.id]
        line.count -= 1
        if not line.count:
            del self.open[line]

    def _reopen(self, line: Line) -> None:
        line.blocked = False
        del self.blocked[line]
        self.open[line] = None

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Devices are left: something is gained, perhaps only by a claim."""
        claimed, job = self._claimed, record.job
        if job.cpu_milli or job.host_memory_bytes or self._view.books.limits:
            self.unblock()
        elif not claimed:
            self.freed = True
            return
        else:
            for device in place.devices:
                if device not in claimed:
                    self.freed = True
                    break
        if claimed:
            first = claimed.get(place.devices[0]) if place.devices else None
            if first is not None and self.claims[first].devices == place.devices:
                self._judge(self.claims[first])
                return
            for owner in {claimed[d]: None for d in place.devices if d in claimed}:
                self._judge(self.claims[owner])

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came, went, or were kept for somebody; or a tenant's ceiling changed."""
        if not devices:
            self._build()
            return
        reserved, claimed = self._ledger.reserved, self._claimed
        if self._one_claim(devices):
            return
        owners = {reserved.get(d): None for d in devices}
        starts = False
        if claimed:
            before = {claimed[d]: None for d in devices if d in claimed}
            for job_id in before:
                # What a job had reserved that now starts is not free, but about to be its own.
                starts = starts or self.claims[job_id].record.status == _RUNNING
            for job_id in sorted(before):
                if job_id not in owners:
                    self._unclaim(job_id)
        if None in owners and not starts:
            self.unblock()
        for owner in owners:
            if owner is not None:
                self._claim(self._view.records[owner])

    def _one_claim(self, devices: tuple[int, ...]) -> bool:
        """The two most frequent changes by themselves: a job claims devices, or takes those it claimed."""
        claim = self.claims.get(self._claimed.get(devices[0], -1))
        if claim is not None:
            if claim.devices != devices or claim.record.status != _RUNNING:
                return False
            self._forget(claim)
            return True
        record = self._view.records.get(self._ledger.reserved.get(devices[0], -1))
        if record is None or record.reserved != devices or record.id in self.claims:
            return False
        if not self._claimed.keys().isdisjoint(devices):
            return False
        self._claim(record)
        return True

    def _claim(self, record: JobRecord) -> None:
        claim = self.claims.get(record.id)
        if claim is None or claim.devices != record.reserved:
            if claim is not None:
                self._forget(claim)
            self.dequeued(record)
            claim = self.claims[record.id] = Claim(record)
            for device in claim.devices:
                self._claimed[device] = record.id
        self._judge(claim)

    def _judge(self, claim: Claim) -> None:
        ledger, job_id = self._ledger, claim.record.id
        node, residents = ledger.layout.device_node, ledger.residents
        broken, ready = False, True
        for device in claim.devices:
            if residents[device]:
                ready = False
                break
        if ledger.impaired:
            for device in claim.devices:
                if not ledger.usable[device] or ledger.draining[node[device]]:
                    broken = True
        if broken:
            self.broken.add(job_id)
        elif self.broken:
            self.broken.discard(job_id)
        if ready:
            self.ready.add(job_id)
        elif self.ready:
            self.ready.discard(job_id)

    def _forget(self, claim: Claim) -> None:
        job_id = claim.record.id
        for device in claim.devices:
            if self._claimed.get(device) == job_id:
                del self._claimed[device]
        del self.claims[job_id]
        self.ready.discard(job_id)
        self.broken.discard(job_id)

    def _unclaim(self, job_id: int) -> None:
        claim = self.claims[job_id]
        self._forget(claim)
        if not claim.record.status and not claim.record.reserved and job_id in self._view.records:
            self.enqueued(claim.record)

    # -- lines -----------------------------------------------------------------------

    def _find_line(self, record: JobRecord) -> Line:
        number, limits = record.shape.number, self._view.books.limits
        tenant = record.job.tenant if limits and record.job.tenant in limits else None
        line = self._lines.get((number, tenant))
        if line is None:
            shape = record.shape
            group = (shape.gpus, shape.types, shape.cpu_milli, shape.host_bytes, shape.single, shape.spans)
            line = self._groups.get((*group, tenant))
            if line is None:
                line = self._groups[*group, tenant] = Line(shape)
            self._lines[number, tenant] = line
        return line

    def _head(self, line: Line) -> _Entry:
        """The first of a line that has jobs."""
        heap, live = line.heap, self.live
        while live.get(heap[0][1].id) is not heap[0]:
            heapq.heappop(heap)
        return heap[0]

    def heads(self) -> list[_Entry]:
        """Heads of the lines that are not blocked, in order."""
        live = self.live
        if len(self.open) == 1:
            (line,) = self.open
            return [self._head(line)]
        found: list[_Entry] = []
        for line in self.open:
            entry = line.heap[0]
            found.append(entry if live.get(entry[1].id) is entry else self._head(line))
        if len(found) > 1:
            found.sort(key=_key)
        return found

    def block(self, line: Line, limit: Standing) -> None:
        """The head of this line cannot be helped for now."""
        if line.costs is None:
            line.costs = self.victims().costs(line.shape)
        line.blocked, line.limit = True, limit
        self.blocked[line] = None
        del self.open[line]

    def unblock(self) -> None:
        """Something was gained that may help anyone: look at every line again."""
        for line in list(self.blocked):
            self._reopen(line)

    def reopen_doubtful(self) -> None:
        """Look again at the lines for which not all was tried."""
        for line in self.doubtful:
            if line.blocked:
                self._reopen(line)
        self.doubtful.clear()

    def look_again(self, now: float) -> None:
        """Unblock lines that free devices, or a job that has come to be a victim, may help.

        Cheap, and it never passes over one that is helped: some bay must have the devices below the line's limit.
        """
        victims = self._victims or self.victims()
        gained = victims.turn(now)
        if self.freed:
            self.freed = False
            lines = list(self.blocked)
        elif gained is None:
            return
        else:
            # CPU-only jobs have no limit: only what is free helps them.
            lines = [line for line in self.blocked if gained < line.limit]
            if not lines:
                return
        victims.refresh()
        for line in lines:
            if not line.costs:
                self._reopen(line)
                continue
            for order in line.costs:
                best = order.best()
                if best is not None and best < line.limit:
                    self._reopen(line)
                    break

    def victims(self) -> Victims:
        """The running jobs, as victims of those that wait here."""
        found = self._victims
        if found is None:
            found = self._victims = self._view.index(Victims, self._ranking)
        return found

    def turn(self, now: float) -> float:
        """Bring ranks up to the present; when one changes by itself next, infinite if never."""
        if self._versioned and self._ranking.version(self._view) != self._version:
            self._build()
        timers, live = self._timers, self.live
        if not timers:
            return math.inf
        while timers and timers[0][0] <= now:
            _, job_id, entry = heapq.heappop(timers)
            if live.get(job_id) is entry:
                self.dequeued(entry[1])
                self.enqueued(entry[1])
        while timers and live.get(timers[0][1]) is not timers[0][2]:
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    def claimed_gpus(self, tenant: str) -> int:
        """Devices being emptied for a tenant's jobs; they count against its ceiling."""
        return sum(len(c.devices) for c in self.claims.values() if c.record.job.tenant == tenant)


def _key(entry: _Entry) -> _Key:
    return entry[0]
