"""The books: who holds what on each device, in integers, and an index of free whole devices.

Rules read the books; policies read the index through the view. In tests the index is
rebuilt from the books after every event and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI, WHOLE, Placement, Share
from cotenant.model.residents import joined, parted
from cotenant.model.wholes import WholeIndex, low_bits

__all__ = ["FOREIGN_PART", "Ledger", "low_bits"]


FOREIGN_PART = 16
"""Who gets a whole device does without this part of its memory: a display, and what is shown there."""


class Ledger(WholeIndex):
    """What is held on each device and node.

    Attributes
    ----------
    free_milli, free_memory : list of int
        For each device: compute not guaranteed to anyone, memory not held, in bytes.
    residents : list of tuple of int
        For each device: job ids, ascending.
    held : dict of int to Placement
        What each job holds; ``leaving`` what a migrating job holds besides.
    usable : list of bool
        False while a device or its node is down.
    draining : list of bool
        For each node: takes no new jobs.
    reserved : dict of int to int
        Device to the pending job it is kept for.
    foreign : dict of int to (int, tuple of int)
        Device to memory that processes outside the scheduler hold there, in bytes, and their pids.
        If it is more than ``FOREIGN_PART`` of the device, that is given to nobody whole.
    impaired : bool
        Whether any device is down or in foreign use, or any node draining.
    turns_stay : bool
        Who waits for its turn stays in a device's memory, as real processes do that are stopped by signal.
    free_cpu, free_host : list of int
        For each node, or the host pool it draws from (``model.hosts``): thousandths of a core, bytes.
        Not decided on where undeclared.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        n = layout.device_count
        self.free_milli = [DEVICE_MILLI] * n
        self.free_memory = list(layout.device_memory)
        self.residents: list[tuple[int, ...]] = [()] * n
        self.held: dict[int, Placement] = {}
        self.leaving: dict[int, Placement] = {}
        self.usable = [True] * n
        self.draining = [False] * layout.node_count
        self.reserved: dict[int, int] = {}
        self.foreign: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.turns_stay = False
        self.impaired = False  # then freeing looks closer
        self.free_cpu, self.free_host = layout.host_cpu[:], layout.host_bytes[:]
        self.has_cpu = [cpu > 0 for cpu in layout.host_cpu]
        self.has_host = [size > 0 for size in layout.host_bytes]
        self._bay_of, self._bit_of, self._memory_of = (
            layout.device_bay,
            layout.device_bit,
            layout.device_memory,
        )
        for bay in range(len(layout.bay_node)):
            self._set_whole(bay, self._whole_now(bay))

    def _whole_now(self, bay: int) -> int:
        first, mask = self.layout.bay_first[bay], 0
        if self.draining[self.layout.bay_node[bay]]:
            return 0
        for i in range(self.layout.bay_size[bay]):
            device = first + i
            if self.usable[device] and not self.residents[device] and not self._kept(device):
                mask |= 1 << i
        return mask

    def _kept(self, device: int) -> bool:
        return device in self.reserved or self.used_outside(device)

    def used_outside(self, device: int) -> bool:
        """Do processes outside the scheduler hold more of a device than a desktop does?"""
        if device not in self.foreign:
            return False
        return self.foreign[device][0] * FOREIGN_PART > self.layout.device_memory[device]

    # -- changes ---------------------------------------------------------------------

    def occupy(self, job_id: int, place: Placement, cpu_milli: int = 0, host_bytes: int = 0) -> None:
        """Write down that a job holds a placement; the rules have agreed before."""
        self.held[job_id] = place
        devices, share = place.devices, place.share
        if len(devices) == 1 and (share is WHOLE or share.mode == "spatial"):
            # Most jobs of most traces: one device, or a part of it.
            (device,) = devices
            if share is WHOLE:
                self.residents[device] = (job_id,)
                self.free_milli[device] = self.free_memory[device] = 0
            else:
                there = self.residents[device]
                self.residents[device] = joined(there, job_id) if there else (job_id,)
                self.free_milli[device] -= share.compute_milli
                self.free_memory[device] -= share.memory_bytes
                if self.foreign:
                    self._refree(devices)
            if (old := self.whole[bay := self._bay_of[device]]) & (bit := self._bit_of[device]):
                self._set_whole(bay, old ^ bit)
        else:
            self._take(job_id, place)
        if cpu_milli or host_bytes:
            self._charge_host(place, -cpu_milli, -host_bytes)

    def vacate(self, job_id: int, cpu_milli: int = 0, host_bytes: int = 0) -> Placement:
        """Write down that a job holds nothing any more; returns what it held."""
        place = self.held.pop(job_id)
        devices = place.devices
        if len(devices) == 1 and not self.impaired and (device := devices[0]) not in self.reserved:
            self._give_one(job_id, device, place.share)
        else:
            self._give(job_id, place)
        if cpu_milli or host_bytes:
            self._charge_host(place, cpu_milli, host_bytes)
        return place

    def _take(self, job_id: int, place: Placement) -> None:
        share, devices = place.share, place.devices
        all_residents, free_milli, free_memory = self.residents, self.free_milli, self.free_memory
        if share is WHOLE or share.mode == "exclusive":
            mine = (job_id,)
            for device in devices:
                all_residents[device] = mine
                free_milli[device] = 0
                free_memory[device] = 0
        elif share.mode == "spatial":
            milli, memory = share.compute_milli, share.memory_bytes
            for device in devices:
                all_residents[device] = joined(all_residents[device], job_id)
                free_milli[device] -= milli
                free_memory[device] -= memory
            if self.foreign:
                self._refree(devices)
        else:
            for device in devices:
                all_residents[device] = joined(all_residents[device], job_id)
                free_milli[device] -= share.compute_milli
                free_memory[device] = self._memory_left(device)
        whole = self.whole
        for bay, mask in self.layout.blocks(devices) or ():
            taken = whole[bay] & mask
            if taken:
                self._set_whole(bay, whole[bay] ^ taken)

    def _give_one(self, job_id: int, device: int, share: Share) -> None:
        """As ``_give``, for one device that is sound and kept for nobody."""
        residents = self.residents
        if share is WHOLE or share.mode == "exclusive":
            residents[device] = ()
            self.free_milli[device] = DEVICE_MILLI
            self.free_memory[device] = self._memory_of[device]
        else:
            there = residents[device]
            residents[device] = rest = () if len(there) == 1 else parted(there, job_id)
            self.free_milli[device] += share.compute_milli
            if share.mode == "spatial":
                self.free_memory[device] += share.memory_bytes
            else:
                self.free_memory[device] = self._memory_left(device)
            if rest:
                return
        bay = self._bay_of[device]
        self._set_whole(bay, self.whole[bay] | self._bit_of[device])

    def _give(self, job_id: int, place: Placement) -> None:
        share, devices = place.share, place.devices
        all_residents, free_milli, free_memory = self.residents, self.free_milli, self.free_memory
        empty = True
        if share is WHOLE or share.mode == "exclusive":
            capacity = self.layout.device_memory
            for device in devices:
                all_residents[device] = ()
                free_milli[device] = DEVICE_MILLI
                free_memory[device] = capacity[device]
        else:
            spatial = share.mode == "spatial"
            milli, memory = share.compute_milli, share.memory_bytes
            for device in devices:
                residents = all_residents[device]
                if len(residents) == 1:
                    all_residents[device] = ()
                else:
                    all_residents[device] = parted(residents, job_id)
                    empty = False
                free_milli[device] += milli
                free_memory[device] = free_memory[device] + memory if spatial else self._memory_left(device)
        if self.foreign:
            self._refree(devices)
        sound = (
            empty and not self.impaired and (not self.reserved or self.reserved.keys().isdisjoint(devices))
        )
        for bay, mask in self.layout.blocks(devices) or ():
            freed = mask if sound else self._freed(bay, mask)
            if freed:
                self._set_whole(bay, self.whole[bay] | freed)

    def _freed(self, bay: int, mask: int) -> int:
        if self.draining[self.layout.bay_node[bay]]:
            return 0
        first, freed, rest = self.layout.bay_first[bay], 0, mask
        while rest:
            bit = rest & -rest
            rest ^= bit
            device = first + bit.bit_length() - 1
            if not self.residents[device] and self.usable[device] and not self._kept(device):
                freed |= bit
        return freed

    def _memory_left(self, device: int) -> int:
        """Capacity less the largest turn of the time-sliced residents: turns are there one at a time.

        Unless ``turns_stay``: then all of them hold memory.
        """
        turns = self.turns_on(device).values()
        taken = sum(turns) if self.turns_stay else max(turns, default=0)
        return self.layout.device_memory[device] - taken

    def _refree(self, devices: Iterable[int]) -> None:
        """Work out the free memory of devices that are used from outside; never less than none."""
        for device in devices:
            if device not in self.foreign:
                continue
            there = self.residents[device]
            mode = self.share_on(there[0], device).mode if there else "spatial"
            if mode == "exclusive":
                self.free_memory[device] = 0
                continue
            left = (
                self._memory_left(device)
                if mode == "time-sliced"
                else self.layout.device_memory[device]
                - sum(self.share_on(j, device).memory_bytes for j in there)
            )
            self.free_memory[device] = max(left - self.foreign[device][0], 0)

    def foreign_bytes(self, device: int) -> int:
        """Memory of a device that processes outside the scheduler hold."""
        return self.foreign[device][0] if device in self.foreign else 0

    def turns_on(self, device: int) -> dict[int, int]:
        """Memory of each turn on a time-sliced device, in bytes; a turn of one's own is ``~job``."""
        turns: dict[int, int] = {}
        for job_id in self.residents[device]:
            share = self.share_on(job_id, device)
            turn = share.turn if share.turn >= 0 else ~job_id
            turns[turn] = turns.get(turn, 0) + share.memory_bytes
        return turns

    def share_on(self, job_id: int, device: int) -> Share:
        """The share a job holds on a device it is resident on."""
        place = self.held.get(job_id)
        if place is not None and (not self.leaving or device in place.devices):
            return place.share
        return self.leaving[job_id].share

    def _charge_host(self, place: Placement, cpu_milli: int, host_bytes: int) -> None:
        for node, cpu, host in self.host_parts(place, cpu_milli, host_bytes):
            self.free_cpu[node] += cpu
            self.free_host[node] += host

    def host_parts(self, place: Placement, cpu_milli: int, host_bytes: int) -> Iterator[tuple[int, int, int]]:
        """Yield (node, thousandths of a core, bytes): a job's host needs, spread over its devices.

        Each node is charged in proportion to its devices, rounded away from zero.
        """
        if place.node >= 0:
            yield place.node, cpu_milli, host_bytes
            return
        nodes: dict[int, int] = {}
        for device in place.devices:
            node = self.layout.device_node[device]
            nodes[node] = nodes.get(node, 0) + 1
        total = len(place.devices)
        for node, count in nodes.items():
            yield node, _portion(cpu_milli, count, total), _portion(host_bytes, count, total)

    def begin_move(self, job_id: int, place: Placement, cpu_milli: int = 0, host_bytes: int = 0) -> None:
        """A job starts to migrate: it holds the new place and, until released, the old one."""
        self.leaving[job_id] = self.vacate(job_id, cpu_milli, host_bytes)
        self._take(job_id, self.leaving[job_id])
        self.occupy(job_id, place, cpu_milli, host_bytes)

    def keep(self, job_id: int, place: Placement) -> None:
        """Besides where it is, a job holds this, until ``end_move``: it has just been given back."""
        self.leaving[job_id] = place
        self._take(job_id, place)

    def end_move(self, job_id: int) -> None:
        """The old place of a migrating job is free."""
        place = self.leaving.pop(job_id, None)
        if place is not None:
            self._give(job_id, place)

    def set_usable(self, devices: Iterable[int], usable: bool) -> None:
        """Devices fail or return."""
        for device in devices:
            self.usable[device] = usable
            self._refresh(self.layout.device_bay[device])
        self._look()

    def set_foreign(self, device: int, memory_bytes: int, pids: tuple[int, ...]) -> None:
        """Processes outside the scheduler hold memory of a device, or none any more."""
        self.foreign[device] = memory_bytes, pids
        self._refree((device,))
        if not memory_bytes:
            del self.foreign[device]
        self._look()
        self._refresh(self.layout.device_bay[device])

    def _look(self) -> None:
        self.impaired = bool(self.foreign) or not all(self.usable) or any(self.draining)

    def set_draining(self, node: int, draining: bool) -> None:
        """A node stops or starts taking new jobs."""
        self.draining[node] = draining
        self._look()
        for bay in self.layout.node_bays[node]:
            self._refresh(bay)

    def set_reserved(self, job_id: int, devices: tuple[int, ...], old: tuple[int, ...]) -> None:
        """Keep devices for a pending job, instead of those kept before."""
        reserved, whole, blocks = self.reserved, self.whole, self.layout.blocks
        for device in old:
            if reserved.get(device) == job_id:
                del reserved[device]
        for bay, mask in blocks(old) or ():
            if freed := self._freed(bay, mask):
                self._set_whole(bay, whole[bay] | freed)
        for device in devices:
            reserved[device] = job_id
        for bay, mask in blocks(devices) or ():
            if taken := whole[bay] & mask:
                self._set_whole(bay, whole[bay] ^ taken)

    def _refresh(self, bay: int) -> None:
        self._set_whole(bay, self._whole_now(bay))

    # -- checks ----------------------------------------------------------------------

    def index_errors(self) -> list[str]:
        """Differences between the index and the books; empty if all is well. For tests."""
        wrong = []
        for bay in range(len(self.whole)):
            true = self._whole_now(bay)
            if self.whole[bay] != true:
                wrong.append(f"bay {bay}: index {self.whole[bay]:b}, books {true:b}")
        for kind, bays in enumerate(self.layout.type_bays):
            for count in range(1, len(self._bays_with[kind])):
                row = sum(self.layout.bay_bit[b] for b in bays if self.whole[b].bit_count() == count)
                if row != self._bays_with[kind][count] or bool(row) != bool(self._counts[kind] >> count & 1):
                    wrong.append(f"type {kind}, count {count}: bit sets differ")
            if self.free_count[kind] != sum(self.whole[b].bit_count() for b in bays):
                wrong.append(f"type {kind}: free count {self.free_count[kind]}")
        return wrong


def _portion(total: int, count: int, of: int) -> int:
    if count == of:
        return total
    whole = -(-abs(total) * count // of)
    return whole if total >= 0 else -whole
