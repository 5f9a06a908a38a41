"""A light sample at the start of a run: how long one iteration takes here and now.

Tong's reconstruction (systems page 3): a few iterations warm up, some are measured, within a
limit of time; the iterations sampled are part of the run, so nothing is wasted and no
profiling cluster is needed. The interval of the median needs no distribution: its ends are
order statistics whose binomial probability is at least nine in ten (Conover 1999, "Practical
nonparametric statistics", section 3.2).
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import msgspec

from cotenant.errors import ConfigError

__all__ = ["LightSampler", "StepSample", "median_of", "ranks"]

_CONFIDENCE = 0.9


class StepSample(msgspec.Struct, frozen=True, gc=False):
    """What a light sample found.

    Parameters
    ----------
    iteration_s : float
        Median seconds of one iteration.
    low_s, high_s : float
        Range that holds the median of all iterations nine times in ten, as far as this many
        iterations can tell.
    iterations : int
        How many were measured, warm-up left out.
    warmed_up : bool
        Whether the warm-up was complete; False if the limit of time cut it short.
    """

    iteration_s: float
    low_s: float
    high_s: float
    iterations: int
    warmed_up: bool = True


class LightSampler:
    """Takes the moments at which iterations end, until it knows enough.

    Parameters
    ----------
    warmup, measured : int
        Iterations left out, and iterations wanted.
    limit_s : float
        When to stop even so; at least one iteration is measured.

    Raises
    ------
    ConfigError
        If a number makes no sense.

    Examples
    --------
    >>> sampler = LightSampler(warmup=1, measured=3)
    >>> sampler.begin(0.0)
    >>> [sampler.step(moment) is not None for moment in (9.0, 10.0, 11.0, 12.0)]
    [False, False, False, True]
    >>> sampler.sample.iteration_s, sampler.steps
    (1.0, 4)
    """

    def __init__(self, *, warmup: int = 5, measured: int = 20, limit_s: float = 30.0) -> None:
        if warmup < 0 or measured < 1 or not limit_s > 0:
            raise ConfigError(
                f"sampling: warmup must be 0 or more, measured at least 1 and limit_s positive, "
                f"found {warmup}, {measured} and {limit_s}"
            )
        self.warmup, self.measured, self.limit_s = warmup, measured, limit_s
        self.sample: StepSample | None = None
        self.steps = 0
        self._times: list[float] = []
        self._began_s = self._last_s = 0.0

    def begin(self, now_s: float) -> None:
        """Start, or start over after the neighbours changed; ``steps`` goes on counting."""
        self._began_s = self._last_s = now_s
        self._times.clear()
        self.sample = None

    def step(self, now_s: float) -> StepSample | None:
        """An iteration ended; the sample once it is complete, else None.

        Raises
        ------
        ConfigError
            If time runs backwards.
        """
        took = now_s - self._last_s
        if took < 0:
            raise ConfigError(
                f"an iteration ended {-took:g} s before the one before it; use a monotonic clock"
            )
        self._last_s = now_s
        self.steps += 1
        if self.sample is not None:
            return self.sample
        self._times.append(took)
        late = now_s - self._began_s >= self.limit_s
        if len(self._times) >= self.warmup + self.measured or late:
            self.sample = self.so_far()
        return self.sample

    def so_far(self) -> StepSample:
        """What is known before the sample is complete.

        Raises
        ------
        ConfigError
            If no iteration has ended since ``begin``.
        """
        kept = self._times[self.warmup :]
        # Cut short, the warm-up's later half is worth more than nothing.
        used = kept or self._times[len(self._times) // 2 :]
        middle, low, high = median_of(used)
        return StepSample(middle, low, high, len(used), bool(kept))


def median_of(values: list[float]) -> tuple[float, float, float]:
    """Median, and the 90% range of it; the whole span where values are too few.

    >>> median_of([3.0, 1.0, 2.0])
    (2.0, 1.0, 3.0)
    """
    if not values:
        raise ConfigError("no iteration was measured")
    ordered = sorted(values)
    n = len(ordered)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2.0
    rank = ranks(n)
    return middle, ordered[rank], ordered[n - 1 - rank]


@lru_cache(maxsize=1024)
def ranks(n: int) -> int:
    """How many values to leave out at either end, so that the rest holds the median 9 times in 10.

    >>> ranks(5), ranks(8), ranks(20)
    (0, 1, 5)
    """
    rank, below = 0, 1
    # The range from the (rank + 1)-th value to its mirror image misses the median with twice
    # the probability that at most ``rank`` of n lie below it.
    while True:
        below += comb(n, rank + 1)
        if 2 * below > (1.0 - _CONFIDENCE) * 2**n:
            return rank
        rank += 1
