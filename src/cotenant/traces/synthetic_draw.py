"""Vectorised draws: run times and arrival times.

All take a numpy Generator and return float64 arrays of shape (n,).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.errors import ConfigError
from cotenant.traces.synthetic_spec import (
    Arrivals,
    Cycle,
    Fixed,
    HyperExponential,
    Law,
    Lognormal,
    Mix,
    Pareto,
)

__all__ = ["Floats", "draw_arrivals", "draw_choice", "draw_law", "warp"]

Floats = NDArray[np.float64]
_MAX_BURSTS = 20_000_000
_HOUR_S = 3600.0
_WEEK_H = 168


def draw_choice(rng: np.random.Generator, weights: Sequence[float] | Floats, n: int) -> NDArray[np.int64]:
    """Indices 0..len(weights)-1 drawn with these relative weights, shape (n,)."""
    edges = np.cumsum(np.asarray(weights, dtype=np.float64))
    drawn = np.searchsorted(edges, rng.random(n) * edges[-1], side="right")
    # A product can round up to the last edge; the last weight may be 0.
    last = int(np.flatnonzero(np.asarray(weights) > 0)[-1])
    chosen: NDArray[np.int64] = np.minimum(drawn, last).astype(np.int64)
    return chosen


def draw_law(rng: np.random.Generator, law: Law, n: int) -> Floats:
    """Run times in seconds from a law, not yet clipped."""
    if isinstance(law, Fixed):
        return np.full(n, law.value_s)
    if isinstance(law, Lognormal):
        with np.errstate(over="ignore"):
            return law.median_s * np.exp(law.sigma * rng.standard_normal(n))
    if isinstance(law, HyperExponential):
        means: Floats = np.asarray(law.means_s)[draw_choice(rng, law.weights, n)]
        return means * rng.standard_exponential(n)
    if isinstance(law, Pareto):
        with np.errstate(over="ignore"):
            return law.min_s * np.exp(rng.standard_exponential(n) / law.alpha)
    if isinstance(law, Mix):
        out = np.empty(n)
        part = draw_choice(rng, [entry.weight for entry in law.parts], n)
        for index, entry in enumerate(law.parts):
            mine = part == index
            out[mine] = draw_law(rng, entry.law, int(mine.sum()))
        return out
    logs = np.log(np.asarray(law.values_s))
    drawn: Floats = np.exp(np.interp(rng.random(n), np.asarray(law.p), logs))
    return drawn


def draw_arrivals(rng: np.random.Generator, arrivals: Arrivals, mean_gap_s: float, n: int) -> Floats:
    """Submission times in seconds, ascending, the first gap after time 0 included.

    Raises
    ------
    ConfigError
        If bursts are so much shorter than gaps that millions of empty ones would be drawn.
    """
    if arrivals.kind == "at-once" or not n:
        return np.zeros(n)
    if arrivals.kind == "fixed":
        times: Floats = np.arange(n, dtype=np.float64) * mean_gap_s
    elif arrivals.kind == "gamma":
        shape = 1.0 / (arrivals.cv or 1.0) ** 2
        times = np.cumsum(rng.gamma(shape, mean_gap_s / shape, n), dtype=np.float64)
    elif arrivals.kind == "bursty":
        times = _bursty(rng, arrivals, mean_gap_s, n)
    else:
        times = np.cumsum(rng.exponential(mean_gap_s, n))
    return times if arrivals.cycle is None else warp(times, arrivals.cycle)


def _bursty(rng: np.random.Generator, arrivals: Arrivals, mean_gap_s: float, n: int) -> Floats:
    """Two-state Markov-modulated Poisson process, by inverting its cumulative rate."""
    calm_s, burst_s = arrivals.calm_s or 1.0, arrivals.burst_s or 1.0
    factor = arrivals.burst_factor or 1.0
    calm_rate = (calm_s + burst_s) / (calm_s + factor * burst_s) / mean_gap_s
    target = np.cumsum(rng.standard_exponential(n))
    expected = n * mean_gap_s / (calm_s + burst_s)
    if expected > _MAX_BURSTS:
        raise ConfigError(
            f"about {expected:.3g} bursts for {n} jobs (at most {_MAX_BURSTS:,}); lengthen burst_s and calm_s"
        )
    lengths: list[Any] = []
    total, batch = 0.0, int(expected * 1.1) + 16
    while total < target[-1]:
        pair = rng.standard_exponential((batch, 2)) * (calm_s, burst_s)
        lengths.append(pair.ravel())
        total += float(pair[:, 0].sum() * calm_rate + pair[:, 1].sum() * calm_rate * factor)
    stay = np.concatenate(lengths)
    rate = np.tile((calm_rate, calm_rate * factor), stay.size // 2)
    clock = np.concatenate(([0.0], np.cumsum(stay)))
    reached = np.concatenate(([0.0], np.cumsum(stay * rate)))
    return np.interp(target, reached, clock)


def warp(times_s: Floats, cycle: Cycle) -> Floats:
    """Move even times to a weekly rhythm of the same mean rate.

    The time at which the cumulative relative rate reaches ``times_s``; where the rate is 0
    nothing arrives.
    """
    rate = np.outer(cycle.days, cycle.hours).ravel()
    rate = rate / rate.mean()
    reached = np.concatenate(([0.0], np.cumsum(rate))) * _HOUR_S
    week_s = reached[-1]
    weeks = np.floor(times_s / week_s)
    rest = times_s - weeks * week_s
    # The hour whose cumulative rate holds the time; hours of rate 0 hold none.
    hour = np.searchsorted(reached, rest, side="right") - 1
    hour = np.clip(hour, 0, int(np.flatnonzero(rate > 0)[-1]))
    inside = hour * _HOUR_S + (rest - reached[hour]) / rate[hour]
    return np.maximum.accumulate(weeks * _WEEK_H * _HOUR_S + inside)
