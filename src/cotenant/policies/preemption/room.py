"""Room for a waiting job in place of running ones: one beside others, or all of some devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cotenant.model.plan import Decision, Reserve, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.company.ranked import RankedCandidates
from cotenant.policies.preemption.preempt import host_has
from cotenant.policies.preemption.yielding import Standing, Yielding, tier
from cotenant.policies.queues.circles import circle_of
from cotenant.policies.queues.levels import level

__all__ = ["at_ceiling", "limit_of", "make_room", "suits", "taken_over"]

_LOOK = 4
_BEFORE_ALL = 1.0


def make_room(view: View, index: RankedCandidates, giving: Yielding) -> tuple[Decision, ...]:
    """Devices kept for the first waiting job that may stop others for it, and their stops."""
    seats: dict[int, list[_Seat]] = {}
    lowest = giving.lowest()
    if lowest is None:
        return ()
    for record, _ in index.first_waiting():
        gpus = record.shape.gpus
        if not gpus or (view.books.limits and at_ceiling(view, index, record)):
            continue
        level_now = index.level(record)
        limit = limit_of(record, level_now)
        if not lowest < limit:
            continue  # nobody at all gives way to it
        found = None
        first = giving.first(gpus, 1)
        # One seat is looked for only for newcomers: for the others it costs more than it gives.
        if not level_now and first and first[0] < limit and circle_of(record.job) is not None:
            if gpus not in seats:
                seats[gpus] = _seats(view, giving, gpus)
            found = _one(view, index, seats[gpus], record, limit)
        if found is None:
            found = _all(view, giving, record, limit)
        if found is not None:
            devices, victims = found
            return taken_over(view, index, record, devices, victims)
    return ()


def limit_of(record: JobRecord, level_now: int) -> tuple[int, float]:
    """Standings below this give way: for a newcomer all of its tier, for others only those of a higher level."""
    return tier(record), -float(level_now) if level_now else _BEFORE_ALL


def taken_over(
    view: View,
    index: RankedCandidates,
    record: JobRecord,
    devices: tuple[int, ...],
    victims: Iterable[JobRecord],
) -> tuple[Decision, ...]:
    """Keep devices for a job and stop others there, with the price of it; nothing where their state has no room."""
    victims = tuple(victims)
    if not view.has_state_room(victims):
        return ()
    top = index.top
    found: list[Decision] = [Reserve(record.id, devices, Why("room-made"))]
    for victim in victims:
        facts = {
            "price_gpu_s": round(view.settings.reload_s(victim.job) * victim.job.gpus, 1),
            "level": level(victim, view.now, top),
            "for_level": index.level(record),
        }
        found.append(Stop(victim.id, True, record.id, Why("gives-way", facts)))
    return tuple(found)


def at_ceiling(view: View, index: RankedCandidates, record: JobRecord) -> bool:
    """Whether a job's tenant would pass its ceiling, counting devices that are kept for its other jobs."""
    tenant = record.job.tenant
    limit = view.books.limits.get(tenant)
    if limit is None:
        return False
    kept = sum(r.job.gpus for r in index.claimed.values() if r.job.tenant == tenant)
    return view.books.used.get(tenant, 0) + kept + record.job.gpus > limit


def suits(
    view: View, index: RankedCandidates, record: JobRecord, devices: tuple[int, ...], rest: tuple[int, ...]
) -> bool:
    """May a job join these others, who are all that will be there: circle, number, and forecast?"""
    if not rest:
        return True
    circle = circle_of(record.job)
    if circle is None or len(rest) >= view.settings.max_sharers:
        return False
    members: list[tuple[str, int]] = []
    single = len(devices) == 1
    for job_id in rest:
        other = view.running[job_id]
        place = other.place
        if place is None or other.status != Status.RUNNING or place.share.mode != "spatial":
            return False
        if circle_of(other.job) != circle or (not single and place.devices != devices):
            return False
        if single and len(rest) > 1 and len(place.devices) > 1:
            return False
        members.append((index.label(other.job), len(place.devices) if single else 1))
    kind = view.layout.device_type[devices[0]]
    return index.verdicts.accepts(index.label(record.job), (kind, tuple(sorted(members)), circle))


class _Seat(NamedTuple):
    """What would be free beside others if one of them gave way."""

    standing: Standing
    victim: JobRecord
    devices: tuple[int, ...]
    rest: tuple[int, ...]
    memory_bytes: int
    milli: int
    kind: int
    nodes: int


def _seats(view: View, giving: Yielding, gpus: int) -> list[_Seat]:
    """Of the jobs on so many devices that give way first, those that leave neighbours behind."""
    ledger, layout, found = view.ledger, view.layout, list[_Seat]()
    for standing in giving.first(gpus, _LOOK):
        victim = view.running[-standing[2]]
        place = victim.place
        if place is None or place.share.mode != "spatial" or not _sound(view, place.devices):
            continue
        devices = place.devices
        here = ledger.residents[devices[0]]
        if len(here) < 2 or (len(devices) > 1 and any(ledger.residents[d] != here for d in devices[1:])):
            continue
        memory = min([ledger.free_memory[d] for d in devices]) + place.share.memory_bytes
        milli = min([ledger.free_milli[d] for d in devices]) + place.share.compute_milli
        rest = tuple([j for j in here if j != victim.id])
        kind, nodes = layout.device_type[devices[0]], len(layout.nodes_of(devices))
        found.append(_Seat(standing, victim, devices, rest, memory, milli, kind, nodes))
    return found


def _one(
    view: View, index: RankedCandidates, seats: list[_Seat], record: JobRecord, limit: tuple[int, float]
) -> tuple[tuple[int, ...], tuple[JobRecord, ...]] | None:
    """The first job to give way whose neighbours the waiting job suits."""
    job, shape = record.job, record.shape
    milli = job.compute_milli if job.compute_milli < 1000 else 0
    for seat in seats:
        if not seat.standing < limit:
            return None
        if seat.kind not in shape.types or (seat.nodes > 1 and not shape.spans):
            continue
        if seat.memory_bytes < job.memory_bytes or seat.milli < milli:
            continue
        devices, victims = seat.devices, (seat.victim,)
        if suits(view, index, record, devices, seat.rest) and host_has(view, record, devices, victims):
            return devices, victims
    return None


def _sound(view: View, devices: tuple[int, ...]) -> bool:
    ledger, node = view.ledger, view.layout.device_node
    if ledger.reserved and not ledger.reserved.keys().isdisjoint(devices):
        return False
    return not ledger.impaired or all(ledger.usable[d] and not ledger.draining[node[d]] for d in devices)


def _all(
    view: View, giving: Yielding, record: JobRecord, limit: tuple[int, float]
) -> tuple[tuple[int, ...], tuple[JobRecord, ...]] | None:
    """The devices whose residents give way first, and all of these."""
    shape = record.shape
    best: Standing | None = None
    chosen: tuple[tuple[int, ...], tuple[JobRecord, ...]] | None = None
    for kind in shape.types:
        if shape.single:
            order = giving.order(kind, shape.gpus)
            cheapest = order.best()
            if cheapest is None or not cheapest < limit:
                continue
            for entry in order.first(_LOOK) if _needs_host(record) else (cheapest,):
                if not entry < limit or (best is not None and not entry < best):
                    break
                found = _with_victims(view, giving, [d for _, d in giving.row(entry[2])[: shape.gpus]])
                if found[1] and host_has(view, record, *found):
                    best, chosen = entry, found
                    break
        if chosen is None and shape.spans:
            devices = _over_bays(giving, kind, record, limit, view)
            if devices:
                found = _with_victims(view, giving, devices)
                if found[1] and host_has(view, record, *found):
                    return found
    return chosen


def _needs_host(record: JobRecord) -> bool:
    return bool(record.job.cpu_milli or record.job.host_memory_bytes)


def _with_victims(
    view: View, giving: Yielding, devices: list[int]
) -> tuple[tuple[int, ...], tuple[JobRecord, ...]]:
    victims: dict[int, JobRecord] = {}
    for device in devices:
        for job_id in view.ledger.residents[device]:
            victims[job_id] = view.running[job_id]
    return tuple(sorted(devices)), tuple([victims[j] for j in sorted(victims)])


def _over_bays(
    giving: Yielding, kind: int, record: JobRecord, limit: tuple[int, float], view: View
) -> list[int]:
    """Whole bays as far as they go, the remainder in one more; empty if there are too few."""
    layout, gpus = view.layout, record.shape.gpus
    widest = max((layout.bay_size[b] for b in layout.type_bays[kind]), default=0)
    if not widest:
        return []
    found: list[int] = []
    bays: dict[int, None] = {}
    parts = [widest] * (gpus // widest) + ([gpus % widest] if gpus % widest else [])
    for part in parts:
        for entry in giving.order(kind, part).first(len(bays) + 1):
            if not entry < limit:
                return []
            if entry[2] not in bays:
                bays[entry[2]] = None
                found += [d for _, d in giving.row(entry[2])[:part]]
                break
        else:
            return []
    return found
