"""Servers by the size of the jobs they host, for policies that keep sizes apart (Gandiva, OSDI'18, section 4.1).

The *affinity* of a server is the GPU count of the jobs it hosts, 0 while it is empty; here that of its
first job in submission order, so that it follows from the books. Servers are bays: the devices of one
type in a node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from cotenant.model.ledger import low_bits
from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape, find_whole, host_fits
from cotenant.model.view import Index, View

__all__ = ["Affinity", "Spot"]

_Row = list[tuple[float, int]]


class Spot(NamedTuple):
    """Free devices, and by which rule they were chosen."""

    devices: tuple[int, ...]
    rule: str


class Affinity(Index):
    """Bays with free devices, by device type and affinity, least loaded first."""

    def __init__(self, view: View) -> None:
        self._ledger, self._layout = view.ledger, view.layout
        bays = len(self._layout.bay_node)
        self._hosts: list[dict[int, list[int]]] = [{} for _ in range(bays)]  # job to (gpus, places here)
        self._at: list[tuple[tuple[int, int], tuple[float, int]] | None] = [None] * bays
        self._rows: dict[tuple[int, int], _Row] = {}
        for record in view.running.values():
            if record.place is not None:
                self._count(record, record.place, 1)
        for job_id, place in self._ledger.leaving.items():
            self._count(view.records[job_id], place, 1)
        for bay in range(bays):
            self._refresh(bay)

    def of(self, bay: int) -> int:
        """The affinity of a bay."""
        hosts = self._hosts[bay]
        return hosts[min(hosts)][0] if hosts else 0

    def find(self, shape: Shape, *, whole: bool = False) -> Spot | None:
        """Free devices in the order of Gandiva's reactive mode, steps 1 to 3; None if there are none.

        Parameters
        ----------
        whole : bool
            Only devices of one bay.
        """
        if shape.single:
            for affinity, rule in ((shape.gpus, "same-affinity"), (0, "unassigned-server")):
                for kind in shape.types:
                    bay = self._first(shape, kind, affinity)
                    if bay >= 0:
                        devices = self._layout.devices(bay, low_bits(self._ledger.whole[bay], shape.gpus))
                        return Spot(devices, rule)
        found = find_whole(self._ledger, shape)
        if found is None or (whole and len(self._layout.blocks(found) or ()) > 1):
            return None
        return Spot(found, "any-server")

    def _first(self, shape: Shape, kind: int, affinity: int) -> int:
        whole, gpus = self._ledger.whole, shape.gpus
        for _, bay in self._rows.get((kind, affinity), ()):
            if whole[bay].bit_count() >= gpus and (shape.plain or host_fits(self._ledger, shape, bay, gpus)):
                return bay
        return -1

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self._count(record, place, 1)
        self.capacity(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self._count(record, place, -1)
        self.capacity(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices came or went."""
        for bay in dict.fromkeys(self._layout.device_bay[d] for d in devices):
            self._refresh(bay)

    def _count(self, record: JobRecord, place: Placement, by: int) -> None:
        for bay, _ in self._layout.blocks(place.devices) or ():
            hosts = self._hosts[bay]
            entry = hosts.setdefault(record.id, [record.shape.gpus, 0])
            entry[1] += by
            if not entry[1]:
                del hosts[record.id]

    def _refresh(self, bay: int) -> None:
        layout, free = self._layout, self._ledger.whole[bay].bit_count()
        now = None
        if free:
            affinity, size = self.of(bay), layout.bay_size[bay]
            # Among empty servers the smallest that suffices, among the others the least loaded.
            rank = -free / size if affinity else float(size)
            now = ((layout.bay_type[bay], affinity), (rank, bay))
        before = self._at[bay]
        if now == before:
            return
        self._at[bay] = now
        if before is not None:
            row = self._rows[before[0]]
            del row[bisect_left(row, before[1])]
        if now is not None:
            insort(self._rows.setdefault(now[0], []), now[1])
