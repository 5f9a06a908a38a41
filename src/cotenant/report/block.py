"""A run of events as columns: what the fold needs of each event, gathered once.

Events are gathered a piece at a time, while they are still warm in the processor's caches, and
let go at once; only events of the rarer kinds are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from struct import pack
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.model.placement import DEVICE_MILLI
from cotenant.report.columns import Codes
from cotenant.report.jobtable import Outcomes
from cotenant.report.kinds import Kind

__all__ = ["Block", "Piece"]

_Keys = tuple[npt.NDArray[Any], npt.NDArray[Any] | None]
"""Time and job of each event."""
_NONE = np.zeros(0, dtype=np.int64)
_KEPT = frozenset((Kind.OPENED, Kind.CLOSED, Kind.REFUSED, Kind.REJECTED, Kind.STOPPING, *Kind.IN_ORDER))


def _whole(values: list[int]) -> npt.NDArray[Any]:
    # Packing takes half the time of fromiter.
    return np.frombuffer(pack(f"{len(values)}q", *values), np.int64)


def _short(values: list[int]) -> npt.NDArray[Any]:
    return np.frombuffer(pack(f"{len(values)}i", *values), np.int32)


def _real(values: list[float]) -> npt.NDArray[Any]:
    return np.frombuffer(pack(f"{len(values)}d", *values), np.float64)


def _coded(words: list[str], codes: Codes) -> npt.NDArray[Any]:
    if words.count(words[0]) == len(words):  # the same word all over: quicker to see than to look up
        return np.full(len(words), codes[words[0]], dtype=np.int32)
    return _short([codes[word] for word in words])


class Piece:
    """Columns of a few thousand events.

    Parameters
    ----------
    events : list of Event
    codes : dict of Codes
        Numbers of the words of jobs.
    reasons : Codes
        Numbers of the reasons to wait.

    Attributes
    ----------
    fractions : list of int
        Jobs submitted that declare a fraction of a device.
    shares : bool
        Whether a job starts on a part of its devices.
    """

    def __init__(self, events: Sequence[Any], codes: dict[str, Codes], reasons: Codes) -> None:
        of = Kind.OF
        self.codes = np.frombuffer(bytes([of[type(e)] for e in events]), np.uint8)
        self.t: npt.NDArray[Any] = np.empty(len(events))
        self.ids: npt.NDArray[Any] = np.full(len(events), -1, dtype=np.int64)
        self.columns: dict[tuple[int, str], npt.NDArray[Any]] = {}
        self.kept: dict[int, list[Any]] = {}
        self.names: list[str] = []
        self.placements: list[tuple[int, ...]] = []
        self.fractions: list[int] = []
        self.shares = False
        takers: dict[int, Callable[[list[Any]], _Keys]] = {
            Kind.SUBMITTED: partial(self._submitted, codes=codes),
            Kind.STARTED: self._started,
            Kind.ENDED: self._ended,
            Kind.HELD: partial(self._held, reasons=reasons),
        }
        for code in np.flatnonzero(np.bincount(self.codes)).tolist():
            at = np.flatnonzero(self.codes == code)
            found = [events[i] for i in at.tolist()]
            self.t[at], ids = takers.get(code, partial(self._other, code))(found)
            if ids is not None:
                self.ids[at] = ids
            if code in _KEPT:
                self.kept[code] = found

    # One method for each common kind: Python reads an attribute faster where it sees one type only.

    def _submitted(self, found: list[Any], codes: dict[str, Codes]) -> _Keys:
        jobs = [e.job for e in found]
        self.names = [job.name for job in jobs]
        self.fractions = [job.id for job in jobs if 0 < job.compute_milli < DEVICE_MILLI]
        self._put(
            Kind.SUBMITTED,
            gpus=_short([job.gpus for job in jobs]),
            priority=_short([job.priority for job in jobs]),
            model=_coded([job.model for job in jobs], codes["model"]),
            tenant=_coded([job.tenant for job in jobs], codes["tenant"]),
            user=_coded([job.user for job in jobs], codes["user"]),
            job_class=_coded([job.job_class for job in jobs], codes["job_class"]),
        )
        expected = [e.expected_s for e in found]
        if any(expected):
            told = [(job.id, three) for job, three in zip(jobs, expected, strict=True) if three]
            three = _real(list(chain.from_iterable(three for _, three in told)))
            self._put(Kind.SUBMITTED, told=_whole([i for i, _ in told]), expected=three.reshape(-1, 3))
        return _real([e.t for e in found]), _whole([job.id for job in jobs])

    def _started(self, found: list[Any]) -> _Keys:
        self.placements = placements = [e.devices for e in found]
        self.shares = any(e.share is not None for e in found)
        self._put(
            Kind.STARTED,
            attempt=_short([e.attempt for e in found]),
            lengths=_whole(list(map(len, placements))),
            devices=_whole(list(chain.from_iterable(placements))),
        )
        return _real([e.t for e in found]), _whole([e.id for e in found])

    def _ended(self, found: list[Any]) -> _Keys:
        code = Outcomes.OF
        self._put(
            Kind.ENDED,
            work_s=_real([e.work_s for e in found]),
            outcome=np.frombuffer(bytes([code[e.outcome] for e in found]), np.int8),
            final=np.frombuffer(bytes([e.final for e in found]), np.bool_),
            lost_s=_real([e.lost_s for e in found]),
        )
        return _real([e.t for e in found]), _whole([e.id for e in found])

    def _held(self, found: list[Any], reasons: Codes) -> _Keys:
        self._put(Kind.HELD, reason=_short([reasons[e.reason] for e in found]))
        return _real([e.t for e in found]), _whole([e.id for e in found])

    def _other(self, code: int, found: list[Any]) -> _Keys:
        if code == Kind.RATED:
            self._put(code, rate=_real([e.rate for e in found]))
        elif code == Kind.SUSPENDED:
            self._put(code, work_s=_real([e.work_s for e in found]))
        elif code == Kind.REJECTED:
            self._put(code, reason=_short([Outcomes.of_rejection(e.reason) for e in found]))
        elif code in (Kind.MOVED, Kind.RESIZED):
            self._put(code, devices=_whole([len(e.devices) for e in found]))
        ids = _whole([e.id for e in found]) if code in Kind.OF_JOBS else None
        return _real([e.t for e in found]), ids

    def _put(self, kind: int, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            self.columns[kind, name] = values


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
