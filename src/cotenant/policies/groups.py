"""Sets of jobs that share devices, indexed so that the best partner is found without a scan.

Two kinds of place can take a newcomer. A *seat* is one device: a single job may sit
beside other singles, or alone beside a member of a gang. A *group* is the devices of
a gang, all held by the same jobs: a gang of the same size may join. A *slot* is what
matters of either for interference: device type, models present with their weights, and who
may join (the circle). For each size and slot, places lie in rows by free memory in GiB; a
row is a bit set over (first) devices, so the tightest sufficient place, lowest number
first, is two shifts away, and the answer depends on the books alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import Index, View

__all__ = ["Circle", "GroupIndex", "Member", "SlotKey", "circle_of", "needed_gib"]

Circle = tuple[str, ...]
Member = tuple[str, int]
"""Model and weight: devices it holds for each device of the newcomer that joins."""

SlotKey = tuple[int, tuple[Member, ...], Circle]
"""Device type, sorted members present, circle."""


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


_RUNNING = Status.RUNNING


class _Bucket:
    """Places of one size and slot, in rows by free GiB."""

    __slots__ = ("rows", "word")

    def __init__(self) -> None:
        self.word = 0
        self.rows: dict[int, int] = {}

    def flip(self, gib: int, bits: int) -> bool:
        """Put places in, or take them out; True if the bucket became empty or non-empty."""
        before = self.word
        row = self.rows.get(gib, 0) ^ bits
        if row:
            self.rows[gib] = row
            self.word |= 1 << gib
        else:
            del self.rows[gib]
            self.word ^= 1 << gib
        return (before == 0) != (self.word == 0)

    def firsts(self, gib: int) -> Iterator[int]:
        """First devices of places with at least this much free memory, tightest first."""
        word = self.word >> gib
        while word:
            bit = word & -word
            row = self.rows[gib + bit.bit_length() - 1]
            while row:
                yield (row & -row).bit_length() - 1
                row &= row - 1
            word ^= bit


class GroupIndex(Index):
    """All places that another job could join.

    Attributes
    ----------
    slots : list of SlotKey
        Slots seen so far; their numbers mean nothing outside.
    live : dict of int to int
        For each size: bit set of slots with a place in them.
    changed : callable or None
        Told (gpus, slot) whenever a place enters a bucket.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._types = view.layout.device_type
        self.slots: list[SlotKey] = []
        self._slot_of: dict[SlotKey, int] = {}
        self.live: dict[int, int] = {}
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        # Where each device's seat lies now, and each gang's group: (slot, free GiB).
        self._seat_at: dict[int, tuple[int, int]] = {}
        self._group_at: dict[tuple[int, ...], tuple[int, int]] = {}
        self._gang_on: dict[int, tuple[int, ...]] = {}
        self._bits_of: dict[tuple[int, ...], int] = {}
        self._groups: dict[tuple[int, int], tuple[int, ...]] = {}
        self.changed: Callable[[int, int], None] | None = None
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
            leaving = view.ledger.leaving.get(record.id)
            if leaving is not None:
                self.placed(record, leaving)

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job joined the devices' other residents."""
        if place.share.mode == "spatial":
            self._refresh(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left its neighbours."""
        if place.share.mode == "spatial":
            self._refresh(place.devices)

    def stopping(self, record: JobRecord) -> None:
        """Nobody joins a job that is about to leave its devices."""
        place = record.place
        if place is not None and place.share.mode == "spatial":
            self._refresh(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Failures, drains and reservations close places to newcomers, or open them again."""
        for device in sorted(set(devices)):
            gang = self._gang_on.get(device)
            self._refresh(gang if gang is not None else (device,))

    def _refresh(self, devices: tuple[int, ...]) -> None:
        """Bring the seats of these devices, and the gang they belong to, up to date."""
        residents = self._view.ledger.residents
        first = residents[devices[0]]
        if len(devices) == 1:
            self._update_seats(devices, first)
            gang = self._gang_on.get(devices[0]) if self._gang_on else None
            if gang is not None:
                self._update_group(gang)
            return
        for device in devices:
            if residents[device] != first:
                for one in devices:
                    self._update_seats((one,), residents[one])
                break
        else:
            self._update_seats(devices, first)
        self._update_group(devices)

    def _bits(self, devices: tuple[int, ...]) -> int:
        """Devices as bits; remembered, as the same gangs' places come again and again."""
        if len(devices) == 1:
            return 1 << devices[0]
        bits = self._bits_of.get(devices)
        if bits is None:
            bits = self._bits_of[devices] = sum(1 << d for d in devices)
        return bits

    def _update_seats(self, devices: tuple[int, ...], residents: tuple[int, ...]) -> None:
        """Seats of devices that have the same residents."""
        seat_at = self._seat_at
        olds = [seat_at.pop(d, None) for d in devices]
        first = olds[0]
        if olds.count(first) == len(olds):
            if first is not None:
                self._flip(1, first[0], first[1], self._bits(devices))
        else:
            for device, old in zip(devices, olds, strict=True):
                if old is not None:
                    self._flip(1, old[0], old[1], 1 << device)
        if not residents or not self._open(devices, residents):
            return
        key = self._key(devices[0], residents, seat=True)
        if key is None:
            return
        slot = self._number(key)
        free = self._view.ledger.free_memory
        gib = (free[devices[0]] if len(devices) == 1 else min([free[d] for d in devices])) // GIB
        self._flip(1, slot, gib, self._bits(devices))
        at = (slot, gib)
        for device in devices:
            seat_at[device] = at
        if self.changed is not None:
            self.changed(1, slot)

    def _update_group(self, devices: tuple[int, ...]) -> None:
        """The group of a gang: there only while all its devices have the same residents."""
        ledger = self._view.ledger
        old = self._group_at.pop(devices, None)
        size, first = len(devices), devices[0]
        if old is not None:
            self._flip(size, old[0], old[1], 1 << first)
        residents = ledger.residents[first]
        if not any(self._holds(j, devices) for j in residents):
            for device in devices:
                self._gang_on.pop(device, None)
            self._groups.pop((size, first), None)
            return
        if self._gang_on.get(first) != devices:
            for device in devices:
                self._gang_on[device] = devices
        for device in devices:
            if ledger.residents[device] != residents:
                return
        if not self._open(devices, residents):
            return
        key = self._key(first, residents, seat=False)
        if key is None:
            return
        slot = self._number(key)
        gib = min([ledger.free_memory[d] for d in devices]) // GIB
        self._groups[size, first] = devices
        self._group_at[devices] = (slot, gib)
        self._flip(size, slot, gib, 1 << first)
        if self.changed is not None:
            self.changed(size, slot)

    def _holds(self, job_id: int, devices: tuple[int, ...]) -> bool:
        place = self._view.ledger.held.get(job_id)
        return place is not None and place.devices == devices

    def _open(self, devices: tuple[int, ...], residents: tuple[int, ...]) -> bool:
        """May anyone join? Not beyond the bound, nor on reserved, failed or draining devices."""
        view = self._view
        ledger = view.ledger
        if len(residents) >= view.settings.max_sharers:
            return False
        if ledger.reserved and any(d in ledger.reserved for d in devices):
            return False
        if ledger.leaving and any(j in ledger.leaving for j in residents):
            return False
        records = view.records
        for job_id in residents:
            if records[job_id].status != _RUNNING:
                return False
        if not ledger.impaired:
            return True
        node = ledger.layout.device_node
        return all(ledger.usable[d] and not ledger.draining[node[d]] for d in devices)

    def _key(self, device: int, residents: tuple[int, ...], *, seat: bool) -> SlotKey | None:
        records = self._view.records
        jobs = [records[j].job for j in residents]
        circle = circle_of(jobs[0])
        if circle is None:
            return None
        if seat and len(jobs) > 1 and any(job.gpus > 1 for job in jobs):
            # One guest beside a gang member and no more: it bounds the harm to a gang, and the
            # number of distinct slots, which would otherwise run into the hundred thousands.
            return None
        if len(jobs) == 1:
            members: tuple[Member, ...] = ((jobs[0].model, jobs[0].gpus if seat else 1),)
        else:
            members = tuple(sorted([(job.model, job.gpus if seat else 1) for job in jobs]))
        return self._types[device], members, circle

    def _number(self, key: SlotKey) -> int:
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = len(self.slots)
            self.slots.append(key)
        return slot

    def _flip(self, gpus: int, slot: int, gib: int, bits: int) -> None:
        key = (gpus, slot)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket()
        if bucket.flip(gib, bits):
            self.live[gpus] = self.live.get(gpus, 0) ^ (1 << slot)

    # -- questions -------------------------------------------------------------------

    def most_room(self, gpus: int, slot: int) -> int:
        """Free GiB of a slot's roomiest place; -1 if it has none."""
        bucket = self._buckets.get((gpus, slot))
        return -1 if bucket is None else bucket.word.bit_length() - 1

    def tightest(self, gpus: int, slot: int, gib: int) -> tuple[int, ...] | None:
        """Devices of a slot's place with least free memory that suffices, lowest number first."""
        return next(self.roomy(gpus, slot, gib), None)

    def roomy(self, gpus: int, slot: int, gib: int) -> Iterator[tuple[int, ...]]:
        """Devices of a slot's places with enough memory, tightest first."""
        for first in self._buckets[gpus, slot].firsts(gib):
            yield (first,) if gpus == 1 else self._groups[gpus, first]
