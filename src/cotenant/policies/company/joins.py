"""Whether one more job on a shared device is worth it, by a forecast of speeds: each case asked once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.view import Index, View
from cotenant.policies.queues.points import Point, Points
from cotenant.policies.space.boards import Board, Boards, Company, forecast_of

__all__ = ["JoinPoints", "Joins"]


class JoinPoints(Points):
    """Points kept apart by length, for a policy that asks who the neighbours are.

    More neighbours can make a device good for a job that it was not good for before: both speeds beside
    two others may add up to more. So a start, too, opens the points that could fit there.
    """

    def __init__(self, view: View) -> None:
        super().__init__(view, by_length=True)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if place.share.mode != "exclusive":
            self.touch(place.devices)


class Joins(Index):
    """Verdicts on joining companies.

    Predicted normalised throughput of a device, each job's speed counted on all the devices it holds, must
    rise by more than ``min_gain`` for each device that the newcomer holds. Without a forecast nobody joins.

    Parameters
    ----------
    view : View
    min_gain : float
    """

    def __init__(self, view: View, min_gain: float) -> None:
        self._forecast, self._min_gain = forecast_of(view), min_gain
        self._types = [kind.name for kind in view.layout.types]
        self._known: dict[tuple[int, Company, str, int], bool] = {}
        self._rows: dict[tuple[int, str, int], NDArray[np.int8]] = {}

    def row(self, boards: Boards, board: Board, point: Point, room: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of the devices of a board that have room: those where a job of this point may join who is there.

        Only companies on those devices are asked about, and each once.
        """
        key = (board.kind, point.model, point.shape.gpus)
        row = self._rows.get(key)
        if row is None or len(row) < len(boards.companies):
            longer = np.full(2 * len(boards.companies), -1, np.int8)
            if row is not None:
                longer[: len(row)] = row
            row = self._rows[key] = longer
        there = board.company[room]
        verdicts = row[there]
        if (verdicts < 0).any():
            for number in np.unique(there[verdicts < 0]).tolist():
                row[number] = self.rises(board.kind, boards.companies[number], *key[1:])
        found = room.copy()
        found[room] = row[there] > 0
        return found

    def rises(self, kind: int, company: Company, model: str, gpus: int) -> bool:
        """Whether a device's throughput rises enough by one more job."""
        if not company:
            return True
        key = (kind, company, model, gpus)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._gain(kind, company, model, gpus) > self._min_gain * gpus
        return found

    def _gain(self, kind: int, company: Company, model: str, gpus: int) -> float:
        if self._forecast is None:
            return -1.0
        name, forecast = self._types[kind], self._forecast
        gain = gpus * forecast.co_speed(model, tuple([m for m, _ in company]), name).mean
        for i, (other, weight) in enumerate(company):
            rest = tuple([m for j, (m, _) in enumerate(company) if j != i])
            before = forecast.co_speed(other, rest, name).mean if rest else 1.0
            gain -= weight * (before - forecast.co_speed(other, tuple(sorted((*rest, model))), name).mean)
        return gain

    def speed(self, kind: int, company: Company, model: str) -> float:
        """Predicted speed of a model beside a company on a device type, relative to the reference device."""
        if self._forecast is None:
            return 1.0
        name = self._types[kind]
        alone = self._forecast.solo_speed(model, name)
        return (
            alone * self._forecast.co_speed(model, tuple([m for m, _ in company]), name).mean
            if company
            else alone
        )
