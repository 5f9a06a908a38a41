"""Who might be paired with whom under Lucid: waiting jobs, shortest first, and running ones that are alone."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from cotenant.model.placement import Placement
from cotenant.model.ports import shares_of
from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.queues.circles import Circle, circle_of
from cotenant.policies.queues.points import Point
from cotenant.policies.queues.ranked_points import RankedPoints
from cotenant.policies.space.boards import forecast_of
from cotenant.policies.space.fit import UNKNOWN_S

__all__ = ["Hosts", "Scores", "Shortest", "service_s"]

_HostKey = tuple[int, int, Circle, int]
_Entry = tuple[float, int]


def service_s(record: JobRecord) -> float:
    """Predicted length times devices: what jobs are ordered by. Unknown lengths come last."""
    return record.predicted_s * (record.job.gpus or 1) if record.predicted_s > 0.0 else UNKNOWN_S


class Scores(NamedTuple):
    """Bounds of the three classes of jobs, as shares of a device.

    Parameters
    ----------
    tiny_compute, tiny_bandwidth : float
        A job below both is tiny and scores 0.
    jumbo_compute, jumbo_bandwidth : float
        A job that reaches either is jumbo and scores 2; all others are medium and score 1.
    """

    tiny_compute: float
    tiny_bandwidth: float
    jumbo_compute: float
    jumbo_bandwidth: float

    def of(self, compute: float, bandwidth: float) -> int:
        """The score of a job that uses so much when it is alone.

        >>> bounds = Scores(0.25, 0.08, 0.6, 0.3)
        >>> bounds.of(0.1, 0.02), bounds.of(0.1, 0.2), bounds.of(0.4, 0.4)
        (0, 1, 2)
        """
        if compute >= self.jumbo_compute or bandwidth >= self.jumbo_bandwidth:
            return 2
        return 0 if compute < self.tiny_compute and bandwidth < self.tiny_bandwidth else 1


class Hosts(Index):
    """Running jobs that are alone on all their devices and may have a neighbour, by all that decides about it.

    Parameters
    ----------
    view : View
    scores : Scores
    """

    def __init__(self, view: View, scores: Scores) -> None:
        self._view, self._scores = view, scores
        self._forecast = forecast_of(view)
        self._version = self._forecast.version if self._forecast else 0
        self._known: dict[tuple[str, int], int] = {}
        self._rows: dict[_HostKey, list[_Entry]] = {}
        self._at: dict[int, tuple[_HostKey, _Entry]] = {}
        for record in view.running.values():
            if record.place is not None:
                self._look(record)

    def stale(self) -> bool:
        """Whether the forecast has changed since."""
        return self._forecast is not None and self._forecast.version != self._version

    def score(self, model: str, kind: int) -> int:
        """Of a model on a device type."""
        found = self._known.get((model, kind))
        if found is None:
            shares = shares_of(self._forecast, model, self._view.layout.types[kind].name)
            found = self._known[model, kind] = self._scores.of(*shares[:2])
        return found

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        for job_id in self._on(place):
            self._look(self._view.records[job_id])

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self._drop(record.id)
        for job_id in self._on(place):
            if job_id != record.id:
                self._look(self._view.records[job_id])

    def _on(self, place: Placement) -> list[int]:
        residents = self._view.ledger.residents
        return sorted({job_id for device in place.devices for job_id in residents[device]})

    def _drop(self, job_id: int) -> None:
        at = self._at.pop(job_id, None)
        if at is not None:
            key, entry = at
            row = self._rows[key]
            del row[bisect_left(row, entry)]

    def _look(self, record: JobRecord) -> None:
        self._drop(record.id)
        place, circle = record.place, circle_of(record.job)
        if place is None or circle is None or not place.devices or place.share.mode != "spatial":
            return
        residents, mine = self._view.ledger.residents, (record.id,)
        if any(residents[device] != mine for device in place.devices):
            return
        kind = self._view.layout.device_type[place.devices[0]]
        key = (kind, record.job.gpus, circle, self.score(record.job.model, kind))
        entry = (record.started_s, record.id)
        insort(self._rows.setdefault(key, []), entry)
        self._at[record.id] = (key, entry)

    def partners(
        self, record: JobRecord, most_score: int, longer: float
    ) -> Iterator[tuple[JobRecord, tuple[int, int]]]:
        """Running jobs that a waiting one may be paired with, started first goes first; and both scores."""
        circle, shape, lines = circle_of(record.job), record.shape, []
        if circle is None or not shape.gpus:
            return
        for kind in shape.types:
            mine = self.score(record.job.model, kind)
            for theirs in range(min(2, most_score - mine) + 1):
                row = self._rows.get((kind, shape.gpus, circle, theirs))
                if row:
                    lines.append(_line(row, mine, theirs))
        for _, job_id, mine, theirs in heapq.merge(*lines):
            host = self._view.records[job_id]
            if self._fits(record, host, longer):
                yield host, (mine, theirs)

    def could(self, record: JobRecord, device: int, most_score: int, longer: float) -> bool:
        """Whether a waiting job may be paired with the one on this device; host needs aside."""
        residents = self._view.ledger.residents[device]
        at = self._at.get(residents[0]) if len(residents) == 1 else None
        if at is None:
            return False
        kind, gpus, circle, theirs = at[0]
        if gpus != record.shape.gpus or circle != circle_of(record.job) or kind not in record.shape.types:
            return False
        host = self._view.records[residents[0]]
        return self.score(record.job.model, kind) + theirs <= most_score and self._fits(record, host, longer)

    def refused_score(self, record: JobRecord) -> tuple[int, int] | None:
        """Least scores of the job and of a running one of its size; None if none is alone there."""
        circle, shape = circle_of(record.job), record.shape
        found = [
            (self.score(record.job.model, kind), theirs)
            for kind in shape.types
            for theirs in range(3)
            if circle is not None and self._rows.get((kind, shape.gpus, circle, theirs))
        ]
        return min(found, key=sum) if found else None

    def _fits(self, record: JobRecord, host: JobRecord, longer: float) -> bool:
        if service_s(record) > longer * service_s(host) or host.place is None:
            return False
        free, need = self._view.ledger.free_memory, record.shape.memory_bytes
        return free[host.place.devices[0]] >= need


def _line(row: list[_Entry], mine: int, theirs: int) -> Iterator[tuple[float, int, int, int]]:
    return ((*entry, mine, theirs) for entry in row)


class Shortest(RankedPoints):
    """Points of demand, the shortest of each first: where it finds no place, the others find none.

    Parameters
    ----------
    view : View
    hosts : Hosts
    longer : float
    """

    def __init__(self, view: View, hosts: Hosts, longer: float) -> None:
        self._hosts, self._longer = hosts, longer
        self._most_score = -1
        super().__init__(view, service_s)

    def use(self, most_score: int) -> None:
        """From now on pairs may score this much."""
        if most_score != self._most_score:
            self._most_score = most_score
            self._reopen_all()

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job that is alone may be a host."""
        if place.share.mode == "spatial":
            self.touch(place.devices)

    def sampled(self, record: JobRecord) -> None:
        """What is predicted of a job changed, and with it who may join it."""
        if record.place is not None:
            self.touch(record.place.devices)

    def could(self, point: Point, bay: int) -> bool:
        """Whether the shortest of a point may fit a bay, perhaps with others: never wrongly no."""
        shape: Shape = point.shape
        view = self._view
        if not shape.gpus:
            return True
        if view.layout.bay_type[bay] not in shape.types:
            return False
        room = view.ledger.whole[bay].bit_count()
        if room >= shape.gpus or (shape.spans and room):
            return True
        if point.circle is None:
            return False
        first, head = view.layout.bay_first[bay], point.head()
        return any(
            self._hosts.could(head, device, self._most_score, self._longer)
            for device in range(first, first + view.layout.bay_size[bay])
        )

    def asked_devices(self) -> int:
        """Devices that those who wait ask for."""
        return sum([point.shape.gpus * point.count for point in self.living])

    def blocked(self) -> list[JobRecord]:
        """The first of each point found blocked, not told why yet; they count as told from now on."""
        heads = [head for point in self.untold if (head := point.head()).hold is None]
        self.untold.clear()
        return sorted(heads, key=lambda head: head.id)
