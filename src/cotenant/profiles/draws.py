"""Repeatable random numbers for many names at once, beside those for one (``model.draws``)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from cotenant.model.draws import LOW, SCALE, normal, uniform

__all__ = ["normal", "normals", "uniform", "uniforms"]


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
    return (_mixed(_mixed(keys) ^ salt) >> np.uint64(11)).astype(np.float64) * SCALE


def normals(seed: int, purpose: str, names: Iterable[str]) -> NDArray[np.float64]:
    """One standard normal number for each name."""
    # Imported here: it costs more than all else that a command line without it needs.
    from scipy.special import ndtri

    drawn: NDArray[np.float64] = ndtri(np.maximum(uniforms(seed, purpose, names), LOW))
    return drawn


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
