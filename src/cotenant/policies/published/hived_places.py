"""Which cells of a tenant's part are in use and where they are bound; and where its next job goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cotenant.model.ledger import low_bits
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_stop
from cotenant.model.view import View
from cotenant.policies.preemption.preempt import host_has
from cotenant.policies.published.cells import Cell, Parts, fitting, free_cells

__all__ = ["Holding", "Spot", "find_spot"]

_Key = tuple[int, int]
"""A part and the number of a cell in it."""


class Spot(NamedTuple):
    """Where a job can go.

    Parameters
    ----------
    cells : dict of (int, int) to Cell
        Cells of its part, and where they are bound.
    devices : tuple of int
    leaving : tuple of JobRecord
        Jobs without a claim that are in the way.
    """

    cells: dict[_Key, Cell]
    devices: tuple[int, ...]
    leaving: tuple[JobRecord, ...]


class Holding:
    """Jobs with a claim that run in their cells, or for which devices are kept.

    Attributes
    ----------
    bound : dict of (int, int) to Cell
        Cells in use.
    used : dict of int to int
        For each bay, the devices that such jobs have.
    """

    def __init__(self, view: View, parts: Parts) -> None:
        self.view, self.parts = view, parts
        self.bound: dict[_Key, Cell] = {}
        self.used: dict[int, int] = {}
        self._rows: list[list[Any]] = []
        self.claimed: set[int] = set()
        for row in (view.memo or {}).get("jobs", ()):
            devices = self._devices(row)
            if not devices:
                continue
            self._rows.append(row)
            self.claimed.add(row[0])
            for number, bay, offset in row[2]:
                size = parts.cells[row[1]][number][1]
                self.bound[row[1], number] = Cell(bay, offset, size)
            for bay, mask in view.layout.blocks(devices) or ():
                self.used[bay] = self.used.get(bay, 0) | mask

    def _devices(self, row: list[Any]) -> tuple[int, ...]:
        """What a remembered job has in its cells now; nothing if it has left them."""
        record = self.view.records.get(row[0])
        if record is None:
            return ()
        if record.status == Status.PENDING:
            return record.reserved
        return record.place.devices if record.place is not None else ()

    def free(self, key: _Key) -> int:
        """Devices of a cell that no job of its part has."""
        cell, size = self.bound.get(key), self.parts.cells[key[0]][key[1]][1]
        return size if cell is None else self.room(cell).bit_count()

    def room(self, cell: Cell) -> int:
        """Devices of a cell that work, take jobs, and are not another claimant's."""
        view, ledger, layout = self.view, self.view.ledger, self.view.layout
        mask = cell.mask & ~self.used.get(cell.bay, 0)
        if not (ledger.impaired or ledger.reserved):
            return mask
        if ledger.draining[layout.bay_node[cell.bay]]:
            return 0
        good = 0
        for device in view.layout.devices(cell.bay, mask) if mask else ():
            if ledger.usable[device] and device not in ledger.reserved:
                good |= layout.device_bit[device]
        return good

    def candidates(self, kind: int, size: int, more: dict[_Key, Cell], gpus: int) -> Iterator[Cell]:
        """Free cells of a size: of the smallest that contain one, first those that work and are idle."""
        layout, whole = self.view.layout, self.view.ledger.whole
        free = free_cells(layout, [*self.bound.values(), *more.values()])
        for cells in fitting(free, kind, size):
            ranked = []
            for cell in cells:
                room = self.room(cell)
                if room.bit_count() >= min(gpus, size):
                    busy = (cell.mask & ~whole[cell.bay]).bit_count()
                    ranked.append((size - room.bit_count(), busy, cell.bay, cell.offset, cell))
            for *_, cell in sorted(ranked):
                yield cell

    def memo(
        self, record: JobRecord | None = None, spot: Spot | None = None, *, without: int = -1
    ) -> dict[str, Any]:
        """What to remember: job, part, and for each of its cells its number, bay and offset."""
        rows = [row for row in self._rows if row[0] not in {without, -1 if record is None else record.id}]
        if record is not None and spot is not None:
            cells = [[number, cell.bay, cell.offset] for (_, number), cell in sorted(spot.cells.items())]
            rows.append([record.id, self.parts.of(record.job.tenant), cells])
        return {"jobs": sorted(rows, key=lambda row: row[0])}


def find_spot(view: View, parts: Parts, holding: Holding, record: JobRecord) -> Spot | None:
    """Room in the tenant's own cells: the tightest that suffices; a gang that may span takes the roomiest."""
    part, shape = parts.of(record.job.tenant), record.shape
    for kind in shape.types:
        keys = [(part, n) for n, (k, _) in enumerate(parts.cells[part]) if k == kind]
        sized = [(holding.free(key), key) for key in keys]
        tried: set[int] = set()
        for _, key in sorted(entry for entry in sized if entry[0] >= shape.gpus):
            size = parts.cells[part][key[1]][1]
            if key not in holding.bound and size in tried:
                continue
            for cell in _places(holding, key, kind, shape.gpus, {}):
                spot = _spot(view, holding, record, {key: (cell, shape.gpus)})
                if spot is not None:
                    return spot
            if key not in holding.bound:
                tried.add(size)
    if shape.spans:
        return _spanning(view, parts, holding, record)
    return None


def _places(holding: Holding, key: _Key, kind: int, gpus: int, more: dict[_Key, Cell]) -> Iterator[Cell]:
    if key in holding.bound:
        yield holding.bound[key]
    else:
        yield from holding.candidates(kind, holding.parts.cells[key[0]][key[1]][1], more, gpus)


def _spanning(view: View, parts: Parts, holding: Holding, record: JobRecord) -> Spot | None:
    part, shape = parts.of(record.job.tenant), record.shape
    for kind in shape.types:
        keys = [(part, n) for n, (k, _) in enumerate(parts.cells[part]) if k == kind]
        left, chosen, more = shape.gpus, dict[_Key, tuple[Cell, int]](), dict[_Key, Cell]()
        for _, key in sorted((-holding.free(key), key) for key in keys):
            want = min(left, holding.free(key))
            cell = next(_places(holding, key, kind, want, more), None) if want else None
            if cell is None:
                continue
            take = min(left, holding.room(cell).bit_count())
            chosen[key], more[key] = (cell, take), cell
            left -= take
            if not left:
                return _spot(view, holding, record, chosen)
    return None


def _spot(
    view: View, holding: Holding, record: JobRecord, chosen: dict[_Key, tuple[Cell, int]]
) -> Spot | None:
    """Devices in these cells, and who must leave, also for cores and host memory; None if that cannot be."""
    layout, running = view.layout, view.running
    found: list[int] = []
    for cell, count in chosen.values():
        if holding.room(cell).bit_count() < count:
            return None
        found += layout.devices(cell.bay, _pick(view, holding, cell, count))
    devices = tuple(sorted(found))
    leaving = {j: running[j] for d in devices for j in view.residents(d)}
    if not host_has(view, record, devices, leaving.values()):
        nodes = {layout.device_node[d] for d in devices}
        for other in sorted(running.values(), key=lambda r: -r.id):
            place = other.place
            if place is None or not place.devices or other.id in leaving or other.id in holding.claimed:
                continue
            if nodes.isdisjoint(layout.nodes_of(place.devices)) or not _goes(view, other):
                continue
            leaving[other.id] = other
            if host_has(view, record, devices, leaving.values()):
                break
        else:
            return None
    return Spot(
        {key: cell for key, (cell, _) in chosen.items()}, devices, tuple(leaving[j] for j in sorted(leaving))
    )


def _goes(view: View, record: JobRecord) -> bool:
    """Whether a job is leaving, or can be stopped now."""
    if record.status == Status.STOPPING:
        return True
    return check_stop(view.books, record, record.job.suspendable, view.now) is None


def _pick(view: View, holding: Holding, cell: Cell, count: int) -> int:
    """An aligned block where there is one, of those the idlest and the tightest; idle devices first."""
    room, idle = holding.room(cell), view.ledger.whole[cell.bay]
    size = 1 << (count - 1).bit_length()
    best: tuple[int, int, int] | None = None
    for offset in range(cell.offset, cell.offset + cell.size, min(size, cell.size)):
        here = room & ((1 << size) - 1) << offset
        if here.bit_count() < count:
            continue
        rank = (max(0, count - (here & idle).bit_count()), here.bit_count(), offset)
        if best is None or rank < best:
            best = rank
    block = room if best is None else room & ((1 << size) - 1) << best[2]
    first = low_bits(block & idle, min(count, (block & idle).bit_count()))
    rest = count - first.bit_count()
    return first | low_bits(block & ~idle, rest) if rest else first
