"""Where there is room first, as predicted: for one demand among bays, or for gangs over all devices.

Both follow ``ends.Ends``: they ask it what changed, and look at nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cotenant.model.shape import Shape
from cotenant.model.view import View
from cotenant.policies.queues.minima import MinTree
from cotenant.policies.space.fit import UNKNOWN_S

if TYPE_CHECKING:
    from cotenant.policies.space.ends import Ends

__all__ = ["Found", "KindEnds", "PlaceEnds"]

_INF = float("inf")


class Found(NamedTuple):
    """The place with room first.

    Attributes
    ----------
    place : int
        Position among the type's bays (or node, for CPU-only jobs).
    start_s : float
        When it has room; infinity if that is never.
    spare : int
        Devices to spare then.
    until_s : float
        Until when this is known: the first prediction that it rests on ends then.
    """

    place: int
    start_s: float
    spare: int
    until_s: float


class PlaceEnds:
    """For one demand on one device type: the time at which each place has room for it.

    Attributes
    ----------
    tree : MinTree
        By position among the type's bays (or by node, for CPU-only jobs). Numbers may be
        too early, never too late; ``earliest`` checks them.
    bay_of : dict of int to int
        The bay on each node (-1 for CPU-only jobs); nodes without a place are absent.
    found : Found or None
        What ``find`` answered last, if nothing that changed since bears on it.
    """

    def __init__(self, view: View, ends: Ends, shape: Shape, kind: int) -> None:
        self._view, self._ends, self._shape = view, ends, shape
        layout = view.layout
        self.bays = layout.type_bays[kind] if shape.gpus else []
        self._nodes = (
            [layout.bay_node[b] for b in self.bays] if shape.gpus else list(range(layout.node_count))
        )
        self._where: dict[int, int] = {n: i for i, n in enumerate(self._nodes)}
        self.bay_of: dict[int, int] = {n: self.bays[i] if self.bays else -1 for n, i in self._where.items()}
        self._spans = [(layout.bay_first[b], layout.bay_first[b] + layout.bay_size[b]) for b in self.bays]
        self._host = bool(shape.cpu_milli or shape.host_bytes) or not shape.gpus
        self._room_s: Callable[[int], float] = self._with_host if self._host else self._devices_only
        self._mark = -1
        self.found: Found | None = None
        self._hidden: dict[int, float] = {}
        self._values: list[float] = []
        self.tree = MinTree(())

    def update(self) -> None:
        """Bring the places that changed up to date."""
        nodes, self._mark = self._ends.changes(self._mark)
        if nodes is None:
            self._values = [self._room_s(i) for i in range(len(self._nodes))]
            for place in self._hidden:
                self._hidden[place], self._values[place] = self._values[place], _INF
            self.tree = MinTree(self._values)
            self.found = None
            return
        where, tree, values, hidden = self._where, self.tree, self._values, self._hidden
        spans, gpus, device_s, host = self._spans, self._shape.gpus, self._ends.device_s, self._host
        found = self.found
        best, best_s = (found.place, found.start_s) if found is not None else (-1, -_INF)
        for node in set(nodes) if len(nodes) > 1 else nodes:
            place = where.get(node, -1)
            if place < 0:
                continue
            if host:
                value = self._with_host(place)
            else:
                # ``_devices_only``, without the call.
                first, end = spans[place]
                if end - first == gpus:
                    value = max(device_s[first:end])
                else:
                    value = sorted(device_s[first:end])[gpus - 1] if gpus < end - first else _INF
            if hidden and place in hidden:
                hidden[place] = value
                continue
            # What was found stays unless it changed itself or a better one appeared.
            if place == best:
                found = None
            if value != values[place]:
                values[place] = value
                tree.set(place, value)
                if value <= best_s and (value < best_s or place < best):
                    found = None
        self.found = found

    def find(self, now: float) -> Found:
        """The place with room first (lowest number among equals), and what is known of it."""
        while True:
            found = self.found
            if found is None:
                found = self.found = self._look()
            if found.until_s > now or found.start_s == _INF:
                return found
            self._ends.refresh(self._nodes[found.place], now)
            self.update()

    def earliest(self, now: float) -> tuple[int, float]:
        """The place with room first (lowest number among equals), and when; infinity if never."""
        found = self.find(now)
        return found.place, found.start_s

    def _look(self) -> Found:
        tree = self.tree
        start_s = tree.least
        place = tree.first(start_s)
        if start_s == _INF:
            return Found(place, start_s, 0, _INF)
        if self._host:
            free_s = self.free_s(place) if self.bays else []
            until_s = min(map(self._ends.job_s, self._ends.jobs_on(self._nodes[place])), default=_INF)
        else:
            free_s = self.free_s(place)
            busy = bisect_right(free_s, 0.0)
            until_s = free_s[busy] if busy < len(free_s) else _INF
        spare = 0
        if self.bays and start_s < UNKNOWN_S:
            spare = bisect_right(free_s, start_s) - self._shape.gpus
        return Found(place, start_s, spare, until_s)

    def hide(self, place: int) -> None:
        """Answer as if a place had no room, until ``show``."""
        self._hidden[place] = self._values[place]
        self._put(place, _INF)

    def show(self) -> None:
        """Undo ``hide``, for all places."""
        for place, value in self._hidden.items():
            self._put(place, value)
        self._hidden.clear()

    def _put(self, place: int, value: float) -> None:
        self._values[place] = value
        self.tree.set(place, value)
        self.found = None

    def free_s(self, place: int) -> list[float]:
        """When the devices of a bay become free, ascending."""
        first, end = self._spans[place]
        return sorted(self._ends.device_s[first:end])

    def at(self, place: int) -> tuple[int, int]:
        """Bay (-1 for CPU-only jobs) and node of a place."""
        return (self.bays[place] if self.bays else -1), self._nodes[place]

    def open_at(self, node: int, now: float) -> bool:
        """Whether there may be room on a node by now, unless it is hidden."""
        return self._values[self._where[node]] <= now

    def _devices_only(self, place: int) -> float:
        first, end = self._spans[place]
        gpus, free_s = self._shape.gpus, sorted(self._ends.device_s[first:end])
        return free_s[gpus - 1] if gpus <= len(free_s) else _INF

    def _with_host(self, place: int) -> float:
        """The first time at which devices and host needs are there together."""
        bay, node = self.at(place)
        ledger, shape = self._view.ledger, self._shape
        if ledger.draining[node]:
            return _INF
        start = self._devices_only(place) if bay >= 0 else 0.0
        cpu = shape.cpu_milli - ledger.free_cpu[node] if ledger.has_cpu[node] else 0
        host = shape.host_bytes - ledger.free_host[node] if ledger.has_host[node] else 0
        for record in sorted(self._ends.jobs_on(node), key=self._ends.job_s):
            if cpu <= 0 and host <= 0:
                break
            job = record.job
            if record.place is not None:
                for at, cpus, memory in ledger.host_parts(record.place, job.cpu_milli, job.host_memory_bytes):
                    if at == node:
                        cpu, host = cpu - cpus, host - memory
            start = max(start, self._ends.job_s(record))
        return start if cpu <= 0 and host <= 0 else _INF


class KindEnds:
    """Ends of all devices of one type in ascending order, for gangs that span nodes."""

    def __init__(self, view: View, ends: Ends, kind: int) -> None:
        layout = view.layout
        self._ends, self._layout = ends, layout
        self._bays: dict[int, int] = {layout.bay_node[b]: b for b in layout.type_bays[kind]}
        self._seen: dict[int, list[float]] = {}
        self._mark = -1
        self.sorted_s: list[float] = []

    def update(self) -> None:
        """Bring the devices that changed up to date."""
        nodes, self._mark = self._ends.changes(self._mark)
        if nodes is None:
            self._seen = {bay: self._now(bay) for bay in self._bays.values()}
            self.sorted_s = sorted(end for ends in self._seen.values() for end in ends)
            return
        for node in dict.fromkeys(nodes):
            if node in self._bays:
                self._replace(self._bays[node])

    def _now(self, bay: int) -> list[float]:
        first = self._layout.bay_first[bay]
        return self._ends.device_s[first : first + self._layout.bay_size[bay]]

    def _replace(self, bay: int) -> None:
        old, new = self._seen[bay], self._now(bay)
        self._seen[bay] = new
        for before, after in zip(old, new, strict=True):
            if before != after:
                del self.sorted_s[bisect_left(self.sorted_s, before)]
                insort(self.sorted_s, after)

    def checked(self, now: float) -> list[float]:
        """The ends, once those that outlived their prediction are brought up to date."""
        ends = self.sorted_s
        while bisect_right(ends, now) > bisect_right(ends, 0.0):
            for node, bay in self._bays.items():
                if any(0.0 < end <= now for end in self._seen[bay]):
                    self._ends.refresh(node, now)
            self.update()
            ends = self.sorted_s
        return ends
