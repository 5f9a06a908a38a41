"""Everything fitted on worlds that share jobs: members, choices, feasibility, sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.cases import (
    ELSEWHERE,
    FAMILIAR,
    KNOWN,
    NEVER,
    Cases,
    left_out,
    stand_in,
)
from cotenant.predictors.interference.effects import MAX_ROWS, EffectsModel
from cotenant.predictors.interference.jobs import Node, NodeTable, SoloIndex, World
from cotenant.predictors.interference.links import MAX_SPEED, MIN_SPEED
from cotenant.predictors.interference.lowrank import LowRank
from cotenant.predictors.interference.members import MEMBERS, Member, pair_data
from cotenant.predictors.interference.memory import MemoryFit
from cotenant.predictors.interference.rows import Rows, baseline_scales, make_rows
from cotenant.predictors.interference.selection import Choice, Key, choose, default_choice
from cotenant.predictors.interference.zoo import EFFECTS
from cotenant.profiles.runs import CoRun, JobConfig

__all__ = ["PairPrediction", "WorldGroup"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_WIDEST = 0.5
_OFTEN = 10
"""Rows with a job, on either side, from which on it counts as well known: five co-runs."""


class PairPrediction(NamedTuple):
    """Re-based speeds of jobs beside one other each, with 90% intervals.

    ``novelty`` is that of ``cases``: how little is known of the less known job.
    """

    mean: Array
    low: Array
    high: Array
    novelty: Index


class WorldGroup:
    """Models of worlds that share jobs.

    Parameters
    ----------
    worlds : sequence of World
    names : sequence of str
        Members of the zoo.
    solos : SoloIndex
    """

    def __init__(self, worlds: Sequence[World], names: Sequence[str], solos: SoloIndex) -> None:
        self.worlds, self.names, self.solos = list(worlds), list(names), solos
        self.choices: dict[Key, Choice] = {}

    def fit(self, runs: Sequence[CoRun], choices: Mapping[Key, Choice] | None = None) -> WorldGroup:
        """Fit all members, and choose among them unless the choice is given.

        Parameters
        ----------
        runs : sequence of CoRun
            Of these worlds.
        choices : mapping, optional
            Of an earlier fit; then nothing is judged again. With none there is nothing to keep.
        """
        nodes: list[Node] = [(s.job, (r.source, r.device_type)) for r in runs for s in r.sides]
        self.table = NodeTable(self.solos, nodes)
        self.scales = baseline_scales(runs)
        every = make_rows(runs, self.table, self.scales)
        self.rows = _thinned(every.take(every.pairs()))
        self.memory = MemoryFit().fit(runs, self.table)
        self._ceilings = self._ceiling_of_worlds()
        self.table.doubt({w for w, top in zip(self.table.worlds, self._ceilings, strict=True) if top == 1.0})
        needed = [n for n in self.names if n in EFFECTS]
        if choices:
            needed = [n for n in needed if self._used(n, choices)] or needed[:1]
        self._effects = {n: EffectsModel(EFFECTS[n], self.table).fit(self.rows) for n in needed}
        self._members: dict[tuple[str, int], Member] = {}
        self._low_rank: LowRank | None = None
        self.choices = dict(choices) if choices else self.judge()
        self._set_gain(every)
        return self

    def _used(self, name: str, choices: Mapping[Key, Choice]) -> bool:
        at = self.names.index(name)
        return any(choice.weights[at] > 0 for choice in choices.values())

    def _ceiling_of_worlds(self) -> Array:
        """1 where upstream clips at the solo speed, else the highest speed there is."""
        found = np.full(len(self.table.worlds), MAX_SPEED)
        found[self.table.world[self.rows.victim[self.rows.censored]]] = 1.0
        return found

    def cases(self) -> dict[Key, Cases]:
        """Predictions of rows that were not seen, for each world and novelty."""
        found: dict[Key, Cases] = {}
        worlds = self.table.world[self.rows.victim]
        for world in np.unique(worlds).tolist():
            for novelty in (FAMILIAR, KNOWN, ELSEWHERE, NEVER):
                if novelty == NEVER and len(np.unique(worlds)) == 1:
                    continue  # the same as elsewhere
                cases = left_out(self.names, self._effects, self.rows, self.table, world, novelty)
                if cases is not None:
                    found[(world, novelty)] = cases
        return found

    def judge(self) -> dict[Key, Choice]:
        """Choose among members for every world and novelty."""
        truth = self.rows.speed
        ceilings = self._ceilings[self.table.world[self.rows.victim]]
        return choose(self.names, self.cases(), truth, ceilings)

    def choice(self, world: int, novelty: int) -> Choice:
        """The choice for a world, or the nearest one there is."""
        order = (KNOWN, ELSEWHERE, NEVER) if novelty == FAMILIAR else (NEVER, ELSEWHERE, KNOWN)
        for nearest in (novelty, *order):
            found = self.choices.get((world, nearest))
            if found is not None:
                return found
        alike = [c for (_, its), c in sorted(self.choices.items()) if its == max(novelty, ELSEWHERE)]
        alike = alike or [c for _, c in sorted(self.choices.items())]
        if not alike:
            return default_choice(len(self.names), 0.2)
        return max(alike, key=lambda c: c.error)

    def novelty(self, nodes: Index) -> Index:
        """How little is known of each node."""
        table, rows = self.table, self.rows
        seen = np.concatenate([rows.victim, rows.other])
        families = int(table.family.max()) + 1
        here = np.zeros((families, len(table.worlds)), np.bool_)
        here[table.family[seen], table.world[seen]] = True
        known = here[table.family[nodes], table.world[nodes]]
        elsewhere = np.asarray(here.any(axis=1))[table.family[nodes]]
        return np.where(known, KNOWN, np.where(elsewhere, ELSEWHERE, NEVER)).astype(np.intp)

    def memory_told(self) -> NDArray[np.bool_]:
        """Of which nodes something tells how much memory they need."""
        nodes = np.arange(len(self.table.names))
        known = np.array([self.table.known(node) for node in nodes.tolist()], np.bool_)
        return self.memory.told(~known & (self.novelty(nodes) >= NEVER))

    def _together(self, victim: Index, other: Index) -> NDArray[np.bool_]:
        """Whether these architectures were measured side by side here, and the jobs often enough."""
        table, rows = self.table, self.rows
        seen = np.bincount(np.concatenate([rows.victim, rows.other]), minlength=len(table.names))
        often = np.minimum(seen[victim], seen[other]) >= _OFTEN
        many = int(table.family.max()) + 1

        def number(v: Index, o: Index) -> Index:
            one, two = table.family[v], table.family[o]
            return np.asarray((table.world[v] * many + np.minimum(one, two)) * many + np.maximum(one, two))

        return often & np.isin(number(victim, other), number(rows.victim, rows.other))

    def predict_pairs(self, victim: Index, other: Index) -> PairPrediction:
        """Speeds of nodes beside one other each; re-based."""
        novelty = np.maximum(self.novelty(victim), self.novelty(other))
        novelty[(novelty == KNOWN) & self._together(victim, other)] = FAMILIAR
        mean, low, high = (np.empty(len(victim)) for _ in range(3))
        world = self.table.world[victim]
        for w, level in sorted(set(zip(world.tolist(), novelty.tolist(), strict=True))):
            at = np.flatnonzero((world == w) & (novelty == level))
            mean[at], low[at], high[at] = self._chosen(w, level, victim[at], other[at])
        return PairPrediction(mean, low, high, novelty)

    def _chosen(self, world: int, novelty: int, victim: Index, other: Index) -> tuple[Array, Array, Array]:
        choice = self.choice(world, novelty)
        weights = np.array(choice.weights)
        used = [m for m in range(len(weights)) if weights[m] > 0]
        spreads, speeds = [], np.empty((len(used), len(victim)))
        for i, m in enumerate(used):
            name = self.names[m]
            if name in self._effects:
                speeds[i], spread = self._effects[name].predict_spread(victim, other)
                spreads.append(spread)
            else:
                speeds[i] = self._member(name, world, victim, other)
        if not spreads:
            first = next(iter(self._effects.values()), None)
            known = first.predict_spread(victim, other)[1] if first else np.full(len(victim), 0.1)
            spreads = [known]
        ceiling = self._ceilings[world] if world < len(self._ceilings) else MAX_SPEED
        speeds = np.minimum(speeds, ceiling)
        share = weights[used] / weights[used].sum()
        mean = share @ speeds
        apart = np.sqrt(share @ (speeds - mean) ** 2)
        sigma = choice.scale[0] + choice.scale[1] * np.mean(spreads, axis=0) + choice.scale[2] * apart
        widen = 1.0 if choice.groups else 1.5
        low = np.clip(mean - np.minimum(choice.low * sigma * widen, _WIDEST * 1.6), MIN_SPEED, None)
        high = np.minimum(mean + np.minimum(choice.high * sigma * widen, _WIDEST * 1.6), ceiling)
        return mean, low, high

    def _member(self, name: str, world: int, victim: Index, other: Index) -> Array:
        if name == "low-rank":
            if self._low_rank is None:
                rows = self.rows
                self._low_rank = LowRank(self.table).fit(rows.victim, rows.other, rows.speed)
            return self._low_rank.predict(victim, other)
        found = self._members.get((name, world))
        if found is None:
            own = self.table.world[self.rows.victim] == world
            rows = self.rows.take(own) if own.sum() >= 5 else self.rows
            data = pair_data(self.table, rows.victim, rows.other)
            found = MEMBERS[stand_in(name, int(own.sum()))]().fit(data, rows.speed)
            self._members[(name, world)] = found
        return found.predict(pair_data(self.table, victim, other))

    def _set_gain(self, every: Rows) -> None:
        """How much larger sets lose than the sum of their pairs; 1 if none was measured."""
        larger = every.take(~every.pairs())
        self.set_gain, self.set_error = 1.0, 0.1
        if not len(larger):
            return
        there = larger.others >= 0
        victim = np.broadcast_to(larger.victim[:, None], there.shape)[there]
        speed = np.ones(there.shape)
        speed[there] = self.predict_pairs(victim, larger.others[there]).mean
        summed = np.maximum(1.0 / speed - 1.0, 0.0).sum(axis=1)
        measured = 1.0 / np.maximum(larger.speed, MIN_SPEED) - 1.0
        n = len(np.unique(larger.pair))
        ratio = float(np.median(measured / np.maximum(summed, 0.02)))
        self.set_gain = float(np.clip((n * ratio + 5.0) / (n + 5.0), 0.5, 2.0))
        errors = np.abs(1.0 / (1.0 + self.set_gain * summed) - larger.speed)
        self.set_error = float((n * np.quantile(errors, 0.9) + 5.0 * 0.15) / (n + 5.0))

    def most_telling(
        self,
        job: JobConfig,
        world: World,
        partners: Sequence[JobConfig],
        count: int,
        planned: Sequence[tuple[JobConfig, JobConfig]] = (),
    ) -> list[JobConfig]:
        """Partners whose co-run with a job removes most variance of all about that job.

        Parameters
        ----------
        job, world, partners, count
            As ``AdaptiveInterferencePredictor.suggest``.
        planned : sequence of pairs of JobConfig
            Co-runs that will be measured anyway.
        """
        model = next(iter(self._effects.values()), None)
        if model is None:
            return list(partners[:count])
        table = self.table
        known = sorted({name[0] for name in table.names if name[1] == world and name[0] != job})
        everyone = list(dict.fromkeys([*known, *partners]))
        table.add([(j, world) for pair in planned for j in pair])
        table.add([(j, world) for j in (job, *everyone)])
        ids = [table.ids[(j, world)] for j in everyone]
        ahead = [(table.ids[(a, world)], table.ids[(b, world)]) for a, b in planned]
        it, n = table.ids[(job, world)], len(everyone)
        victim = [it] * n + ids + [v for a, b in ahead for v in (a, b)]
        other = [*ids, *[it] * n] + [o for a, b in ahead for o in (b, a)]
        left = model.posterior(np.array(victim, np.intp), np.array(other, np.intp))
        noise = model.spec.noise
        if ahead:
            left = _given(left, list(range(2 * n, len(victim))), noise)
        candidates = [everyone.index(p) for p in dict.fromkeys(partners)]
        chosen: list[JobConfig] = []
        while candidates and len(chosen) < count:
            gains = [_gain(left[: 2 * n], [c, c + n], noise) for c in candidates]
            best = candidates.pop(int(np.argmax(gains)))
            left = _given(left, [best, best + n], noise)
            chosen.append(everyone[best])
        return chosen

    def scale(self, node: Node) -> float:
        """By what published speeds of this job exceed re-based ones."""
        return self.scales.get(node, 1.0)


def _gain(left: Array, at: list[int], noise: float) -> float:
    """Variance that measuring these rows removes from all."""
    inner = left[np.ix_(at, at)] + noise * np.eye(len(at))
    return float(np.sum(left[:, at].T * np.linalg.solve(inner, left[:, at].T)))


def _given(left: Array, at: list[int], noise: float) -> Array:
    """Covariance that remains once these rows are measured."""
    inner = left[np.ix_(at, at)] + noise * np.eye(len(at))
    return np.asarray(left - left[:, at] @ np.linalg.solve(inner, left[at]))


def _thinned(rows: Rows) -> Rows:
    """At most ``MAX_ROWS``, evenly over the table, sides of a pair together."""
    if len(rows) <= MAX_ROWS:
        return rows
    pairs = np.unique(rows.pair)
    keep = pairs[np.linspace(0, len(pairs) - 1, int(len(pairs) * MAX_ROWS / len(rows))).astype(np.intp)]
    return rows.take(np.isin(rows.pair, keep))
