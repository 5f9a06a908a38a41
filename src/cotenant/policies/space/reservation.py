"""What is kept for a blocked head: the earliest place for it, as predicted."""

from __future__ import annotations

from bisect import bisect_right

from cotenant.model.records import JobRecord
from cotenant.model.shape import Shape
from cotenant.model.view import View
from cotenant.policies.space.ends import Ends
from cotenant.policies.space.fit import UNKNOWN_S
from cotenant.policies.space.places import Found, PlaceEnds

__all__ = ["Kept", "keep"]

_INF = float("inf")


class Kept:
    """What is kept for the head, and from when.

    ``bays`` are kept (with all of ``node``, if the head has host needs); or, for a gang that spans
    nodes, ``extra`` devices of all of type ``kind`` may be held beyond ``start_s`` and no
    more. ``until_s`` is when the first prediction that this rests on is outlived.
    """

    __slots__ = (
        "all_bays",
        "basis",
        "bays",
        "extra",
        "host",
        "kind",
        "node",
        "nodes",
        "shape",
        "start_s",
        "until_s",
    )

    def __init__(self, start_s: float, host: bool) -> None:
        self.start_s = start_s
        self.host = host
        self.bays: tuple[int, ...] = ()
        self.all_bays: tuple[int, ...] = ()
        self.node = -1
        self.nodes: frozenset[int] = frozenset()
        self.kind = -1
        self.extra = 0
        self.until_s = _INF
        self.shape: Shape | None = None
        self.basis: list[tuple[PlaceEnds, Found]] = []

    def stands(self, shape: Shape, now: float) -> bool:
        """Whether this is what ``keep`` would find for a head of this shape now."""
        if shape is not self.shape:
            return False
        for places, first in self.basis:
            places.update()
            if places.found is not first or first.until_s <= now:
                return False
        return True

    def ahead_s(self, now: float) -> float:
        """For how long others may hold what is kept; -1 if nobody knows."""
        return self.start_s - now if self.start_s < UNKNOWN_S else -1.0


def keep(view: View, ends: Ends, head: JobRecord) -> Kept:
    """The earliest place for the head, as predicted."""
    shape = head.shape
    host = bool(shape.gpus == 0 or shape.cpu_milli or shape.host_bytes)
    if shape.spans:
        return _keep_devices(view, ends, shape, host)
    kept, best = Kept(_INF, host), None
    kept.shape = shape
    for kind in shape.types if shape.gpus else (-1,):
        places = ends.places(shape, kind)
        first = places.find(view.now)
        kept.basis.append((places, first))
        if first.start_s < kept.start_s:
            kept.start_s, best = first.start_s, (places, first)
    if best is not None:
        places, first = best
        bay, node = places.at(first.place)
        kept.extra, kept.until_s = first.spare, first.until_s
        kept.bays = (bay,) if bay >= 0 else ()
        kept.nodes = frozenset((node,))
        if host:
            kept.node, kept.all_bays = node, view.layout.node_bays[node]
    return kept


def _keep_devices(view: View, ends: Ends, shape: Shape, host: bool) -> Kept:
    """For a gang that may span nodes: when enough devices of one type are free, wherever."""
    kept, now, gpus = Kept(_INF, host), view.now, shape.gpus
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
        kept.nodes = frozenset(view.layout.bay_node[bay] for bay in kept.bays)
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
