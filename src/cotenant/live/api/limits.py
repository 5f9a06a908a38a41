"""How much and how deep: rates, and the nesting and numbers of JSON."""

from __future__ import annotations

import math
import re
from typing import Any

from cotenant.errors import InputError

__all__ = ["Rate", "check_plain", "depth_of"]

LARGEST = 2**63 - 1
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.S)
_BRACKET = re.compile(rb"[\[\]{}]")


class Rate:
    """A bucket for each name, filled at some rate; an empty one says how long to wait.

    At most ``names`` buckets are kept; full ones are the first to go, which changes nothing.
    """

    def __init__(self, per_s: float, burst: float, names: int = 1000) -> None:
        self._per_s, self._burst, self._names = per_s, burst, names
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, now: float) -> float:
        """0 if there was something to take, else the seconds until there will be."""
        left, since = self._buckets.get(name, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - since) * self._per_s)
        if left < 1.0:
            self._buckets[name] = (left, now)
            return (1.0 - left) / self._per_s
        self._buckets[name] = (left - 1.0, now)
        if len(self._buckets) > self._names:
            self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        fill = {n: left + (now - since) * self._per_s for n, (left, since) in self._buckets.items()}
        for name in sorted(fill, key=lambda n: -fill[n])[: len(fill) // 2]:
            del self._buckets[name]


def depth_of(body: bytes) -> int:
    """Deepest nesting of arrays and objects, without reading the values.

    >>> depth_of(b'{"a": [1, {"b": "[[["}]}')
    3
    """
    depth = deepest = 0
    for found in _BRACKET.finditer(_STRING.sub(b"", body)):
        depth += 1 if found.group() in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def check_plain(value: Any, where: str = "$") -> None:
    """Check that numbers are finite and of 64 bits, and that no string holds a NUL character.

    Raises
    ------
    InputError
        With where.
    """
    if isinstance(value, str):
        if "\0" in value:
            raise InputError(f"{where}: text with a NUL character; no program can be given that")
    elif isinstance(value, dict):
        for key, inner in value.items():
            check_plain(key, f"{where} (a key)")
            check_plain(inner, f"{where}.{key[:40]}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check_plain(inner, f"{where}[{number}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where}: a number that is not finite")
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(f"{where}: a whole number of more than 64 bits")
