"""A live run and its simulation, side by side: times, gains, and whether the same was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.model import events as ev
from cotenant.model.events import Event

__all__ = ["Course", "Fate", "Likeness", "course_of", "likeness"]


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job; times from the first arrival.

    Parameters
    ----------
    devices : tuple of int
        Where it first started.
    beside : tuple of str
        Who was there then, by name, sorted.
    stops : int
        Times that it was taken off its devices.
    """

    name: str
    submit_s: float
    start_s: float
    end_s: float
    devices: tuple[int, ...]
    beside: tuple[str, ...]
    stops: int = 0

    @property
    def jct_s(self) -> float:
        """From its arrival to its end."""
        return self.end_s - self.submit_s


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, by job, in order of first starts."""

    fates: tuple[Fate, ...]

    @property
    def jct_s(self) -> float:
        """Mean completion time."""
        return sum(fate.jct_s for fate in self.fates) / len(self.fates)

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last end."""
        return max(fate.end_s for fate in self.fates)

    @property
    def per_hour(self) -> float:
        """Jobs."""
        return 3600.0 * len(self.fates) / self.makespan_s

    @property
    def shared(self) -> int:
        """Jobs that started beside others."""
        return sum(bool(fate.beside) for fate in self.fates)

    @property
    def by_name(self) -> dict[str, Fate]:
        """Fates by the names of jobs."""
        return {fate.name: fate for fate in self.fates}


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """How like a simulation is to the live run, job by job.

    Parameters
    ----------
    order : float
        Share of the pairs of jobs that started in the same order.
    first_other : int
        Decisions to start before the first that differs, in job or device; all of them: none differs.
    device, beside : float
        Share of jobs that first started on the same device, and beside the same jobs.
    jct_pct : float
        Mean over the jobs of how far the completion time is off, in per cent of the live one.
    """

    order: float
    first_other: int
    device: float
    beside: float
    jct_pct: float


def course_of(events: Sequence[Event]) -> Course:
    """The course that a log tells of jobs that all ended.

    Raises
    ------
    ValueError
        If one has not.
    """
    names, submits, first = dict[int, str](), dict[int, float](), dict[int, dict[str, Any]]()
    ends, stops, on = dict[int, float](), dict[int, int](), dict[int, tuple[int, ...]]()
    for event in events:
        if isinstance(event, ev.Submitted):
            names[event.job.id], submits[event.job.id] = event.job.name, event.t
        elif isinstance(event, ev.Started):
            there = set(event.devices)
            beside = sorted(names[other] for other, its in on.items() if not there.isdisjoint(its))
            on[event.id] = event.devices
            first.setdefault(
                event.id, {"start_s": event.t, "devices": event.devices, "beside": tuple(beside)}
            )
        elif isinstance(event, (ev.Suspended, ev.Ended)):
            on.pop(event.id, None)
            if isinstance(event, ev.Ended) and event.final:
                ends[event.id] = event.t
            else:
                stops[event.id] = stops.get(event.id, 0) + 1
    if missing := names.keys() - ends.keys():
        raise ValueError(f"jobs have not ended: {sorted(names[n] for n in missing)}")
    began = min(submits.values())
    return Course(
        fates=tuple(
            Fate(
                name=names[n],
                submit_s=submits[n] - began,
                start_s=found["start_s"] - began,
                end_s=ends[n] - began,
                devices=found["devices"],
                beside=found["beside"],
                stops=stops.get(n, 0),
            )
            for n, found in first.items()
        )
    )


def likeness(live: Course, simulated: Course) -> Likeness:
    """Compare them, job by job."""
    theirs: Mapping[str, Fate] = simulated.by_name
    names = [fate.name for fate in live.fates]
    place = {fate.name: i for i, fate in enumerate(simulated.fates)}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    same = 0
    for one, other in zip(live.fates, simulated.fates, strict=True):
        if (one.name, one.devices) != (other.name, other.devices):
            break
        same += 1
    count = len(names)
    return Likeness(
        order=sum(place[a] < place[b] for a, b in pairs) / len(pairs) if pairs else 1.0,
        first_other=same,
        device=sum(fate.devices == theirs[fate.name].devices for fate in live.fates) / count,
        beside=sum(fate.beside == theirs[fate.name].beside for fate in live.fates) / count,
        jct_pct=100.0
        * sum(abs(theirs[fate.name].jct_s - fate.jct_s) / fate.jct_s for fate in live.fates)
        / count,
    )
