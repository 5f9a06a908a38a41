"""A run of events with what the fold needs of each, gathered once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.report.columns import column
from cotenant.report.kinds import Kind

__all__ = ["Block"]

_NONE = np.zeros(0, dtype=np.int64)


class Block:
    """Events in log order.

    Attributes
    ----------
    codes, t : (n,) arrays
        Kind and time of each event.
    ids : (n,) array
        Job of each event, -1 where it is about none.
    placements : list
        Devices of each start.
    """

    def __init__(self, events: list[Any]) -> None:
        self.size = len(events)
        self.codes = np.frombuffer(bytes(map(Kind.OF.__getitem__, map(type, events))), np.uint8)
        self.t: npt.NDArray[Any] = column(events, "t", np.float64)
        self._where: dict[int, npt.NDArray[Any]] = {}
        self._events: dict[int, list[Any]] = {}
        for code in np.flatnonzero(np.bincount(self.codes)).tolist():
            at = np.flatnonzero(self.codes == code)
            self._where[code] = at
            self._events[code] = [events[i] for i in at.tolist()]
        self.ids: npt.NDArray[Any] = np.full(self.size, -1, dtype=np.int64)
        for code, found in self._events.items():
            if code in Kind.OF_JOBS:
                self.ids[self._where[code]] = column(found, "job.id" if code == Kind.SUBMITTED else "id")

        self.placements: list[tuple[int, ...]] = [e.devices for e in self.of(Kind.STARTED)]

    def has(self, *kinds: int) -> bool:
        """Whether an event of one of these kinds is in it."""
        return any(kind in self._where for kind in kinds)

    def at(self, kind: int) -> npt.NDArray[Any]:
        """Positions of the events of a kind."""
        return self._where.get(kind, _NONE)

    def of(self, kind: int) -> list[Any]:
        """Events of a kind, in order."""
        return self._events.get(kind, [])

    def pick(self, positions: npt.NDArray[Any]) -> list[Any]:
        """Events at these positions, in their order."""
        out: list[Any] = [None] * self.size
        for kind in np.unique(self.codes[positions]).tolist():
            for i, event in zip(self._where[kind].tolist(), self._events[kind], strict=True):
                out[i] = event
        return [out[i] for i in positions.tolist()]
