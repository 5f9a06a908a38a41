"""Whether jobs fit a device together: measured memory, else sizes that agree with what ran.

Measured sizes are added up. Where none was measured, each configuration gets a latent size as a
share of the largest device: what the network's graph needs, where that is known, else a mean;
times an effect of the architecture, slopes with the logarithm of the batch and with how the model
is split, and an effect of its own. A logistic loss on sets that ran and sets that died, with
shrinkage, fits them by gradient descent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.jobs import FEATURES, NodeTable
from cotenant.profiles.runs import CoRun

__all__ = ["MemoryFit"]

Array = NDArray[np.float64]

_COLUMNS = (
    "log2_batch",
    "num_gpus",
    "first_stage",
    "last_stage",
    "largest_stage",
    "tensor_parallel",
    "data_parallel",
)
_MARGIN = 0.98
"""Share of a card that jobs can really use."""


class MemoryFit:
    """Feasibility of sets in worlds that share jobs.

    Parameters
    ----------
    steps : int
        Of gradient descent.
    ridge : float
        Shrinkage of the effects of configurations; architectures are shrunk a fifth as much.
    """

    def __init__(self, *, steps: int = 300, ridge: float = 0.02) -> None:
        self.steps, self.ridge = steps, ridge

    def fit(self, runs: Sequence[CoRun], table: NodeTable) -> MemoryFit:
        """Learn from what ran and what died; sets of any size."""
        tried = [run for run in runs if run.fits is not None]
        self._table = table
        sizes = {
            w: max((r.device_mem_mib or 0.0 for r in tried if (r.source, r.device_type) == w), default=0.0)
            for w in table.worlds
        }
        largest = max(sizes.values(), default=0.0) or 1.0
        self._capacity = {w: (s / largest if s else 1.0) for w, s in sizes.items()}
        self._mib = sizes
        self._largest = largest
        self._x = self._design(table)
        self._failed = sum(run.fits is False for run in tried)
        self._tried = {_key(self._nodes(run, table)): bool(run.fits) for run in tried}
        self._theta = np.zeros(self._x.shape[1])
        if self._failed and self._failed < len(tried):
            self._descend(tried, table)
        return self

    @staticmethod
    def _nodes(run: CoRun, table: NodeTable) -> list[int]:
        return [table.ids[(side.job, (run.source, run.device_type))] for side in run.sides]

    def _design(self, table: NodeTable) -> Array:
        column = {name: i for i, name in enumerate(FEATURES)}
        raw = table.raw[:, [column[name] for name in _COLUMNS]]
        graph = table.raw[:, column["log2_graph_mib"]]
        told = np.isfinite(graph) & (self._largest > 1.0)
        self._graph = told
        self._offset = np.where(told, np.log(2.0) * np.where(told, graph, 0.0) - np.log(self._largest), -1.5)
        mean = np.array([np.mean(c[np.isfinite(c)]) if np.isfinite(c).any() else 0.0 for c in raw.T])
        if not hasattr(self, "_mean"):
            self._mean = mean
        slopes = np.where(np.isfinite(raw), raw - self._mean, 0.0)
        slopes[:, 0] *= 0.5
        n_family, n_config = int(table.family.max()) + 1, int(table.config.max()) + 1
        if not hasattr(self, "_width"):
            self._width = (n_family, n_config)
        family = (table.family[:, None] == np.arange(self._width[0])[None, :]).astype(np.float64)
        config = (table.config[:, None] == np.arange(self._width[1])[None, :]).astype(np.float64)
        batch = family * slopes[:, :1]
        return np.hstack([np.ones((len(raw), 1)), slopes, family, batch, config])

    def _descend(self, tried: Sequence[CoRun], table: NodeTable) -> None:
        width = max(len(run.sides) for run in tried)
        sets = np.full((len(tried), width), -1, np.intp)
        for i, run in enumerate(tried):
            nodes = self._nodes(run, table)
            sets[i, : len(nodes)] = nodes
        capacity = np.array([self._capacity[(r.source, r.device_type)] for r in tried])
        failed = np.array([r.fits is False for r in tried], np.float64)
        weight = np.where(failed > 0, 0.5 / failed.mean(), 0.5 / (1.0 - failed.mean())) ** 0.5
        shrink = np.full(self._x.shape[1], self.ridge)
        shrink[0] *= 0.2
        shrink[1 : 1 + len(_COLUMNS) + 2 * self._width[0]] *= 0.2
        first, second = np.zeros_like(self._theta), np.zeros_like(self._theta)
        for step in range(1, self.steps + 1):
            size = np.exp(np.clip(self._offset + self._x @ self._theta, -6.0, 2.0))
            share = np.where(sets >= 0, size[sets], 0.0)
            logit = 12.0 * (share.sum(axis=1) / capacity - 1.0)
            chance = 1.0 / (1.0 + np.exp(-np.clip(logit, -30, 30)))
            per_set = weight * (chance - failed) * 12.0 / capacity / len(tried)
            pull = np.zeros(len(size))
            np.add.at(pull, sets[sets >= 0], (per_set[:, None] * share)[sets >= 0])
            gradient = self._x.T @ pull + shrink * self._theta / 10.0
            first = 0.9 * first + 0.1 * gradient
            second = 0.99 * second + 0.01 * gradient * gradient
            rate = 0.05 * (1.0 - 0.9 * step / self.steps)
            self._theta -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)

    def needs(self) -> tuple[Array, NDArray[np.bool_]]:
        """Size of each node as a share of its device, and whether it was measured."""
        table = self._table
        if len(self._x) != len(table.names):
            self._x = self._design(table)
        guess = np.exp(np.clip(self._offset + self._x @ self._theta, -6.0, 2.0))
        needs, measured = np.empty(len(guess)), np.zeros(len(guess), np.bool_)
        for i, (job, world) in enumerate(table.names):
            run = table.solos.run(job, world)
            mib, card = (run.mem_mib if run else None), self._mib.get(world, 0.0)
            if run is not None and not run.fits:
                needs[i], measured[i] = 2.0, True
            elif mib and card:
                needs[i], measured[i] = mib / card / _MARGIN, True
            else:
                needs[i] = guess[i] / self._capacity.get(world, 1.0) if self._failed else 0.0
        return needs, measured

    def told(self, strange: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of which nodes a size can be told at all.

        Parameters
        ----------
        strange : ndarray of bool, shape (nodes,)
            Jobs of which nothing was ever measured; the network's graph may yet tell a size.
        """
        here = np.array([world in self._capacity for _, world in self._table.names], np.bool_)
        _, measured = self.needs()
        # Sizes agree with what ran and what died; where nothing died, any size agrees.
        learnt = here & (~strange | self._graph) if self._failed else np.zeros(len(here), np.bool_)
        return measured | learnt

    def verdict(self, nodes: Sequence[int], need: Array, told: NDArray[np.bool_]) -> bool | None:
        """Whether these nodes, all of one world, fit together; None if that cannot be told.

        Parameters
        ----------
        nodes : sequence of int
        need, told : ndarray, shape (nodes of the table,)
            Of ``needs`` and ``told``.
        """
        at = np.asarray(nodes, np.intp)
        if need[at[told[at]]].sum() > 1.0:
            return False
        return True if told[at].all() else self._tried.get(_key(nodes))


def _key(nodes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(nodes))
