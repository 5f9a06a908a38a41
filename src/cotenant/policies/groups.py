"""Sets of jobs that share devices, indexed so that the best partner is found without a scan.

A *group* is a set of devices held by the same jobs (a single device, or the devices of
same-size gangs). A *slot* is what matters of a group for interference: device type,
models present, and who may join (the circle). For each gang size and slot, groups lie in
rows by free memory in GiB; a row is a bit set over first devices, so the tightest
sufficient group, lowest number first, is two shifts away, and the answer depends on the
books alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View

__all__ = ["Circle", "Group", "GroupIndex", "SlotKey", "circle_of", "needed_gib"]

Circle = tuple[str, ...]
SlotKey = tuple[int, tuple[str, ...], Circle]
"""Device type, sorted models present, circle."""


def circle_of(job: Job) -> Circle | None:
    """Whom a job may share with, as a value: jobs share within one circle only.

    None for exclusive jobs, and for jobs whose memory is unknown.
    """
    if job.sharing == "any":
        return () if job.memory_bytes > 0 else None
    if job.memory_bytes <= 0 or job.sharing == "exclusive":
        return None
    return (job.tenant,) if job.sharing == "trusted" else (job.tenant, job.user)


def needed_gib(job: Job) -> int:
    """Memory of a job in whole GiB, rounded up: the unit of the rows."""
    return -(-job.memory_bytes // GIB)


class Group:
    """Devices that the same jobs hold."""

    __slots__ = ("devices", "gib", "jobs", "kind", "slot")

    def __init__(self, devices: tuple[int, ...], kind: int) -> None:
        self.devices = devices
        self.kind = kind
        self.jobs: tuple[int, ...] = ()
        self.slot = -1
        self.gib = -1


class _Bucket:
    """Groups of one size and slot, in rows by free GiB."""

    __slots__ = ("rows", "word")

    def __init__(self) -> None:
        self.word = 0
        self.rows: dict[int, int] = {}

    def flip(self, gib: int, first: int) -> bool:
        """Put a group in, or take it out; True if the bucket became empty or non-empty."""
        before = self.word
        row = self.rows.get(gib, 0) ^ (1 << first)
        if row:
            self.rows[gib] = row
            self.word |= 1 << gib
        else:
            del self.rows[gib]
            self.word ^= 1 << gib
        return (before == 0) != (self.word == 0)

    def firsts(self, gib: int) -> Iterator[int]:
        """First devices of groups with at least this much free memory, tightest first."""
        word = self.word >> gib
        while word:
            bit = word & -word
            row = self.rows[gib + bit.bit_length() - 1]
            while row:
                yield (row & -row).bit_length() - 1
                row &= row - 1
            word ^= bit


class GroupIndex(Index):
    """All groups that another job could join.

    Attributes
    ----------
    slots : list of SlotKey
        Slots seen so far; their numbers mean nothing outside.
    live : dict of int to int
        For each gang size: bit set of slots with a group in them.
    changed : callable or None
        Told (gpus, slot, free GiB) whenever a group enters a bucket.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._types = view.layout.device_type
        self.slots: list[SlotKey] = []
        self._slot_of: dict[SlotKey, int] = {}
        self.live: dict[int, int] = {}
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        self._groups: dict[tuple[int, ...], Group] = {}
        self._at: dict[int, Group] = {}
        self.changed: Callable[[int, int, int], None] | None = None
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
            leaving = view.ledger.leaving.get(record.id)
            if leaving is not None:
                self.placed(record, leaving)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job joined the devices' other residents."""
        if place.share.mode != "spatial":
            return
        group = self._groups.get(place.devices)
        if group is None:
            group = Group(place.devices, self._types[place.devices[0]])
            self._groups[place.devices] = group
            self._at[place.devices[0]] = group
        self._update(group)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left its neighbours."""
        if place.share.mode != "spatial":
            return
        group = self._groups.get(place.devices)
        if group is not None:
            self._update(group)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Failures, drains and reservations close groups to newcomers, or open them again."""
        for first in sorted(set(devices)):
            residents = self._view.ledger.residents[first]
            if residents:
                place = self._view.ledger.held.get(residents[0])
                group = self._groups.get(place.devices) if place is not None else None
                if group is not None:
                    self._update(group)

    def _update(self, group: Group) -> None:
        """Bring a group up to date with the books."""
        ledger = self._view.ledger
        devices = group.devices
        first = devices[0]
        if group.slot >= 0:
            self._flip(len(devices), group.slot, group.gib, first)
            group.slot = -1
        residents = ledger.residents[first]
        group.jobs = residents
        if not residents:
            del self._groups[devices]
            del self._at[first]
            return
        if not self._open(group):
            return
        records = self._view.records
        if len(residents) == 1:
            job = records[residents[0]].job
            models: tuple[str, ...] = (job.model,)
        else:
            job = records[residents[0]].job
            models = tuple(sorted([records[j].job.model for j in residents]))
        circle = circle_of(job)
        if circle is None:
            return
        key = (group.kind, models, circle)
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = len(self.slots)
            self.slots.append(key)
        group.slot = slot
        free = ledger.free_memory
        group.gib = free[first] // GIB if len(devices) == 1 else min(free[d] for d in devices) // GIB
        self._flip(len(devices), slot, group.gib, first)
        if self.changed is not None:
            self.changed(len(devices), slot, group.gib)

    def _open(self, group: Group) -> bool:
        """May anyone join? Not beyond the bound, nor on reserved, failed or draining devices."""
        ledger = self._view.ledger
        if len(group.jobs) >= self._view.settings.max_sharers:
            return False
        if ledger.reserved and any(d in ledger.reserved for d in group.devices):
            return False
        if ledger.leaving and any(j in ledger.leaving for j in group.jobs):
            return False
        first = group.devices[0]
        return ledger.usable[first] and not ledger.draining[ledger.layout.device_node[first]]

    def _flip(self, gpus: int, slot: int, gib: int, first: int) -> None:
        key = (gpus, slot)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket()
        if bucket.flip(gib, first):
            self.live[gpus] = self.live.get(gpus, 0) ^ (1 << slot)

    def tightest(self, gpus: int, slot: int, gib: int) -> Group | None:
        """The group of a slot with least free memory that suffices, lowest number first."""
        for first in self._buckets[gpus, slot].firsts(gib):
            return self._at[first]
        return None

    def roomy(self, gpus: int, slot: int, gib: int) -> Iterator[Group]:
        """Groups of a slot with enough memory, tightest first."""
        for first in self._buckets[gpus, slot].firsts(gib):
            yield self._at[first]
