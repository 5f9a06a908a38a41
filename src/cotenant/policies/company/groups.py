"""Sets of jobs that share devices, indexed so that the best partner is found without a scan.

Two kinds of place can take a newcomer. A *seat* is one device: a single job may sit
beside other singles, or alone beside a member of a gang. A *group* is the devices of
a gang, all held by the same jobs: a gang of the same size may join. A *slot* is what
matters of either for interference: device type, models present with their weights, and who
may join (the circle). For each size and slot, a *bucket* holds its places in rows by free
memory in GiB; a row is a bit set over (first) devices, so the tightest sufficient place, lowest
number first, is two shifts away, and the answer depends on the books alone.

Most changes are of one device with one to three residents, so jobs that are alike are numbered,
and what a set of such numbers amounts to is looked up, not worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotenant.model.placement import Placement
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import Index, View
from cotenant.policies.company.verdicts import labelled
from cotenant.policies.queues.circles import Circle, circle_of
from cotenant.policies.space.buckets import At, Bucket, SlotKey

__all__ = ["GroupIndex"]

_RUNNING = Status.RUNNING


class GroupIndex(Index):
    """All places that another job could join.

    Parameters
    ----------
    view : View
    by_class : bool
        Whether guaranteed and opportunistic jobs of one model are told apart.

    Attributes
    ----------
    slots : list of SlotKey
        Slots seen so far; their numbers mean nothing outside.
    within : dict of (int, Circle) to int
        For each device type and circle: bit set of its slots.
    live : dict of int to int
        For each size: bit set of slots with a place in them.
    buckets : list of Bucket
    changed : callable or None
        Told the bucket whenever a place enters it, ...
    wanted : dict of int to int
        ... if there is something for the bucket's size in here; filled by who listens.
    """

    def __init__(self, view: View, by_class: bool = False) -> None:
        self._by_class = by_class
        self._view, self._ledger = view, view.ledger
        self._residents, self._free = view.ledger.residents, view.ledger.free_memory
        self._types, self._most = view.layout.device_type, view.settings.max_sharers
        self.slots: list[SlotKey] = []
        self.within: dict[tuple[int, Circle], int] = {}
        self._slot_of: dict[SlotKey, int] = {}
        self.live: dict[int, int] = {}
        self.buckets: list[Bucket] = []
        self._bucket_of: dict[tuple[int, int], Bucket] = {}
        # Jobs that are alike have one number; a set of numbers, sorted, on a type leads to a bucket.
        self._alike: list[tuple[str, int, Circle | None]] = []
        self._alike_of: dict[tuple[str, int, Circle | None], int] = {}
        self._number_of: dict[int, int] = {}
        self._seat_buckets: dict[tuple[int, ...], Bucket | None] = {}
        self._group_buckets: dict[tuple[int, ...], Bucket | None] = {}
        # Where each device's seat lies now, and each gang's group.
        self._seat_at: list[At | None] = [None] * view.layout.device_count
        self._group_at: dict[tuple[int, ...], At] = {}
        self._gang_on: dict[int, tuple[int, ...]] = {}
        self._members: dict[tuple[int, ...], int] = {}
        self._groups: dict[tuple[int, int], tuple[int, ...]] = {}
        self._stopping: set[int] = set()
        self.changed: Callable[[Bucket], None] | None = None
        self.wanted: dict[int, int] = {}
        self._build()

    def _build(self) -> None:
        for record in self._view.running.values():
            if record.status != _RUNNING:
                self._stopping.add(record.id)
        for record in self._view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
            old = self._ledger.leaving.get(record.id)
            if old is not None:
                self.placed(record, old)

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job joined the devices' other residents."""
        if place.share.mode != "spatial":
            return
        devices, job = place.devices, record.job
        kind = (labelled(job) if self._by_class else job.model, len(devices), circle_of(job))
        number = self._alike_of.get(kind)
        if number is None:
            number = self._alike_of[kind] = len(self._alike)
            self._alike.append(kind)
        self._number_of[record.id] = number
        if len(devices) == 1:
            self._refresh_one(devices[0])
            return
        count = self._members[devices] = self._members.get(devices, 0) + 1
        if count == 1:
            for device in devices:
                self._gang_on[device] = devices
        self._refresh_gang(devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left its neighbours."""
        if place.share.mode != "spatial":
            return
        devices = place.devices
        if record.id not in self._ledger.held:
            self._number_of.pop(record.id, None)
            if self._stopping:
                self._stopping.discard(record.id)
        elif record.place is not None and record.place.devices != devices:
            # A move is over: its new neighbours may have others join them again.
            self._refresh(record.place.devices)
        if len(devices) == 1:
            self._refresh_one(devices[0])
            return
        self._members[devices] -= 1
        self._refresh_gang(devices)

    def stopping(self, record: JobRecord) -> None:
        """Nobody joins a job that is about to leave its devices."""
        place = record.place
        if place is not None and place.share.mode == "spatial":
            self._stopping.add(record.id)
            self._refresh(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Failures, drains and reservations close places to newcomers, or open them again."""
        gangs: dict[tuple[int, ...], None] = {}
        for device in sorted(set(devices)):
            gangs[self._gang_on.get(device) or (device,)] = None
        for gang in gangs:
            self._refresh(gang)

    def _refresh(self, devices: tuple[int, ...]) -> None:
        if len(devices) == 1:
            self._refresh_one(devices[0])
        else:
            self._refresh_gang(devices)

    # -- seats -------------------------------------------------------------------------

    def _refresh_one(self, device: int) -> None:
        """Bring one device's seat up to date, and the group of the gang it belongs to."""
        self._refresh_seat(device)
        if self._gang_on:
            gang = self._gang_on.get(device)
            if gang is not None:
                self._refresh_group(gang)

    def _refresh_seat(self, device: int) -> None:
        old, new = self._seat_at[device], self._seat_of(device)
        if old is not new:
            self._seat_at[device] = new
            self._move(old, new, 1 << device)

    def _refresh_gang(self, devices: tuple[int, ...]) -> None:
        """Bring the seats of a gang's devices, and its group, up to date."""
        closed = self._closed(devices) if self._uniform(devices) else None
        if closed is None:
            for device in devices:
                self._refresh_seat(device)
            self._refresh_group(devices)
            return
        # Most often a gang's devices are alike before and after: then they move as one.
        first, seat_at = devices[0], self._seat_at
        old, new = seat_at[first], None if closed else self._seat_of(first)
        if old is not new:
            for device in devices:
                seat_at[device] = new
            self._move(old, new, self._bits(devices))
        self._refresh_group(devices, alike=not closed)

    def _closed(self, devices: tuple[int, ...]) -> bool | None:
        """Whether nobody may join on any of these devices, which have the same residents; None if they differ."""
        if self._sound():
            return False
        ledger = self._ledger
        leaving, stopping, reserved = ledger.leaving, self._stopping, ledger.reserved
        for job_id in self._residents[devices[0]]:
            if job_id in leaving or job_id in stopping:
                return True
        kept = sum([d in reserved for d in devices]) if reserved else 0
        if kept:
            return True if kept == len(devices) else None
        return None if ledger.impaired else False

    def _uniform(self, devices: tuple[int, ...]) -> bool:
        """Whether devices of a gang have the same type, residents, room and seat."""
        residents, seat_at, free, types = self._residents, self._seat_at, self._free, self._types
        first = devices[0]
        here, old, room, kind = residents[first], seat_at[first], free[first], types[first]
        for device in devices:
            if (
                residents[device] != here
                or free[device] != room
                or types[device] != kind
                or seat_at[device] is not old
            ):
                return False
        return True

    def _bits(self, devices: tuple[int, ...]) -> int:
        """Devices as bits."""
        layout, bits = self._view.layout, 0
        for bay, mask in layout.blocks(devices) or ():
            bits |= mask << layout.bay_first[bay]
        return bits

    def _seat_of(self, device: int) -> At | None:
        """Where a device's seat belongs now; None if nobody may join."""
        here = self._residents[device]
        count = len(here)
        if not 0 < count < self._most:
            return None
        ledger, numbers = self._ledger, self._number_of
        if (ledger.reserved or ledger.leaving or ledger.impaired or self._stopping) and not self._open(
            (device,), here
        ):
            return None  # as _sound, without the call
        key = (
            (self._types[device], numbers.get(here[0], -1))
            if count == 1
            else (self._types[device], *sorted([numbers.get(j, -1) for j in here]))
        )
        try:
            bucket = self._seat_buckets[key]
        except KeyError:
            bucket = self._seat_buckets[key] = self._bucket(1, key)
        return None if bucket is None else bucket.at(self._free[device] // GIB)

    # -- groups ------------------------------------------------------------------------

    def _refresh_group(self, devices: tuple[int, ...], *, alike: bool = False) -> None:
        """The group of a gang: there only while all its devices have the same residents.

        ``alike`` says that they are known to have them, that nothing is amiss with them, and that
        they have the same room.
        """
        if not self._members.get(devices):
            new = None
            self._forget(devices)
        else:
            new = self._group_of(devices, alike=alike)
        old = self._group_at.get(devices)
        if old is new:
            return
        first = devices[0]
        if new is None:
            del self._group_at[devices]
            del self._groups[len(devices), first]
        else:
            self._group_at[devices] = new
            self._groups[len(devices), first] = devices
        self._move(old, new, 1 << first)

    def _forget(self, devices: tuple[int, ...]) -> None:
        """No gang is on these devices any more."""
        self._members.pop(devices, None)
        for device in devices:
            if self._gang_on.get(device) == devices:
                del self._gang_on[device]

    def _group_of(self, devices: tuple[int, ...], *, alike: bool) -> At | None:
        """Where a gang's group belongs now; None if no gang may join."""
        residents, free, first = self._residents, self._free, devices[0]
        here, least = residents[first], free[first]
        if not alike:
            for device in devices:
                if residents[device] != here:
                    return None
                if free[device] < least:
                    least = free[device]
            if not (self._sound() or self._open(devices, here)):
                return None
        if not 0 < len(here) < self._most:
            return None
        numbers = self._number_of
        if len(here) == 1:
            key: tuple[int, ...] = (len(devices), self._types[first], numbers.get(here[0], -1))
        else:
            key = (len(devices), self._types[first], *sorted([numbers.get(j, -1) for j in here]))
        try:
            bucket = self._group_buckets[key]
        except KeyError:
            bucket = self._group_buckets[key] = self._bucket(len(devices), key[1:])
        return None if bucket is None else bucket.at(least // GIB)

    # -- what the books say --------------------------------------------------------------

    def _sound(self) -> bool:
        """Nothing anywhere is reserved, about to leave, down or draining: no need to look closer."""
        ledger = self._ledger
        return not (ledger.reserved or ledger.leaving or ledger.impaired or self._stopping)

    def _open(self, devices: tuple[int, ...], residents: tuple[int, ...]) -> bool:
        """May anyone join? Not on reserved, failed or draining devices, nor jobs about to leave."""
        ledger = self._ledger
        if ledger.reserved and any(d in ledger.reserved for d in devices):
            return False
        if any(j in ledger.leaving or j in self._stopping for j in residents):
            return False
        node = ledger.layout.device_node
        return all(ledger.usable[d] and not ledger.draining[node[d]] for d in devices)

    def _bucket(self, gpus: int, key: tuple[int, ...]) -> Bucket | None:
        """The bucket for a device type and the numbers of its residents; None if nobody may join."""
        kind, *numbers = key
        if min(numbers) < 0:
            return None  # a resident that holds no share
        jobs = [self._alike[n] for n in numbers]
        circle = jobs[0][2]
        if circle is None or any(job[2] != circle for job in jobs):
            return None
        if gpus == 1 and len(jobs) > 1 and any(job[1] > 1 for job in jobs):
            # One guest beside a gang member and no more: it bounds the harm to a gang, and the
            # number of distinct slots, which would otherwise run into the hundred thousands.
            return None
        members = tuple(sorted([(model, size if gpus == 1 else 1) for model, size, _ in jobs]))
        slot = self._slot((kind, members, circle))
        found = self._bucket_of.get((gpus, slot))
        if found is None:
            found = self._bucket_of[gpus, slot] = Bucket(len(self.buckets), gpus, slot)
            self.buckets.append(found)
        return found

    def _slot(self, key: SlotKey) -> int:
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = len(self.slots)
            self.slots.append(key)
            self.within[key[0], key[2]] = self.within.get((key[0], key[2]), 0) | 1 << slot
        return slot

    def _move(self, old: At | None, new: At | None, bits: int) -> None:
        """Places go from one row to another, or come, or go."""
        if old is not None:
            bucket, gib = old
            row = bucket.rows[gib] ^ bits
            if row:
                bucket.rows[gib] = row
            else:
                del bucket.rows[gib]
                bucket.word ^= 1 << gib
                if not bucket.word:
                    self.live[bucket.gpus] ^= bucket.bit
        if new is None:
            return
        bucket, gib = new
        rows = bucket.rows
        if gib in rows:
            rows[gib] |= bits
        else:
            rows[gib] = bits
            if not bucket.word:
                self.live[bucket.gpus] = self.live.get(bucket.gpus, 0) | bucket.bit
            bucket.word |= 1 << gib
        if self.changed is not None and self.wanted.get(bucket.gpus):
            self.changed(bucket)

    # -- questions -------------------------------------------------------------------

    def tightest(self, gpus: int, slot: int, gib: int) -> tuple[int, ...] | None:
        """Devices of a slot's place with least free memory that suffices, lowest number first."""
        bucket = self._bucket_of[gpus, slot]
        word = bucket.word >> gib
        if not word:
            return None
        row = bucket.rows[gib + (word & -word).bit_length() - 1]
        first = (row & -row).bit_length() - 1
        return (first,) if gpus == 1 else self._groups[gpus, first]

    def roomy(self, gpus: int, slot: int, gib: int) -> Iterator[tuple[int, ...]]:
        """Devices of a slot's places with enough memory, tightest first."""
        for first in self._bucket_of[gpus, slot].firsts(gib):
            yield (first,) if gpus == 1 else self._groups[gpus, first]
