"""Who runs beside whom on each device, and how fast: worked out when somebody comes or goes."""

from __future__ import annotations

import msgspec

from cotenant.executors.attempt import Attempt
from cotenant.model.layout import Layout
from cotenant.model.placement import DEVICE_MILLI, Placement
from cotenant.model.ports import Truth
from cotenant.model.settings import Settings

__all__ = ["ALONE", "Companies", "Company", "Pace", "granted_milli", "is_plain"]

Pace = tuple[float, str]
"""A speed relative to alone, and where it comes from."""

ALONE: Pace = (1.0, "alone")
"""The pace of a plain run that nobody is beside."""

_MEMO_LIMIT = 1 << 16


class Company(msgspec.Struct, gc=False, eq=False):
    """Those who share a device; one object for all devices that they came to together.

    Attributes
    ----------
    members : tuple of Attempt
        Ascending by job.
    kind : int
        Type of the device.
    paces : dict of str to Pace, or None
        By model, valid for members that are ``plain``; None until somebody asks.
    """

    members: tuple[Attempt, ...]
    kind: int
    paces: dict[str, Pace] | None = None


class Companies:
    """The company on each shared device.

    Parameters
    ----------
    layout : Layout
    truth : Truth or None
        None: sharing costs nothing.
    settings : Settings

    Attributes
    ----------
    on : dict of int to Company
        Devices that nobody shares are absent.
    """

    def __init__(self, layout: Layout, truth: Truth | None, settings: Settings) -> None:
        self.on: dict[int, Company] = {}
        self._types = layout.types
        self._type_of = layout.device_type
        self._truth = truth
        self._settings = settings
        self._known: dict[tuple[str | int, ...], dict[str, Pace]] = {}

    def join(self, run: Attempt, place: Placement) -> bool:
        """A job begins to share these devices; True if it is not alone there."""
        on, types = self.on, self._type_of
        before: Company | None = None
        after: Company | None = None  # a gang's devices often have the same company
        met = False
        for device in place.devices:
            here = on.get(device)
            if after is None or here is not before or types[device] != after.kind:
                before, kind = here, types[device]
                if here is None:
                    after = Company((run,), kind)
                else:
                    after, met = Company(_with(here.members, run), kind), True
            on[device] = after
        return met

    def part(self, run: Attempt, place: Placement) -> bool:
        """A job shares these devices no more; True if others are left there."""
        on = self.on
        before: Company | None = None
        after: Company | None = None
        for device in place.devices:
            here = on[device]
            if len(here.members) == 1:
                del on[device]
                continue
            if after is None or here is not before:
                before, rest = here, tuple([m for m in here.members if m is not run])
                after = Company(rest, here.kind)
            on[device] = after
        return after is not None

    def neighbours(self, devices: tuple[int, ...]) -> list[Attempt]:
        """Those who share any of these devices, ascending by job."""
        on = self.on
        found = {m.job.id: m for d in devices if (here := on.get(d)) for m in here.members}
        return [found[i] for i in sorted(found)]

    def pace(self, run: Attempt) -> Pace:
        """A sharer's speed relative to alone: the slowest of its devices decides."""
        on, last, worst = self.on, None, None
        for device in run.place.devices:
            if (here := on[device]) is not last:
                last = here
                if not run.plain:
                    pace = self._looked_at(run, here)
                elif len(here.members) == 1:
                    pace = ALONE
                else:
                    pace = (here.paces or self.paces(here))[run.job.model]
                if worst is None or pace[0] < worst[0]:
                    worst = pace
        return worst or ALONE

    def paces(self, company: Company) -> dict[str, Pace]:
        """Speeds by model in a company of several: the truth is asked once for each set."""
        models, kind = [m.job.model for m in company.members], company.kind
        if len(models) > 2:
            models.sort()
        key: tuple[str | int, ...] = (kind, *models)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > _MEMO_LIMIT:
                self._known.clear()
            models.sort()
            found = {}
            for i, model in enumerate(models):
                found[model] = self._look_up(model, tuple(models[:i] + models[i + 1 :]), kind)
            self._known[key] = found
        company.paces = found
        return found

    def _look_up(self, model: str, beside: tuple[str, ...], kind: int) -> Pace:
        if self._truth is None:
            return 1.0, "modelled"
        name = self._types[kind].name
        return self._truth.co_speed(model, beside, name), self._truth.source(model, beside, name)

    def _looked_at(self, run: Attempt, company: Company) -> Pace:
        """The long way: for shares with a ceiling, partitions and time slices."""
        members, share = company.members, run.place.share
        if len(members) == 1:
            return self._fraction(run, members), "alone"
        if share.mode == "time-sliced":
            return self._in_turn(run, company)
        if all(_partitioned(m) for m in members):
            # Everyone has the fraction it declared, and its running time is for that fraction.
            return self._fraction(run, members), "partitioned"
        found = (company.paces or self.paces(company))[run.job.model]
        if share.compute_limit_milli >= DEVICE_MILLI:
            return found
        return min(found[0], _ceiling(run)), found[1]

    def _fraction(self, run: Attempt, members: tuple[Attempt, ...]) -> float:
        """Speed by the compute granted, relative to the fraction declared."""
        gain = self._settings.elastic_shares
        if not gain or not _partitioned(run) or run.place.share.mode != "spatial":
            return _ceiling(run)
        granted = granted_milli(run, members) / run.job.compute_milli
        return granted if granted <= 1.0 else 1.0 + gain * (granted - 1.0)

    def _in_turn(self, run: Attempt, company: Company) -> Pace:
        """Turns get equal time; those of one turn disturb each other while it lasts."""
        mates, turns = turn_of(run, company.members)
        speed, source = 1.0, "time-sliced"
        if len(mates) > 1:
            models = sorted(m.job.model for m in mates)
            models.remove(run.job.model)
            speed, source = self._look_up(run.job.model, tuple(models), company.kind)
        if turns > 1:
            slice_s = self._settings.slice_s
            speed *= slice_s / (slice_s + self._settings.slice_switch_s) / turns
        return speed, source


def turn_of(run: Attempt, members: tuple[Attempt, ...]) -> tuple[list[Attempt], int]:
    """Who is on a time-sliced device together with a run, itself among them; and how many turns there are."""
    mine = run.place.share.turn
    mates = [m for m in members if m is run or (mine >= 0 and m.place.share.turn == mine)]
    turns = {t if (t := m.place.share.turn) >= 0 else ~m.job.id for m in members}
    return mates, len(turns)


def granted_milli(run: Attempt, members: tuple[Attempt, ...]) -> float:
    """Compute that one of several partitions gets, in thousandths of a device.

    What is guaranteed to nobody is divided in proportion to the guarantees, up to each one's ceiling;
    what a ceiling leaves over goes to the others.
    """
    left, rest = float(DEVICE_MILLI), list(members)
    while True:
        each = left / sum([m.place.share.compute_milli for m in rest])
        full = [m for m in rest if m.place.share.compute_limit_milli <= each * m.place.share.compute_milli]
        if run in full:
            return run.place.share.compute_limit_milli
        if not full:
            return each * run.place.share.compute_milli
        left -= sum([m.place.share.compute_limit_milli for m in full])
        rest = [m for m in rest if m not in full]


def _with(members: tuple[Attempt, ...], run: Attempt) -> tuple[Attempt, ...]:
    if members[-1].job.id < run.job.id:
        return (*members, run)
    return tuple(sorted((*members, run), key=lambda m: m.job.id))


def is_plain(run: Attempt) -> bool:
    """Does its speed beside others depend on everybody's models alone, not on shares?"""
    share = run.place.share
    return (
        share.mode == "spatial"
        and share.compute_limit_milli >= DEVICE_MILLI
        and not 0 < run.job.compute_milli < DEVICE_MILLI
    )


def _partitioned(run: Attempt) -> bool:
    return 0 < run.job.compute_milli < DEVICE_MILLI and run.place.share.compute_milli >= run.job.compute_milli


def _ceiling(run: Attempt) -> float:
    limit = run.place.share.compute_limit_milli
    return 1.0 if limit >= DEVICE_MILLI else min(1.0, limit / (run.job.compute_milli or DEVICE_MILLI))
