"""Places where jobs take turns: how many they are, who is together, and where it is uneven.

A *slot* is the devices that its residents all hold: one device, or those of a gang.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import Index, View

__all__ = ["Slots", "is_settled", "measured_alone", "turns_at", "without_switching"]

Slot = tuple[int, ...]
_Class = tuple[int, int]
"""Device type and number of devices."""


class Slots(Index):
    """Time-sliced slots.

    Attributes
    ----------
    levels : dict
        For each device type and size, for each number of turns: the slots, ascending.
    groups : dict of Slot to dict of int to tuple of int
        For each slot, for each of its turns: who has it, ascending. A turn of one's own is ``~job``.
    packed : list of Slot
        Slots where some residents share a turn, ascending.
    uneven : dict of (int, int) to dict of int to int
        For each bay and size: how many slots have so many residents.
    busy : int
        Slots with more than one resident.
    """

    def __init__(self, view: View) -> None:
        self._ledger, self._layout = view.ledger, view.layout
        self.levels: dict[_Class, dict[int, list[Slot]]] = {}
        self.groups: dict[Slot, dict[int, tuple[int, ...]]] = {}
        self.packed: list[Slot] = []
        self.uneven: dict[tuple[int, int], dict[int, int]] = {}
        self.busy = 0
        self._at: dict[Slot, tuple[int, int]] = {}
        for record in view.running.values():
            if record.place is not None:
                self.placed(record, record.place)
        for job_id, place in self._ledger.leaving.items():
            self.placed(view.records[job_id], place)

    def __bool__(self) -> bool:
        """Whether anybody runs in turns at all."""
        return bool(self._at)

    def crowded(self, kind: _Class) -> Iterator[Slot]:
        """Slots with more than one turn, most turns first."""
        levels = self.levels.get(kind, {})
        for turns in sorted(levels, reverse=True):
            if turns > 1:
                yield from levels[turns]

    def slots_of(self, bay: int, size: int) -> list[tuple[int, Slot]]:
        """Number of residents and slot, for the slots of a bay; ascending."""
        first, kind = self._layout.bay_first[bay], self._layout.bay_type[bay]
        last = first + self._layout.bay_size[bay]
        found = []
        for slots in self.levels.get((kind, size), {}).values():
            start = bisect_left(slots, (first,))
            for slot in slots[start : bisect_left(slots, (last,), start)]:
                if slot[-1] < last:
                    found.append((self._at[slot][0], slot))
        return sorted(found)

    # -- changes ---------------------------------------------------------------------

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        if place.share.mode == "time-sliced":
            self._refresh(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        if place.share.mode == "time-sliced":
            self._refresh(place.devices)

    def _refresh(self, slot: Slot) -> None:
        ledger, groups = self._ledger, dict[int, tuple[int, ...]]()
        residents = ledger.residents[slot[0]]
        for job_id in residents:
            turn = ledger.share_on(job_id, slot[0]).turn
            key = turn if turn >= 0 else ~job_id
            groups[key] = (*groups.get(key, ()), job_id)
        now = (len(residents), len(groups)) if residents else None
        before = self._at.get(slot)
        self.groups[slot] = groups
        if now == before and now is not None:
            return
        if before is not None:
            self._count(slot, before, -1)
        if now is None:
            del self._at[slot], self.groups[slot]
            return
        self._at[slot] = now
        self._count(slot, now, 1)

    def _count(self, slot: Slot, state: tuple[int, int], by: int) -> None:
        (residents, turns), layout = state, self._layout
        levels = self.levels.setdefault((layout.device_type[slot[0]], len(slot)), {})
        _listed(levels.setdefault(turns, []), slot, by)
        if not levels[turns]:
            del levels[turns]
            if not levels:
                del self.levels[layout.device_type[slot[0]], len(slot)]
        if turns < residents:
            _listed(self.packed, slot, by)
        self.busy += by * (residents > 1)
        bay = layout.device_bay[slot[0]]
        if bay == layout.device_bay[slot[-1]]:
            counts = self.uneven.setdefault((bay, len(slot)), {})
            counts[residents] = counts.get(residents, 0) + by
            if not counts[residents]:
                del counts[residents]
                if not counts:
                    del self.uneven[bay, len(slot)]


def _listed(slots: list[Slot], slot: Slot, by: int) -> None:
    if by > 0:
        insort(slots, slot)
    else:
        del slots[bisect_left(slots, slot)]


def turns_at(view: View, record: JobRecord) -> tuple[int, tuple[int, ...]]:
    """Turns on a running job's devices, and who has the same one, itself among them."""
    place = record.place
    if place is None:
        return 0, ()
    groups = view.index(Slots).groups.get(place.devices)
    if not groups:
        return 1, (record.id,)
    turn = place.share.turn
    return len(groups), groups[turn if turn >= 0 else ~record.id]


def without_switching(view: View, rate: float, turns: int) -> float:
    """Speed while it is a job's turn, from its speed on average."""
    if turns < 2:
        return rate
    slice_s = view.settings.slice_s
    return rate * turns * (slice_s + view.settings.slice_switch_s) / slice_s


def measured_alone(view: View, record: JobRecord) -> float:
    """A running job's speed as measured while its turn lasts; 0 if it is not alone then, or does not work."""
    turns, mates = turns_at(view, record)
    if len(mates) != 1 or record.status != Status.RUNNING or record.id in view.ledger.leaving:
        return 0.0
    return without_switching(view, record.rate, turns)


def is_settled(view: View, record: JobRecord, most_loss: float) -> bool:
    """Whether a job's speed has stayed the same for so long that a move costs it at most this share of the time."""
    if not record.job.suspendable or record.status != Status.RUNNING or record.rate <= 0.0:
        return False
    if record.id in view.ledger.leaving:
        return False
    return (view.now - record.rated_s) * most_loss >= view.settings.reload_s(record.job)
