"""A run of events as columns: what the fold needs of each event, gathered once.

Events are gathered a piece at a time, while they are still warm in the processor's caches, and
let go at once; only events of the rarer kinds are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.report.columns import Codes, column
from cotenant.report.jobtable import WORDS, Outcomes
from cotenant.report.kinds import Kind

__all__ = ["Block", "Piece"]

Columns = dict[tuple[int, str], npt.NDArray[Any]]

_NONE = np.zeros(0, dtype=np.int64)
_ID: tuple[str, npt.DTypeLike, Callable[[Any], Any] | None] = ("id", np.int64, None)
_SHAPE: dict[int, tuple[tuple[str, npt.DTypeLike, Callable[[Any], Any] | None], ...]] = {
    Kind.STARTED: (_ID, ("attempt", np.int32, None)),
    Kind.RATED: (_ID, ("rate", np.float64, None)),
    Kind.SUSPENDED: (_ID, ("work_s", np.float64, None)),
    Kind.ENDED: (
        _ID,
        ("work_s", np.float64, None),
        ("outcome", np.int8, Outcomes.OF.__getitem__),
        ("final", np.bool_, None),
        ("lost_s", np.float64, None),
    ),
    Kind.REJECTED: (_ID, ("reason", np.int8, Outcomes.of_rejection)),
    Kind.MOVED: (_ID, ("devices", np.int64, len)),
    Kind.RESIZED: (_ID, ("devices", np.int64, len)),
    Kind.STOPPING: (_ID,),
    Kind.RELEASED: (_ID,),
    Kind.HELD: (_ID,),
}
"""Columns by kind: attribute, type, and what turns it into a number."""
_KEPT = frozenset((Kind.OPENED, Kind.REFUSED, Kind.STOPPING, *Kind.IN_ORDER))


class Piece:
    """Columns of a few thousand events.

    Parameters
    ----------
    events : list of Event
    codes : dict of Codes
        Numbers of the words of jobs.
    reasons : Codes
        Numbers of the reasons to wait.
    """

    def __init__(self, events: Sequence[Any], codes: dict[str, Codes], reasons: Codes) -> None:
        self.codes = np.frombuffer(bytes(map(Kind.OF.__getitem__, map(type, events))), np.uint8)
        self.t: npt.NDArray[Any] = column(events, "t", np.float64)
        self.ids: npt.NDArray[Any] = np.full(len(events), -1, dtype=np.int64)
        self.columns: Columns = {}
        self.kept: dict[int, list[Any]] = {}
        self.names: list[str] = []
        self.placements: list[tuple[int, ...]] = []
        for code in np.flatnonzero(np.bincount(self.codes)).tolist():
            at = np.flatnonzero(self.codes == code)
            found = [events[i] for i in at.tolist()]
            if code == Kind.SUBMITTED:
                self._submitted([e.job for e in found], codes)
            elif code == Kind.STARTED:
                self._placed([e.devices for e in found])
            elif code == Kind.HELD:
                self.columns[code, "reason"] = column(found, "reason", np.int16, reasons.__getitem__)
            for name, kind, via in _SHAPE.get(code, ()):
                self.columns[code, name] = column(found, name, kind, via)
            if code in _KEPT:
                self.kept[code] = found
            if (code, "id") in self.columns:
                self.ids[at] = self.columns.pop((code, "id"))

    def _submitted(self, jobs: list[Any], codes: dict[str, Codes]) -> None:
        kind = Kind.SUBMITTED
        self.names = [job.name for job in jobs]
        for name in ("id", "gpus", "priority"):
            self.columns[kind, name] = column(jobs, name)
        for name in WORDS:
            self.columns[kind, name] = column(jobs, name, np.int32, codes[name].__getitem__)

    def _placed(self, placements: list[tuple[int, ...]]) -> None:
        self.placements = placements
        lengths = np.fromiter(map(len, placements), np.int64, len(placements))
        self.columns[Kind.STARTED, "lengths"] = lengths
        self.columns[Kind.STARTED, "devices"] = np.fromiter(
            chain.from_iterable(placements), np.int64, int(lengths.sum())
        )


class Block:
    """Pieces put together, in log order.

    Attributes
    ----------
    codes, t : (n,) arrays
        Kind and time of each event.
    ids : (n,) array
        Job of each event, -1 where it is about none.
    names : list of str
        Names of the jobs submitted.
    placements : list
        Devices of each start.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.codes = np.concatenate([p.codes for p in pieces])
        self.t: npt.NDArray[Any] = np.concatenate([p.t for p in pieces])
        self.ids: npt.NDArray[Any] = np.concatenate([p.ids for p in pieces])
        self.size = self.codes.size
        self.names = list(chain.from_iterable(p.names for p in pieces))
        self.placements = list(chain.from_iterable(p.placements for p in pieces))
        self._columns: dict[tuple[int, str], list[npt.NDArray[Any]]] = {}
        self._events: dict[int, list[Any]] = {}
        for piece in pieces:
            for key, values in piece.columns.items():
                self._columns.setdefault(key, []).append(values)
            for kind, events in piece.kept.items():
                self._events.setdefault(kind, []).extend(events)
        present = np.flatnonzero(np.bincount(self.codes)).tolist()
        self._where = {code: np.flatnonzero(self.codes == code) for code in present}

    def has(self, *kinds: int) -> bool:
        """Whether an event of one of these kinds is in it."""
        return any(kind in self._where for kind in kinds)

    def at(self, kind: int) -> npt.NDArray[Any]:
        """Positions of the events of a kind."""
        return self._where.get(kind, _NONE)

    def column(self, kind: int, name: str) -> npt.NDArray[Any]:
        """One column of the events of a kind, in order."""
        found = self._columns.get((kind, name))
        return np.concatenate(found) if found else _NONE

    def of(self, kind: int) -> list[Any]:
        """Events of a kind, in order; only of those that are kept as they are."""
        return self._events.get(kind, [])

    def pick(self, positions: npt.NDArray[Any]) -> list[Any]:
        """Events at these positions, in their order; devices of starts, None for what was not kept."""
        out: list[Any] = [None] * self.size
        for kind in np.unique(self.codes[positions]).tolist():
            found = self.placements if kind == Kind.STARTED else self._events.get(kind, ())
            for i, event in zip(self._where[kind].tolist(), found, strict=False):
                out[i] = event
        return [out[i] for i in positions.tolist()]
