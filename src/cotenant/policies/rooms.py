"""Room left on devices that are shared, indexed so that no search looks at each device.

A *slot* is a device for single-device jobs, and for gangs a group of devices that hold the same
residents. Slots lie in pools by whom they may be shared with, type and size; inside a pool in
rows by free guaranteed compute; inside a row by free memory. Free devices are not here: the
ledger's own index knows them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Literal

from cotenant.model.jobs import Job
from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.demands import Domain, domain_of

__all__ = ["Order", "Pool", "Rooms", "Slot", "hosts_fit"]

Order = Literal["pack", "spread", "first"]
Rank = tuple[int, ...]
Slot = tuple[Rank, int]
"""How a slot ranks (smaller is better), and its lowest device."""

_State = tuple[tuple[object, ...], tuple[int, int], int]
"""Pool, row (sharers or 0, free thousandths), free bytes."""


class _ByMemory:
    """A row that answers with the smallest free memory that suffices, then the lowest slot."""

    def __init__(self, size: int) -> None:
        self._values: list[int] = []
        self._slots: dict[int, int] = {}

    def put(self, value: int, slot: int) -> None:
        bits = self._slots.get(value)
        if bits is None:
            insort(self._values, value)
            self._slots[value] = 1 << slot
        else:
            self._slots[value] = bits | 1 << slot

    def drop(self, value: int, slot: int) -> None:
        bits = self._slots[value] ^ 1 << slot
        if bits:
            self._slots[value] = bits
        else:
            del self._slots[value]
            del self._values[bisect_left(self._values, value)]

    def largest(self) -> int:
        return self._values[-1] if self._values else -1

    def pick(self, need: int) -> tuple[int, int] | None:
        at = bisect_left(self._values, need)
        if at == len(self._values):
            return None
        value = self._values[at]
        return value, _lowest(self._slots[value])

    def each(self, need: int) -> Iterator[tuple[int, int]]:
        for value in self._values[bisect_left(self._values, need) :]:
            yield from ((value, slot) for slot in _ascending(self._slots[value]))


class _ByMostMemory(_ByMemory):
    """A row that answers with the largest free memory."""

    def pick(self, need: int) -> tuple[int, int] | None:
        if not self._values or self._values[-1] < need:
            return None
        return self._values[-1], _lowest(self._slots[self._values[-1]])


class _ByNumber:
    """A row that answers with the lowest slot whose free memory suffices: a tree of maxima."""

    def __init__(self, size: int) -> None:
        self._leaves = 1 << max(size - 1, 1).bit_length()
        self._most: dict[int, int] = {}

    def put(self, value: int, slot: int) -> None:
        most, at = self._most, self._leaves + slot
        most[at] = value
        while at > 1:
            at >>= 1
            if most.get(at, -1) >= value:
                return
            most[at] = value

    def drop(self, value: int, slot: int) -> None:
        most, at = self._most, self._leaves + slot
        del most[at]
        while at > 1:
            at >>= 1
            left, right = most.get(2 * at, -1), most.get(2 * at + 1, -1)
            now = max(left, right)
            if now == most[at]:
                return
            if now < 0:
                del most[at]
            else:
                most[at] = now

    def largest(self) -> int:
        return self._most.get(1, -1)

    def pick(self, need: int) -> tuple[int, int] | None:
        most = self._most
        if most.get(1, -1) < need:
            return None
        at, leaves = 1, self._leaves
        while at < leaves:
            at *= 2
            if most.get(at, -1) < need:
                at += 1
        return most[at], at - leaves

    def each(self, need: int) -> Iterator[tuple[int, int]]:
        stack, most = [1], self._most
        while stack:
            at = stack.pop()
            if most.get(at, -1) < need:
                continue
            if at >= self._leaves:
                yield most[at], at - self._leaves
            else:
                stack += (2 * at + 1, 2 * at)


_Row = _ByMemory | _ByNumber
_ROWS: dict[str, type[_Row]] = {"pack": _ByMemory, "spread": _ByMostMemory, "first": _ByNumber}


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _ascending(bits: int) -> Iterator[int]:
    while bits:
        yield _lowest(bits)
        bits &= bits - 1


class Pool:
    """Slots of one domain, type and size."""

    __slots__ = ("_make", "_order", "_rows", "_size")

    def __init__(self, order: Order, size: int) -> None:
        self._order, self._size = order, size
        self._make = _ROWS[order]
        self._rows: dict[tuple[int, int], _Row] = {}

    def put(self, row: tuple[int, int], value: int, slot: int) -> None:
        """A slot has this much room."""
        found = self._rows.get(row)
        if found is None:
            found = self._rows[row] = self._make(self._size)
        found.put(value, slot)

    def drop(self, row: tuple[int, int], value: int, slot: int) -> None:
        """A slot has this much room no more."""
        found = self._rows[row]
        found.drop(value, slot)
        if found.largest() < 0:
            del self._rows[row]

    def largest(self, milli: int) -> int:
        """Most free memory of a slot with this much free compute; -1 if none."""
        best = -1
        for row, found in self._rows.items():
            if row[1] >= milli:
                most = found.largest()
                if most > best:
                    best = most
        return best

    def compute(self) -> int:
        """Most free guaranteed compute of any slot; -1 if the pool is empty."""
        return max((row[1] for row in self._rows), default=-1)

    def best(self, need: int, milli: int) -> Slot | None:
        """The best slot with this much room."""
        best: Slot | None = None
        for row, found in self._rows.items():
            if row[1] >= milli:
                got = found.pick(need)
                if got is not None:
                    slot = (self.rank(row, *got), got[1])
                    if best is None or slot < best:
                        best = slot
        return best

    def each(self, need: int, milli: int) -> list[Slot]:
        """All slots with this much room, best first."""
        return sorted(
            (self.rank(row, *got), got[1])
            for row, found in self._rows.items()
            if row[1] >= milli
            for got in found.each(need)
        )

    def rank(self, row: tuple[int, int], value: int, slot: int) -> Rank:
        """How a slot ranks; smaller is better."""
        if self._order == "pack":
            return (value, row[1], slot)
        if self._order == "spread":
            return (row[0], -value, -row[1], slot)
        return (slot,)


class Rooms(Index):
    """Room on shared devices.

    Parameters
    ----------
    order : {"pack", "spread", "first"}
        Least memory left; fewest sharers, then most memory; lowest number.
    mode : {"spatial", "time-sliced"}
        The share mode of the residents looked at. Time-sliced residents are on the device one at
        a time, so each may use all of its memory.
    sharers : int
        Most jobs on one device.
    mixed : bool
        Whether a single-device job may lie beside one member of a gang.
    """

    def __init__(
        self, view: View, order: Order, mode: str = "spatial", sharers: int = 4, mixed: bool = True
    ) -> None:
        self._order: Order = order
        self._mode, self._most, self._mixed = mode, min(sharers, view.settings.max_sharers), mixed
        self._ledger, self._records = view.ledger, view.records
        self._size = view.layout.device_count
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._devices: dict[int, _State] = {}
        self._groups: dict[tuple[int, ...], _State | None] = {}
        self._members: dict[tuple[int, ...], int] = {}
        self._groups_on: dict[int, tuple[tuple[int, ...], ...]] = {}
        self._by_first: dict[int, tuple[int, ...]] = {}
        self._opened: dict[int, tuple[Domain, int, int] | None] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
        for job_id, place in self._ledger.leaving.items():
            self.placed(self._records[job_id], place)

    def pool(self, domain: Domain, kind: int, gpus: int = 1, spans: bool = False) -> Pool | None:
        """The pool of devices (``gpus`` = 1) or of groups; None if it has never had a slot."""
        return self._pools.get((domain, kind, gpus, spans))

    def devices(self, slot: int, gpus: int) -> tuple[int, ...]:
        """The devices of a slot."""
        return (slot,) if gpus == 1 else self._by_first[slot]

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if place.share.mode == "exclusive":
            return
        if len(place.devices) > 1:
            self._join(place.devices, 1)
        self._refresh(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        if place.share.mode == "exclusive":
            return
        if len(place.devices) > 1:
            self._join(place.devices, -1)
        self._refresh(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed, returned or were kept for somebody."""
        self._refresh(devices)

    def _join(self, devices: tuple[int, ...], by: int) -> None:
        count = self._members.get(devices, 0) + by
        if count == by:
            self._groups[devices] = None
            for device in devices:
                self._groups_on[device] = (*self._groups_on.get(device, ()), devices)
                self._opened.setdefault(device, None)
        if count:
            self._members[devices] = count
            return
        self._set_group(devices, None)
        del self._members[devices], self._groups[devices]
        for device in devices:
            rest = tuple(g for g in self._groups_on[device] if g != devices)
            if rest:
                self._groups_on[device] = rest
            else:
                del self._groups_on[device], self._opened[device]

    def _refresh(self, devices: tuple[int, ...]) -> None:
        touched: dict[tuple[int, ...], None] = {}
        groups_on, opened = self._groups_on, self._opened
        for device in devices:
            found = self._open(device)
            mine = groups_on.get(device)
            if mine is not None:
                opened[device] = found
                touched.update(dict.fromkeys(mine))
            state = None if found is None or (mine and not self._mixed) else self._state(device, found)
            before = self._devices.get(device)
            if state != before:
                self._swap(before, state, device)
                if state is None:
                    del self._devices[device]
                else:
                    self._devices[device] = state
        # A group's devices are looked at together, so all of them are known by now.
        for group in touched:
            self._set_group(group, self._group_state(group))

    def _set_group(self, group: tuple[int, ...], state: _State | None) -> None:
        before = self._groups[group]
        if state == before:
            return
        self._swap(before, state, group[0])
        if state is None:
            del self._by_first[group[0]]
        else:
            self._by_first[group[0]] = group
        self._groups[group] = state

    def _swap(self, before: _State | None, after: _State | None, slot: int) -> None:
        if before is not None:
            self._pools[before[0]].drop(before[1], before[2], slot)
        if after is not None:
            pool = self._pools.get(after[0])
            if pool is None:
                pool = self._pools[after[0]] = Pool(self._order, self._size)
            pool.put(after[1], after[2], slot)

    # -- what the books say -------------------------------------------------------------

    def _open(self, device: int) -> tuple[Domain, int, int] | None:
        """Domain, sharers and free bytes of a shared device that may take one more."""
        ledger = self._ledger
        residents = ledger.residents[device]
        if not 0 < len(residents) < self._most or not ledger.usable[device]:
            return None
        if ledger.draining[ledger.layout.device_node[device]] or device in ledger.reserved:
            return None
        if ledger.share_on(residents[0], device).mode != self._mode:
            return None
        records = self._records
        domain = domain_of(records[residents[0]].job)
        for other in residents[1:]:
            if domain_of(records[other].job) != domain:
                return None
        sliced = self._mode == "time-sliced"
        free = ledger.layout.device_memory[device] if sliced else ledger.free_memory[device]
        return (domain, len(residents), free) if domain and free > 0 else None

    def _state(self, device: int, found: tuple[Domain, int, int]) -> _State:
        domain, sharers, free = found
        row = (sharers if self._order == "spread" else 0, self._ledger.free_milli[device])
        return (domain, self._ledger.layout.device_type[device], 1, False), row, free

    def _group_state(self, group: tuple[int, ...]) -> _State | None:
        ledger, first = self._ledger, group[0]
        residents = ledger.residents[first]
        found = self._opened[first]
        if found is None or len(residents) != self._members[group]:
            return None
        layout, opened = ledger.layout, self._opened
        kind = layout.device_type[first]
        for device in group:
            if (
                ledger.residents[device] != residents
                or layout.device_type[device] != kind
                or opened[device] is None
            ):
                return None
        domain, sharers, free = found
        row = (sharers if self._order == "spread" else 0, ledger.free_milli[first])
        spans = len(layout.nodes_of(group)) > 1
        return (domain, kind, len(group), spans), row, free


def hosts_fit(view: View, job: Job, devices: tuple[int, ...]) -> bool:
    """Whether the nodes of these devices have the host CPU and memory that a job needs."""
    if not (job.cpu_milli or job.host_memory_bytes):
        return True
    ledger = view.ledger
    return all(
        (not ledger.has_cpu[node] or cpu <= ledger.free_cpu[node])
        and (not ledger.has_host[node] or host <= ledger.free_host[node])
        for node, cpu, host in ledger.host_parts(Placement(devices), job.cpu_milli, job.host_memory_bytes)
    )
