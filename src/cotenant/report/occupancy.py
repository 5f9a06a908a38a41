"""Who is on which device, folded a block of events at a time.

The walk over placement events is plain Python and keeps only running jobs; everything that
follows from it (devices allocated, busy, free per node, the largest job that could be
placed) is computed for the whole block at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.model.cluster import Cluster
from cotenant.report.bins import StepBins
from cotenant.report.block import Block
from cotenant.report.columns import running_totals, stable_order
from cotenant.report.holes import Holes
from cotenant.report.kinds import Kind
from cotenant.report.places import Places, flattened

__all__ = ["HEAT_ROWS", "SEGMENT_DEVICES", "Channel", "Occupancy"]

Ints = npt.NDArray[Any]
Floats = npt.NDArray[Any]
_Effects = tuple[Ints, Ints, Ints, Ints]
"""Position of an event, how many devices it is about, these devices, and what it does to them."""

HEAT_ROWS = 128
"""Most rows of the device-by-time picture; beyond that, neighbouring devices share a row."""
SEGMENT_DEVICES = 16
"""How many of the first devices keep the exact times of their residents."""
SEGMENT_LIMIT = 3000
"""How many of those intervals are kept."""


class Channel:
    """Rows of the timeline."""

    ALLOCATED, BUSY, SHARED, RESERVED, AVAILABLE, FREE = range(6)
    GOODPUT, QUEUE_JOBS, QUEUE_GPUS, RUNNING = range(6, 10)
    PLACEABLE, STRANDED, FRAGMENT, ANY_FREE = range(10, 14)
    COUNT = 14


# What a row of the walk does to (residents, active residents, blocks, reservations).
(
    _ENTER,
    _LEAVE,
    _WAKE,
    _SLEEP,
    _ENTER_ACTIVE,
    _LEAVE_ACTIVE,
    _BLOCK,
    _UNBLOCK,
    _RESERVE,
    _UNRESERVE,
    _NOTHING,
) = range(11)
_EFFECT = np.array(
    [
        [1, -1, 0, 0, 1, -1, 0, 0, 0, 0, 0],
        [0, 0, 1, -1, 1, -1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, -1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, -1, 0],
    ],
    dtype=np.int64,
)

_EFFECT_OF = np.full((len(Kind.PLACES), 3), _NOTHING, dtype=np.int64)
"""Effect by kind of event and by whether the job's progress stops (0), goes on (1) or begins (2)."""
_EFFECT_OF[Kind.STARTED] = (_ENTER, _ENTER, _ENTER_ACTIVE)
_EFFECT_OF[[Kind.ENDED, Kind.SUSPENDED]] = (_LEAVE_ACTIVE, _LEAVE, _LEAVE)
_EFFECT_OF[[Kind.RATED, Kind.STOPPING]] = (_SLEEP, _NOTHING, _WAKE)


class _Rows:
    """Rows that events of the rarer kinds add: position in the block, devices, effect."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.devices: list[Sequence[int]] = []
        self.effect: list[int] = []

    def put(self, at: int, devices: Sequence[int], effect: int) -> None:
        if devices:
            self.at.append(at)
            self.devices.append(devices)
            self.effect.append(effect)


class Occupancy:
    """State of the devices, and what is known about them over time.

    Parameters
    ----------
    cluster : Cluster
    start_s : float
        Start of the window of the run.
    """

    def __init__(self, cluster: Cluster, start_s: float) -> None:
        sizes = [sum(count for _, count in node.gpus) for node in cluster.nodes]
        kinds = {kind.name: i for i, kind in enumerate(cluster.types)}
        count = sum(sizes)
        self.node_of: Ints = np.repeat(np.arange(len(sizes)), sizes)
        self.first: list[int] = [0, *np.cumsum(sizes).tolist()]
        self.type_of: Ints = np.array(
            [kinds[name] for node in cluster.nodes for name, n in node.gpus for _ in range(n)], dtype=np.int64
        )
        self.bins = StepBins(Channel.COUNT, start_s)
        self.bins.add(Channel.AVAILABLE, [start_s], [float(count)])
        self.bins.add(Channel.FREE, [start_s], [float(count)])
        per_row = max(1, -(-count // HEAT_ROWS))
        self.heat_row: Ints = np.arange(count) // per_row
        rows = int(self.heat_row[-1]) + 1 if count else 0
        self.heat = StepBins(2 * rows, start_s, max_bins=400)
        self.holes = Holes(sizes, self.bins, start_s)
        self.busy_s: Floats = np.zeros(count)
        self.allocated_s: Floats = np.zeros(count)
        self._now: Ints = np.zeros((4, count), dtype=np.int64)
        self._places: Places | None = None  # as arrays, or, after a walk, as a dictionary
        self._held: dict[int, tuple[int, ...]] = {}
        self._plain = True
        self._reserved: dict[int, tuple[int, ...]] = {}
        self._down: set[tuple[str, int]] = set()
        self._segments: list[tuple[int, int, float, float]] = []
        self._segments_end_s: float | None = None
        self._open: dict[tuple[int, int], float] = {}

    @property
    def count(self) -> int:
        """Devices in all."""
        return int(self.node_of.size)

    def fold(
        self, block: Block, flags: Ints, active: npt.NDArray[np.bool_], queue: tuple[Ints, Ints, Ints]
    ) -> None:
        """Fold one block.

        Parameters
        ----------
        block : Block
        flags : (n,) array
            +1 where a job begins to progress and -1 where it stops to.
        active : (n,) array
            Whether the job of an event progresses after it.
        queue : three arrays
            Position, gang size and +1 or -1 of each change of the queue, in order.
        """
        places, lengths, flat, effect = self._quick(block, flags) or self._slow(block, flags, active)
        at, effect = np.repeat(places, lengths), np.repeat(effect, lengths)
        order = stable_order(at, block.size)
        order = order[stable_order(flat[order], self.count)]
        flat, at, effect = flat[order], at[order], effect[order]
        self._keep_segments(flat, at, effect, block)
        self._apply(flat, at, effect, block.t, queue)

    def _quick(self, block: Block, flags: Ints) -> _Effects | None:
        """Rows kind by kind, without a walk; None where the order of events of one job matters."""
        started = block.at(Kind.STARTED)
        leaves = np.concatenate([block.at(Kind.ENDED), block.at(Kind.SUSPENDED)])
        if self._reserved or block.has(*Kind.IN_ORDER):
            return None
        fresh = [block.column(Kind.STARTED, name) for name in ("lengths", "devices")]
        held = (self._places or Places.of(self._held)).joined(block.ids[started], *fresh)
        if not held.distinct:
            return None
        turns = np.flatnonzero((flags != 0) & Kind.TURNS[block.codes])
        places = np.concatenate([started, turns, leaves])
        rows = held.find(block.ids[places])
        gone = rows[places.size - leaves.size :]
        if leaves.size and np.bincount(gone + 1)[1:].max(initial=0) > 1:
            return None
        self._places = held.without(gone)
        effect = _EFFECT_OF[block.codes[places], flags[places] + 1]
        return places, *held.devices_of(rows), effect

    def _slow(self, block: Block, flags: Ints, active: npt.NDArray[np.bool_]) -> _Effects:
        """Rows by walking the events in order."""
        if self._places is not None:
            self._held, self._places = self._places.mapping(), None
        codes = block.codes
        places = np.flatnonzero(Kind.PLACES[codes] | (flags != 0))
        kinds, rows = codes[places], _Rows()
        devices = self._walk(block, places, rows, active)
        effect = _EFFECT_OF[kinds, flags[places] + 1]
        if rows.at:
            places = np.concatenate([places, np.array(rows.at, dtype=np.int64)])
            effect = np.concatenate([effect, np.array(rows.effect, dtype=np.int64)])
            devices += rows.devices
        return places, *flattened(devices), effect

    def _walk(
        self, block: Block, places: Ints, rows: _Rows, active: npt.NDArray[np.bool_]
    ) -> list[Sequence[int]]:
        """Devices each event is about; events that need several rows put them in ``rows``."""
        held, waking, leaving = self._held, (Kind.RATED, Kind.STOPPING), (Kind.ENDED, Kind.SUSPENDED)
        out: list[Sequence[int]] = []
        kinds, jobs = block.codes[places].tolist(), block.ids[places].tolist()
        for at, kind, job, event in zip(places.tolist(), kinds, jobs, block.pick(places), strict=True):
            if kind in waking:
                out.append(held.get(job, ()))
            elif kind == Kind.STARTED:
                held[job] = event
                out.append(event)
                if self._reserved:
                    self._unreserve(rows, at, job)
            elif kind in leaving:
                out.append(held.pop(job, ()))
            elif kind == Kind.REJECTED:
                out.append(())
                self._unreserve(rows, at, job)
            else:
                out.append(())
                self._rare(rows, at, kind, event, bool(active[at]))
        return out

    def _rare(self, rows: _Rows, at: int, code: int, event: Any, active: bool) -> None:
        enter, leave = (_ENTER_ACTIVE, _LEAVE_ACTIVE) if active else (_ENTER, _LEAVE)
        if code in (Kind.MOVED, Kind.RESIZED):
            old = self._held.get(event.id, ())
            gone = tuple(d for d in old if d not in event.devices)
            rows.put(at, [d for d in event.devices if d not in old], enter)
            self._held[event.id] = tuple(event.devices)
            if code == Kind.MOVED:
                self._held[event.id] += gone  # until they are released
            else:
                rows.put(at, gone, leave)
        elif code == Kind.RELEASED:
            old = self._held.get(event.id, ())
            rows.put(at, [d for d in event.devices if d in old], leave)
            self._held[event.id] = tuple(d for d in old if d not in event.devices)
        elif code == Kind.RESERVED:
            self._unreserve(rows, at, event.id)
            if event.devices:
                self._reserved[event.id] = event.devices
                rows.put(at, event.devices, _RESERVE)
        else:
            self._availability(rows, at, code, event)

    def _unreserve(self, rows: _Rows, at: int, job: int) -> None:
        rows.put(at, self._reserved.pop(job, ()), _UNRESERVE)

    def _availability(self, rows: _Rows, at: int, code: int, event: Any) -> None:
        what, adds = Kind.AVAILABILITY[code]
        single = what == "device" or (what == "drain" and event.device >= 0)
        key = (f"{what} of one" if single else what, event.device if single else event.node)
        if (key in self._down) == adds:
            return
        (self._down.add if adds else self._down.discard)(key)
        devices = [key[1]] if single else range(self.first[key[1]], self.first[key[1] + 1])
        rows.put(at, devices, _BLOCK if adds else _UNBLOCK)

    def spans(self, lengths: Ints, devices: Ints) -> Ints:
        """Number of nodes under each placement (devices ascending, one placement after the other)."""
        out = np.minimum(lengths, 1)
        some = np.flatnonzero(lengths)
        if some.size:
            node = self.node_of[devices]
            turns = np.ones(devices.size, dtype=np.int64)
            turns[1:] = node[1:] != node[:-1]
            begin = np.cumsum(lengths[some]) - lengths[some]
            turns[begin] = 1
            out[some] = np.add.reduceat(turns, begin)
        return out

    def _apply(self, device: Ints, at: Ints, effect: Ints, t: Floats, queue: tuple[Ints, Ints, Ints]) -> None:
        self._plain = self._plain and not (effect > _LEAVE_ACTIVE).any()
        # Blocks and reservations are rare; until there is one, their totals need no keeping.
        before, after = self._totals(device, _EFFECT[: 2 if self._plain else 4, effect])
        self._count(device, at, t, before, after)
        change = _free(after).astype(np.int64) - _free(before)
        moved = np.flatnonzero(change)
        back = moved[stable_order(at[moved], t.size)]
        self._step(Channel.FREE, at[moved], change[moved], t)
        self.holes.apply((at[back], self.node_of[device[back]], change[back]), queue, t)

    def _totals(self, device: Ints, effect: Ints) -> tuple[list[Ints], list[Ints]]:
        # Where every resident is active all the time, as whole devices are without speeds, one is the other.
        alike = np.array_equal(effect[0], effect[1]) and np.array_equal(self._now[0], self._now[1])
        before: list[Ints] = []
        after: list[Ints] = []
        for i, change in enumerate(effect):
            if i == 1 and alike:
                self._now[1] = self._now[0]
                before.append(before[0])
                after.append(after[0])
                continue
            after.append(running_totals(device, change, self._now[i]))
            before.append(after[i] - change)
            self._now[i][device] = after[i]  # of repeated indices the last one stays
        return before, after

    def _step(self, channel: int, at: Ints, jump: Ints, t: Floats, also: int = 0) -> None:
        # A gang changes several devices at once: one jump for each event will do.
        total = np.bincount(at, jump, t.size)
        hit = np.flatnonzero(total)
        self.bins.add(channel, t[hit], total[hit], also)

    def _count(self, device: Ints, at: Ints, t: Floats, before: list[Ints], after: list[Ints]) -> None:
        alike = after[1] is after[0]
        shares = max(before[0].max(initial=0), after[0].max(initial=0)) > 1
        pairs = {Channel.ALLOCATED: (before[0] > 0, after[0] > 0)}
        if not alike:
            pairs[Channel.BUSY] = (before[1] > 0, after[1] > 0)
        if shares:
            pairs[Channel.SHARED] = (before[0] > 1, after[0] > 1)
        if not self._plain:
            held_before, held_after = (before[3] > 0) & (before[0] == 0), (after[3] > 0) & (after[0] == 0)
            pairs[Channel.RESERVED] = (held_before, held_after)
            pairs[Channel.AVAILABLE] = (before[2] == 0, after[2] == 0)
        rows = int(self.heat_row[-1]) + 1 if self.count else 0
        for channel, (was, is_now) in pairs.items():
            hit = np.flatnonzero(was != is_now)
            by, when, where = np.where(is_now[hit], 1.0, -1.0), t[at[hit]], device[hit]
            allocated, busy = channel == Channel.ALLOCATED, channel == Channel.BUSY
            busy |= allocated and alike
            self._step(channel, at[hit], by, t, Channel.BUSY - channel if allocated and alike else 0)
            if allocated:
                np.add.at(self.allocated_s, where, -by * when)
            if busy:
                np.add.at(self.busy_s, where, -by * when)
                if shares or not alike:
                    self.heat.add(rows + self.heat_row[where], when, by)
                else:
                    self.heat.add(self.heat_row[where], when, by, rows)
        if shares or not alike:
            residents = after[0] - before[0]
            hit = np.flatnonzero(residents)
            self.heat.add(self.heat_row[device[hit]], t[at[hit]], residents[hit])

    def _keep_segments(self, flat: Ints, at: Ints, effect: Ints, block: Block) -> None:
        if self._segments_end_s is not None:
            return
        for i in range(int(np.searchsorted(flat, SEGMENT_DEVICES))):
            key = (int(flat[i]), int(block.ids[at[i]]))
            if effect[i] in (_ENTER, _ENTER_ACTIVE):
                self._open[key] = float(block.t[at[i]])
            elif effect[i] in (_LEAVE, _LEAVE_ACTIVE) and key in self._open:
                self._segments.append((*key, self._open.pop(key), float(block.t[at[i]])))
        if len(self._segments) > SEGMENT_LIMIT:
            # Enough: the picture ends here, and those who are still there are drawn to its edge.
            self._segments_end_s = sorted(s[3] for s in self._segments)[SEGMENT_LIMIT]

    def seconds(self, end_s: float) -> tuple[Floats, Floats]:
        """Seconds each device was allocated and busy until ``end_s``."""
        return self.allocated_s + (self._now[0] > 0) * end_s, self.busy_s + (self._now[1] > 0) * end_s

    def segments(self, end_s: float) -> list[tuple[int, int, float, float]]:
        """(device, job, from, to) on the first devices, up to ``end_s`` or until there are enough."""
        edge = end_s if self._segments_end_s is None else self._segments_end_s
        still = [(d, j, start, edge) for (d, j), start in self._open.items()]
        shown = [
            (d, j, a, min(b, edge)) for d, j, a, b in self._segments + still if a < edge or a == b == edge
        ]
        return sorted(shown, key=lambda s: (s[2], s[0], s[1]))


def _free(state: list[Ints]) -> npt.NDArray[np.bool_]:
    free: npt.NDArray[np.bool_] = state[0] == 0
    return free & (state[2] == 0) if len(state) > 2 else free
