"""How well a share was kept: time to converge, overshoot, what is left of error."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from cotenant.shares.controller import WAKE_S

__all__ = ["Kept", "judge_share"]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """How one container's use follows its target.

    Parameters
    ----------
    converge_s : float or None
        From ``since_s`` until the mean of five seconds first lies within the band; None if never.
    overshoot : float
        Points by which the use over one second goes beyond the target at most, on the far side of where
        it came from.
    error : float
        Mean over the last ``tail_s`` less the target, in points.
    swing : float
        Standard deviation of the use over one second in the tail, in points.
    """

    converge_s: float | None
    overshoot: float
    error: float
    swing: float


def judge_share(
    times_s: Sequence[float],
    used: Sequence[float],
    target: float,
    *,
    since_s: float = 0.0,
    until_s: float = float("inf"),
    band: float = 5.0,
    tail_s: float = 30.0,
) -> Kept:
    """Compare the use of a container with its target, in percent, from ``since_s`` to ``until_s``.

    >>> times = [0.12 * i for i in range(1, 501)]
    >>> kept = judge_share(times, [30.0] * 500, 30.0)
    >>> kept.converge_s is not None and kept.converge_s < 5.1, kept.overshoot, kept.error, kept.swing
    (True, 0.0, 0.0, 0.0)
    """
    times, values = np.asarray(times_s), np.asarray(used)
    chosen = (times >= since_s) & (times <= until_s)
    times, values = times[chosen], values[chosen]
    if not values.size:
        return Kept(converge_s=None, overshoot=0.0, error=-target, swing=0.0)
    wide = max(round(5.0 / WAKE_S), 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    smooth = (sums[wide:] - sums[:-wide]) / wide if values.size >= wide else np.empty(0)
    within = np.flatnonzero(np.abs(smooth - target) <= band)
    side = 1.0 if values[0] < target else -1.0
    beyond = side * (values - target)
    crossed = np.flatnonzero(beyond >= 0.0)
    tail = values[times >= times[-1] - tail_s]
    return Kept(
        converge_s=float(times[within[0] + wide - 1] - since_s) if within.size else None,
        overshoot=max(float(beyond[crossed[0] :].max()), 0.0) + 0.0 if crossed.size else 0.0,
        error=float(tail.mean() - target),
        swing=float(tail.std()),
    )
