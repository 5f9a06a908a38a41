"""Buddy cells: aligned blocks of a power of two of a node's devices, and tenants' parts made of them.

HiveD (OSDI'20), sections 3 and 4: a tenant's virtual private cluster is a multiset of cells; a cell of it is bound to
devices only while it is used. Taking the smallest free cell that will do keeps every part available.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cotenant.model.cluster import Tenant
from cotenant.model.layout import Layout
from cotenant.model.view import Index, View

__all__ = ["Cell", "Parts", "carve", "fitting", "free_cells", "quotas_of"]


class Cell(NamedTuple):
    """``size`` devices of a bay, from ``offset`` on."""

    bay: int
    offset: int
    size: int

    @property
    def mask(self) -> int:
        """Its devices in the masks of its bay."""
        return ((1 << self.size) - 1) << self.offset


def _tops(bay: int, size: int) -> Iterator[Cell]:
    """A bay's largest cells: its size in binary, the largest first."""
    offset = 0
    while size:
        top = 1 << (size.bit_length() - 1)
        yield Cell(bay, offset, top)
        offset, size = offset + top, size - top


def free_cells(layout: Layout, bound: Iterable[Cell]) -> dict[tuple[int, int], list[Cell]]:
    """Largest free cells, by device type and size, in order of place; buddies that are both free are one.

    Examples
    --------
    >>> from cotenant.model.cluster import Cluster
    >>> layout = Layout(Cluster.uniform(6, gpus_per_node=6))
    >>> sorted(free_cells(layout, [Cell(0, 1, 1)]).items())
    [((0, 1), [Cell(bay=0, offset=0, size=1)]), ((0, 2), [Cell(bay=0, offset=2, size=2), Cell(bay=0, offset=4, size=2)])]
    """
    masks: dict[int, int] = {}
    for cell in bound:
        masks[cell.bay] = masks.get(cell.bay, 0) | cell.mask
    found: dict[tuple[int, int], list[Cell]] = {}

    def split(cell: Cell, taken: int) -> None:
        here = taken & cell.mask
        if not here:
            found.setdefault((layout.bay_type[cell.bay], cell.size), []).append(cell)
        elif here != cell.mask:
            half = cell.size // 2
            split(Cell(cell.bay, cell.offset, half), taken)
            split(Cell(cell.bay, cell.offset + half, half), taken)

    for bay, size in enumerate(layout.bay_size):
        for top in _tops(bay, size):
            split(top, masks.get(bay, 0))
    return found


def fitting(free: dict[tuple[int, int], list[Cell]], kind: int, size: int) -> Iterator[list[Cell]]:
    """Free cells of a size, from the smallest that contain one on: one list for each size of those."""
    whole = size
    for whole in sorted({s for k, s in free if k == kind and s >= size}):
        yield [
            Cell(cell.bay, offset, size)
            for cell in free[kind, whole]
            for offset in range(cell.offset, cell.offset + whole, size)
        ]


def quotas_of(tenants: tuple[Tenant, ...], devices: int) -> list[int]:
    """Devices of each tenant's part: its quota, else its limit, else equal parts; scaled down if there are too few."""
    quotas = [t.quota_gpus for t in tenants]
    if not any(quotas):
        quotas = [t.limit_gpus or 0 for t in tenants]
    if not any(quotas):
        quotas = [devices // len(tenants) for _ in tenants]
    total = sum(quotas)
    return [q * devices // total for q in quotas] if total > devices else quotas


def carve(layout: Layout, quotas: list[int]) -> list[list[tuple[int, int]]]:
    """Cells (type, size) of each part, the largest that a quota has room for first; and at last those of the rest.

    Quotas are spread over device types in proportion to what there is of each.

    Examples
    --------
    >>> from cotenant.model.cluster import Cluster
    >>> carve(Layout(Cluster.uniform(16)), [11, 2])
    [[(0, 8), (0, 2), (0, 1)], [(0, 2)], [(0, 2), (0, 1)]]
    """
    sizes = [sum(layout.bay_size[b] for b in bays) for bays in layout.type_bays]
    total = sum(sizes)
    parts = [[quota * size // total for size in sizes] for quota in quotas]
    spare = [size - sum(part[k] for part in parts) for k, size in enumerate(sizes)]
    for part, quota in zip(parts, quotas, strict=True):
        for kind in range(len(sizes)):
            more = min(spare[kind], quota - sum(part))
            part[kind] += more
            spare[kind] -= more
    bound: list[Cell] = []
    cells = [_take(layout, bound, part) for part in parts]
    rest = [key for key, found in free_cells(layout, bound).items() for _ in found]
    return [*cells, sorted(rest, key=lambda c: (c[0], -c[1]))]


def _take(layout: Layout, bound: list[Cell], part: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for kind, count in enumerate(part):
        left = count
        while left:
            free = free_cells(layout, bound)
            largest = max(s for k, s in free if k == kind)
            size = min(largest, 1 << (left.bit_length() - 1))
            bound.append(next(fitting(free, kind, size))[0])
            found.append((kind, size))
            left -= size
    return found


class Parts(Index):
    """Each tenant's cells, as the cluster file says; it never changes.

    Attributes
    ----------
    cells : list of list of (int, int)
        Device type and size of the cells of each part; the last part is what no quota covers.
    part_of : dict of str to int
        Tenant to part; tenants that are not named have the last.
    """

    def __init__(self, view: View) -> None:
        tenants = view.cluster.tenants
        quotas = quotas_of(tenants, view.layout.device_count)
        self.cells = carve(view.layout, quotas)
        self.part_of = {tenant.name: number for number, tenant in enumerate(tenants)}

    def of(self, tenant: str) -> int:
        """The part of a tenant."""
        return self.part_of.get(tenant, len(self.cells) - 1)
