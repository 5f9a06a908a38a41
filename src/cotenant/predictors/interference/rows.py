"""Labels as arrays: which job, beside which others, how fast.

A run that was measured against a baseline that is too slow is re-based: its speeds are divided
by the job's *scale*, the typical speed of its least disturbed runs where that exceeds 1. Models
learn and forecast re-based speeds; speeds as published are those times the scale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.jobs import Node, NodeTable, World
from cotenant.profiles.runs import CoRun, CoSide

__all__ = ["IMPLAUSIBLE", "Rows", "baseline_scales", "make_rows", "plausible"]

IMPLAUSIBLE = 2.0
"""Speed beside others over speed alone above which a label is taken for a mistake.

The public campaigns' highest is 1.84; speeds above 1 come from runs alone that were too slow.
"""

_MAX_SCALE = 1.5
_ENOUGH = 3


class Rows:
    """Speeds of jobs in sets, one row for each job.

    Parameters
    ----------
    victim : ndarray of intp, shape (n,)
        Node whose speed it is.
    others : ndarray of intp, shape (n, k)
        Nodes beside it; -1 where there are fewer than ``k``.
    speed : ndarray, shape (n,)
        Re-based speed beside them over speed alone.
    censored : ndarray of bool, shape (n,)
        Whether the speed is only a lower bound.
    pair, block : ndarray of intp, shape (n,)
        Numbers of the set of configurations, and of the set of architectures: equal for the
        same set in any order and world.
    """

    def __init__(  # noqa: PLR0917
        self,
        victim: NDArray[np.intp],
        others: NDArray[np.intp],
        speed: NDArray[np.float64],
        censored: NDArray[np.bool_],
        pair: NDArray[np.intp],
        block: NDArray[np.intp],
    ) -> None:
        self.victim, self.others, self.speed, self.censored = victim, others, speed, censored
        self.pair, self.block = pair, block

    def __len__(self) -> int:
        return len(self.victim)

    @property
    def other(self) -> NDArray[np.intp]:
        """The first neighbour; of pairs, the only one."""
        found: NDArray[np.intp] = self.others[:, 0]
        return found

    def take(self, where: NDArray[np.intp] | NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(
            self.victim[where],
            self.others[where],
            self.speed[where],
            self.censored[where],
            self.pair[where],
            self.block[where],
        )

    def pairs(self) -> NDArray[np.bool_]:
        """Which rows are of two jobs."""
        found: NDArray[np.bool_] = (self.others >= 0).sum(axis=1) == 1
        return found

    def involves(self, nodes: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Rows in which one of the marked nodes takes part.

        Parameters
        ----------
        nodes : ndarray of bool, shape (nodes of the table,)
        """
        beside = np.where(self.others >= 0, nodes[self.others], False).any(axis=1)
        found: NDArray[np.bool_] = nodes[self.victim] | beside
        return found


def plausible(runs: Iterable[CoRun]) -> tuple[list[CoRun], int]:
    """These co-runs with labels above ``IMPLAUSIBLE`` marked as not trustworthy, and how many there are."""
    found, count = [], 0
    for run in runs:
        wrong = [side.usable and (side.speed or 0.0) > IMPLAUSIBLE for side in run.sides]
        if any(wrong):
            count += sum(wrong)
            sides = [_distrusted(s) if bad else s for s, bad in zip(run.sides, wrong, strict=True)]
            run = msgspec.structs.replace(run, sides=tuple(sides))  # noqa: PLW2901
        found.append(run)
    return found, count


def _distrusted(side: CoSide) -> CoSide:
    return msgspec.structs.replace(side, label_ok=False)


def baseline_scales(runs: Sequence[CoRun]) -> dict[Node, float]:
    """How much too high the published speeds of jobs with a suspect baseline are.

    The median of the upper third of a job's speeds, where upstream's flag says that the run
    alone is suspect and there are at least three speeds; at least 1, at most 1.5.
    """
    speeds: dict[Node, list[float]] = defaultdict(list)
    for run in runs:
        for side in run.sides:
            if side.suspect and side.usable and side.speed is not None:
                speeds[(side.job, (run.source, run.device_type))].append(side.speed)
    found = {}
    for node, seen in speeds.items():
        if len(seen) >= _ENOUGH:
            upper = sorted(seen)[-max(len(seen) // 3, 1) :]
            found[node] = float(np.clip(np.median(upper), 1.0, _MAX_SCALE))
    return found


class _Numbers:
    """Numbers for sets, in order of appearance."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, ...], int] = {}

    def of(self, members: Sequence[int]) -> int:
        return self.ids.setdefault(tuple(sorted(members)), len(self.ids))


def make_rows(runs: Sequence[CoRun], table: NodeTable, scales: dict[Node, float]) -> Rows:
    """Rows of all trustworthy labels of these runs.

    Parameters
    ----------
    runs : sequence of CoRun
    table : NodeTable
        Gets further nodes for jobs that it does not hold yet.
    scales : dict
        As ``baseline_scales``.
    """
    sides: list[tuple[int, list[int], float, bool]] = []
    wanted: list[Node] = []
    for run in runs:
        world: World = (run.source, run.device_type)
        wanted.extend((side.job, world) for side in run.sides)
    table.add(wanted)
    for run in runs:
        world = (run.source, run.device_type)
        ids = [table.ids[(side.job, world)] for side in run.sides]
        for i, side in enumerate(run.sides):
            if run.status == "ok" and side.usable and side.speed is not None:
                scale = scales.get((side.job, world), 1.0)
                sides.append((ids[i], ids[:i] + ids[i + 1 :], side.speed / scale, side.censored))
    return _arrays(sides, table)


def _arrays(sides: Sequence[tuple[int, list[int], float, bool]], table: NodeTable) -> Rows:
    width = max((len(others) for _, others, _, _ in sides), default=1)
    others = np.full((len(sides), width), -1, np.intp)
    pairs, blocks = _Numbers(), _Numbers()
    pair, block = np.zeros(len(sides), np.intp), np.zeros(len(sides), np.intp)
    for i, (victim, beside, _, _) in enumerate(sides):
        others[i, : len(beside)] = sorted(beside)
        members = [victim, *beside]
        pair[i] = pairs.of([int(table.config[m]) for m in members])
        block[i] = blocks.of([int(table.family[m]) for m in members])
    return Rows(
        np.array([s[0] for s in sides], np.intp),
        others,
        np.array([s[2] for s in sides], np.float64),
        np.array([s[3] for s in sides], np.bool_),
        pair,
        block,
    )
