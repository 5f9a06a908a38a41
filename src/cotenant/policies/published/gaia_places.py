"""Where GaiaGPU puts a request: nodes by least free compute, best fit of fractions, branches of whole devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cotenant.model.placement import Placement
from cotenant.model.records import JobRecord
from cotenant.model.shape import host_fits
from cotenant.model.view import Index, View
from cotenant.policies.queues.circles import circle_of
from cotenant.policies.queues.points import Point, Points
from cotenant.policies.space.boards import Board, Boards
from cotenant.policies.space.rooms import hosts_fit

__all__ = ["NodeRoom", "Requests", "branch", "is_fraction"]


@lru_cache(4096)
def branch(slots: tuple[int, ...], count: int, groups: tuple[int, ...]) -> tuple[int, ...]:
    """So many of a node's free slots that lie closest together on its tree.

    The sum of distances between them is least, where each level of the tree is three times as far as the one
    below. Of equals, and so for one device, those from the branches with fewest free, from the root down.

    Parameters
    ----------
    slots : tuple of int
        Free slots, ascending.
    count : int
        At most ``len(slots)``.
    groups : tuple of int
        Sizes of the branches below the root, descending; a branch holds neighbouring slots.

    Examples
    --------
    >>> branch((0, 2, 3, 5), 1, (4, 2)), branch((0, 2, 3, 5), 2, (4, 2)), branch((0, 2, 4, 5), 3, (4, 2))
    ((5,), (2, 3), (0, 4, 5))
    """
    return _closest(slots, groups)[count][2]


_Choice = tuple[int, int, tuple[int, ...]]
"""Sum of distances, free slots left in branches broken into (upper levels count more), slots."""


def _closest(slots: tuple[int, ...], groups: tuple[int, ...]) -> list[_Choice]:
    """The best choice of each number of slots, by the best choices of each branch."""
    if not groups:
        return [(k * (k - 1) // 2, 0, slots[:k]) for k in range(len(slots) + 1)]
    far, weight = 3 ** len(groups), 64 ** len(groups)
    found: list[_Choice] = [(0, 0, ())]
    for _, members in itertools.groupby(slots, lambda slot: slot // groups[0]):
        part = tuple(members)
        mine = [
            (cost, broken + (weight * (len(part) - k) if k else 0), chosen)
            for k, (cost, broken, chosen) in enumerate(_closest(part, groups[1:]))
        ]
        found = [
            min(
                (
                    found[k - m][0] + mine[m][0] + far * (k - m) * m,
                    found[k - m][1] + mine[m][1],
                    found[k - m][2] + mine[m][2],
                )
                for m in range(len(mine))
                if 0 <= k - m < len(found)
            )
            for k in range(len(found) + len(part))
        ]
    return found


class Requests(Points):
    """Waiting requests.

    Parameters
    ----------
    view : View
    by_tenant : bool
        Whether tenants are kept apart, as what a quota keeps from one must not keep others.
    """

    def __init__(self, view: View, by_tenant: bool = False) -> None:
        super().__init__(view, by_tenant=by_tenant)

    def point(self, record: JobRecord) -> Point:
        """The point of a job: all that ask for the same, whatever they run."""
        job, shape = record.job, record.shape
        key = (shape.number, "", circle_of(job), job.tenant if self._apart else "")
        found = self._points.get(key)
        if found is None:
            found = self._points[key] = Point(key, shape)
        return found

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """Devices gained room, and their hosts, from which other devices draw, too."""
        super().vacated(record, place)
        job, layout = record.job, self._view.layout
        if job.cpu_milli or job.host_memory_bytes:
            for node in layout.nodes_of(place.devices):
                peers = layout.peers.get(layout.home[node], (node,)) if layout.home else (node,)
                for peer in peers:
                    self.touch(layout.node_devices[peer])

    def review(self, could: Callable[[Point, int], bool]) -> None:
        """Open the requests that could fit a bay that gained room; what they need of the host is known here."""
        bays = tuple(self._touched)
        self._touched.clear()
        if bays:
            for point in self.living:
                if point not in self.open and any(could(point, bay) for bay in bays):
                    self.open[point] = None

    def could(self, point: Point, bay: int) -> bool:
        """Whether a request may fit a bay, perhaps with others; never wrongly no."""
        shape, view = point.shape, self._view
        if not shape.gpus:
            return True
        layout, ledger = view.layout, view.ledger
        if layout.bay_type[bay] not in shape.types:
            return False
        room = ledger.whole[bay].bit_count()
        if shape.spans and room:
            return True
        if not host_fits(ledger, shape, bay, shape.gpus):
            return False
        if room >= shape.gpus or not is_fraction(point):
            return room >= shape.gpus
        first, need = layout.bay_first[bay], shape.memory_bytes
        return any(
            ledger.free_milli[d] >= point.milli and ledger.free_memory[d] >= need
            for d in range(first, first + layout.bay_size[bay])
        )


def is_fraction(point: Point) -> bool:
    """Whether a request is for a part of one device, and may share it."""
    return point.milli > 0 and point.shape.gpus == 1 and point.circle is not None


class NodeRoom(Index):
    """Free compute and memory of each node, in arrays, for requests to go to the fullest node that has room.

    Parameters
    ----------
    view : View
    boards : Boards
    """

    def __init__(self, view: View, boards: Boards) -> None:
        self._view, self._boards = view, boards
        layout = view.layout
        self._milli, self._memory = np.zeros((2, layout.node_count), np.int64)
        self._node_of = [
            np.array([layout.device_node[d] for d in board.devices], np.int64) for board in boards.boards
        ]
        self._refresh(range(layout.node_count))

    def _refresh(self, nodes: range | set[int]) -> None:
        ledger, layout = self._view.ledger, self._view.layout
        for node in nodes:
            usable = [d for d in layout.node_devices[node] if ledger.usable[d]]
            self._milli[node] = sum([ledger.free_milli[d] for d in usable])
            self._memory[node] = sum([ledger.free_memory[d] for d in usable])

    def placed(self, record: JobRecord, place: Placement) -> None:
        """A job came."""
        self.capacity(place.devices)

    def vacated(self, record: JobRecord, place: Placement) -> None:
        """A job went."""
        self.capacity(place.devices)

    def capacity(self, devices: tuple[int, ...]) -> None:
        """Devices failed or returned."""
        self._refresh({self._view.layout.device_node[d] for d in devices})

    def fraction(self, record: JobRecord, point: Point, kinds: tuple[int, ...]) -> int | None:
        """The device for a part of one: fullest node first, in it the one with least free compute that suffices.

        Ties go to least free memory, then fewest residents, then the lowest number.
        """
        best: tuple[tuple[int, ...], int] | None = None
        for kind in kinds:
            board = self._boards.boards[kind]
            if not board.capacity:
                continue
            at = np.flatnonzero(self._boards.room(board, point))
            at = at[self._hosts(self._node_of[kind][at], record)]
            while at.size:
                found = self._least(board, at)
                if hosts_fit(self._view, record.job, (found[1],)):
                    best = found if best is None or found[0] < best[0] else best
                    break
                at = at[self._node_of[kind][at] != self._view.layout.device_node[found[1]]]
        return None if best is None else best[1]

    def _least(self, board: Board, at: NDArray[np.int64]) -> tuple[tuple[int, ...], int]:
        """Of some devices of a board the first in order, and by what."""
        nodes, key = self._node_of[board.kind], []
        for what in (self._milli[nodes], self._memory[nodes], nodes, board.milli, board.free):
            values = what[at]
            least = values.min()
            at = at[values == least]
            key.append(int(least))
        residents = self._view.ledger.residents
        count, device = min([(len(residents[d]), d) for d in [board.devices[i] for i in at.tolist()]])
        return (*key, count, device), device

    def whole(
        self, record: JobRecord, kinds: tuple[int, ...], groups: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Free devices of one node: the fullest that has enough, there those that lie closest together."""
        layout, gpus = self._view.layout, record.shape.gpus
        ranked: list[tuple[int, int, int, int]] = []
        for kind in kinds:
            if self._view.ledger.largest_block(kind) < gpus:
                continue
            board, nodes = self._boards.boards[kind], self._node_of[kind]
            counts = np.bincount(nodes[board.empty()], minlength=layout.node_count)
            at = np.flatnonzero(counts >= gpus)
            at = at[self._hosts(at, record)]
            order = np.lexsort((at, self._memory[at], self._milli[at]))
            for node in at[order].tolist():
                devices = self._in_node(node, kind, gpus, groups)
                if hosts_fit(self._view, record.job, devices):
                    ranked.append((int(self._milli[node]), int(self._memory[node]), node, kind))
                    break
        if not ranked:
            return None
        return self._in_node(*min(ranked)[2:], gpus, groups)

    def _in_node(self, node: int, kind: int, gpus: int, groups: tuple[int, ...]) -> tuple[int, ...]:
        layout, ledger = self._view.layout, self._view.ledger
        (bay,) = [b for b in layout.node_bays[node] if layout.bay_type[b] == kind]
        first, mask = layout.bay_first[bay], ledger.whole[bay]
        slots = tuple([slot for slot in range(layout.bay_size[bay]) if mask >> slot & 1])
        return tuple([first + slot for slot in branch(slots, gpus, groups)])

    def _hosts(self, nodes: NDArray[np.int64], record: JobRecord) -> NDArray[np.bool_]:
        """Of some nodes those that have the host cores and memory of a whole job."""
        ledger, shape = self._view.ledger, record.shape
        fine = np.ones(len(nodes), np.bool_)
        for need, free, has in (
            (shape.cpu_milli, ledger.free_cpu, ledger.has_cpu),
            (shape.host_bytes, ledger.free_host, ledger.has_host),
        ):
            if need:
                fine &= (np.asarray(free)[nodes] >= need) | ~np.asarray(has)[nodes]
        return fine
