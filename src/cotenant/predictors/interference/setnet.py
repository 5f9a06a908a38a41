"""A small network over sets: neighbours are embedded, summed, and read together with the victim.

Summing makes the order of neighbours irrelevant and takes sets of any size (Zaheer et al. 2017,
"Deep Sets"). Trained by full-batch Adam with weight decay, in numpy; an ensemble over a few seeds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.predictors.interference.links import MAX_SPEED, MIN_SPEED
from cotenant.predictors.interference.members import PairData

__all__ = ["SetNet"]

Array = NDArray[np.float64]
Weights = dict[str, Array]


class SetNet:
    """Speeds of a job beside a set of others.

    Parameters
    ----------
    hidden : int
    steps : int
        Of Adam.
    decay : float
        Weight decay.
    seeds : int
        Size of the ensemble.
    """

    def __init__(self, *, hidden: int = 12, steps: int = 250, decay: float = 3e-3, seeds: int = 2) -> None:
        self.hidden, self.steps, self.decay, self.seeds = hidden, steps, decay, seeds

    def fit(self, data: PairData, speed: Array) -> SetNet:
        """Learn from pairs."""
        v, o = self._split(data)
        return self.fit_sets(v, o[:, None, :], np.ones((len(v), 1)), speed)

    def predict(self, data: PairData) -> Array:
        """Speeds of pairs."""
        v, o = self._split(data)
        return self.predict_sets(v, o[:, None, :], np.ones((len(v), 1)))

    @staticmethod
    def _split(data: PairData) -> tuple[Array, Array]:
        return data.x[:, : data.width], data.x[:, data.width : 2 * data.width]

    def fit_sets(self, victim: Array, others: Array, present: Array, speed: Array) -> SetNet:
        """Learn from sets.

        Parameters
        ----------
        victim : ndarray, shape (n, f)
        others : ndarray, shape (n, k, f)
        present : ndarray, shape (n, k)
            1 where there is a neighbour, 0 where not.
        speed : ndarray, shape (n,)
        """
        self._mean, self._spread = float(speed.mean()), max(float(speed.std()), 1e-3)
        target = (speed - self._mean) / self._spread
        self._nets = [self._train(seed, victim, others, present, target) for seed in range(self.seeds)]
        return self

    def predict_sets(self, victim: Array, others: Array, present: Array) -> Array:
        """Speeds of jobs beside sets; shapes as in ``fit_sets``."""
        outs = [_forward(net, victim, others, present)[0] for net in self._nets]
        mean = np.mean(outs, axis=0)
        return np.asarray(np.clip(self._mean + self._spread * mean, MIN_SPEED, MAX_SPEED))

    def _train(self, seed: int, victim: Array, others: Array, present: Array, target: Array) -> Weights:
        rng = np.random.default_rng(seed)
        f, h = victim.shape[1], self.hidden
        net: Weights = {
            "e": rng.normal(0, 1 / np.sqrt(f + 1), (f, h)),
            "eb": np.zeros(h),
            "v": rng.normal(0, 1 / np.sqrt(f + 1), (f, h)),
            "p": rng.normal(0, 1 / np.sqrt(h), (h, h)),
            "hb": np.zeros(h),
            "w": rng.normal(0, 1 / np.sqrt(h), h),
            "b": np.zeros(1),
        }
        first = {name: np.zeros_like(value) for name, value in net.items()}
        second = {name: np.zeros_like(value) for name, value in net.items()}
        for step in range(1, self.steps + 1):
            rate = 0.03 * (1.0 - step / (self.steps + 1))
            for name, gradient in _gradient(net, victim, others, present, target).items():
                full = gradient + self.decay * net[name]
                first[name] = 0.9 * first[name] + 0.1 * full
                second[name] = 0.99 * second[name] + 0.01 * full * full
                m, s = first[name] / (1 - 0.9**step), second[name] / (1 - 0.99**step)
                net[name] = net[name] - rate * m / (np.sqrt(s) + 1e-8)
        return net


def _forward(net: Weights, victim: Array, others: Array, present: Array) -> tuple[Array, Array, Array, Array]:
    embedded = np.tanh(others @ net["e"] + net["eb"]) * present[:, :, None]
    pooled = embedded.sum(axis=1)
    hidden = np.tanh(victim @ net["v"] + pooled @ net["p"] + net["hb"])
    return hidden @ net["w"] + net["b"], embedded, pooled, hidden


def _gradient(net: Weights, victim: Array, others: Array, present: Array, target: Array) -> Weights:
    out, embedded, pooled, hidden = _forward(net, victim, others, present)
    # Huber loss: a few labels are far off.
    d_out = np.clip(out - target, -1.0, 1.0) / len(target)
    d_hidden = d_out[:, None] * net["w"] * (1.0 - hidden * hidden)
    d_pooled = d_hidden @ net["p"].T
    d_embedded = d_pooled[:, None, :] * (1.0 - embedded * embedded) * present[:, :, None]
    f = others.shape[2]
    return {
        "w": hidden.T @ d_out,
        "b": np.array([d_out.sum()]),
        "v": victim.T @ d_hidden,
        "p": pooled.T @ d_hidden,
        "hb": d_hidden.sum(axis=0),
        "e": others.reshape(-1, f).T @ d_embedded.reshape(-1, d_embedded.shape[2]),
        "eb": d_embedded.sum(axis=(0, 1)),
    }
