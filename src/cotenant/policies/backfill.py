"""First come, first served with EASY backfill.

Card: ``docs/policies/backfill.md``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar

from cotenant.model.ledger import low_bits
from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.rules import over_ceiling
from cotenant.model.shape import Shape, find_cpu_node, find_whole
from cotenant.model.view import Index, View
from cotenant.policies.queues.lines import Line, Lines
from cotenant.policies.space.ends import Ends
from cotenant.policies.space.fit import (
    UNKNOWN_S,
    find_cpu_node_outside,
    find_outside,
    place_whole,
)
from cotenant.policies.space.reservation import Kept, keep

__all__ = ["Backfill"]

_HEAD = Why("head-of-queue")
_BESIDE = Why("backfill-outside-reservation")
_EXTRA = Why("backfill-on-spare-devices")
_IN_TIME = Why("backfill-ends-in-time")

_Place = tuple[int, tuple[int, ...], int, Why]
"""A bay whose lowest free devices will do, or else (-1) devices and node; and by what right."""

_CEILING = -2
"""In place of a device type: late because of the tenant's ceiling."""


class _Look(Index):
    """What is settled until something changes.

    ``full`` are lines whose jobs fit nowhere: so it stays until something is gained (starts
    only take). ``late`` are lines of which nobody may start beside the head, and the device
    type where they would: so it stays, too, while the head and what is kept for it stay, and
    nobody short enough joins.
    """

    def __init__(self, view: View) -> None:
        self.lines = view.index(Lines)
        self.ends = view.index(Ends)
        self.full: set[Line] = set()
        self.late: dict[Line, int] = {}
        self.head = -1
        self.version = self.moves = self.gains = -1
        self.kept: Kept | None = None
        self._last: Kept | None = None
        self._mark = 0
        self._types = len(view.layout.types)

    def widest(self, view: View) -> int:
        """Most free devices of one type on one node."""
        block = view.ledger.largest_block
        return block(0) if self._types == 1 else max(map(block, range(self._types)), default=0)

    def reserve(self, view: View, head: JobRecord) -> Kept:
        """What is kept for the head now."""
        kept = self.kept
        if kept is None:
            last = self._last
            stands = last is not None and last.stands(head.shape, view.now)
            kept = self.kept = self._last = last if stands and last else keep(view, self.ends, head)
            self._mark = self.ends.mark()
        return kept

    def rebuild(self) -> None:
        """Speeds are predicted otherwise now, and all ends with them."""
        self.lines.build()
        self.ends.build()
        self._last = None

    def gained(self) -> None:
        """Room may have appeared anywhere: nothing is settled."""
        self.full.clear()
        self.forget(-1)

    def forget(self, head: int) -> None:
        """The head, or what is kept for it, is another."""
        self.late.clear()
        self.head = head
        self.kept = None

    def check_kept(self) -> None:
        """Somebody started: forget what is kept if that was there."""
        kept = self.kept
        if kept is None:
            return
        nodes, self._mark = self.ends.changes(self._mark)
        if nodes is None or kept.kind >= 0 or not kept.nodes.isdisjoint(nodes):
            self.forget(self.head)

    def newcomers_wait(self, now: float) -> bool:
        """Whether it is plain that nobody who joined may start."""
        news, kept = self.lines.news, self.kept
        for line in news:
            if line in self.full:
                continue
            kind = self.late.get(line, _CEILING)
            if kind == _CEILING or kept is None or line.least(kind) <= kept.ahead_s(now):
                return False
        news.clear()
        return True

    def take_news(self) -> None:
        """Look at the lines that somebody joined."""
        news = self.lines.news
        for line in news:
            self.late.pop(line, None)
        news.clear()

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

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def decide(self, view: View) -> Plan:
        """Start the head if it fits, otherwise the first that does not delay it."""
        look = view.index(_Look)
        lines = look.lines
        if not lines.active:
            return EMPTY
        if lines.speeds.stale():
            look.rebuild()
        if view.books.limits:
            return self._allowed(view, look)
        head = view.queue.head()
        return EMPTY if head is None else self._next(view, look, head)

    def _allowed(self, view: View, look: _Look) -> Plan:
        """Where tenants have ceilings: jobs that those hold back are passed over."""
        heads = sorted((line.first() for line in look.lines.active), key=attrgetter("key"))
        refusals = [(record, view.limit_refusal(record)) for record in heads]
        holds = [Hold(r.id, no.reason, no.facts) for r, no in refusals if no and r.hold != no.reason]
        head = next((record for record, refusal in refusals if refusal is None), None)
        plan = EMPTY if head is None else self._next(view, look, head)
        return Plan((*holds, *plan.decisions), again=plan.again) if holds else plan

    def _next(self, view: View, look: _Look, head: JobRecord) -> Plan:
        ends = look.ends
        if look.gains != ends.gains:
            look.gained()
        elif look.moves != ends.moves:
            look.forget(head.id if look.head == head.id else -1)
        if look.head != head.id:
            # Where no node is wide enough there is no need to search.
            if head.shape.spans or head.shape.gpus <= look.widest(view):
                start = place_whole(view, head, _HEAD)
                if start is not None:
                    return Plan((start,), again=True)
            look.forget(head.id)
        elif look.kept is not None and view.now >= look.kept.until_s:
            look.forget(head.id)
        elif look.version != ends.version:
            look.check_kept()
        elif not look.lines.news or (head.hold is not None and look.newcomers_wait(view.now)):
            return EMPTY
        if look.lines.news:
            look.take_news()
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
    ledger, layout = view.ledger, view.layout
    widest = look.widest(view)
    best: JobRecord | None = None
    best_order = 0
    where: _Place = (-1, (), -1, _BESIDE)
    for line in look.lines.active:
        if line in full or line in late:
            continue
        if line.plain and line.gpus > widest:
            full.add(line)
            continue
        first = line.first()
        record: JobRecord | None = first
        if best is not None and first.key > best_order:
            continue
        if line.tenant and over_ceiling(view.books, first, first.job.gpus):
            late[line] = _CEILING
            continue
        place = _plain_place(view, look, line, head) if line.plain else _place(view, look, line.shape, head)
        if place is None:
            full.add(line)
            continue
        bay, devices, node, right = place
        if right is _IN_TIME or (line.tenant and _takes_ceiling(view, line, head)):
            place = bay, devices, node, _IN_TIME
            kind = layout.bay_type[bay] if bay >= 0 else layout.device_type[devices[0]] if devices else -1
            record = line.first_within(kind, look.reserve(view, head).ahead_s(view.now))
            # Elsewhere a start may move the place these would get, and with it their right to it.
            if record is None and not (line.tenant or line.shape.spans or look.reserve(view, head).host):
                late[line] = kind
        if record is not None and (best is None or record.key < best_order):
            best, where, best_order = record, place, record.key
    if best is None:
        return None
    bay, devices, node, right = where
    if bay >= 0:
        devices = layout.devices(bay, low_bits(ledger.whole[bay], best.shape.gpus))
    return Start(best.id, devices, why=right, node=node)


def _plain_place(view: View, look: _Look, line: Line, head: JobRecord) -> _Place | None:
    """``_place`` for lines that ask for devices of one node and nothing else: bays are all there is to see."""
    ledger, gpus = view.ledger, line.gpus
    inside = -1
    kept = look.kept
    for kind in line.shape.types:
        bay = ledger.tightest_bay(kind, gpus)
        if bay < 0:
            continue
        if kept is None:
            kept = look.reserve(view, head)
        if kind != kept.kind:
            if bay not in kept.bays:
                return bay, (), -1, _BESIDE
            # Unless all free devices are there, another bay may do.
            if ledger.free_count[kind] > ledger.whole[bay].bit_count():
                for other in ledger.bays_by_room(kind, gpus):
                    if other not in kept.bays:
                        return other, (), -1, _BESIDE
        if inside < 0:
            inside = bay
    if inside < 0 or kept is None:
        return None
    return inside, (), -1, _EXTRA if gpus <= kept.extra else _IN_TIME


def _takes_ceiling(view: View, line: Line, head: JobRecord) -> bool:
    """Whether a job of this line could, by the ceiling of their common tenant, delay the head."""
    if line.tenant != head.job.tenant:
        return False
    books = view.books
    return books.used.get(line.tenant, 0) + line.gpus + head.job.gpus > books.limits[line.tenant]


def _place(view: View, look: _Look, shape: Shape, head: JobRecord) -> _Place | None:
    """Where a job of this shape could run now, and by what right; outside what is kept if possible."""
    ledger, kept = view.ledger, look.reserve(view, head)
    # Where the head has host needs, others with host needs compete with it for more than devices.
    rivals = kept.host and bool(shape.gpus == 0 or shape.cpu_milli or shape.host_bytes)
    beside = _IN_TIME if rivals and kept.kind >= 0 else _BESIDE
    if shape.gpus == 0:
        node = find_cpu_node_outside(ledger, shape, kept.node if rivals else -1)
        if node >= 0:
            return -1, (), node, beside
        node = find_cpu_node(ledger, shape) if rivals and kept.node >= 0 else -1
        return (-1, (), node, _IN_TIME) if node >= 0 else None
    devices = find_outside(ledger, shape, kept.all_bays if rivals else kept.bays, kept.kind)
    if devices is not None:
        return -1, devices, -1, beside
    devices = find_whole(ledger, shape)
    if devices is None:
        return None
    bay = view.layout.device_bay
    inside = shape.gpus if kept.kind >= 0 else sum(bay[d] in kept.bays for d in devices)
    return -1, devices, -1, _EXTRA if inside <= kept.extra and not rivals else _IN_TIME
