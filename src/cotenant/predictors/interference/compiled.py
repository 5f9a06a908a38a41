"""Predictions of one world as tables: many sets at once by looking up and adding.

What models say of each pair is worked out once; a set's slowdown minus one is the sum over its
pairs. Looking up takes well under a microsecond a set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.cases import NEVER
from cotenant.predictors.interference.jobs import World
from cotenant.predictors.interference.links import MIN_SPEED
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.runs import JobConfig

__all__ = ["CompiledWorld"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class CompiledWorld:
    """Re-based predictions of one world.

    Parameters
    ----------
    predictor : AdaptiveInterferencePredictor
        Fitted; what it learns later needs a new compilation.
    world : World
    jobs : sequence of JobConfig
        Known from the start; others can be added.
    """

    def __init__(
        self, predictor: AdaptiveInterferencePredictor, world: World, jobs: Sequence[JobConfig] = ()
    ) -> None:
        self.predictor, self.world = predictor, world
        group, self.measured = predictor.group_of(world)
        self._gain, self._error = group.set_gain, group.set_error
        self.ids: dict[JobConfig, int] = {}
        self.jobs: list[JobConfig] = []
        self._excess = self._below = self._above = np.zeros((0, 0))
        self._unknown = np.zeros((0, 0), np.bool_)
        self._needs = np.zeros(0)
        self.add(jobs)

    def add(self, jobs: Sequence[JobConfig]) -> Index:
        """Numbers of these jobs, which become known if they are not."""
        fresh = [job for job in dict.fromkeys(jobs) if job not in self.ids]
        if fresh:
            for job in fresh:
                self.ids[job] = len(self.jobs)
                self.jobs.append(job)
            self._grow(len(self.jobs) - len(fresh))
        return np.array([self.ids[job] for job in jobs], np.intp)

    def _grow(self, before: int) -> None:
        size = len(self.jobs)
        one, two = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
        new = (one >= before) | (two >= before)
        first, second = one[new], two[new]
        found = self.predictor.predict_sets(
            self.world,
            [(self.jobs[a], self.jobs[b]) for a, b in zip(first.tolist(), second.tolist(), strict=True)],
        )
        grown = [np.zeros((size, size)) for _ in range(3)]
        unknown = np.zeros((size, size), np.bool_)
        for old, fresh in zip((self._excess, self._below, self._above), grown, strict=True):
            fresh[:before, :before] = old
        unknown[:before, :before] = self._unknown
        mean = np.array([sides[0].mean for sides in found])
        grown[0][new] = np.maximum(1.0 / np.minimum(mean, 1.0) - 1.0, 0.0)
        # Relative to the speed, as the predictor composes them.
        grown[1][new] = 1.0 - np.array([sides[0].low for sides in found]) / mean
        grown[2][new] = np.array([sides[0].high for sides in found]) / mean - 1.0
        unknown[new] = [sides[0].novelty > NEVER for sides in found]
        self._excess, self._below, self._above = grown
        self._unknown = unknown
        group, _ = self.predictor.group_of(self.world)
        needs, _ = group.memory.needs()
        self._needs = needs[[group.table.ids[(job, self.world)] for job in self.jobs]]

    def predict(self, victim: Index, others: Index) -> tuple[Array, Array, Array]:
        """Mean, low and high speeds of sets.

        Parameters
        ----------
        victim : ndarray of intp, shape (n,)
        others : ndarray of intp, shape (n, k)
            -1 where there are fewer than ``k``.

        Returns
        -------
        mean, low, high : ndarray, shape (n,)
            In [0.02, 1].
        """
        n, k = others.shape
        total, below, above = np.zeros(n), np.zeros(n), np.zeros(n)
        count = np.zeros(n, np.int8)
        # Ascending, so that the order of neighbours does not change even the last bit.
        at = np.sort(others, axis=1) if k > 1 else others
        for column in range(k):
            other = at[:, column]
            there = other >= 0
            total += np.where(there, self._excess[victim, other], 0.0)
            below += np.where(there, self._below[victim, other], 0.0) ** 2
            above += np.where(there, self._above[victim, other], 0.0) ** 2
            count += there
        larger = count > 1
        total = np.where(larger, self._gain * total, total)
        mean = np.maximum(1.0 / (1.0 + total), MIN_SPEED)
        down, up = np.sqrt(below) * mean, np.sqrt(above) * mean
        down = np.where(larger, np.maximum(down, self._error), down)
        up = np.where(larger, np.maximum(up, self._error), up)
        return mean, np.maximum(mean - down, MIN_SPEED), np.minimum(mean + up, 1.0)

    def predict_one(self, victim: int, others: Sequence[int]) -> tuple[float, float, float]:
        """Mean, low and high speed of one set: some microseconds where ``predict`` takes a hundred; bit for bit the same."""
        excess, under, over = self._excess.item, self._below.item, self._above.item
        total = below = above = 0.0
        for other in sorted(others):
            total += excess(victim, other)
            x = under(victim, other)
            below += x * x
            x = over(victim, other)
            above += x * x
        larger = len(others) > 1
        if larger:
            total = float(self._gain) * total
        mean = max(1.0 / (1.0 + total), MIN_SPEED)
        down, up = math.sqrt(below) * mean, math.sqrt(above) * mean
        if larger:
            error = float(self._error)
            down, up = max(down, error), max(up, error)
        return mean, max(mean - down, MIN_SPEED), min(mean + up, 1.0)

    def unknown_one(self, victim: int, others: Sequence[int]) -> bool:
        """``unknown`` of one set."""
        return any(self._unknown.item(victim, other) for other in others)

    def fits(self, nodes: Index) -> NDArray[np.bool_]:
        """Whether nothing tells that sets exceed the device's memory; shape (n, k), -1 for none."""
        needs = np.where(nodes >= 0, self._needs[nodes], 0.0)
        return np.asarray(needs.sum(axis=1) <= 1.0)

    def unknown(self, victim: Index, others: Index) -> NDArray[np.bool_]:
        """Sets with a job of which nothing at all is known, not even alone."""
        there = others >= 0
        return np.asarray((self._unknown[victim[:, None], others] & there).any(axis=1))
