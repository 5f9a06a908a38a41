"""When devices become free, as predicted: the other half of every reservation.

Predicted ends only move later while nothing happens (a job outlives its prediction and is
given as much again, see ``JobRecord.remaining_at``). So an answer is checked against the
clock when it is used, and the jobs that outlived theirs are then brought up to date.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.fit import UNKNOWN_S, Speeds, startup_s
from cotenant.policies.minima import MinTree

__all__ = ["Ends", "KindEnds", "PlaceEnds"]

_INF = float("inf")


class Ends(Index):
    """Predicted end of whatever holds each device.

    Attributes
    ----------
    device_s : list of float
        For each device: 0 if free, the predicted end of its resident, infinity if it takes
        no jobs (down, draining, kept for somebody).
    version, gains : int
        Number of changes so far, and of those that were more than a job taking devices.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.version = self.gains = 0
        self.build()

    def build(self) -> None:
        """Build again from the view."""
        view = self._view
        self.version += 1
        self.gains += 1
        self.speeds = Speeds(view)
        self.device_s = [0.0] * view.layout.device_count
        self._job_s: dict[int, float] = {}
        self._cpu_only: dict[int, dict[int, JobRecord]] = {}
        self._log: list[int] = []
        self._log_start = 0
        self._log_limit = 4 * view.layout.node_count + 64
        self._trackers: dict[tuple[object, ...], PlaceEnds | KindEnds] = {}
        self._draining = any(view.ledger.draining)
        for record in view.running.values():
            self._job_s[record.id] = self._predict(record)
            if record.place is not None and record.place.node >= 0:
                self._cpu_only.setdefault(record.place.node, {})[record.id] = record
        for device in range(len(self.device_s)):
            self.device_s[device] = self._device(device)

    # -- kept up to date ---------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job took devices."""
        end = self._job_s[record.id] = self._predict(record)
        if place.node >= 0:
            self._cpu_only.setdefault(place.node, {})[record.id] = record
        ends = self.device_s
        alone = place.share.mode == "exclusive"
        for device in place.devices:
            ends[device] = end if alone else self._device(device)
        self._touch(place)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job left devices."""
        if record.place is None:
            self._job_s.pop(record.id, None)
        if place.node >= 0:
            del self._cpu_only[place.node][record.id]
        ledger, ends = self._view.ledger, self.device_s
        for device in place.devices:
            plain = not ledger.residents[device] and not ledger.reserved and ledger.usable[device]
            ends[device] = 0.0 if plain and not self._draining else self._device(device)
        self.gains += 1
        self._touch(place)

    def rated(self, record: JobRecord) -> None:
        """A job's speed changed, and its end with it."""
        if record.place is not None:
            self._job_s[record.id] = self._predict(record)
            for device in record.place.devices:
                self.device_s[device] = self._device(device)
            self.gains += 1
            self._touch(record.place)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices changed hands or state."""
        for device in devices:
            self.device_s[device] = self._device(device)
            self._log.append(self._view.layout.device_node[device])
        self._draining = any(self._view.ledger.draining)
        self.gains += 1
        self._changed()

    def _touch(self, place: Placement) -> None:
        node_of, devices = self._view.layout.device_node, place.devices
        if not devices:
            self._log.append(place.node)
        elif node_of[devices[0]] == node_of[devices[-1]]:
            # Devices ascend, and so do their nodes.
            self._log.append(node_of[devices[0]])
        else:
            self._log.extend(dict.fromkeys(node_of[device] for device in devices))
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        if len(self._log) > self._log_limit:
            self._log_start += len(self._log)
            self._log.clear()

    def mark(self) -> int:
        """A mark to ask ``changes`` from later."""
        return self._log_start + len(self._log)

    def changes(self, since: int) -> tuple[list[int] | None, int]:
        """Nodes that changed since a mark (None: too long ago), and the mark to ask from next."""
        mark = self.mark()
        if since < self._log_start:
            return None, mark
        return self._log[since - self._log_start :], mark

    # -- what is predicted ---------------------------------------------------------------

    def _device(self, device: int) -> float:
        ledger = self._view.ledger
        residents = ledger.residents[device]
        node = ledger.layout.device_node[device]
        if not ledger.usable[device] or ledger.draining[node] or device in ledger.reserved:
            return _INF
        return max([self._job_s.get(j, UNKNOWN_S) for j in residents]) if residents else 0.0

    def _predict(self, record: JobRecord) -> float:
        """Predicted end: the prediction is doubled until that lies ahead."""
        work_s, place = record.predicted_s, record.place
        if work_s <= 0.0 or place is None:
            return UNKNOWN_S
        now, since, done, rate = self._view.now, record.rated_s, record.work_s, record.rate
        if rate <= 0.0:
            # Starting up, or saving: it will go on at the speed of its device type.
            since = record.started_s + startup_s(self._view.settings, record)
            kind = self._view.layout.device_type[place.devices[0]] if place.devices else -1
            rate = self.speeds.of(record.job.model, kind) if kind >= 0 else 1.0
        while work_s <= done or since + (work_s - done) / rate <= now:
            work_s *= 2.0
        return since + (work_s - done) / rate

    def refresh(self, node: int, now: float) -> bool:
        """Bring up to date what outlived its prediction on a node; True if anything did."""
        late = [r for r in self.jobs_on(node) if self._job_s[r.id] <= now]
        for record in late:
            self.rated(record)
        return bool(late)

    def jobs_on(self, node: int) -> list[JobRecord]:
        """Jobs that hold something on a node, by id."""
        ledger, records = self._view.ledger, self._view.records
        ids = {j for d in ledger.layout.node_devices[node] for j in ledger.residents[d]}
        ids.update(self._cpu_only.get(node, ()))
        return [records[j] for j in sorted(ids)]

    def job_s(self, record: JobRecord) -> float:
        """Predicted end of a running job, as of when it was last brought up to date."""
        return self._job_s[record.id]

    # -- earliest places -------------------------------------------------------------------

    def places(self, shape: Shape, kind: int) -> PlaceEnds:
        """When each bay of a type (each node, for CPU-only jobs) has room for a shape."""
        key = (kind, shape.gpus, shape.cpu_milli, shape.host_bytes)
        found = self._trackers.get(key)
        if not isinstance(found, PlaceEnds):
            found = self._trackers[key] = PlaceEnds(self._view, self, shape, kind)
        found.update()
        return found

    def kind(self, kind: int) -> KindEnds:
        """Ends of all devices of a type, in order."""
        found = self._trackers.get((kind,))
        if not isinstance(found, KindEnds):
            found = self._trackers[kind,] = KindEnds(self._view, self, kind)
        found.update()
        return found


class PlaceEnds:
    """For one demand on one device type: the time at which each place has room for it.

    Attributes
    ----------
    tree : MinTree
        By position among the type's bays (or by node, for CPU-only jobs). Numbers may be
        too early, never too late; ``earliest`` checks them.
    """

    def __init__(self, view: View, ends: Ends, shape: Shape, kind: int) -> None:
        self._view, self._ends, self._shape = view, ends, shape
        layout = view.layout
        self.bays = layout.type_bays[kind] if shape.gpus else []
        self._nodes = (
            [layout.bay_node[b] for b in self.bays] if shape.gpus else list(range(layout.node_count))
        )
        self._where: dict[int, int] = {n: i for i, n in enumerate(self._nodes)}
        self._host = bool(shape.cpu_milli or shape.host_bytes) or not shape.gpus
        self._room_s: Callable[[int], float] = self._with_host if self._host else self._devices_only
        self._mark = -1
        self.tree = MinTree(())

    def update(self) -> None:
        """Bring the places that changed up to date."""
        nodes, self._mark = self._ends.changes(self._mark)
        if nodes is None:
            self.tree = MinTree([self._room_s(i) for i in range(len(self._nodes))])
            return
        where = self._where
        for node in set(nodes) if len(nodes) > 1 else nodes:
            place = where.get(node)
            if place is not None:
                self.tree.set(place, self._room_s(place))

    def earliest(self, now: float) -> tuple[int, float]:
        """The place with room first (lowest number among equals), and when; infinity if never."""
        while True:
            tree = self.tree
            least = tree.least
            place = tree.first(least)
            if least == _INF or self._next_end_s(place) > now:
                return place, least
            self._ends.refresh(self._nodes[place], now)
            self.update()

    def of_node(self, node: int) -> int:
        """The place on a node; -1 if it has none."""
        return self._where.get(node, -1)

    def hide(self, node: int) -> None:
        """Answer as if a node had no room, until ``show``."""
        self.update()
        if node in self._where:
            self.tree.set(self._where[node], _INF)

    def show(self, node: int) -> None:
        """Undo ``hide``."""
        if node in self._where:
            self.tree.set(self._where[node], self._room_s(self._where[node]))

    def _next_end_s(self, place: int) -> float:
        """The first predicted end of what the answer for a place rests on."""
        if self._host:
            return min(map(self._ends.job_s, self._ends.jobs_on(self._nodes[place])), default=_INF)
        free_s = self.free_s(place)
        busy = bisect_right(free_s, 0.0)
        return free_s[busy] if busy < len(free_s) else _INF

    def free_s(self, place: int) -> list[float]:
        """When the devices of a bay become free, ascending."""
        layout, bay = self._view.layout, self.bays[place]
        first = layout.bay_first[bay]
        return sorted(self._ends.device_s[first : first + layout.bay_size[bay]])

    def keep(self, place: int, start_s: float) -> tuple[int, float]:
        """Devices to spare at ``start_s`` (of a bay), and until when this is known."""
        spare = 0
        if self.bays and start_s < UNKNOWN_S:
            spare = bisect_right(self.free_s(place), start_s) - self._shape.gpus
        return spare, self._next_end_s(place)

    def at(self, place: int) -> tuple[int, int]:
        """Bay (-1 for CPU-only jobs) and node of a place."""
        return (self.bays[place] if self.bays else -1), self._nodes[place]

    def _devices_only(self, place: int) -> float:
        gpus, free_s = self._shape.gpus, self.free_s(place)
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
