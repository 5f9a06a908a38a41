"""Repeatable random numbers that belong to names, not to the order of asking.

A draw depends on the seed and on what it is for ("noise of A beside B on a V100"), so it
is the same in every process and on every machine, and dropping one job changes no other.
Python's ``hash`` is salted by process and is never used.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import blake2b
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["normal", "normals", "uniform", "uniforms"]

_SCALE = 1.0 / (1 << 53)
_LOW = 1e-12
_NORMAL = NormalDist()


def uniform(seed: int, *parts: str) -> float:
    """One number in [0, 1) that belongs to ``seed`` and ``parts``.

    >>> uniform(7, "a", "b") == uniform(7, "a", "b") != uniform(7, "ab", "")
    True
    """
    text = "\x1f".join((str(seed), *parts)).encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) * _SCALE


def normal(seed: int, *parts: str) -> float:
    """One standard normal number that belongs to ``seed`` and ``parts``."""
    return _NORMAL.inv_cdf(max(uniform(seed, *parts), _LOW))


def uniforms(seed: int, purpose: str, names: Iterable[str]) -> NDArray[np.float64]:
    """One number in [0, 1) for each name; made for many names at once.

    Parameters
    ----------
    seed : int
    purpose : str
        Keeps draws for different purposes apart.
    names : iterable of str

    Returns
    -------
    ndarray of float64, shape (len(names),)
    """
    # Two unlike checksums tell names apart; the mixing below makes them uniform.
    raw = [n.encode("utf-8", "surrogatepass") for n in names]
    keys = np.fromiter((zlib.crc32(b) for b in raw), np.uint64, len(raw)) << np.uint64(32)
    keys |= np.fromiter((zlib.adler32(b) for b in raw), np.uint64, len(raw))
    salt = np.uint64(int.from_bytes(blake2b(f"{seed}\x1f{purpose}".encode(), digest_size=8).digest(), "big"))
    return (_mixed(_mixed(keys) ^ salt) >> np.uint64(11)).astype(np.float64) * _SCALE


def normals(seed: int, purpose: str, names: Iterable[str]) -> NDArray[np.float64]:
    """One standard normal number for each name."""
    # Imported here: it costs more than all else that a command line without it needs.
    from scipy.special import ndtri

    drawn: NDArray[np.float64] = ndtri(np.maximum(uniforms(seed, purpose, names), _LOW))
    return drawn


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
