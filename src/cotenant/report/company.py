"""Who ran beside whom and how fast, from the events alone: what forecasts are judged by.

A walk over the events of jobs that may share, one by one. It costs nothing where no job ever got a
part of a device. Of long runs on many nodes it follows fewer and fewer nodes (``report.followed``),
whose hours then stand for those of the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cotenant.model import events as ev
from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI
from cotenant.report.followed import Followed

__all__ = ["ALONE", "CompanyWalk", "JobSet", "Side"]

JobSet = tuple[str, tuple[str, ...]]
"""A device type, and the models of those who share such a device (ascending)."""
ALONE: tuple[str, ...] = ()
"""The models of a set in which nobody is beside the job."""


class Side(msgspec.Struct, frozen=True):
    """A job of one model among the sets on its devices, with what was foretold of each.

    Parameters
    ----------
    model : str
    sets : tuple of JobSet
        Different ones only; a single one with ``ALONE`` for a job that has its devices to itself.
    told : tuple of Foretold or None
        In the order of ``sets``.
    known : bool
        False where speeds depend on more than the set: under a ceiling, in turns, in declared fractions.
    """

    model: str
    sets: tuple[JobSet, ...]
    told: tuple[ev.Foretold | None, ...]
    known: bool = True


class _Stay(msgspec.Struct, gc=False, eq=False):
    """A job on its devices; ``side`` is worked out when it is first needed.

    ``weight`` is how many nodes its own stands for; 0 if it has devices that are not followed: then
    it is somebody's neighbour and no more.
    """

    model: str
    devices: tuple[int, ...]
    shares: bool
    plain: bool
    size: float
    rate: float
    since: float
    weight: float
    side: int = -1


class CompanyWalk:
    """Seconds run, by side and speed.

    Parameters
    ----------
    opened : Opened
    fractions : set of int
        Jobs that declared a fraction of a device; brought up to date by the caller.
    everything : bool
        Follow all nodes, however long the run gets.

    Attributes
    ----------
    sides : list of Side
    seconds : dict of (int, float) to float
        Seconds run by (side, speed); the speed is that of the log, without what the size of the
        gang and its spread over nodes do.
    watched : dict
        The same for single jobs, whose numbers the caller puts in.
    """

    def __init__(self, opened: ev.Opened, fractions: set[int], *, everything: bool = False) -> None:
        self._layout = Layout(opened.cluster)
        self._span = float(opened.settings.get("span_speed", 1.0))
        self._fractions = fractions
        self._model_of: Callable[[int], str]
        self._gpus_of: Callable[[int], int]
        self.followed = Followed(self._layout, everything=everything)
        self._stays: dict[int, _Stay] = {}
        self._leaving: dict[int, tuple[int, ...]] = {}
        self._on: defaultdict[int, list[int]] = defaultdict(list)
        self._told: defaultdict[JobSet, list[ev.Foretold]] = defaultdict(list)
        self._numbers: dict[Any, int] = {}
        self.sides: list[Side] = []
        self.seconds: defaultdict[tuple[int, float], float] = defaultdict(float)
        self.watched: dict[int, defaultdict[tuple[int, float], float]] = {}
        self._handlers: dict[type, Any] = {
            ev.Started: self._started,
            ev.Rated: self._rated,
            ev.Ended: self._left,
            ev.Suspended: self._left,
            ev.Moved: self._moved,
            ev.Released: self._released,
            ev.Resized: self._moved,
            ev.Foretold: self._foretold,
        }

    def walk(
        self, events: Iterable[ev.Event], model_of: Callable[[int], str], gpus_of: Callable[[int], int]
    ) -> None:
        """Take the next events, in log order; the callables tell of every job met in them."""
        self._model_of, self._gpus_of = model_of, gpus_of
        handlers = self._handlers
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        self.followed.runs(self._stays)

    def until(self, end_s: float, watched: int | None = None) -> dict[tuple[int, float], float]:
        """Seconds by side and speed of all jobs or of one, what still runs counted up to now."""
        found = dict(self.seconds if watched is None else self.watched[watched])
        for job, stay in self._stays.items():
            if watched not in (None, job):
                continue
            if stay.rate > 0.0 and stay.weight and end_s > stay.since:
                key = (self._side(job, stay), stay.rate / stay.size)
                found[key] = found.get(key, 0.0) + (end_s - stay.since) * stay.weight
        return found

    # -- events --------------------------------------------------------------------------

    def _started(self, event: ev.Started) -> None:
        if not event.devices or not self.followed.any_of(event.devices):
            return
        if self.followed.starts_more():
            self._thin(event.t)
        self._put(event.id, event.devices, event.share, event.t, 1.0)

    def _thin(self, t: float) -> None:
        """Follow half as many nodes from now on."""
        for job, stay in self._stays.items():
            self._count(job, stay, t)
        self.followed.halve()
        for device in [d for d in self._on if not self.followed.any_of((d,))]:
            del self._on[device]
        gone = [job for job, stay in self._stays.items() if not self.followed.any_of(stay.devices)]
        for job in gone:
            del self._stays[job]
            # One that is moving away still has company on the devices that it leaves.
            for device in self._leaving.pop(job, ()):
                if job in (here := self._on[device]):
                    here.remove(job)
        for stay in self._stays.values():
            stay.weight = self.followed.weight(stay.devices)

    def _put(self, job: int, devices: tuple[int, ...], share: Any, t: float, rate: float) -> None:
        shares = share is not None and share.mode != "exclusive"
        plain = not shares or (share.mode == "spatial" and share.compute_limit_milli >= DEVICE_MILLI)
        size, weight = self._size(devices, self._gpus_of(job)), self.followed.weight(devices)
        stay = _Stay(self._model_of(job), devices, shares, plain, size, rate, t, weight)
        if shares:
            on = self._on
            self._disturb(devices, t)
            for device in devices:
                on[device].append(job)
        self._stays[job] = stay

    def _disturb(self, devices: tuple[int, ...], t: float) -> None:
        """The sets on these devices change now."""
        on, stays = self._on, self._stays
        others = on[devices[0]] if len(devices) == 1 else {j: 0 for d in devices for j in on[d]}
        for other in others:
            stay = stays[other]
            if t > stay.since:
                self._count(other, stay, t)
            stay.side = -1

    def _count(self, job: int, stay: _Stay, t: float) -> None:
        if t > stay.since:
            if stay.rate > 0.0 and stay.weight:
                if stay.side < 0:
                    stay.side = self._side(job, stay)
                key = stay.side, stay.rate / stay.size
                self.seconds[key] += (t - stay.since) * stay.weight
                if job in self.watched:
                    self.watched[job][key] += t - stay.since
            stay.since = t

    def _rated(self, event: ev.Rated) -> None:
        stay = self._stays.get(event.id)
        if stay is not None:
            self._count(event.id, stay, event.t)
            stay.rate = event.rate

    def _vacate(self, job: int, devices: tuple[int, ...], t: float) -> None:
        if devices:
            self._disturb(devices, t)
        for device in devices:
            if job in (here := self._on[device]):
                here.remove(job)

    def _left(self, event: ev.Ended | ev.Suspended) -> None:
        stay = self._stays.get(event.id)
        if stay is None:
            return
        self._count(event.id, stay, event.t)
        if stay.shares:
            self._vacate(event.id, stay.devices, event.t)
        self._vacate(event.id, self._leaving.pop(event.id, ()), event.t)
        del self._stays[event.id]

    def _moved(self, event: ev.Moved | ev.Resized) -> None:
        stay, rate = self._stays.get(event.id), 0.0  # on other devices it first loads; then its speed is told
        if stay is not None:
            self._count(event.id, stay, event.t)
            rate = stay.rate
            if isinstance(event, ev.Moved):
                self._leaving[event.id] = stay.devices if stay.shares else ()
            elif stay.shares:
                self._vacate(event.id, stay.devices, event.t)
        if self.followed.any_of(event.devices):
            self._put(event.id, event.devices, event.share, event.t, rate)
        elif stay is not None:
            stay.devices, stay.weight, stay.shares, stay.side = event.devices, 0.0, False, -1

    def _released(self, event: ev.Released) -> None:
        self._vacate(event.id, self._leaving.pop(event.id, ()), event.t)

    def _foretold(self, event: ev.Foretold) -> None:
        self._told[event.device_type, event.models].append(event)

    # -- what a side is ------------------------------------------------------------------

    def _side(self, job: int, stay: _Stay) -> int:
        """Its number; everything that was foretold at the instant it began is known by now."""
        kinds, types = self._layout.device_type, self._layout.types
        if not stay.shares:
            found = {(types[kinds[d]].name, ALONE): True for d in stay.devices}
        else:
            found = {}
            for device in stay.devices:
                there, name = self._on[device], types[kinds[device]].name
                if len(there) < 2:
                    found[name, ALONE] = True
                    continue
                models = tuple(sorted([self._stays[j].model for j in there]))
                found[name, models] = not all(j in self._fractions for j in there)
        sets = tuple(sorted(found))
        told = tuple([self._latest(key, stay.since) for key in sets])
        known = stay.plain and all(found.values()) and stay.size > 0.0
        side = (stay.model, sets, tuple([id(t) for t in told]), known)
        number = self._numbers.get(side)
        if number is None:
            number = self._numbers[side] = len(self.sides)
            self.sides.append(Side(stay.model, sets, told, known))
        return number

    def _latest(self, key: JobSet, since: float) -> ev.Foretold | None:
        told = self._told.get(key)
        if not told:
            return None
        if told[-1].t <= since:
            return told[-1]
        at = bisect_right(told, since, key=lambda event: event.t)
        return told[at - 1] if at else None

    def _size(self, devices: tuple[int, ...], gpus: int) -> float:
        """What the size of the gang and its spread over nodes do to its speed (``executors.physics``)."""
        layout, count = self._layout, len(devices)
        bays = layout.device_bay
        if count == gpus and (count == 1 or bays[devices[0]] == bays[devices[-1]]):
            return 1.0
        kinds = {layout.device_type[d] for d in devices}
        widest = max(layout.bay_size[b] for k in kinds for b in layout.type_bays[k])
        spans = len(layout.nodes_of(devices)) > -(-count // widest)
        return (self._span if spans else 1.0) * count / max(gpus, 1)
