"""First come, first served with EASY backfill.

Card: ``docs/policies/backfill.md``.
"""

from __future__ import annotations

from bisect import bisect_right

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import over_ceiling
from cotenant.model.shape import Shape, find_cpu_node, find_whole
from cotenant.model.view import Index, View
from cotenant.policies.ends import Ends
from cotenant.policies.fit import (
    UNKNOWN_S,
    find_cpu_node_outside,
    find_outside,
    order,
    place_whole,
)
from cotenant.policies.lines import Line, Lines

__all__ = ["Backfill"]

_INF = float("inf")
_HEAD = Why("head-of-queue")
_BESIDE = Why("backfill-outside-reservation")
_EXTRA = Why("backfill-on-spare-devices")
_IN_TIME = Why("backfill-ends-in-time")

_Place = tuple[tuple[int, ...], int, Why]


class _Kept:
    """What is kept for the head, and from when.

    ``bays`` are kept (with ``node``, if the head has host needs); or, for a gang that spans
    nodes, ``extra`` devices of all of type ``kind`` may be held beyond ``start_s`` and no
    more. ``until_s`` is when the first prediction that this rests on is outlived.
    """

    __slots__ = ("all_bays", "bays", "extra", "host", "kind", "node", "start_s", "until_s")

    def __init__(self, start_s: float, host: bool) -> None:
        self.start_s = start_s
        self.host = host
        self.bays: tuple[int, ...] = ()
        self.all_bays: tuple[int, ...] = ()
        self.node = -1
        self.kind = -1
        self.extra = 0
        self.until_s = _INF


class _Look(Index):
    """What is settled until something changes.

    ``full`` are lines whose jobs fit nowhere: so it stays until something is gained (starts
    only take). ``late`` are lines of which nobody may start beside the head: so it stays, too,
    while the head and what is kept for it stay, and nobody joins.
    """

    def __init__(self, view: View) -> None:
        self.lines = view.index(Lines)
        self.ends = view.index(Ends)
        self.full: set[Line] = set()
        self.late: set[Line] = set()
        self.head = -1
        self.version = self.moves = self.gains = -1
        self.kept: _Kept | None = None
        self._mark = 0

    def reserve(self, view: View, head: JobRecord) -> _Kept:
        """What is kept for the head now."""
        if self.kept is None:
            self.kept = _keep(view, self.ends, head)
            self._mark = self.ends.mark()
        return self.kept

    def gained(self) -> None:
        """Room may have appeared anywhere: nothing is settled."""
        self.full.clear()
        self.forget(-1)

    def forget(self, head: int) -> None:
        """The head, or what is kept for it, is another."""
        self.late.clear()
        self.head = head
        self.kept = None

    def check_kept(self, view: View) -> None:
        """Somebody started: forget what is kept if that was there."""
        kept = self.kept
        if kept is None:
            return
        nodes, self._mark = self.ends.changes(self._mark)
        bay_node = view.layout.bay_node
        if (
            nodes is None
            or kept.kind >= 0
            or kept.node in nodes
            or any(bay_node[b] in nodes for b in kept.bays)
        ):
            self.forget(self.head)

    def settle(self) -> None:
        """The search is over, and rests on the present."""
        ends = self.ends
        self.version, self.moves, self.gains = ends.version, ends.moves, ends.gains


class Backfill(Params):
    """Jobs start in order; while the head waits, others start if that does not delay it.

    The head, when blocked, has a reservation: the node that is predicted to have room for it
    first (lowest number among equals), from that time. A later job may start at once

    - anywhere else;
    - on the reserved node, if it is predicted to end in time, or on devices that the head
      will not need.

    Among those that may, the first in queue order starts, and all are looked at. Jobs of
    unknown length never end in time.

    References
    ----------
    D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; A. W. Mu'alem and
    D. G. Feitelson, IEEE TPDS 12(6), 2001, section 2.
    """

    def decide(self, view: View) -> Plan:
        """Start the head if it fits, otherwise the first that does not delay it."""
        look = view.index(_Look)
        lines = look.lines
        if not lines.active:
            return EMPTY
        if lines.speeds.stale():
            lines.build()
            look.ends.build()
        if view.books.limits:
            return self._allowed(view, look)
        head = view.head()
        return EMPTY if head is None else self._next(view, look, head)

    def _allowed(self, view: View, look: _Look) -> Plan:
        """Where tenants have ceilings: jobs that those hold back are passed over."""
        heads = sorted((line.first() for line in look.lines.active), key=order)
        refusals = [(record, view.limit_refusal(record)) for record in heads]
        holds = [Hold(r.id, no.reason, no.facts) for r, no in refusals if no and r.hold != no.reason]
        head = next((record for record, refusal in refusals if refusal is None), None)
        plan = EMPTY if head is None else self._next(view, look, head)
        return Plan((*holds, *plan.decisions), again=plan.again) if holds else plan

    def _next(self, view: View, look: _Look, head: JobRecord) -> Plan:
        ends, lines = look.ends, look.lines
        if look.gains != ends.gains:
            look.gained()
        elif look.moves != ends.moves:
            look.forget(head.id if look.head == head.id else -1)
        if look.head != head.id:
            start = place_whole(view, head, _HEAD)
            if start is not None:
                return Plan((start,), again=True)
            look.forget(head.id)
        elif look.kept is not None and view.now >= look.kept.until_s:
            look.forget(head.id)
        elif look.version != ends.version:
            look.check_kept(view)
        elif not lines.news:
            return EMPTY
        if lines.news:
            look.late.difference_update(lines.news)
            lines.news.clear()
        start = _search(view, look, head)
        kept = look.reserve(view, head) if start is None and head.hold is None else None
        look.settle()
        if start is not None:
            return Plan((start,), again=True)
        if kept is None:
            return EMPTY
        reason, facts = view.why_not(head)
        if kept.start_s < UNKNOWN_S:
            facts = facts | {"reserved_from_s": kept.start_s}
        return Plan((Hold(head.id, reason, facts),))


def _search(view: View, look: _Look, head: JobRecord) -> Start | None:
    """The first job in order that may start without delaying the head."""
    full, late = look.full, look.late
    best: JobRecord | None = None
    best_order = 0
    where: _Place = ((), -1, _BESIDE)
    for line in look.lines.active:
        if line in full or line in late:
            continue
        first = line.first()
        record: JobRecord | None = first
        if best is not None and order(first) > best_order:
            continue
        if line.tenant and over_ceiling(view.books, first, first.job.gpus):
            late.add(line)
            continue
        kept = look.reserve(view, head)
        place = _place(view, line.shape, kept)
        if place is None:
            full.add(line)
            continue
        if place[2] is _IN_TIME or (line.tenant and _takes_ceiling(view, line, head)):
            place = (place[0], place[1], _IN_TIME)
            kind = view.layout.device_type[place[0][0]] if place[0] else -1
            ahead_s = kept.start_s - view.now if kept.start_s < UNKNOWN_S else -1.0
            record = line.first_within(kind, ahead_s)
        if record is None:
            # Elsewhere a start may move the place these would get, and with it their right to it.
            if not (line.tenant or line.shape.spans or kept.host):
                late.add(line)
        elif best is None or order(record) < best_order:
            best, where, best_order = record, place, order(record)
    return None if best is None else Start(best.id, where[0], why=where[2], node=where[1])


def _takes_ceiling(view: View, line: Line, head: JobRecord) -> bool:
    """Whether a job of this line could, by the ceiling of their common tenant, delay the head."""
    if line.tenant != head.job.tenant:
        return False
    books = view.books
    return books.used.get(line.tenant, 0) + line.gpus + head.job.gpus > books.limits[line.tenant]


def _place(view: View, shape: Shape, kept: _Kept) -> _Place | None:
    """Where a job of this shape could run now, and by what right; outside what is kept if possible."""
    ledger = view.ledger
    # Where the head has host needs, others with host needs compete with it for more than devices.
    rivals = kept.host and bool(shape.gpus == 0 or shape.cpu_milli or shape.host_bytes)
    beside = _IN_TIME if rivals and kept.kind >= 0 else _BESIDE
    if shape.gpus == 0:
        node = find_cpu_node_outside(ledger, shape, kept.node if rivals else -1)
        if node >= 0:
            return (), node, beside
        node = find_cpu_node(ledger, shape) if rivals and kept.node >= 0 else -1
        return ((), node, _IN_TIME) if node >= 0 else None
    devices = find_outside(ledger, shape, kept.all_bays if rivals else kept.bays, kept.kind)
    if devices is not None:
        return devices, -1, beside
    devices = find_whole(ledger, shape)
    if devices is None:
        return None
    bay = view.layout.device_bay
    inside = shape.gpus if kept.kind >= 0 else sum(bay[d] in kept.bays for d in devices)
    return devices, -1, _EXTRA if inside <= kept.extra and not rivals else _IN_TIME


def _keep(view: View, ends: Ends, head: JobRecord) -> _Kept:
    """The earliest place for the head, as predicted."""
    shape = head.shape
    host = bool(shape.gpus == 0 or shape.cpu_milli or shape.host_bytes)
    if shape.spans:
        return _keep_devices(view, ends, shape, host)
    kept, found = _Kept(_INF, host), None
    for kind in shape.types if shape.gpus else (-1,):
        places = ends.places(shape, kind)
        first = places.find(view.now)
        if first.start_s < kept.start_s:
            kept.start_s, found = first.start_s, (places, first)
    if found is None:
        return kept
    places, first = found
    bay, node = places.at(first.place)
    kept.extra, kept.until_s = first.spare, first.until_s
    kept.bays = (bay,) if bay >= 0 else ()
    if host:
        kept.node, kept.all_bays = node, view.layout.node_bays[node]
    return kept


def _keep_devices(view: View, ends: Ends, shape: Shape, host: bool) -> _Kept:
    """For a gang that may span nodes: when enough devices of one type are free, wherever."""
    kept, now, gpus = _Kept(_INF, host), view.now, shape.gpus
    for kind in shape.types:
        free_s = ends.kind(kind).checked(now)
        if len(free_s) < gpus:
            continue
        start_s = free_s[gpus - 1]
        ahead = bisect_right(free_s, now)
        next_s = free_s[ahead] if ahead < len(free_s) else _INF
        if start_s <= now:
            # Enough devices, but not the host needs beside them: hope for the next end.
            start_s = next_s
        if start_s < kept.start_s:
            kept.start_s, kept.kind, kept.until_s = start_s, kind, next_s
            kept.extra = bisect_right(free_s, start_s) - gpus
    if kept.kind >= 0 and kept.start_s >= UNKNOWN_S:
        # Nobody knows when: let just enough nodes run empty, always the same ones.
        kept.bays = kept.all_bays = _lowest_bays(view, ends, kept.kind, gpus)
        kept.kind, kept.extra = -1, 0
    return kept


def _lowest_bays(view: View, ends: Ends, kind: int, gpus: int) -> tuple[int, ...]:
    layout, bays = view.layout, []
    for bay in layout.type_bays[kind]:
        first = layout.bay_first[bay]
        here = sum(end < _INF for end in ends.device_s[first : first + layout.bay_size[bay]])
        if here:
            bays.append(bay)
            gpus -= here
        if gpus <= 0:
            break
    return tuple(bays)
