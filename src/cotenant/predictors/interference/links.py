"""Scales on which speeds are modelled.

``ratio`` models the negative logarithm of the slowdown minus one, softened so that speeds near
and above 1 stay finite: if each of a job's kernels waits for one of its neighbour's, the
slowdown minus one is a product of something of the victim and something of the neighbour, so
its logarithm is a sum.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_SPEED", "MIN_SPEED", "Link"]

MIN_SPEED, MAX_SPEED = 0.02, 1.2
"""Bounds of every prediction; speeds above 1 occur in tables whose baselines are too low."""

Array = NDArray[np.float64]


class Link(msgspec.Struct, frozen=True):
    """A monotone scale.

    Parameters
    ----------
    softness : float
        0 models speeds as they are; otherwise what is added to the slowdown minus one before
        its logarithm is taken, in (0, 1].
    """

    softness: float = 0.0

    def forward(self, speed: Array) -> Array:
        """From speeds.

        >>> link = Link(0.15)
        >>> [round(float(x), 6) for x in link.backward(link.forward(np.array([0.2, 0.9])))]
        [0.2, 0.9]
        """
        if not self.softness:
            return np.asarray(speed, np.float64)
        excess = 1.0 / np.maximum(speed, MIN_SPEED) - 1.0
        return -np.log(np.maximum(excess + self.softness, self.softness / 4.0))

    def backward(self, z: Array) -> Array:
        """To speeds, within the bounds."""
        if not self.softness:
            return np.clip(z, MIN_SPEED, MAX_SPEED)
        return np.clip(1.0 / (np.exp(np.clip(-z, -30, 30)) + 1.0 - self.softness), MIN_SPEED, MAX_SPEED)

    def slope(self, z: Array) -> Array:
        """Change of speed with ``z``."""
        if not self.softness:
            return np.ones_like(z)
        u = np.exp(np.clip(-z, -30, 30))
        return np.asarray(u / (u + 1.0 - self.softness) ** 2)
