"""The analytic contention model: how fast jobs run side by side, from how each runs alone.

For a job with compute share ``c``, beside neighbours whose compute, bandwidth and host shares
sum to ``C``, ``B`` and ``H``::

    slowdown = 1 + a max(0, c + C - 1) + b sqrt(c) B + h host H        speed = 1 / slowdown

that is: compute beyond the whole device is shared out (the additive rule that Horus uses);
bandwidth competition hurts jobs in so far as they keep the device busy; input pipelines
compete for the host. Every term grows with each neighbour, so adding one never speeds a job
up; sums do not know an order. The shares on another device follow from one assumption: of an
iteration on a V100 the part ``c`` shrinks by the relative speed of the device and the rest
does not (Amdahl).

``a`` and ``b`` were fitted (least mean absolute error) to 244 measured speeds of 131 pairs on a
V100 whose jobs have hardware counters (gavel-2019-02 and gavel-2018-12, TensorFlow, MIT), a
campaign that no truth or forecast uses; ``bench/forecast_error.py`` repeats the fit. ``h`` is an
assumption: two jobs that both live off the whole host halve each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.profiles.catalogue import relative_speed

__all__ = ["MIN_SPEED", "Contention", "Usage", "on_device"]

MIN_SPEED = 0.02
"""No job is ever modelled slower than this share of its speed alone."""

Usage = tuple[float, float, float]
"""Shares of compute, memory bandwidth and host, each in [0, 1]."""


class Contention(msgspec.Struct, frozen=True, gc=False):
    """Parameters of the contention model.

    Parameters
    ----------
    compute, bandwidth, host : float
        ``a``, ``b`` and ``h`` of the module's formula; none negative.
    """

    compute: float = 0.30
    bandwidth: float = 0.90
    host: float = 1.0

    def excess(self, victim: Usage, others: Iterable[Usage]) -> float:
        """Slowdown minus one of a job beside others; 0 alone."""
        c = b = h = 0.0
        for usage in others:
            c += usage[0]
            b += usage[1]
            h += usage[2]
        over = victim[0] + c - 1.0
        return (
            (self.compute * over if over > 0.0 else 0.0)
            + self.bandwidth * math.sqrt(victim[0]) * b
            + self.host * victim[2] * h
        )

    def joint(self, victim: float, others: Sequence[float]) -> float:
        """What the whole set adds to the sum of its pairs; never negative.

        Three jobs of 40% each fit two by two but not all together. ``excess`` of a set is the
        sum of the excesses of its pairs plus this; it never falls when a neighbour comes.

        Parameters
        ----------
        victim : float
            Compute share of the job.
        others : sequence of float
            Compute shares of its neighbours.
        """
        room = 1.0 - victim
        whole = pairs = 0.0
        for share in others:
            whole += share
            pairs += max(share - room, 0.0)
        return self.compute * max(max(whole - room, 0.0) - pairs, 0.0)

    def joints(self, victim: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for many sets at once.

        Parameters
        ----------
        victim : ndarray, shape (n,)
            Compute share of each job.
        others : ndarray, shape (n, k)
            Compute shares of its neighbours; 0 where there are fewer than ``k``.

        Returns
        -------
        ndarray, shape (n,)
        """
        room = (1.0 - victim)[:, None]
        over = np.maximum(others.sum(axis=1) - room[:, 0], 0.0)
        pairs = np.maximum(others - room, 0.0).sum(axis=1)
        found: NDArray[np.float64] = self.compute * np.maximum(over - pairs, 0.0)
        return found


def on_device(usage: Usage, device_type: str) -> Usage:
    """Shares of a job on another device than a V100.

    >>> tuple(round(x, 3) for x in on_device((0.5, 0.2, 0.3), "K80"))
    (0.833, 0.333, 0.1)
    """
    r = relative_speed(device_type)
    busy, bandwidth, host = usage
    rate = 1.0 / ((1.0 - busy) + busy / r)
    return min(busy * rate / r, 1.0), min(bandwidth * rate / r, 1.0), min(host * rate, 1.0)
