"""Sharing devices without looking at who disturbs whom: by memory and declared compute.

The base of best fit, first fit and time slicing. Which room is taken is the ``order`` of
``policies.space.rooms``; the rest is here.
"""

from __future__ import annotations

import abc
import copy
from typing import Any

from cotenant.model.ledger import low_bits
from cotenant.model.placement import DEVICE_MILLI, WHOLE, Mode
from cotenant.model.plan import Reason, Why
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape, find_whole
from cotenant.model.view import Index, View
from cotenant.policies.queues.classwise import Classwise, Offer
from cotenant.policies.queues.demands import Family
from cotenant.policies.space.pools import Order, Rank
from cotenant.policies.space.rooms import Rooms, hosts_fit

__all__ = ["Known", "Sharer"]

_WHOLE_WHY = Why("whole-device")
_NODE_WHY = Why("cpu-only")


class Known(Index):
    """Shapes restricted to device types of known memory, smallest first: where one may share."""

    def __init__(self, view: View) -> None:
        self._layout = view.layout
        self._known: dict[int, Shape] = {}

    def of(self, shape: Shape) -> Shape:
        """The restricted shape; its ``types`` are empty if no known type will do."""
        found = self._known.get(shape.number)
        if found is None:
            found = self._known[shape.number] = self._restrict(shape)
        return found

    def _restrict(self, shape: Shape) -> Shape:
        layout, kinds = self._layout, self._layout.types
        known = [k for k in shape.types if kinds[k].memory_bytes]
        found = copy.copy(shape)
        found.types = tuple(sorted(known, key=lambda k: kinds[k].memory_bytes))
        widest = max((max(layout.bay_size[b] for b in layout.type_bays[k]) for k in known), default=0)
        found.single = 0 < shape.gpus <= widest
        found.spans = shape.spans and bool(known)
        return found


class Sharer(Classwise):
    """Shares devices side by side or in turns, blind to interference.

    Subclasses fix the class attributes and answer ``sharers``.
    """

    _mode: Mode = "spatial"
    _mixed = True
    _why = Why("least-memory-left")

    @abc.abstractmethod
    def _order(self) -> Order:
        """What a subclass answers."""

    def _sharers(self, view: View) -> int:
        return view.settings.max_sharers

    def _rooms(self, view: View, family: Family) -> Rooms:
        rooms = family.rooms
        if rooms is None:
            rooms = view.index(Rooms, self._order(), self._mode, self._sharers(view), self._mixed)
            family.rooms = rooms
        return rooms

    @staticmethod
    def _known(view: View, family: Family) -> Shape:
        """The family's shape on types of known memory: apart from memory it is that of all its jobs."""
        known = family.known
        if known is None:
            known = family.known = view.index(Known).of(family.shape)
        return known

    def _milli(self, family: Family) -> int:
        """Compute that a job must find free: what it is guaranteed, nothing when taking turns."""
        return family.milli if self._mode == "spatial" else 0

    def _prefers_free(self) -> bool:
        """Whether a free device is always better than a shared one."""
        return self._order() == "spread"

    # -- does anything fit ---------------------------------------------------------------

    def fitting(self, view: View, family: Family) -> JobRecord | None:
        """The first job of a family that fits somewhere now."""
        if not family.domain or family.host or not family.shape.types:
            return self._fitting_slowly(view, family)
        return family.first(self._largest(view, family))

    def _fitting_slowly(self, view: View, family: Family) -> JobRecord | None:
        """Whole devices, and host needs that an index of devices cannot answer for."""
        if not family.domain:
            # On whole devices all jobs of a family fit or none does.
            head = family.head()
            return head if self.offer(view, family, head) is not None else None
        if self.offer(view, family, family.smallest()) is None:
            return None
        for record in family.heads(float("inf")):
            if self.offer(view, family, record) is not None:
                return record
        return None

    def _largest(self, view: View, family: Family) -> float:
        """Most memory that a job of this family could get somewhere; -1 if it fits nowhere."""
        ledger, shape, kinds = view.ledger, family.shape, view.layout.types
        rooms, best = family.rooms or self._rooms(view, family), -1
        gpus, milli = shape.gpus, self._milli(family)
        for kind in shape.types:
            capacity = kinds[kind].memory_bytes
            if ledger.free_count[kind] > 0 if gpus == 1 else self._has_free(view, shape, kind):
                if not capacity:
                    return float("inf")
                if capacity > best:
                    best = capacity
            if capacity > best:
                for pool in rooms.pools(family.domain, kind, gpus, shape.spans):
                    most = pool.largest(milli)
                    if most > best:
                        best = most
        return best

    @staticmethod
    def _has_free(view: View, shape: Shape, kind: int) -> bool:
        ledger = view.ledger
        return ledger.largest_block(kind) >= shape.gpus or (
            shape.spans and ledger.free_count[kind] >= shape.gpus
        )

    # -- where -------------------------------------------------------------------------

    def offer(self, view: View, family: Family, record: JobRecord) -> Offer | None:
        """The best place for a job by this policy's order."""
        if record.shape.gpus == 0:
            node = view.find_node(record)
            return Offer((), why=_NODE_WHY, node=node) if node >= 0 else None
        if family.domain:
            devices = self._shared(view, family, record)
            if devices is not None:
                return Offer(devices, family.share(self._mode, record.shape.memory_bytes), self._why)
        devices = self._whole(view, record)
        return None if devices is None else Offer(devices, WHOLE, _WHOLE_WHY)

    def _whole(self, view: View, record: JobRecord) -> tuple[int, ...] | None:
        """Whole free devices, where the job cannot share."""
        if self._order() != "first" or record.shape.cpu_milli or record.shape.host_bytes:
            return view.find(record)
        return _lowest_free(view, record.shape) or view.find(record)

    def _shared(self, view: View, family: Family, record: JobRecord) -> tuple[int, ...] | None:
        """Devices on which a job may hold a share; None if there are none."""
        known = self._known(view, family)
        if not known.types:
            return None
        if self._prefers_free():
            free = self._free(view, known, record)
            if free is not None:
                return free[1]
        joined = self._join(view, family, known, record)
        # A free device leaves its capacity, and the smallest type comes first in ``known``.
        least = view.layout.types[known.types[0]].memory_bytes
        if joined is not None and self._order() == "pack" and joined[0][0] < least:
            return joined[1]
        free = self._free(view, known, record)
        if free is None or joined is None:
            found = free or joined
            return found[1] if found else None
        return min(free, joined)[1]

    def _join(
        self, view: View, family: Family, known: Shape, record: JobRecord
    ) -> tuple[Rank, tuple[int, ...]] | None:
        """The best devices that others use already."""
        rooms, need, milli = self._rooms(view, family), record.shape.memory_bytes, self._milli(family)
        best = None
        for kind in known.types:
            for pool in rooms.pools(family.domain, kind, known.gpus, known.spans):
                if not family.host:
                    found = pool.best(need, milli)
                    if found is not None and (best is None or found[0] < best[0]):
                        best = (found[0], rooms.devices(found[1], known.gpus))
                    continue
                for rank, slot in pool.each(need, milli):
                    if best is not None and rank >= best[0]:
                        break
                    devices = rooms.devices(slot, known.gpus)
                    if hosts_fit(view, record.job, devices):
                        best = (rank, devices)
                        break
        return best

    def _free(self, view: View, known: Shape, record: JobRecord) -> tuple[Rank, tuple[int, ...]] | None:
        """The best free devices of known memory."""
        order = self._order()
        plain = not (known.cpu_milli or known.host_bytes)
        devices = None
        if order == "first" and plain:
            devices = _lowest_free(view, known)
        elif order == "spread" and plain and known.single:
            devices = _roomiest(view, known)
        if devices is None:
            devices = find_whole(view.ledger, known)
        if devices is None:
            return None
        if order == "first":
            return (devices[0],), devices
        capacity = view.layout.device_memory[devices[0]]
        if order == "pack":
            return (capacity, DEVICE_MILLI, devices[0]), devices
        return (0, -capacity, -DEVICE_MILLI, devices[0]), devices

    # -- why not -------------------------------------------------------------------------

    def blocked(self, view: View, family: Family, record: JobRecord) -> tuple[Reason, dict[str, Any]]:
        """The largest hole, for jobs that share; else what a search of whole devices lacks."""
        shape = record.shape
        if not family.domain or not shape.types:
            return view.why_not(record)
        rooms, domain = self._rooms(view, family), family.domain
        pools = [p for k in shape.types for p in rooms.pools(domain, k, shape.gpus, shape.spans)]
        room = max((p.largest(0) for p in pools), default=-1)
        if room < shape.memory_bytes:
            if self._mode == "time-sliced" or shape.gpus > 1:
                return view.why_not(record)
            return Reason.MEMORY, {"needs_bytes": shape.memory_bytes, "largest_hole_bytes": max(room, 0)}
        if family.milli > max(p.compute() for p in pools) or self._largest(view, family) < room:
            most = max(p.compute() for p in pools)
            return Reason.COMPUTE, {"needs_milli": family.milli, "most_free_milli": most}
        return Reason.HOST, {"needs_cpu_milli": shape.cpu_milli, "needs_host_bytes": shape.host_bytes}


def _lowest_free(view: View, shape: Shape) -> tuple[int, ...] | None:
    """Free devices on the lowest-numbered node that has enough; None if no one node has."""
    ledger, layout = view.ledger, view.layout
    bays = [bay for k in shape.types if (bay := ledger.lowest_bay(k, shape.gpus)) >= 0]
    if not bays:
        return None
    bay = min(bays)
    return layout.devices(bay, low_bits(ledger.whole[bay], shape.gpus))


def _roomiest(view: View, shape: Shape) -> tuple[int, ...] | None:
    """Free devices on the node that has most of them, largest type first."""
    ledger, layout = view.ledger, view.layout
    for kind in reversed(shape.types):
        bay = next(ledger.bays_by_most_room(kind), -1)
        if bay >= 0 and ledger.whole[bay].bit_count() >= shape.gpus:
            return layout.devices(bay, low_bits(ledger.whole[bay], shape.gpus))
    return None
