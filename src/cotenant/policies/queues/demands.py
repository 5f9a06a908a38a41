"""Waiting jobs by what they ask for, for policies that let nobody be blocked by another's demand.

Jobs that ask for the same are one *class*; classes that differ only in memory are one *family*.
Nothing is ever tried twice in vain: a family proved to have no job that fits is *settled* until
capacity grows or its own queue changes. That is a cached truth about the present state, so a
fresh index, for which nothing is settled, leads to the same decisions.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cotenant.model.jobs import Job
from cotenant.model.placement import DEVICE_MILLI, Mode, Placement, Share
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.queues.firsts import Firsts

if TYPE_CHECKING:
    from cotenant.policies.space.rooms import Rooms

__all__ = ["Alike", "Demands", "Domain", "Family", "domain_of"]

Domain = tuple[str, ...]
"""With whom a job shares: only jobs of the same domain lie on one device."""

_ANYONE: Domain = ("any",)
_NOBODY: Domain = ()
_SWEEP = 64
_FEW = 64
_GIB_BITS = 30
_Key = int
_Entry = tuple[_Key, int, JobRecord]


def domain_of(job: Job) -> Domain:
    """The sharing domain of a job; empty if it shares with nobody.

    A job of unknown memory cannot share. Jobs that restrict whom they share with keep among
    their own kind: stricter than the rules, which would also admit, for example, a job open to
    all beside a trusted one of the same tenant.
    """
    sharing = job.sharing
    if job.memory_bytes <= 0 or job.gpus == 0 or sharing == "exclusive":
        return _NOBODY
    if sharing == "any":
        return _ANYONE
    if sharing == "trusted":
        return (sharing, job.tenant)
    return (sharing, job.tenant, job.user)


class Alike:
    """Waiting jobs that ask for exactly the same, first of the queue on top of the heap."""

    __slots__ = ("count", "heap")

    def __init__(self) -> None:
        self.heap: list[_Entry] = []
        self.count = 0

    def head(self) -> JobRecord:
        """The first of them; only while ``count`` is positive."""
        heap = self.heap
        key, _, record = heap[0]
        while record.status or key != record.key:
            heapq.heappop(heap)
            key, _, record = heap[0]
        return record

    def push(self, record: JobRecord, serial: int) -> None:
        """A job joins; the serial orders entries of one job."""
        self.count += 1
        heapq.heappush(self.heap, (record.key, serial, record))

    def left(self) -> int:
        """A job waits no more; returns how many still do.

        Entries of jobs that left are dropped once they outnumber the living.
        """
        self.count -= 1
        if len(self.heap) > 2 * self.count + _SWEEP:
            living = {e[2].id: e for e in self.heap if not e[2].status and e[0] == e[2].key}
            self.heap = list(living.values())
            heapq.heapify(self.heap)
        return self.count


class Family:
    """Classes that differ in memory alone.

    Attributes
    ----------
    shape : Shape
        Of one of its jobs: count, compute, types and host needs are those of all.
    domain : tuple of str
        With whom its jobs share; empty if they want whole devices.
    milli : int
        Compute to guarantee on each device: the fraction declared, else 0.
    host : bool
        Whether its jobs need host CPU or memory.
    rooms : Rooms or None
    known : Shape or None
        What a policy has looked up for its jobs; dropped with all other indexes.
    """

    __slots__ = (
        "_all",
        "_classes",
        "_coarse",
        "_needs",
        "_shares",
        "domain",
        "host",
        "known",
        "milli",
        "rooms",
        "shape",
    )

    def __init__(self, shape: Shape, domain: Domain) -> None:
        self.shape = shape
        self.domain = domain
        self.milli = shape.compute_milli if 0 < shape.compute_milli < DEVICE_MILLI else 0
        self.host = bool(shape.cpu_milli or shape.host_bytes)
        self.rooms: Rooms | None = None
        self.known: Shape | None = None
        self._all = Firsts()
        # Amounts of memory that somebody waits for, ascending; who waits for each, now or lately;
        # and who waits for each whole GiB, once the amounts are many.
        self._needs: list[int] = []
        self._classes: dict[int, Firsts] = {}
        self._coarse: dict[int, Firsts] | None = None
        self._shares: dict[int, Share] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._needs)

    def push(self, record: JobRecord) -> bool:
        """A job joins; whether it is the first of all, or the only one that needs its memory."""
        need = record.shape.memory_bytes
        found = self._classes.get(need)
        if found is None:
            if len(self._classes) > 2 * len(self._needs) + _SWEEP:
                self._classes = {need: found for need, found in self._classes.items() if found.count}
            found = self._classes[need] = Firsts()
        found.push(record)
        if found.count == 1:
            insort(self._needs, need)
        if self._coarse is not None:
            self._push_coarse(record)
        elif len(self._needs) > _FEW:
            self._coarse = {}
            for other in {r.id: r for line in self._classes.values() for r in line}.values():
                self._push_coarse(other)
        return self._all.push(record) or found.count == 1

    def _push_coarse(self, record: JobRecord) -> None:
        gib = record.shape.memory_bytes >> _GIB_BITS
        if self._coarse is not None:
            line = self._coarse.get(gib)
            if line is None:
                line = self._coarse[gib] = Firsts()
            line.push(record)

    def left(self, record: JobRecord) -> None:
        """A job waits no more; its status may not have changed yet."""
        need = record.shape.memory_bytes
        self._all.left(record)
        if self._coarse is not None:
            coarse = self._coarse[need >> _GIB_BITS]
            coarse.left(record)
            if not coarse.count:
                del self._coarse[need >> _GIB_BITS]
        found = self._classes[need]
        found.left(record)
        if not found.count:
            self._needs.remove(need)

    def head(self) -> JobRecord:
        """Its first job in queue order; only while it is true."""
        return _first(self._all)

    def smallest(self) -> JobRecord:
        """The first of its jobs that need least memory; only while it is true."""
        return _first(self._classes[self._needs[0]])

    def first(self, room_bytes: float) -> JobRecord | None:
        """Its first job in queue order that needs no more memory than this; None if there is none.

        Where amounts are many, as many as jobs perhaps, it looks at whole GiB first, and at single
        amounts only in the last of them.
        """
        needs = self._needs
        if not needs or needs[0] > room_bytes:
            return None
        best = self._all.head
        if best is not None and best.shape.memory_bytes <= room_bytes:
            return best
        end, coarse = bisect_right(needs, room_bytes), self._coarse
        if coarse is None:
            small = [self._classes[need] for need in needs[:end]]
        else:
            last = int(room_bytes) >> _GIB_BITS
            small = [alike for gib, alike in coarse.items() if gib < last]
            small += [self._classes[need] for need in needs[bisect_left(needs, last << _GIB_BITS) : end]]
        best = None
        for alike in small:
            head = alike.head
            if head is not None and (best is None or head.key < best.key):
                best = head
        return best

    def heads(self, room_bytes: float) -> Iterator[JobRecord]:
        """The first job of each class that needs no more memory than this, in queue order."""
        small = self._needs[: bisect_right(self._needs, room_bytes)]
        return iter(sorted((_first(self._classes[need]) for need in small), key=lambda r: r.key))

    def share(self, mode: Mode, need_bytes: int) -> Share:
        """The share its jobs hold, one shared object for each amount of memory.

        Jobs that take turns are guaranteed no part of the compute: each has all of it in turn.
        """
        found = self._shares.get(need_bytes)
        if found is None or found.mode != mode:
            milli = 0 if mode == "time-sliced" else self.milli
            found = Share(mode=mode, memory_bytes=need_bytes, compute_milli=milli)
            self._shares[need_bytes] = found
        return found


def _first(line: Firsts) -> JobRecord:
    """The first of a line in which somebody waits."""
    if line.head is None:
        raise RuntimeError("nobody waits here: ask a family for jobs only while it is true")
    return line.head


class Demands(Index):
    """All families.

    Jobs of different tenants are kept apart only where some tenant has a ceiling: what is
    blocked by its own ceiling must block nobody else.

    Attributes
    ----------
    open : dict of Family to None
        Families with waiting jobs of which it is not known that none fits.
    untold : dict of Family to None
        Families found blocked, whose first job may not have been told why.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.open: dict[Family, None] = {}
        self.untold: dict[Family, None] = {}
        self._build()

    def _build(self) -> None:
        self._apart = bool(self._view.books.limits)
        self._living: dict[Family, None] = {}
        self._families: dict[tuple[object, ...], Family] = {}
        self._of: dict[tuple[int, Domain, str], Family] = {}
        self._waits_in: dict[int, Family] = {}
        self.open.clear()
        self.untold.clear()
        for record in self._view.queue:
            self.enqueued(record)

    def family(self, record: JobRecord) -> Family:
        """The family of a job."""
        job, shape = record.job, record.shape
        key = (shape.number, domain_of(job), job.tenant if self._apart else "")
        found = self._of.get(key)
        if found is None:
            milli = shape.compute_milli if 0 < shape.compute_milli < DEVICE_MILLI else 0
            wide = (shape.gpus, milli, shape.types, shape.cpu_milli, shape.host_bytes, *key[1:])
            found = self._families.get(wide)
            if found is None:
                found = self._families[wide] = Family(shape, key[1])
            self._of[key] = found
        return found

    def enqueued(self, record: JobRecord) -> None:
        """A job joined."""
        if record.shape.never:
            return
        family = self._waits_in[record.id] = self.family(record)
        # A job behind others that ask for the same fits no better than they do.
        if family.push(record):
            self.open[family] = None
        self._living[family] = None

    def dequeued(self, record: JobRecord) -> None:
        """A job left."""
        if record.shape.never:
            return
        family = self._waits_in.pop(record.id)
        family.left(record)
        if family:
            self.open[family] = None
        else:
            self.open.pop(family, None)
            self.untold.pop(family, None)
            del self._living[family]

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Capacity grew."""
        self.open.update(self._living)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Capacity or ceilings changed."""
        if not self._apart and self._view.books.limits:
            self._build()
        self.open.update(self._living)

    def settle(self, family: Family) -> None:
        """No job of this family fits the present state."""
        self.open.pop(family, None)
        self.untold[family] = None
