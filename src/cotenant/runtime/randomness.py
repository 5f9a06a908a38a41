"""The random number generators of a process: taken down, put back, set aside for a moment.

Python's, NumPy's (if it is loaded), and PyTorch's of the CPU and of all CUDA devices. What is kept
is plain: numbers, text, tensors.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["aside", "capture", "mix", "plain", "rebuilt", "restore", "seed_all"]

_MASK = (1 << 64) - 1


def capture(*, cuda: bool = True) -> dict[str, Any]:
    """States of all generators."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    version, words, gauss = random.getstate()
    # As one tensor the 625 numbers are read back a hundred times faster.
    kept: dict[str, Any] = {"python": (version, words if torch is None else torch.tensor(words), gauss)}
    if numpy is not None:
        kept["numpy"] = plain(numpy.random.get_state(legacy=False))
    if torch is not None:
        kept["torch"] = torch.get_rng_state()
        if cuda and torch.cuda.is_initialized():
            kept["cuda"] = torch.cuda.get_rng_state_all()
    return kept


def restore(kept: Mapping[str, Any]) -> None:
    """Put back what ``capture`` took down; generators that it had not seen are left alone."""
    version, words, gauss = kept["python"]
    random.setstate((version, tuple(words if isinstance(words, tuple) else words.tolist()), gauss))
    if "numpy" in kept:
        import numpy as np

        np.random.set_state(rebuilt(kept["numpy"]))
    if "torch" in kept:
        import torch

        torch.set_rng_state(kept["torch"])
        if "cuda" in kept and torch.cuda.is_available():
            for device, state in enumerate(kept["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(state, device)


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """What is drawn inside does not show outside; CUDA's generators are not covered."""
    kept = capture(cuda=False)
    try:
        yield
    finally:
        restore(kept)


def seed_all(seed: int) -> None:
    """Seed the CPU's generators with a 64-bit number."""
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    if torch is not None:
        torch.default_generator.manual_seed(seed)


def mix(seed: int, batch: int, place: int) -> int:
    """A 63-bit seed for one sample, from its epoch's seed and its place; neighbours differ in all bits.

    The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    z = (seed + batch * 0x9E3779B97F4A7C15 + place * 0xD1B54A32D192ED03) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


def plain(value: Any) -> Any:
    """The same without arrays of NumPy: they are turned into tensors or lists, marked with their type."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if type(value).__module__ == "numpy":
        torch = sys.modules.get("torch")
        words = value.tolist()
        small = torch is not None and value.dtype.kind in "iu" and value.dtype.itemsize <= 4
        return {"__array__": torch.tensor(words) if torch and small else words, "dtype": str(value.dtype)}
    return value


def rebuilt(value: Any) -> Any:
    """What ``plain`` was given."""
    if isinstance(value, Mapping):
        if "__array__" in value:
            import numpy as np

            words = value["__array__"]
            words = words.tolist() if hasattr(words, "tolist") else words
            return np.asarray(words, dtype=value["dtype"])
        return {key: rebuilt(item) for key, item in value.items()}
    return value
