"""Speeds that light samples measured while jobs ran, kept until enough of them is new.

To learn costs a fit, and every verdict that rests on the forecast is worked out anew; so a
forecast learns in batches: when ten sets are new, and half as many again as were learnt before.
Some 1,000 sets are learnt in 12 fits. A set counts as new at its first sample, and again
at its 4th, 16th and so on, when the error of its mean has halved.
"""

from __future__ import annotations

import math

from cotenant.model.ports import Interval
from cotenant.profiles.compose import Query
from cotenant.profiles.physics import MIN_SPEED

__all__ = ["LiveSpeeds"]

_FIRST = 10
_PART = 0.5


class LiveSpeeds:
    """Means of measured speeds, by set.

    Examples
    --------
    >>> live = LiveSpeeds()
    >>> [live.add(("A", (f"B{i}",), "V100"), 0.5) for i in range(10)].index(True)
    9
    >>> len(live.take()), live.take()
    (10, {})
    """

    def __init__(self) -> None:
        self._known: dict[Query, tuple[int, float]] = {}
        self._fresh: dict[Query, None] = {}
        self._learnt: dict[Query, tuple[int, float]] = {}
        self._lessons = 0

    def add(self, query: Query, speed: float) -> bool:
        """A speed was measured; True if it is time to learn."""
        count, mean = self._known.get(query, (0, 0.0))
        count += 1
        self._known[query] = (count, mean + (speed - mean) / count)
        if count.bit_count() == 1 and count.bit_length() % 2:  # powers of four
            self._fresh[query] = None
        return len(self._fresh) >= max(_FIRST, _PART * self._lessons)

    def take(self) -> dict[Query, float]:
        """The new means, in order of first samples; they are new no more."""
        fresh, self._fresh = self._fresh, {}
        self._lessons += len(fresh)
        self._learnt.update((query, self._known[query]) for query in fresh)
        return {query: self._known[query][1] for query in fresh}

    def learnt(self, query: Query) -> tuple[int, float]:
        """How often a set had been measured when it was last learnt, and the mean then, at most 1."""
        count, mean = self._learnt.get(query, (0, 0.0))
        return count, min(mean, 1.0)

    def blended(self, query: Query, said: Interval) -> Interval:
        """What is said of a set, as one more measurement of it beside those that were learnt."""
        count, mean = self.learnt(query)
        if not count:
            return said
        middle = (said.mean + count * mean) / (count + 1)
        narrow = 1.0 / math.sqrt(count + 1)
        low, high = middle - narrow * (said.mean - said.low), middle + narrow * (said.high - said.mean)
        return Interval(middle, max(low, MIN_SPEED), min(high, 1.0))
