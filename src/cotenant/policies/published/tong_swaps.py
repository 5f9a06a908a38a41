"""Whom Tong might suspend for the order's sake: who lasts longest, and for whom their leaving makes room."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.company.joins import Joins
from cotenant.policies.published.tong_guard import Beside
from cotenant.policies.queues.points import Point, PointKey
from cotenant.policies.space.boards import Boards, Company

__all__ = ["LateEnds", "Swaps"]


class LateEnds(Index):
    """Running jobs on one device, latest predicted end first."""

    def __init__(self, view: View) -> None:
        self._speeds = [kind.speed for kind in view.layout.types]
        self._kinds = view.layout.device_type
        self._at: dict[int, tuple[float, int]] = {}
        self.rows: list[tuple[float, int]] = []
        for record in view.running.values():
            self.rated(record)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self.rated(record)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        row = self._at.pop(record.id, None)
        if row is not None:
            del self.rows[bisect_left(self.rows, row)]

    def rated(self, record: JobRecord) -> None:
        """Its speed or its predicted work changed."""
        place = record.place
        if place is None or len(place.devices) != 1:
            return
        rate = record.rate or self._speeds[self._kinds[place.devices[0]]]
        row = (-(record.rated_s + record.remaining_at(record.rated_s) / rate), record.id)
        before = self._at.get(record.id)
        if before != row:
            if before is not None:
                del self.rows[bisect_left(self.rows, before)]
            self._at[record.id] = row
            insort(self.rows, row)


class Swaps(Index):
    """Speeds that jobs would have in others' place, remembered until a device changes.

    Parameters
    ----------
    view : View
    boards : Boards
    joins : Joins
    large : float
        Who needs more than this part of a device's memory is never in question as a victim.
    """

    def __init__(self, view: View, boards: Boards, joins: Joins, large: float) -> None:
        self._view, self._boards, self._joins, self._large = view, boards, joins, large
        self._known: dict[int, dict[tuple[PointKey, int], float]] = {}

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        for device in place.devices:
            self._known.pop(device, None)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        for device in place.devices:
            self._known.pop(device, None)

    def speed(self, point: Point, record: JobRecord, victim: JobRecord, device: int) -> float:
        """Predicted speed of a waiting job on a device that a victim has left; 0 where it cannot go then."""
        known = self._known.setdefault(device, {})
        key = (point.key, victim.id)
        found = known.get(key)
        if found is None:
            found = known[key] = self._speed(record, victim, device)
        return found

    def _speed(self, record: JobRecord, victim: JobRecord, device: int) -> float:
        view = self._view
        kind, capacity = view.layout.device_type[device], view.layout.device_memory[device]
        if kind not in record.shape.types or victim.job.memory_bytes > self._large * (capacity or math.inf):
            return 0.0
        stay = [view.records[j] for j in view.ledger.residents[device] if j != victim.id]
        if stay and not Beside(view, self._boards, self._joins, record, device)(stay):
            return 0.0
        company: Company = tuple(sorted([(other.job.model, other.job.gpus) for other in stay]))
        return self._joins.speed(kind, company, record.job.model)
