"""The books: who holds what on each device, in integers, and an index of free whole devices.

Rules read the books; policies read the index through the view. In tests the index is
rebuilt from the books after every event and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI, WHOLE, Placement, Share
from cotenant.model.residents import joined, parted

__all__ = ["Ledger", "low_bits"]


def low_bits(mask: int, count: int) -> int:
    """The ``count`` lowest set bits of ``mask``.

    >>> bin(low_bits(0b10110, 2))
    '0b110'
    """
    if count == 1:
        return mask & -mask
    if mask.bit_count() == count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


class Ledger:
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
    whole : list of int
        For each bay: mask of devices that are usable, empty, not reserved, not draining.
    free_count : list of int
        For each type: number of such devices.
    impaired : bool
        Whether any device is down or any node draining.
    free_cpu, free_host : list of int
        For each node: thousandths of a core, bytes. Not decided on where undeclared.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        n = layout.device_count
        self.free_milli = [DEVICE_MILLI] * n
        self.free_memory = list(layout.device_memory)
        self.residents: list[tuple[int, ...]] = [()] * n
        self.held: dict[int, Placement] = {}
        self.leaving: dict[int, Placement] = {}
        self.usable = [True] * n
        self.draining = [False] * layout.node_count
        self.reserved: dict[int, int] = {}
        self.impaired = False  # any device down or node draining: then freeing looks closer
        self.free_cpu = [node.cpu_milli for node in layout.cluster.nodes]
        self.free_host = [node.host_memory_bytes for node in layout.cluster.nodes]
        self.has_cpu = [node.cpu_milli > 0 for node in layout.cluster.nodes]
        self.has_host = [node.host_memory_bytes > 0 for node in layout.cluster.nodes]
        self._build_index()

    def _build_index(self) -> None:
        layout = self.layout
        self.whole = [0] * len(layout.bay_node)
        widest = max(layout.bay_size, default=0)
        # For each type and each count of free devices: a bit set of bays with that count,
        # and for each type a bit set of the counts that occur. Both canonical: what they
        # answer depends on the books alone, never on the order of changes.
        self._bays_with = [[0] * (widest + 1) for _ in layout.types]
        self._counts = [0] * len(layout.types)
        self._bay_of, self._bit_of, self._memory_of = (
            layout.device_bay,
            layout.device_bit,
            layout.device_memory,
        )
        self._first_of = layout.bay_first
        self._index_of = [
            (kind, bit, self._bays_with[kind])
            for kind, bit in zip(layout.bay_type, layout.bay_bit, strict=True)
        ]
        self.free_count = [0] * len(layout.types)
        for bay in range(len(layout.bay_node)):
            self._set_whole(bay, self._whole_now(bay))

    def _whole_now(self, bay: int) -> int:
        first, mask = self.layout.bay_first[bay], 0
        if self.draining[self.layout.bay_node[bay]]:
            return 0
        for i in range(self.layout.bay_size[bay]):
            device = first + i
            if self.usable[device] and not self.residents[device] and device not in self.reserved:
                mask |= 1 << i
        return mask

    def _set_whole(self, bay: int, mask: int) -> None:
        whole = self.whole
        before, after = whole[bay].bit_count(), mask.bit_count()
        whole[bay] = mask
        if before == after:
            return
        kind, bit, rows = self._index_of[bay]
        self.free_count[kind] += after - before
        if before:
            rows[before] = row = rows[before] ^ bit
            if not row:
                self._counts[kind] ^= 1 << before
        if after:
            row = rows[after]
            if not row:
                self._counts[kind] ^= 1 << after
            rows[after] = row | bit

    # -- changes ---------------------------------------------------------------------

    def occupy(self, job_id: int, place: Placement, cpu_milli: int = 0, host_bytes: int = 0) -> None:
        """Write down that a job holds a placement; the rules have agreed before."""
        self.held[job_id] = place
        devices = place.devices
        if place.share is WHOLE and len(devices) == 1:
            # Most jobs of most traces: one whole device.
            (device,) = devices
            self.residents[device] = (job_id,)
            self.free_milli[device] = self.free_memory[device] = 0
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
        if (
            place.share is WHOLE
            and len(devices) == 1
            and not self.impaired
            and (device := devices[0]) not in self.reserved
        ):
            self.residents[device] = ()
            self.free_milli[device] = DEVICE_MILLI
            self.free_memory[device] = self._memory_of[device]
            bay = self._bay_of[device]
            self._set_whole(bay, self.whole[bay] | self._bit_of[device])
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
            if not self.residents[device] and self.usable[device] and device not in self.reserved:
                freed |= bit
        return freed

    def _memory_left(self, device: int) -> int:
        """Capacity less the largest of the time-sliced residents: they are there one at a time."""
        largest = max((self.share_on(j, device).memory_bytes for j in self.residents[device]), default=0)
        return self.layout.device_memory[device] - largest

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
        self.impaired = not all(self.usable) or any(self.draining)

    def set_draining(self, node: int, draining: bool) -> None:
        """A node stops or starts taking new jobs."""
        self.draining[node] = draining
        self.impaired = not all(self.usable) or any(self.draining)
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

    # -- questions -------------------------------------------------------------------

    def tightest_bay(self, kind: int, gpus: int) -> int:
        """The bay of this type with fewest free whole devices, but at least ``gpus``; -1 if none."""
        counts = self._counts[kind] >> gpus
        if not counts:
            return -1
        row = self._bays_with[kind][gpus + (counts & -counts).bit_length() - 1]
        return self.layout.type_bays[kind][(row & -row).bit_length() - 1]

    def tightest(self, kind: int, gpus: int) -> tuple[int, ...] | None:
        """Lowest whole free devices of ``tightest_bay``, or None."""
        counts = self._counts[kind] >> gpus
        if not counts:
            return None
        row = self._bays_with[kind][gpus + (counts & -counts).bit_length() - 1]
        bay = self.layout.type_bays[kind][(row & -row).bit_length() - 1]
        mask = self.whole[bay]
        if gpus == 1:
            return self.layout.alone[self._first_of[bay] + (mask & -mask).bit_length() - 1]
        return self.layout.devices(bay, low_bits(mask, gpus))

    def lowest_bay(self, kind: int, gpus: int) -> int:
        """The lowest-numbered bay of this type with at least ``gpus`` free whole devices; -1 if none."""
        counts, rows, found = self._counts[kind] >> gpus, self._bays_with[kind], 0
        count = gpus
        while counts:
            if counts & 1:
                bit = rows[count] & -rows[count]
                found = bit if not found else min(found, bit)
            counts >>= 1
            count += 1
        return self.layout.type_bays[kind][found.bit_length() - 1] if found else -1

    def bays_by_room(self, kind: int, gpus: int) -> Iterator[int]:
        """Bays with at least ``gpus`` free whole devices, tightest first, then by number."""
        counts, rows, bays = self._counts[kind] >> gpus, self._bays_with[kind], self.layout.type_bays[kind]
        count = gpus
        while counts:
            skip = (counts & -counts).bit_length() - 1
            count, counts = count + skip, counts >> (skip + 1)
            row = rows[count]
            while row:
                yield bays[(row & -row).bit_length() - 1]
                row &= row - 1
            count += 1

    def bays_by_most_room(self, kind: int) -> Iterator[int]:
        """Bays with free whole devices, roomiest first, then by number."""
        counts, rows, bays = self._counts[kind], self._bays_with[kind], self.layout.type_bays[kind]
        while counts:
            count = counts.bit_length() - 1
            counts ^= 1 << count
            row = rows[count]
            while row:
                yield bays[(row & -row).bit_length() - 1]
                row &= row - 1

    def largest_block(self, kind: int) -> int:
        """Most free whole devices of this type in one bay."""
        return max(self._counts[kind].bit_length() - 1, 0)

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
