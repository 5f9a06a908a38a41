"""Availability over time, as predicted: who leaves when, and what has been promised to whom."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from cotenant.model.ledger import low_bits
from cotenant.model.plan import Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.space.ends import Ends
from cotenant.policies.space.fit import UNKNOWN_S, Speeds, startup_s
from cotenant.policies.space.places import PlaceEnds

__all__ = ["NodeProfile", "Profiles", "Promises", "Room"]

_INF = float("inf")
_FEW = 16
_Step = tuple[float, int, int, int, int]
"""From when; bay; devices, thousandths of a core and bytes more than before."""


class NodeProfile:
    """What one node will have free, step by step.

    Attributes
    ----------
    next_s : float
        The first predicted end on the node.
    """

    __slots__ = ("cpu", "free", "host", "next_s", "node", "open", "steps", "taken")

    def __init__(self, view: View, ends: Ends, node: int) -> None:
        ledger, layout = view.ledger, view.layout
        ends.refresh(node, view.now)
        self.node = node
        self.open = not ledger.draining[node]
        self.free = {bay: ledger.whole[bay].bit_count() for bay in layout.node_bays[node]}
        self.taken = dict.fromkeys(self.free, 0)
        self.free[-1] = 0
        self.cpu = ledger.free_cpu[node] if ledger.has_cpu[node] else 1 << 80
        self.host = ledger.free_host[node] if ledger.has_host[node] else 1 << 80
        self.steps: list[_Step] = []
        self.next_s = _INF
        # Of a host pool, what others of its nodes will give back is not foreseen.
        home = layout.home[node] if layout.home else node
        for record in ends.jobs_on(node):
            end_s, place, job = ends.job_s(record), record.place, record.job
            self.next_s = min(self.next_s, end_s)
            if place is None:
                continue
            for at, cpu, host in ledger.host_parts(place, job.cpu_milli, job.host_memory_bytes):
                if at == home and (cpu or host):
                    insort(self.steps, (end_s, -1, 0, cpu, host))
            for bay, mask in layout.blocks(place.devices) or ():
                if bay in self.free:
                    first = layout.bay_first[bay]
                    back = sum(
                        mask >> i & 1 and ends.device_s[first + i] < _INF for i in range(layout.bay_size[bay])
                    )
                    insort(self.steps, (end_s, bay, back, 0, 0))

    def copy(self) -> NodeProfile:
        """The same, to be promised away."""
        new = NodeProfile.__new__(NodeProfile)
        new.node, new.open, new.next_s = self.node, self.open, self.next_s
        new.cpu, new.host = self.cpu, self.host
        new.free, new.taken, new.steps = self.free.copy(), self.taken.copy(), self.steps.copy()
        return new

    def earliest(self, shape: Shape, bay: int, hold_s: float, now: float, before_s: float = _INF) -> float:
        """The first time from which a shape has room here for ``hold_s`` seconds.

        Infinity if that is never; perhaps also if it is later than ``before_s``.
        """
        if not self.open:
            return _INF
        devices, cpu, host = (
            self.free[bay] - shape.gpus,
            self.cpu - shape.cpu_milli,
            self.host - shape.host_bytes,
        )
        since = at = now
        fits = False
        for step_s, where, more, more_cpu, more_host in self.steps:
            if step_s > at:
                # All steps of one time are in: does it fit from then on, and for how long?
                if devices < 0 or cpu < 0 or host < 0:
                    fits = False
                    if step_s > before_s:
                        return _INF
                else:
                    if not fits:
                        since, fits = at, True
                    if since + hold_s <= step_s:
                        return since
                at = step_s
            if where == bay:
                devices += more
            cpu += more_cpu
            host += more_host
        if devices < 0 or cpu < 0 or host < 0:
            return _INF
        return since if fits else at

    def promise(
        self, start_s: float, hold_s: float, bay: int, need: tuple[int, int, int], now: float
    ) -> None:
        """Keep devices of a bay, thousandths of a core and bytes from ``start_s`` on."""
        gpus, cpu, host = need
        if start_s >= UNKNOWN_S:
            # Nobody knows when: the node takes no more until that job has started.
            self.open = False
        if start_s <= now:
            self.free[bay] -= gpus
            self.cpu -= cpu
            self.host -= host
        else:
            insort(self.steps, (start_s, bay, -gpus, -cpu, -host))
        insort(self.steps, (start_s + hold_s, bay, gpus, cpu, host))

    def tail_s(self, bay: int, now: float) -> list[float]:
        """Ascending: from when one, two, ... devices of a bay are free for good."""
        if not self.open:
            return []
        free, times = self.free[bay], [(now, self.free[bay])]
        for step in self.steps:
            if step[1] == bay:
                free += step[2]
                times.append((step[0], free))
        found: list[float] = []
        low = free
        since = [_INF] * free
        for at, count in reversed(times):
            low = min(low, count)
            for i in range(max(low, 0)):
                since[i] = at
        found.extend(since)
        return found


class Profiles(Index):
    """Profiles of nodes without promises, made anew only where something changed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._ends = view.index(Ends)
        self._mark = -1
        self._known: dict[int, NodeProfile] = {}

    def update(self) -> None:
        """Forget the nodes that changed."""
        nodes, self._mark = self._ends.changes(self._mark)
        if nodes is None:
            self._known.clear()
        else:
            for node in nodes:
                self._known.pop(node, None)

    def of(self, node: int) -> NodeProfile:
        """A node's profile, to be promised away."""
        known = self._known.get(node)
        if known is None or known.next_s <= self._view.now:
            known = self._known[node] = NodeProfile(self._view, self._ends, node)
        return known.copy()


class Room:
    """What is free now, at most: less what was given away in this pass."""

    def __init__(self, view: View) -> None:
        ledger, self._types = view.ledger, view.layout.device_type
        self._counts = list(ledger.free_count)
        self._blocks = [ledger.largest_block(kind) for kind in range(len(self._counts))]

    def take(self, start: Start) -> None:
        """These devices are given away."""
        for device in start.devices:
            self._counts[self._types[device]] -= 1

    def fits(self, shape: Shape) -> bool:
        """Whether a shape could start now, if nothing were promised."""
        gpus = shape.gpus
        if not gpus:
            return True
        for kind in shape.types:
            count = self._counts[kind]
            if gpus <= count and (shape.spans or gpus <= self._blocks[kind]):
                return True
        return False

    def last_of(self, jobs: Sequence[tuple[JobRecord, bool]], first: int = 0, last: int | None = None) -> int:
        """The last of the jobs from ``first`` to ``last`` that may start and could; less than ``first`` if none."""
        place = len(jobs) - 1 if last is None else last
        while place >= first and not (jobs[place][1] and self.fits(jobs[place][0].shape)):
            place -= 1
        return place


class Promises:
    """One pass over the queue: a promise for each job, in order.

    Nodes nobody was promised anything on only ever gain room, so the index of ends answers
    for all of them at once; the others are looked at one by one.
    """

    def __init__(self, view: View, ends: Ends) -> None:
        self._view, self._ends = view, ends
        self._profiles = view.index(Profiles)
        self._profiles.update()
        self._nodes: dict[int, NodeProfile] = {}
        self._asked: dict[PlaceEnds, None] = {}
        self._speeds = Speeds(view)
        self._settings = view.settings

    def close(self) -> float:
        """Leave the index as it was; until when, at most, this pass holds."""
        for places in self._asked:
            places.show()
        return min((profile.next_s for profile in self._nodes.values()), default=_INF)

    def promise(self, record: JobRecord, why: Why) -> Start | None:
        """Promise a job its earliest time; its start, if that is now."""
        shape, now = record.shape, self._view.now
        best: tuple[float, int, int, float] = (_INF, -1, -1, 0.0)
        if shape.single or not shape.gpus:
            for kind in shape.types if shape.gpus else (-1,):
                hold_s = self._hold_s(record, kind)
                start_s, node, bay = self._earliest(shape, kind, hold_s)
                if start_s < best[0]:
                    best = (start_s, node, bay, hold_s)
        if shape.spans and shape.gpus and best[0] > now:
            spread = self._spread(record, best[0])
            if spread is not None:
                return self._keep_spread(record, *spread, why)
        start_s, node, bay, hold_s = best
        if node < 0:
            return None
        profile = self._touch(node)
        profile.promise(start_s, hold_s, bay, (shape.gpus, shape.cpu_milli, shape.host_bytes), now)
        if start_s > now:
            return None
        if not shape.gpus:
            return Start(record.id, (), why=why, node=node)
        return Start(record.id, self._take(profile, bay, shape.gpus), why=why)

    def could_start(self, record: JobRecord) -> bool:
        """Whether a job might start now, given the promises so far; true in case of doubt.

        Promises only take away, so what is false stays false in this pass.
        """
        shape, ledger, now = record.shape, self._view.ledger, self._view.now
        if shape.spans or not shape.gpus:
            return True
        for kind in shape.types:
            hold_s = self._hold_s(record, kind)
            for seen, bay in enumerate(ledger.bays_by_room(kind, shape.gpus)):
                profile = self._nodes.get(ledger.layout.bay_node[bay])
                if seen >= _FEW or profile is None or profile.earliest(shape, bay, hold_s, now) <= now:
                    return True
        return False

    def _hold_s(self, record: JobRecord, kind: int) -> float:
        work_s = record.remaining_at(self._view.now)
        if work_s == _INF:
            return UNKNOWN_S
        return startup_s(self._settings, record) + work_s / self._speeds.of(record.job.model, kind)

    def _touch(self, node: int) -> NodeProfile:
        profile = self._nodes.get(node)
        if profile is None:
            profile = self._nodes[node] = self._profiles.of(node)
        return profile

    def _take(self, profile: NodeProfile, bay: int, gpus: int) -> tuple[int, ...]:
        mask = low_bits(self._view.ledger.whole[bay] & ~profile.taken[bay], gpus)
        profile.taken[bay] |= mask
        return self._view.layout.devices(bay, mask)

    def _untouched(self, places: PlaceEnds) -> tuple[int, float]:
        """The first place with room among nodes nobody was promised anything on, and when."""
        now, touched = self._view.now, self._nodes
        self._asked[places] = None
        while True:
            place, start_s = places.earliest(now)
            if start_s == _INF or places.at(place)[1] not in touched:
                return place, start_s
            places.hide(place)

    def _earliest(self, shape: Shape, kind: int, hold_s: float) -> tuple[float, int, int]:
        """Time, node and bay; if that is now, the tightest place; then the lowest number."""
        now, whole = self._view.now, self._view.ledger.whole
        places = self._ends.places(shape, kind)
        place, start_s = self._untouched(places)
        options: list[tuple[float, int, int, int]] = []
        best_s = _INF
        if start_s < _INF:
            bay, node = self._tightest(places, place, shape, start_s)
            room = whole[bay].bit_count() if bay >= 0 and start_s <= now else 0
            best_s = max(start_s, now)
            options.append((best_s, room, node, bay))
        bay_of = places.bay_of
        for node, profile in self._nodes.items():
            there = bay_of.get(node)
            if there is None or not profile.open:
                continue
            bay, steps = there, profile.steps
            # Nothing changes there before a better time: no need to look closer.
            if profile.free[bay] < shape.gpus and (not steps or steps[0][0] > best_s):
                continue
            at = profile.earliest(shape, bay, hold_s, now, best_s)
            if at <= best_s and at < _INF:
                best_s = at
                options.append((at, profile.free[bay] if at <= now else 0, node, bay))
        if not options:
            return _INF, -1, -1
        start_s, _, node, bay = min(options)
        return start_s, node, bay

    def _tightest(self, places: PlaceEnds, place: int, shape: Shape, start_s: float) -> tuple[int, int]:
        """Of the untouched places that have room now, the tightest; else the place found."""
        found = places.at(place)
        if start_s > self._view.now or found[0] < 0:
            return found
        ledger, kind = self._view.ledger, self._view.layout.bay_type[found[0]]
        for bay in ledger.bays_by_room(kind, shape.gpus):
            node = ledger.layout.bay_node[bay]
            if node not in self._nodes and places.open_at(node, self._view.now):
                return bay, node
        return found

    # -- gangs over several nodes ------------------------------------------------------

    def _spread(self, record: JobRecord, before_s: float) -> tuple[float, int, dict[int, int]] | None:
        """Time, type and devices of each bay for a gang that spans nodes; None if no earlier.

        Only devices that stay free for good are counted, so holes between promises are not
        used for such gangs.
        """
        shape, now, layout = record.shape, self._view.now, self._view.layout
        best: tuple[float, int, dict[int, int]] | None = None
        for kind in shape.types:
            self._ends.kind(kind).checked(now)
            times: list[tuple[float, int, int]] = []
            for bay in layout.type_bays[kind]:
                profile = self._nodes.get(layout.bay_node[bay])
                first = layout.bay_first[bay]
                here = self._ends.device_s[first : first + layout.bay_size[bay]]
                free_s = profile.tail_s(bay, now) if profile else here
                ahead = [max(at, now) for at in free_s if at < _INF]
                # Those that many become free together first: fewer nodes, fewer penalties.
                times.extend((at, -ahead.count(at), bay) for at in ahead)
            times.sort()
            if len(times) < shape.gpus or times[shape.gpus - 1][0] >= (best[0] if best else before_s):
                continue
            counts: dict[int, int] = {}
            for _, _, bay in times[: shape.gpus]:
                counts[bay] = counts.get(bay, 0) + 1
            best = (times[shape.gpus - 1][0], kind, counts)
        return best

    def _keep_spread(
        self, record: JobRecord, start_s: float, kind: int, counts: dict[int, int], why: Why
    ) -> Start | None:
        shape, now = record.shape, self._view.now
        hold_s = self._hold_s(record, kind)
        devices: list[int] = []
        for bay, gpus in counts.items():
            profile = self._touch(self._view.layout.bay_node[bay])
            cpu = -(-shape.cpu_milli * gpus // shape.gpus)
            host = -(-shape.host_bytes * gpus // shape.gpus)
            if start_s <= now and (cpu > profile.cpu or host > profile.host):
                return None
            profile.promise(start_s, hold_s, bay, (gpus, cpu, host), now)
            if start_s <= now:
                devices.extend(self._take(profile, bay, gpus))
        return Start(record.id, tuple(sorted(devices)), why=why) if devices else None
