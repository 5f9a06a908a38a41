"""Which nodes a walk over events follows: all at first, and fewer as a run gets long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.model.layout import Layout
from cotenant.report.block import Piece
from cotenant.report.kinds import Kind

__all__ = ["BUDGET", "Followed"]

BUDGET = 1024
"""Starts after which half of the nodes are let go, again and again."""

_OF_COMPANY = np.zeros(len(Kind.PLACES), dtype=bool)
_OF_COMPANY[[Kind.STARTED, Kind.RATED, Kind.ENDED, Kind.SUSPENDED, Kind.RELEASED]] = True
_ALWAYS = np.zeros(len(Kind.PLACES), dtype=bool)
_ALWAYS[[Kind.MOVED, Kind.RESIZED, Kind.OTHER]] = True


class Followed:
    """Nodes that are followed, the same share of every make of node, and at least one of each.

    Parameters
    ----------
    layout : Layout
    everything : bool
        Never let go of any.
    """

    def __init__(self, layout: Layout, *, everything: bool = False) -> None:
        self._layout = layout
        makes: defaultdict[Any, list[int]] = defaultdict(list)
        for number, node in enumerate(layout.cluster.nodes):
            makes[node.gpus].append(number)
        self._makes = list(makes.values())
        self._weights = [1.0] * layout.device_count
        self._all = True
        self._left: float = inf if everything else BUDGET
        self._jobs: npt.NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._devices: npt.NDArray[np.bool_] = np.ones(layout.device_count, dtype=bool)

    def any_of(self, devices: tuple[int, ...]) -> bool:
        """Is one of them followed?"""
        if self._all:
            return True
        weights = self._weights
        return any(weights[d] for d in devices) if len(devices) > 1 else bool(devices and weights[devices[0]])

    def weight(self, devices: tuple[int, ...]) -> float:
        """How many nodes the one of these devices stands for; 0 if not all of them are followed."""
        if self._all:
            return 1.0
        return min((self._weights[d] for d in devices), default=0.0)

    def starts_more(self) -> bool:
        """One more start is followed; True if that is more than are to be at this width."""
        self._left -= 1
        return self._left < 0 and any(len(nodes) > 1 for nodes in self._makes)

    def halve(self) -> None:
        """Let go of every other node of each make."""
        self._all, self._left = False, BUDGET
        weights = [0.0] * len(self._weights)
        for i, nodes in enumerate(self._makes):
            kept = nodes[::2]
            for node in kept:
                for device in self._layout.node_devices[node]:
                    weights[device] = self._weights[device] * len(nodes) / len(kept)
            self._makes[i] = kept
        self._weights = weights
        self._devices = np.array(weights) > 0

    def chosen(self, piece: Piece, events: list[Any]) -> Iterable[Any]:
        """Those events of a piece that a walk may need: all of the jobs that come to followed nodes."""
        if self._all:
            return events
        ids, codes = piece.ids, piece.codes
        self._grow(int(ids.max(initial=-1)) + 1)
        self._mark(piece, ids[codes == Kind.STARTED])
        self._jobs[ids[(codes == Kind.MOVED) | (codes == Kind.RESIZED)]] = True
        mine = _OF_COMPANY[codes] & (ids >= 0) & self._jobs[ids]
        return [events[i] for i in np.flatnonzero(mine | _ALWAYS[codes]).tolist()]

    def runs(self, jobs: Mapping[int, Any]) -> None:
        """These are on followed nodes, before any further events are chosen."""
        if not self._all and jobs:
            numbers = np.fromiter(jobs, np.int64, len(jobs))
            self._grow(int(numbers.max()) + 1)
            self._jobs[numbers] = True

    def _grow(self, size: int) -> None:
        if size > self._jobs.size:
            jobs = np.zeros(max(size, 2 * self._jobs.size), dtype=bool)
            jobs[: self._jobs.size] = self._jobs
            self._jobs = jobs

    def _mark(self, piece: Piece, started: npt.NDArray[Any]) -> None:
        """Note of each job that starts whether it comes to a followed device."""
        if not started.size:
            return
        lengths = piece.columns[Kind.STARTED, "lengths"]
        devices = piece.columns[Kind.STARTED, "devices"]
        some = np.flatnonzero(lengths)
        begin = np.cumsum(lengths[some]) - lengths[some]
        if some.size:
            here = np.logical_or.reduceat(self._devices[devices], begin)
            self._jobs[started[some][here]] = True
