"""One elastic job's view of the cluster: what it would gain from more devices, by logical workers.

The per-job planner of EasyScale (SC'23, doi.org/10.1145/3581784.3607054). What workers do on a set of
devices is ``model.workers``; here are the increments that a running job proposes.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from cotenant.model.jobs import Job
from cotenant.model.ledger import low_bits
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import View
from cotenant.model.workers import Held, divide, may_mix, workers_of
from cotenant.policies.space.fit import Speeds

__all__ = ["Increment", "Planner", "Room", "is_elastic"]

_LEAST_GAIN = 1e-9


def is_elastic(job: Job) -> bool:
    """Whether a job runs on any number of devices of a range."""
    return 0 < job.min_gpus < job.max_gpus


class Increment(NamedTuple):
    """More devices of one type for one job, perhaps in exchange for slower ones.

    Parameters
    ----------
    gain : float
        Relative gain of performance for each added device.
    more, kind : int
        How many devices are added, and of which type.
    waste_share : float
        Part of the new devices' capability that would not be used.
    less : tuple of (int, int)
        Types of which the job gives devices back, and how many: those for which no worker is left.
    """

    gain: float
    more: int
    kind: int
    id: int
    waste_share: float
    less: tuple[tuple[int, int], ...] = ()


class Room:
    """Free whole devices, less those given away already in the plan that is being made."""

    def __init__(self, view: View) -> None:
        self._ledger, self._layout = view.ledger, view.layout
        self._taken: dict[int, int] = {}
        self._gone = [0] * len(view.layout.types)

    def _free(self, bay: int) -> int:
        return self._ledger.whole[bay] & ~self._taken.get(bay, 0)

    def _near(self, kind: int, held: tuple[int, ...]) -> list[int]:
        """Bays of a type on the nodes where a job is, most of its devices first."""
        layout = self._layout
        nodes = Counter(layout.device_node[d] for d in held)
        order = sorted(nodes, key=lambda node: (-nodes[node], node))
        return [bay for node in order for bay in layout.node_bays[node] if layout.bay_type[bay] == kind]

    def count(self, shape: Shape, kind: int, held: tuple[int, ...]) -> int:
        """Most devices of a type that a job which holds these could add."""
        if shape.spans or not held:
            return self._ledger.free_count[kind] - self._gone[kind]
        return sum(self._free(bay).bit_count() for bay in self._near(kind, held))

    def find(self, shape: Shape, kind: int, count: int, held: tuple[int, ...]) -> tuple[int, ...] | None:
        """So many free devices: on the job's own nodes first, then in one bay, then in few; None if there are not."""
        ledger = self._ledger
        parts: dict[int, int] = {}
        left = count

        def take(bay: int) -> None:
            nonlocal left
            here = min(self._free(bay).bit_count(), left) if bay not in parts else 0
            if here:
                parts[bay] = here
                left -= here

        for bay in self._near(kind, held):
            take(bay)
        if left and (shape.spans or not held):
            for bay in ledger.bays_by_room(kind, left):
                if bay not in parts and self._free(bay).bit_count() >= left:
                    take(bay)
                    break
        if left and shape.spans:
            for bay in ledger.bays_by_most_room(kind):
                take(bay)
                if not left:
                    break
        if left:
            return None
        found = [d for b, n in parts.items() for d in self._layout.devices(b, low_bits(self._free(b), n))]
        return tuple(sorted(found))

    def take(self, devices: tuple[int, ...]) -> None:
        """These are given away."""
        layout = self._layout
        for device in devices:
            bay = layout.device_bay[device]
            self._taken[bay] = self._taken.get(bay, 0) | layout.device_bit[device]
            self._gone[layout.bay_type[bay]] += 1


class Planner:
    """Performance of jobs on sets of devices, and the increments they propose.

    Parameters
    ----------
    hetero : bool
        Whether a job may use several device types, where its grade and the settings permit it.
    most_waste : float
        Largest share of capability that an increment may leave unused.
    """

    def __init__(self, view: View, *, hetero: bool, most_waste: float) -> None:
        self._view, self._most_waste = view, most_waste
        self._speeds = Speeds(view)
        self._by_workers = view.settings.elastic_speed == "workers"
        self._mixes = hetero and view.settings.mixed_types

    def mixes(self, job: Job) -> bool:
        """Whether a job may use several device types."""
        return self._mixes and may_mix(job)

    def start_kinds(self, record: JobRecord) -> tuple[int, ...]:
        """Device types in the order in which a new job tries them.

        The slowest first for a job that can have others beside it later, which keeps the fast ones for
        those that can use nothing else; the usual order for the rest.
        """
        kinds = record.shape.types
        if not self.mixes(record.job):
            return kinds
        return tuple(sorted(kinds, key=lambda kind: self._speeds.of(record.job.model, kind)))

    def outcome(self, job: Job, counts: Counter[int]) -> tuple[float, float]:
        """Performance on so many devices of each type, and the share of capability that is wasted."""
        held: Held = tuple((n, self._speeds.of(job.model, kind)) for kind, n in sorted(counts.items()) if n)
        if self._by_workers:
            division = divide(held, workers_of(job))
            return division.performance, division.waste_share
        slowest, number = min(each for _, each in held), sum(n for n, _ in held)
        all_of_it = sum(n * each for n, each in held)
        return slowest * number, 1.0 - slowest * number / all_of_it

    def increments(
        self, record: JobRecord, room: Room, most: int, kinds: tuple[int, ...] | None = None
    ) -> list[Increment]:
        """The best increment of each device type: at most as many as it has, up to ``most`` devices in all.

        ``kinds`` are the types to look at, if not all.
        """
        job, place, mixes = record.job, record.place, self.mixes(record.job)
        if place is None or (not mixes and len(place.devices) >= most):
            return []
        held = place.devices
        counts = Counter([self._view.layout.device_type[d] for d in held])
        allowed = [
            k for k in (record.shape.types if mixes else sorted(counts)) if kinds is None or k in kinds
        ]
        if not any(room.count(record.shape, kind, held) for kind in allowed):
            return []
        before, _ = self.outcome(job, counts)
        found = []
        for kind in allowed:
            best: Increment | None = None
            for more in range(1, min(len(held), most, room.count(record.shape, kind, held)) + 1):
                after = self._exchanged(job, counts, kind, more, most)
                if after is None:
                    break
                performance, waste = self.outcome(job, after)
                gain = (performance / before - 1.0) / more
                better = best is None or (gain, more) > (best.gain, best.more)
                if gain > _LEAST_GAIN and waste <= self._most_waste and better:
                    less = tuple((k, n - after[k]) for k, n in sorted(counts.items()) if after[k] < n)
                    best = Increment(gain, more, kind, record.id, waste, less)
            if best is not None:
                found.append(best)
        return found

    def _exchanged(
        self, job: Job, counts: Counter[int], kind: int, more: int, most: int
    ) -> Counter[int] | None:
        """Devices by type with so many added, less those beyond ``most`` of slower types; None if there are not enough."""
        after = counts.copy()
        after[kind] += more
        if len(after) == 1:
            return after if after[kind] <= most else None
        speed = {k: self._speeds.of(job.model, k) for k in after}
        for other in sorted(counts, key=lambda k: (speed[k], k)):
            surplus = after.total() - most
            if surplus > 0 and speed[other] < speed[kind]:
                after[other] -= min(surplus, after[other])
        if after.total() > most:
            return None
        held = tuple((n, speed[k]) for k, n in sorted(after.items()) if n)
        if self._by_workers:
            used = divide(held, workers_of(job)).each
            for number, other in enumerate(k for k in sorted(after) if after[k]):
                spare = after.total() - after[other] >= job.min_gpus
                if not used[number] and other != kind and spare:
                    after[other] = 0
        return after
