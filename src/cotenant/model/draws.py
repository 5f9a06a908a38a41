"""Repeatable random numbers that belong to names, not to the order of asking.

A draw depends on the seed and on what it is for ("noise of A beside B on a V100"), so it
is the same in every process and on every machine, and dropping one job changes no other.
Python's ``hash`` is salted by process and is never used.
"""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

__all__ = ["LOW", "SCALE", "normal", "uniform"]

SCALE = 1.0 / (1 << 53)
LOW = 1e-12
"""Normal numbers are not drawn further out than this probability."""
_NORMAL = NormalDist()


def uniform(seed: int, *parts: str) -> float:
    """One number in [0, 1) that belongs to ``seed`` and ``parts``.

    >>> uniform(7, "a", "b") == uniform(7, "a", "b") != uniform(7, "ab", "")
    True
    """
    text = "\x1f".join((str(seed), *parts)).encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) * SCALE


def normal(seed: int, *parts: str) -> float:
    """One standard normal number that belongs to ``seed`` and ``parts``."""
    return _NORMAL.inv_cdf(max(uniform(seed, *parts), LOW))
