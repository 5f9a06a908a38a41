"""Predictions of rows that were not seen, by every member: what selection judges by.

A *case* is a row predicted without the group it belongs to. Four kinds of groups make four
kinds of novelty:

- ``FAMILIAR``: both jobs were measured in this world, and their architectures together, at other
  batch sizes: a twelfth of the pairs is left out, in every world;
- ``KNOWN``: both jobs were measured in this world, their architectures never together: all rows
  of a pair of architectures are left out, in every world;
- ``ELSEWHERE``: a job was measured in other worlds only: all rows of an architecture are left
  out on this device type, in every campaign;
- ``NEVER``: a job has nothing but its solo profile: its architecture is left out everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.effects import EffectsModel
from cotenant.predictors.interference.jobs import NodeTable
from cotenant.predictors.interference.lowrank import LowRank
from cotenant.predictors.interference.members import MEMBERS, PairData, pair_data
from cotenant.predictors.interference.rows import Rows

__all__ = [
    "COSTLY",
    "ELSEWHERE",
    "FAMILIAR",
    "KNOWN",
    "NEVER",
    "Cases",
    "Group",
    "groups_of",
    "left_out",
    "stand_in",
]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

FAMILIAR, KNOWN, ELSEWHERE, NEVER = -1, 0, 1, 2
COSTLY = ("extra-trees", "forest", "boosting", "set-net", "svr", "ridge")
"""Members for which every fold is a fit that takes time."""

_FOLDS = 4
_PARTS = 12
_ENOUGH = 150


class Group(msgspec.Struct, frozen=True):
    """Rows that are left out together, and those of them in the world to predict."""

    out: Index
    wanted: Index


class Cases(msgspec.Struct, frozen=True):
    """Rows predicted without their group, in one world, of one novelty.

    Parameters
    ----------
    rows : ndarray of intp, shape (c,)
    group : ndarray of intp, shape (c,)
    predicted : ndarray, shape (members, c)
    spread : ndarray, shape (c,)
        Standard deviation that the models of effects expect.
    """

    rows: Index
    group: Index
    predicted: Array
    spread: Array


def groups_of(rows: Rows, table: NodeTable, world: int, novelty: int) -> list[Group]:
    """Groups of a world that has rows."""
    own = table.world[rows.victim] == world
    found = []
    if novelty == FAMILIAR:
        pairs = np.unique(rows.pair[own])
        for part in range(min(_PARTS, len(pairs))):
            inside = np.isin(rows.pair, pairs[part::_PARTS])
            found.append(Group(np.flatnonzero(inside), np.flatnonzero(inside & own)))
        return found
    if novelty == KNOWN:
        for block in np.unique(rows.block[own]).tolist():
            inside = rows.block == block
            found.append(Group(np.flatnonzero(inside), np.flatnonzero(inside & own)))
        return found
    device = table.worlds[world][1]
    alike = np.array([name[1] == device for name in table.worlds])
    reach = alike[table.world[rows.victim]] if novelty == ELSEWHERE else np.ones(len(rows), np.bool_)
    families = np.unique(np.concatenate([table.family[rows.victim[own]], table.family[rows.other[own]]]))
    for family in families.tolist():
        inside = rows.involves(table.family == family)
        if (own & ~inside).sum() >= 5:
            found.append(Group(np.flatnonzero(inside & reach), np.flatnonzero(inside & own)))
    return found


def left_out(  # noqa: PLR0917
    names: Sequence[str],
    effects: dict[str, EffectsModel],
    rows: Rows,
    table: NodeTable,
    world: int,
    novelty: int,
) -> Cases | None:
    """Cases of all members; None if there are fewer than two groups."""
    groups = groups_of(rows, table, world, novelty)
    if len(groups) < 2:
        return None
    wanted = np.concatenate([group.wanted for group in groups])
    number = np.concatenate([np.full(len(group.wanted), i, np.intp) for i, group in enumerate(groups)])
    predicted = np.empty((len(names), len(wanted)))
    data, own = pair_data(table, rows.victim, rows.other), table.world[rows.victim] == world
    spreads = []
    for m, name in enumerate(names):
        if name in effects:
            parts = [effects[name].leave_out([(g.out, g.wanted)]) for g in groups]
            predicted[m] = np.concatenate([p[0][g.wanted] for p, g in zip(parts, groups, strict=True)])
            spreads.append(np.concatenate([p[1][g.wanted] for p, g in zip(parts, groups, strict=True)]))
        elif name == "low-rank":
            predicted[m] = np.concatenate([_low_rank(rows, table, g) for g in groups])
        else:
            predicted[m] = _by_folds(name, data, rows.speed, own, groups)
    spread = np.mean(spreads, axis=0) if spreads else np.full(len(wanted), 0.1)
    return Cases(wanted, number, predicted, spread)


def stand_in(name: str, rows: int) -> str:
    """The member itself, or what serves a world with too few rows for a costly one."""
    return "contention" if name in COSTLY and rows < _ENOUGH else name


def _by_folds(
    name: str, data: PairData, speed: Array, own: NDArray[np.bool_], groups: Sequence[Group]
) -> Array:
    """Members without a closed form: groups are left out some at a time where they are many."""
    name = stand_in(name, int(own.sum()))
    folds = min(len(groups), _FOLDS) if name in COSTLY else len(groups)
    sizes = np.array([len(group.wanted) for group in groups])
    fold = np.empty(len(groups), np.intp)
    load = np.zeros(folds)
    for g in np.argsort(-sizes, kind="stable").tolist():
        fold[g] = int(np.argmin(load))
        load[fold[g]] += sizes[g]
    answers: dict[int, Array] = {}
    for f in range(folds):
        inside = [g for g in range(len(groups)) if fold[g] == f]
        out = np.unique(np.concatenate([groups[g].out for g in inside]))
        wanted = np.unique(np.concatenate([groups[g].wanted for g in inside]))
        said = _member(name, data, speed, own, Group(out, wanted))
        for g in inside:
            answers[g] = said[np.searchsorted(wanted, groups[g].wanted)]
    return np.concatenate([answers[g] for g in range(len(groups))])


def _kept(rows: int, group: Group) -> NDArray[np.bool_]:
    keep = np.ones(rows, np.bool_)
    keep[group.out] = False
    return keep


def _low_rank(rows: Rows, table: NodeTable, group: Group) -> Array:
    rest = rows.take(_kept(len(rows), group))
    if len(rest) < 5:
        return np.full(len(group.wanted), 0.7)
    model = LowRank(table).fit(rest.victim, rest.other, rest.speed)
    return model.predict(rows.victim[group.wanted], rows.other[group.wanted])


def _member(name: str, data: PairData, speed: Array, own: NDArray[np.bool_], group: Group) -> Array:
    rest = np.flatnonzero(_kept(len(speed), group) & own)
    if len(rest) < 5:
        return np.full(len(group.wanted), 0.7)
    model = MEMBERS[name]().fit(data.take(rest), speed[rest])
    return model.predict(data.take(group.wanted))
