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
from cotenant.policies.ranking import Ranking

__all__ = ["NO_VICTIM", "Claim", "Line", "Waiting"]

NO_VICTIM = (-(1 << 62), 0.0)
"""Limit of a line that no preemption helps."""

_Key = tuple[int, float, int]
_SWEEP = 64


class Line:
    """Waiting jobs with the same needs.

    Attributes
    ----------
    heap : list of (key, record)
        With entries of jobs that left; swept when they outnumber the others.
    count : int
        Jobs in line.
    blocked : bool
        The head was tried, and nothing has been gained since.
    limit : (int, float)
        Standing that a victim of the head that was tried had to fall below.
    shape : Shape
        Of one of the jobs.
    """

    __slots__ = ("blocked", "count", "heap", "limit", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.heap: list[tuple[_Key, JobRecord]] = []
        self.count = 0
        self.blocked = False
        self.limit = NO_VICTIM


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
    live : dict of int to key
        Jobs in line; a key is (minus priority, rank, id).
    claims : dict of int to Claim
    ready, broken : set of int
        Claims whose devices are all empty; claims of which a device failed or is drained.
    freed : bool
        Devices have become free since the policy last cleared this.
    """

    def __init__(self, view: View, ranking: Ranking) -> None:
        self._view, self._ranking = view, ranking
        self._ledger = view.ledger
        self._groups: dict[int, tuple[Any, ...]] = {}
        self._build()

    def _build(self) -> None:
        self._version = self._ranking.version(self._view)
        self.live: dict[int, _Key] = {}
        self.claims: dict[int, Claim] = {}
        self.ready: set[int] = set()
        self.broken: set[int] = set()
        self._lines: dict[tuple[Any, ...], Line] = {}
        self._line_of: dict[int, Line] = {}
        self._claimed: dict[int, int] = {}
        self._timers: list[tuple[float, int, _Key]] = []
        self.blocked: list[Line] = []
        self.freed = True
        for record in self._view.queue:
            self.enqueued(record)

    # -- hooks -----------------------------------------------------------------------

    def enqueued(self, record: JobRecord) -> None:
        """A job gets in line, or takes up its claim again."""
        if record.reserved:
            self._claim(record)
            return
        line = self._find_line(record)
        key = (-record.priority, self._ranking.rank(self._view, record), record.id)
        head = self.head(line)
        self.live[record.id] = key
        self._line_of[record.id] = line
        line.count += 1
        heapq.heappush(line.heap, (key, record))
        if len(line.heap) > 2 * line.count + _SWEEP:
            live = self.live
            line.heap = [e for e in line.heap if live.get(e[1].id) is e[0]]
            heapq.heapify(line.heap)
        if line.blocked and (head is None or key < self.live[head.id]):
            self._open(line)
        until = self._ranking.rank_until_s(self._view, record)
        if until < math.inf:
            heapq.heappush(self._timers, (until, record.id, key))

    def dequeued(self, record: JobRecord) -> None:
        """A job leaves its line; the next in a blocked line has its own reason to wait."""
        if record.id in self.live:
            line = self._line_of.pop(record.id)
            if line.blocked and self.head(line) is record:
                self._open(line)
            del self.live[record.id]
            line.count -= 1

    def _open(self, line: Line) -> None:
        line.blocked = False
        self.blocked.remove(line)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Devices are left: something is gained, perhaps only by a claim."""
        claimed, job = self._claimed, record.job
        if job.cpu_milli or job.host_memory_bytes or self._view.books.limits:
            self.unblock()
        elif not claimed or any(d not in claimed for d in place.devices):
            self.freed = True
        if claimed:
            for owner in {claimed[d] for d in place.devices if d in claimed}:
                self._judge(self.claims[owner])

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came, went, or were kept for somebody; or a tenant's ceiling changed."""
        if not devices:
            self._build()
            return
        reserved = self._ledger.reserved
        owners = [reserved.get(d) for d in devices]
        before = {self._claimed[d] for d in devices if d in self._claimed}
        # What a job had reserved that now starts is not free, but about to be its own.
        starts = any(self.claims[job_id].record.status == Status.RUNNING for job_id in before)
        for job_id in sorted(before.difference(owners)):
            self._unclaim(job_id)
        if None in owners and not starts:
            self.unblock()
        for owner in dict.fromkeys(owners):
            if owner is not None:
                self._claim(self._view.records[owner])

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
            if not ledger.usable[device] or ledger.draining[node[device]]:
                broken = True
            if residents[device]:
                ready = False
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
        shape = record.shape
        group = self._groups.get(shape.number)
        if group is None:
            group = (shape.gpus, shape.types, shape.cpu_milli, shape.host_bytes, shape.single, shape.spans)
            self._groups[shape.number] = group
        tenant = record.job.tenant
        if tenant in self._view.books.limits:
            group = (*group, tenant)
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = Line(shape)
        return line

    def head(self, line: Line) -> JobRecord | None:
        """The first of a line."""
        heap, live = line.heap, self.live
        while heap:
            key, record = heap[0]
            if live.get(record.id) is key:
                return record
            heapq.heappop(heap)
        return None

    def heads(self) -> list[tuple[_Key, JobRecord, Line]]:
        """Heads of the lines that are not blocked, in order."""
        found = []
        for line in self._lines.values():
            if not line.blocked and line.count:
                record = self.head(line)
                if record is not None:
                    found.append((self.live[record.id], record, line))
        if len(found) > 1:
            found.sort(key=_first)
        return found

    def block(self, line: Line, limit: tuple[int, float]) -> None:
        """The head of this line cannot be helped for now."""
        line.blocked, line.limit = True, limit
        self.blocked.append(line)

    def unblock(self) -> None:
        """Something was gained that may help anyone: look at every line again."""
        if self.blocked:
            for line in self.blocked:
                line.blocked = False
            self.blocked.clear()

    def reopen(self, lines: list[Line]) -> None:
        """Look again at these blocked lines."""
        if lines:
            for line in lines:
                line.blocked = False
            self.blocked = [line for line in self.blocked if line.blocked]

    def turn(self, now: float) -> float:
        """Bring ranks up to the present; when one changes by itself next, infinite if never."""
        if self._ranking.version(self._view) != self._version:
            self._build()
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, job_id, key = heapq.heappop(timers)
            if self.live.get(job_id) is key:
                record = self._view.records[job_id]
                self.dequeued(record)
                self.enqueued(record)
        while timers and self.live.get(timers[0][1]) is not timers[0][2]:
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    def claimed_gpus(self, tenant: str) -> int:
        """Devices being emptied for a tenant's jobs; they count against its ceiling."""
        return sum(len(c.devices) for c in self.claims.values() if c.record.job.tenant == tenant)


def _first(entry: tuple[_Key, JobRecord, Line]) -> _Key:
    return entry[0]
