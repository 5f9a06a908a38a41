"""Max-min fairness over device types as a linear program.

Jobs that ask for as many devices, have one weight and one speed on each type are one class with one
variable for each type: by symmetry nothing is lost.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["JobClass", "Shares", "equal_shares", "max_min", "merged"]

Shares = tuple[float, ...]
"""For each device type: the share of time that a job should run there."""

_SLACK = 1e-9


class JobClass(NamedTuple):
    """Jobs that are alike.

    Parameters
    ----------
    gpus : int
        Devices of each.
    weight : float
        Claim of each.
    speeds : tuple of float
        Speed on each device type; 0 where it cannot run.
    """

    gpus: int
    weight: float
    speeds: tuple[float, ...]


def equal_shares(devices: tuple[int, ...], kind: JobClass, jobs_gpus: int) -> Shares:
    """Time in proportion to what there is of each type: the yardstick, and what holds without a solution.

    Examples
    --------
    >>> equal_shares((1, 1), JobClass(1, 1.0, (4.0, 1.0)), 2)
    (0.5, 0.5)
    """
    total = sum(devices)
    scale = min(1.0, total / max(jobs_gpus, 1))
    return tuple(scale * n / total if s > 0.0 else 0.0 for n, s in zip(devices, kind.speeds, strict=True))


@functools.lru_cache(maxsize=64)
def max_min(classes: tuple[tuple[JobClass, int], ...], devices: tuple[int, ...]) -> tuple[Shares, ...]:
    """Shares of time that raise the least normalised throughput as far as can be, then their sum.

    With ``x`` the summed share of a class of ``n`` jobs of ``g`` devices on each type: maximise the least
    ``g / w * sum(speed * x) / (n * sum(speed * equal))`` over classes, where a class has at most ``n`` in all and a type no
    more than its devices (Gavel, section 4.1). A second program keeps that least and raises the sum, so
    that nothing is left idle that somebody could use.

    Parameters
    ----------
    classes : tuple of (JobClass, int)
        Classes and how many jobs are in each. Each has a type with positive speed and devices.
    devices : tuple of int
        Devices of each type.

    Returns
    -------
    tuple of tuple of float
        For each class, the shares of one of its jobs. Equal shares if the solver has no answer.

    Examples
    --------
    Two jobs, one device of each of two types; the first is four times as fast on the first type.

    >>> jobs = ((JobClass(1, 1.0, (4.0, 1.0)), 1), (JobClass(1, 1.0, (1.0, 1.0)), 1))
    >>> [[round(x, 6) for x in row] for row in max_min(jobs, (1, 1))]
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if not classes:
        return ()
    gain, rows, bounds = _program(classes, devices)
    least = _solve(np.append(np.zeros(gain.size), -1.0), rows, bounds, (0.0, None))
    found = (
        None
        if least is None
        else _solve(
            np.append(-gain.ravel() / gain.max(), 0.0),
            rows,
            bounds,
            (max(0.0, least[-1] * (1.0 - 1e-7)), None),
        )
    )
    if found is None:
        wanted = sum(kind.gpus * count for kind, count in classes)
        return tuple(equal_shares(devices, kind, wanted) for kind, _ in classes)
    shares = found[:-1].reshape(gain.shape)
    return tuple(
        tuple(min(1.0, float(x) / count) if x > _SLACK else 0.0 for x in row)
        for row, (_, count) in zip(shares, classes, strict=True)
    )


def _program(
    classes: tuple[tuple[JobClass, int], ...], devices: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Normalised gain of a unit of time, and ``rows @ (x, least) <= bounds``."""
    speeds = np.array([kind.speeds for kind, _ in classes])
    gpus = np.array([float(kind.gpus) for kind, _ in classes])
    weights = np.array([kind.weight for kind, _ in classes])
    counts = np.array([float(count) for _, count in classes])
    there = np.array(devices, dtype=float)
    gain = speeds * (gpus / weights / (speeds @ (there / there.sum())))[:, None]
    n, types = gain.shape
    rows = np.zeros((2 * n + types, n * types + 1))
    for i in range(n):
        mine = slice(i * types, (i + 1) * types)
        rows[i, mine], rows[i, -1] = -gain[i], counts[i]
        rows[n + i, mine] = 1.0
        rows[2 * n :, mine] = np.eye(types) * gpus[i]
    return gain, rows, np.concatenate([np.zeros(n), counts, there])


def _solve(
    cost: NDArray[np.float64],
    rows: NDArray[np.float64],
    bounds: NDArray[np.float64],
    least: tuple[float, float | None],
) -> NDArray[np.float64] | None:
    # Imported here: it takes long, and only this policy needs it.
    from scipy.optimize import linprog

    limits = [(0.0, None)] * (cost.size - 1) + [least]
    answer = linprog(cost, A_ub=rows, b_ub=bounds, bounds=limits, method="highs")
    return np.asarray(answer.x) if answer.success else None


def merged(classes: list[JobClass], most: int) -> list[JobClass]:
    """The class that each is reckoned with: speeds to fewer digits until there are at most ``most``.

    Equal gangs of equal weight are never told apart more than speeds to one digit do, so there can be more
    than ``most`` if gang sizes and weights alone differ that much.

    Examples
    --------
    >>> one, two = JobClass(1, 1.0, (1.0, 0.512)), JobClass(1, 1.0, (1.0, 0.508))
    >>> merged([one, two], 2) == [one, two], merged([one, two], 1)[0].speeds
    (True, (1.0, 0.51))
    """
    for digits in (3, 2, 1):
        if len(set(classes)) <= most:
            break
        classes = [
            kind._replace(speeds=tuple(float(f"{speed:.{digits}g}") for speed in kind.speeds))
            for kind in classes
        ]
    return classes
