"""Room for a set of jobs at once: who stays, who goes where, and who must leave for it.

For policies that decide anew, every so often, which jobs run: largest gangs first, those that can stay
do, and nobody is stopped who is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from cotenant.model.ledger import low_bits
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_stop
from cotenant.model.view import View
from cotenant.policies.preemption.preempt import host_has

__all__ = ["Wish", "fixed", "repack", "sound_devices"]


class Wish(NamedTuple):
    """A job that should run on so many devices of a type."""

    record: JobRecord
    kind: int
    gpus: int


def fixed(view: View, record: JobRecord) -> bool:
    """Whether a job that holds devices cannot be stopped now, or could only by losing its work."""
    if record.status != Status.RUNNING:
        return False
    if record.id in view.ledger.leaving or not record.job.suspendable:
        return True
    return check_stop(view.books, record, True, view.now) is not None


def sound_devices(view: View) -> tuple[int, ...]:
    """Devices of each type that work and take jobs."""
    layout, ledger = view.layout, view.ledger
    if not ledger.impaired:
        return tuple(sum(layout.bay_size[b] for b in bays) for bays in layout.type_bays)
    counts = [0] * len(layout.types)
    for device, kind in enumerate(layout.device_type):
        counts[kind] += ledger.usable[device] and not ledger.draining[layout.device_node[device]]
    return tuple(counts)


def repack(
    view: View, wishes: list[Wish], pinned: Container[int] = ()
) -> tuple[dict[int, tuple[int, ...]], list[JobRecord]]:
    """Devices for each wish that finds room, by job id, and the running jobs that are in the way.

    Larger gangs come first, among equals those that can stay, then the order of ``wishes``. A gang that may span takes the roomiest
    nodes. A running job whose wish is for other devices than it holds is not among those in the way
    unless somebody else gets them. Jobs that are ``pinned`` keep what they hold.
    """
    search = _Repack(view, wishes, pinned)
    for wish in search.order:
        search.place(wish)
    return search.placed, search.in_the_way()


class _Repack:
    def __init__(self, view: View, wishes: list[Wish], pinned: Container[int]) -> None:
        self.view, self.placed = view, dict[int, tuple[int, ...]]()
        layout, ledger = view.layout, view.ledger
        self.open = list(ledger.whole)
        self.kept = [0] * len(self.open)
        self.loose = [
            r
            for r in view.running.values()
            if r.place and r.place.devices and r.id not in pinned and not fixed(view, r)
        ]
        for record in self.loose:
            for bay, mask in layout.blocks(_devices(record)) or ():
                self.open[bay] |= self._usable(bay, mask)
        can_stay = {r.id for r in self.loose if r.status == Status.RUNNING}
        self.stays: set[int] = set()
        for wish in wishes:
            devices = _devices(wish.record)
            if wish.record.id not in can_stay or len(devices) != wish.gpus:
                continue
            if any(layout.device_type[d] != wish.kind for d in devices):
                continue
            self.stays.add(wish.record.id)
            for bay, mask in layout.blocks(devices) or ():
                self.kept[bay] |= mask
        ranked = sorted(enumerate(wishes), key=lambda w: (-w[1].gpus, w[1].record.id not in self.stays, w[0]))
        self.order = [wish for _, wish in ranked]

    def _usable(self, bay: int, mask: int) -> int:
        """Of these devices, those that will be free once their residents are gone."""
        ledger, layout = self.view.ledger, self.view.layout
        if not (ledger.impaired or ledger.reserved):
            return mask
        if ledger.draining[layout.bay_node[bay]]:
            return 0
        good = 0
        for device in layout.devices(bay, mask):
            if ledger.usable[device] and device not in ledger.reserved:
                good |= layout.device_bit[device]
        return good

    def place(self, wish: Wish) -> None:
        record, blocks_of = wish.record, self.view.layout.blocks
        devices: tuple[int, ...] | None = None
        if record.id in self.stays:
            held = _devices(record)
            for bay, mask in blocks_of(held) or ():
                self.kept[bay] &= ~mask
            # Also where a node drains or keeps the device for somebody: who runs there may go on.
            if not self._taken(held):
                devices = held
        if devices is None:
            devices = self._find(wish)
        if devices is None:
            return
        self.placed[record.id] = devices
        for bay, mask in blocks_of(devices) or ():
            self.open[bay] &= ~mask

    def _taken(self, devices: tuple[int, ...]) -> bool:
        return any(
            self._usable(bay, mask) & ~self.open[bay] for bay, mask in self.view.layout.blocks(devices) or ()
        )

    def _find(self, wish: Wish) -> tuple[int, ...] | None:
        shape, layout = wish.record.shape, self.view.layout
        bays = layout.type_bays[wish.kind]
        ranked = sorted([self._cost(bay, wish) for bay in bays if self.open[bay].bit_count() >= wish.gpus])
        for *_, bay in ranked:
            devices = layout.devices(bay, self._pick(bay, wish.gpus, wish.record))
            if self._host(wish.record, devices):
                return devices
        if not shape.spans or sum(self.open[b].bit_count() for b in bays) < wish.gpus:
            return None
        left, found = wish.gpus, list[int]()
        for bay in sorted(bays, key=lambda b: (-self.open[b].bit_count(), b)):
            take = min(left, self.open[bay].bit_count())
            found += layout.devices(bay, self._pick(bay, take, wish.record))
            left -= take
            if not left:
                break
        devices = tuple(sorted(found))
        return devices if self._host(wish.record, devices) else None

    def _masks(self, bay: int, record: JobRecord) -> tuple[int, int, int, int]:
        """One's own devices, idle ones, those of jobs that are not to go on there, and of those that are."""
        room, mine = self.open[bay], 0
        for at, mask in self.view.layout.blocks(_devices(record)) or ():
            mine |= mask if at == bay else 0
        mine &= room
        idle, kept = self.view.ledger.whole[bay] & room, self.kept[bay] & room & ~mine
        return mine, idle, room & ~(mine | idle | kept), kept

    def _cost(self, bay: int, wish: Wish) -> tuple[int, int, int, int, int]:
        """Devices taken from those who were to stay, from others, not one's own, left over, and the bay."""
        mine, idle, others, _ = (m.bit_count() for m in self._masks(bay, wish.record))
        short = max(0, wish.gpus - mine - idle)
        left_over = self.open[bay].bit_count() - wish.gpus
        return max(0, short - others), short, wish.gpus - min(mine, wish.gpus), left_over, bay

    def _pick(self, bay: int, count: int, record: JobRecord) -> int:
        """So many devices of a bay, at the least cost to others; of others, small jobs leave first."""
        layout, picked = self.view.layout, 0
        mine, idle, others, kept = self._masks(bay, record)
        leaving: list[tuple[int, int, int]] = []
        for mask in (others, kept):
            ids = {j for d in layout.devices(bay, mask) for j in self.view.residents(d)}
            sized = sorted((len(_devices(self.view.running[j])), j) for j in ids)
            leaving += [(n, j, mask) for n, j in sized]
        for mask in (mine, idle):
            picked |= low_bits(mask, min(count - picked.bit_count(), mask.bit_count()))
        for _, job_id, mask in leaving:
            need = count - picked.bit_count()
            if need <= 0:
                break
            for at, held in layout.blocks(_devices(self.view.running[job_id])) or ():
                if at == bay:
                    free = held & mask & ~picked
                    picked |= low_bits(free, min(need, free.bit_count()))
        return picked

    def _host(self, record: JobRecord, devices: tuple[int, ...]) -> bool:
        if not (record.job.cpu_milli or record.job.host_memory_bytes):
            return True
        ids = {j for d in devices for j in self.view.residents(d)} | (
            {record.id} if record.id in self.view.running else set()
        )
        return host_has(self.view, record, devices, [self.view.running[j] for j in sorted(ids)])

    def in_the_way(self) -> list[JobRecord]:
        """Running jobs that hold devices somebody else gets."""
        owner = {d: job_id for job_id, devices in self.placed.items() for d in devices}
        return [
            r
            for r in self.loose
            if r.status == Status.RUNNING and any(owner.get(d, r.id) != r.id for d in _devices(r))
        ]


def _devices(record: JobRecord) -> tuple[int, ...]:
    return record.place.devices if record.place is not None else ()
