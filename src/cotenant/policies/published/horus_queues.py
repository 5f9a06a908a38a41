"""Horus' class queues: who waits in which class, and for how long."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.model.ports import shares_of
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.published.clusters import Classes, Features, cluster
from cotenant.policies.queues.points import Point, Points
from cotenant.policies.space.boards import forecast_of

__all__ = ["ClassQueues"]


class ClassQueues(Points):
    """Points of demand, and the class of each.

    Features of a job are its tasks (nodes that its devices need), predicted utilisation, devices of
    each task and memory.

    Attributes
    ----------
    table : ndarray or None
        Cost of each utilisation, kept here by the policy.
    """

    def __init__(self, view: View) -> None:
        self._classes: Classes | None = None
        self._source: Any = None
        self._class_of: dict[Features, int] = {}
        self._features: dict[tuple[int, str], Features] = {}
        self._since: list[list[float]] = []
        self._queued: dict[int, tuple[float, int]] = {}
        self._forecast = forecast_of(view)
        self._widest = max(
            [view.layout.bay_size[b] for bays in view.layout.type_bays for b in bays], default=1
        )
        self.table: NDArray[np.float64] | None = None
        super().__init__(view)

    def features(self, point: Point) -> Features:
        """What a point's jobs are classed by."""
        key = (point.shape.number, point.model)
        found = self._features.get(key)
        if found is None:
            shape, types = point.shape, self._view.layout.types
            tasks = -(-shape.gpus // self._widest)
            name = types[shape.types[0]].name
            util = round(100.0 * shares_of(self._forecast, point.model, name)[0], 1)
            memory = round(shape.memory_bytes / GIB, 1)
            found = self._features[key] = (float(tasks), util, shape.gpus / tasks, memory)
        return found

    def clustered(self, k: int) -> dict[str, Any] | None:
        """Classes of those who wait now, as plain values; None if nobody waits for devices."""
        weights: dict[Features, int] = {}
        for point in self.living:
            if point.shape.gpus:
                key = self.features(point)
                weights[key] = weights.get(key, 0) + point.count
        if not weights:
            return None
        found = cluster(weights, k)
        when = {"at_s": self._view.now, "jobs": self._view.shapes.jobs}
        return {**when, "mean": found.mean, "scale": found.scale, "centres": found.centres}

    def use(self, memo: dict[str, Any]) -> None:
        """Divide those who wait by these classes."""
        if memo is self._source:
            return
        self._source = memo
        self._classes = Classes(memo["mean"], memo["scale"], memo["centres"])
        self._class_of.clear()
        self._since = [[] for _ in memo["centres"]]
        self._queued.clear()
        for record in self._view.queue:
            if record.shape.gpus and not record.shape.never:
                number = self.class_of(self._in[record.id][0])
                self._since[number].append(record.queued_s)
                self._queued[record.id] = (record.queued_s, number)
        for row in self._since:
            row.sort()

    def class_of(self, point: Point) -> int:
        """The class of a point; 0 before there are any."""
        if self._classes is None:
            return 0
        key = self.features(point)
        found = self._class_of.get(key)
        if found is None:
            found = self._class_of[key] = self._classes.of(key)
        return found

    def enqueued(self, record: JobRecord) -> None:
        """A job joined."""
        super().enqueued(record)
        if self._classes is not None and record.shape.gpus and not record.shape.never:
            number = self.class_of(self._in[record.id][0])
            insort(self._since[number], record.queued_s)
            self._queued[record.id] = (record.queued_s, number)

    def dequeued(self, record: JobRecord) -> None:
        """A job left."""
        super().dequeued(record)
        known = self._queued.pop(record.id, None)
        if known is not None:
            row = self._since[known[1]]
            del row[bisect_left(row, known[0])]

    def weights(self, floor_s: float) -> list[float]:
        """Median wait (at least ``floor_s``) times length, by class."""
        now = self._view.now
        return [len(row) * max(now - _median(row), floor_s) if row else 0.0 for row in self._since]


def _median(row: list[float]) -> float:
    middle = len(row) // 2
    return row[middle] if len(row) % 2 else 0.5 * (row[middle - 1] + row[middle])
