"""Moves of running jobs to better places: lower heights, fewer nodes, fuller servers, fair turns.

Gandiva (OSDI'18, section 4.2): on departures and in the background. Each move has a price (saving,
loading); who has not run long enough to be worth it stays.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Set

import msgspec

from cotenant.model.ledger import low_bits
from cotenant.model.placement import Placement
from cotenant.model.plan import Decision, Move, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_move
from cotenant.model.shape import Shape
from cotenant.model.view import Index, View
from cotenant.policies.published.affinity import Affinity
from cotenant.policies.published.slots import Slots, is_settled, measured_alone, turns_at

__all__ = ["Scattered", "defragment", "even_out", "lower", "unite"]

_LOOK_AT = 8
"""How many of the fullest slots are looked at for a job that may move."""
_SPARSE = 0.75
"""Defragmentation empties servers of which at least this part is free: 3 of 4 devices."""
_UNFAIR = 0.02
"""Difference of turns had so far, as a share of the time, below which nobody is moved for fairness."""


class Scattered(Index):
    """Jobs on more nodes than they need.

    Attributes
    ----------
    jobs : dict of int to None
    """

    def __init__(self, view: View) -> None:
        self._layout = view.layout
        self.jobs: dict[int, None] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if len(place.devices) < 2 or not record.shape.single:
            return
        if len(self._layout.nodes_of(place.devices)) > 1:
            self.jobs[record.id] = None
        else:
            self.jobs.pop(record.id, None)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went, or left its old place behind."""
        if self.jobs and record.place is None:
            self.jobs.pop(record.id, None)


class SameType(Index):
    """Demands restricted to one device type: nobody changes it by moving."""

    def __init__(self, view: View) -> None:
        self._layout = view.layout
        self._made: dict[tuple[int, int], Shape] = {}

    def of(self, record: JobRecord, kind: int) -> Shape:
        """The restricted shape of a job."""
        key = (record.shape.number, kind)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = copy.copy(record.shape)
            found.types = (kind,)
            found.single = found.gpus <= max(self._layout.bay_size[b] for b in self._layout.type_bays[kind])
        return found


def _spot(view: View, record: JobRecord, *, whole: bool) -> tuple[int, ...] | None:
    """Free devices for a running job, of the type that it is on."""
    if record.place is None:
        return None
    kind = view.layout.device_type[record.place.devices[0]]
    spot = view.index(Affinity).find(view.index(SameType).of(record, kind), whole=whole)
    return None if spot is None else spot.devices


def _has_paid(view: View, record: JobRecord, speedup: float) -> bool:
    """Whether a job has run for as long as it takes a gain in speed to win back the price of a move."""
    if record.status != Status.RUNNING or not record.job.suspendable or record.rate <= 0.0:
        return False
    if record.id in view.ledger.leaving or speedup <= 1.0:
        return False
    ran_s = record.ran_s + view.now - record.started_s
    return ran_s * (1.0 - 1.0 / speedup) >= view.settings.reload_s(record.job)


def lower(view: View, kept: Set[int], most_residents: int) -> Decision | None:
    """Move a job to free devices, or from a slot with most turns to one with two less.

    Parameters
    ----------
    kept : set of int
        Jobs that stay where they are.
    most_residents : int
        Most residents of a slot.
    """
    slots = view.index(Slots)
    if not slots.busy:
        return None
    for size in sorted(slots.levels):
        levels = slots.levels[size]
        most, least = max(levels), min(levels)
        free = not view.pending_count and view.ledger.free_count[size[0]] >= size[1]
        fullest = levels[most] if most > 1 else _packed(view, slots, size)
        if not free and most - least < 2:
            continue
        for record in _residents(view, fullest[:_LOOK_AT]):
            if record.id in kept or len(record.place.devices) != record.job.gpus:  # type: ignore[union-attr]
                continue
            move = _to_free(view, record) if free else None
            if move is None and most - least >= 2:
                move = _to_slot(view, record, levels, most_residents)
            if move is not None:
                return move
    return None


def _packed(view: View, slots: Slots, size: tuple[int, int]) -> list[tuple[int, ...]]:
    kinds = view.layout.device_type
    return [slot for slot in slots.packed if (kinds[slot[0]], len(slot)) == size]


def _residents(view: View, slots: list[tuple[int, ...]]) -> Iterator[JobRecord]:
    """Residents of slots, the newest of each first."""
    for slot in slots:
        for job_id in reversed(view.ledger.residents[slot[0]]):
            record = view.records[job_id]
            if record.place is not None and record.place.devices == slot:
                yield record


def _to_free(view: View, record: JobRecord) -> Decision | None:
    place = record.place
    if place is None or record.rate <= 0.0:
        return None
    # How fast it would be alone is known if it is alone in its turn; beside others, twice as fast at most.
    alone = measured_alone(view, record)
    residents = len(view.ledger.residents[place.devices[0]])
    speedup = alone / record.rate if alone else float(residents)
    if not _has_paid(view, record, speedup):
        return None
    devices = _spot(view, record, whole=len(view.layout.nodes_of(place.devices)) == 1)
    if devices is None:
        return None
    facts = {"speed_before": record.rate, "residents_before": residents, "residents_after": 1}
    return _move(view, record, devices, Why("height-drops", facts))


def _to_slot(
    view: View, record: JobRecord, levels: dict[int, list[tuple[int, ...]]], most_residents: int
) -> Decision | None:
    most, least = max(levels), min(levels)
    if not measured_alone(view, record) or not _has_paid(view, record, most / (least + 1)):
        return None
    for slot in levels[least][:_LOOK_AT]:
        if len(view.ledger.residents[slot[0]]) < most_residents:
            facts = {"speed_before": record.rate, "turns_before": most, "turns_after": least + 1}
            return _move(view, record, slot, Why("height-drops", facts))
    return None


def _move(view: View, record: JobRecord, devices: tuple[int, ...], why: Why) -> Decision | None:
    place = record.place
    if place is None:
        return None
    share = place.share
    if share.turn >= 0:
        share = msgspec.structs.replace(share, turn=-1)
    if check_move(view.books, record, devices, share, view.now) is not None:
        return None
    return Move(record.id, devices, share, why)


def unite(view: View, most_loss: float) -> Decision | None:
    """Move a scattered job to one node that has room for all of it."""
    for job_id in sorted(view.index(Scattered).jobs):
        record = view.records[job_id]
        if record.place is None or not is_settled(view, record, most_loss):
            continue
        kind = view.layout.device_type[record.place.devices[0]]
        if view.ledger.largest_block(kind) < len(record.place.devices):
            continue
        devices = _spot(view, record, whole=True)
        if devices is None:
            continue
        nodes = len(view.layout.nodes_of(record.place.devices))
        facts = {"speed_before": record.rate, "nodes_before": nodes, "nodes_after": 1}
        move = _move(view, record, devices, Why("locality", facts))
        if move is not None:
            return move
    return None


def defragment(view: View, most_loss: float) -> Decision | None:
    """Move a job from the emptiest server in use to the one with least room that suffices."""
    ledger, layout = view.ledger, view.layout
    # By who runs, not by what is free: most of a large cluster may be empty.
    used = {layout.device_bay[d] for r in view.running.values() if r.place for d in r.place.devices}
    room = {bay: ledger.whole[bay].bit_count() for bay in used}
    for kind in range(len(layout.types)):
        here = [b for b in used if layout.bay_type[b] == kind and room[b] >= _SPARSE * layout.bay_size[b]]
        for bay in sorted(here, key=lambda b: (-room[b], b)):
            free, size = room[bay], layout.bay_size[bay]
            if free == size:
                continue
            first = layout.bay_first[bay]
            for job_id in sorted({j for d in range(first, first + size) for j in ledger.residents[d]}):
                record = view.records[job_id]
                if not is_settled(view, record, most_loss):
                    continue
                move = _fuller(view, record, kind, bay, free)
                if move is not None:
                    return move
    return None


def _fuller(view: View, record: JobRecord, kind: int, bay: int, free: int) -> Decision | None:
    ledger, layout, place = view.ledger, view.layout, record.place
    gpus = record.shape.gpus
    if place is None or len(place.devices) != gpus or len(layout.nodes_of(place.devices)) > 1:
        return None
    if len(ledger.residents[place.devices[0]]) > 1:
        return None
    for other in ledger.bays_by_room(kind, gpus):
        room = ledger.whole[other].bit_count()
        if room >= free:
            return None
        if other == bay or room == layout.bay_size[other]:
            continue
        taken = low_bits(ledger.whole[other], gpus)
        facts = {"speed_before": record.rate, "free_here": free, "free_there": room}
        move = _move(view, record, layout.devices(other, taken), Why("defragment", facts))
        if move is not None:
            return move
    return None


def even_out(view: View, most_loss: float, kept: Set[int], most_residents: int) -> list[Decision]:
    """In each server where some slots have more residents than others: who had least comes to sit with fewer.

    One move for each server at a time; it takes the job with most turns so far out of the slot in
    which somebody had least, and puts it beside the one who had most in the whole server.
    """
    found: list[Decision] = []
    slots = view.index(Slots)
    for bay, size in sorted(key for key, counts in slots.uneven.items() if len(counts) > 1):
        here = [(number, slot, view.ledger.residents[slot[0]]) for number, slot in slots.slots_of(bay, size)]
        if here and kept.isdisjoint(j for _, _, residents in here for j in residents):
            move = _fairer(view, here, most_loss, most_residents)
            if move is not None:
                found.append(move)
    return found


_Here = list[tuple[int, tuple[int, ...], tuple[int, ...]]]


def _fairer(view: View, here: _Here, most_loss: float, most_residents: int) -> Decision | None:
    least, most = here[0][0], here[-1][0]
    had: dict[int, float] = {}
    for _, _, residents in here:
        for job_id in residents:
            record = view.records[job_id]
            if record.rated_s == view.now or record.id in view.ledger.leaving or record.rate <= 0.0:
                return None  # something has just changed here
            had[job_id] = _turns_had(view, record)
    rooms = [(had[j], slot) for n, slot, on in here if n == least and len(on) < most_residents for j in on]
    poor_had, poor, mates = min((had[j], j, on) for n, _, on in here if n == most for j in on)
    if not rooms or max(rooms)[0] - poor_had <= _UNFAIR:
        return None
    rich_had, rich = max(rooms)
    for job_id in sorted(mates, key=lambda j: (-had[j], j)):
        record = view.records[job_id]
        if job_id != poor and measured_alone(view, record) and is_settled(view, record, most_loss):
            facts = {"speed_before": record.rate, "least_had": poor_had, "most_had": rich_had}
            return _move(view, record, rich, Why("fair-turns", facts))
    return None


def _turns_had(view: View, record: JobRecord) -> float:
    """Share of its time on devices in which it was a job's turn: speed on average over speed alone, both measured."""
    alone = measured_alone(view, record)
    if not alone:
        return 1.0 / max(turns_at(view, record)[0], 1)
    held_s = record.ran_s + view.now - record.started_s
    return record.work_at(view.now) / (alone * held_s) if held_s > 0.0 else 1.0
