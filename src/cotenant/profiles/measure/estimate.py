"""From repeats to normalised speeds with intervals.

A co-run's speed is divided by the job's speed alone *at that time*: the mean of the logarithms
of its runs alone in the same session, weighted by ``exp(-distance / 60 s)``, so that a machine
that grows slower slows both. A set's value is the mean over its repeats of the logarithm of that
ratio. Spread is estimated from all sets together and from the set itself (a variance of the
pool counts as four observations), since two or three repeats alone say little, and the doubt
about the runs alone is added; the interval is Student's with the degrees of freedom of both. Repeats during which others held the cores, and
outliers (farther than four robust standard deviations of the pool from the set's median), are
set aside and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from statistics import median

import msgspec
from scipy.stats import t as student

from cotenant.profiles.measure.records import Member, Repeat

__all__ = ["SetEstimate", "SideEstimate", "estimate", "least_disturbed", "solo_speed"]

_MEMORY_S = 60.0
_PRIOR_WEIGHT = 4.0
_FIRST_SPREAD = 0.05
"""Relative spread assumed before anything was repeated."""
_OUTLIER = 4.0
_ENOUGH = 3
"""Repeats below which a disturbed one is better than none."""
_LEVEL = 0.95


class SideEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a set.

    Parameters
    ----------
    job : str
    norm : float
        Speed while sharing over speed alone.
    low, high : float
        95% interval.
    speed, solo : float
        Steps per second beside the others and alone, such that ``norm = speed / solo``.
    """

    job: str
    norm: float
    low: float
    high: float
    speed: float
    solo: float

    @property
    def width_pct(self) -> float:
        """Half the interval's width, in per cent of the value."""
        return 100.0 * (self.high - self.low) / 2 / self.norm


class SetEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A set of jobs.

    Parameters
    ----------
    jobs : tuple of str
    sides : tuple of SideEstimate
        Copies of one job have the same values: nothing tells them apart. Empty if the set
        never ran.
    repeats : int
        Used.
    set_aside : int
        Disturbed or outlying.
    failed : int
        Attempts in which a job failed.
    """

    jobs: tuple[str, ...]
    sides: tuple[SideEstimate, ...]
    repeats: int
    set_aside: int
    failed: int

    @property
    def width_pct(self) -> float:
        """The widest side's; infinite if there is none."""
        return max((side.width_pct for side in self.sides), default=math.inf)


Solos = dict[tuple[int, str], list[tuple[float, float]]]


def least_disturbed(repeats: Sequence[Repeat], limit: float) -> list[Repeat]:
    """Repeats from which others took no more than the limit; of fewer than three, the better half.

    Parameters
    ----------
    repeats : sequence of Repeat
        Of one set.
    limit : float
        Share of the time.
    """
    clean = [repeat for repeat in repeats if repeat.taken <= limit]
    if len(clean) >= min(_ENOUGH, len(repeats)):
        return clean
    best = sorted(repeats, key=lambda repeat: repeat.taken)[: max(_ENOUGH, (len(repeats) + 1) // 2)]
    return [repeat for repeat in repeats if repeat in best]


def _solos(repeats: Iterable[Repeat], limit: float) -> Solos:
    """(session, job) to (time, log speed) of runs alone."""
    groups: dict[tuple[int, str], list[Repeat]] = {}
    for repeat in repeats:
        if len(repeat.jobs) == 1 and repeat.members:
            groups.setdefault((repeat.session, repeat.jobs[0]), []).append(repeat)
    return {
        key: [(r.at_s, math.log(r.members[0].speed)) for r in least_disturbed(group, limit)]
        for key, group in groups.items()
    }


def solo_speed(solos: Sequence[tuple[float, float]], at_s: float) -> float:
    """Logarithm of the speed alone at a time, from (time, log speed) points.

    >>> solo_speed([(0.0, 1.0), (100.0, 3.0)], 50.0)
    2.0
    """
    weights = [math.exp(-abs(time - at_s) / _MEMORY_S) for time, _ in solos]
    total = math.fsum(weights)
    if total <= 0.0:
        return min(solos, key=lambda point: abs(point[0] - at_s))[1]
    return math.fsum(w * value for w, (_, value) in zip(weights, solos, strict=True)) / total


def estimate(repeats: Sequence[Repeat], *, disturbed_pct: float) -> dict[tuple[str, ...], SetEstimate]:
    """Estimate every set of two or more jobs that was tried.

    Parameters
    ----------
    repeats : sequence of Repeat
    disturbed_pct : float
        Repeats with more of their time taken by others are used only where there are fewer than
        three others.
    """
    limit = disturbed_pct / 100.0
    solos = _solos(repeats, limit)
    groups: dict[tuple[str, ...], list[Repeat]] = {}
    for repeat in repeats:
        if len(repeat.jobs) > 1:
            groups.setdefault(repeat.jobs, []).append(repeat)
    used: dict[tuple[str, ...], list[Repeat]] = {}
    for jobs, tried in groups.items():
        ran = [r for r in tried if r.members and _has_solos(r, solos)]
        used[jobs] = least_disturbed(ran, limit)
    solo_variance = _solo_variance(solos)
    ratios = {jobs: _ratios(kept, solos) for jobs, kept in used.items()}
    robust = _robust_spread(ratios)
    kept_by = {jobs: _without_outliers(rows, robust) for jobs, rows in ratios.items()}
    pool = _pooled_variance(kept_by)
    found: dict[tuple[str, ...], SetEstimate] = {}
    for jobs, tried in sorted(groups.items()):
        rows = kept_by[jobs]
        failed = sum(1 for r in tried if r.failures)
        found[jobs] = SetEstimate(
            jobs=jobs,
            sides=_sides(jobs, rows, pool, solo_variance),
            repeats=len(rows),
            set_aside=sum(1 for r in tried if r.members) - len(rows),
            failed=failed,
        )
    return found


def _has_solos(repeat: Repeat, solos: Solos) -> bool:
    return all((repeat.session, job) in solos for job in repeat.jobs)


def _solo_variance(solos: Solos) -> float:
    """Of one run alone, from the differences of neighbours in time: drift hardly enters these."""
    squares = [
        (after - before) ** 2 / 2
        for points in solos.values()
        for (_, before), (_, after) in pairwise(sorted(points))
    ]
    return math.fsum(squares) / len(squares) if squares else 0.0


Row = dict[str, tuple[float, float, float]]
"""Job to log ratio, log speed alone, and so many runs alone that stand behind it, in one repeat;
copies of a job averaged."""


def _ratios(repeats: Iterable[Repeat], solos: Solos) -> list[Row]:
    rows: list[Row] = []
    for repeat in repeats:
        speeds: dict[str, list[Member]] = {}
        for member in repeat.members:
            speeds.setdefault(member.job, []).append(member)
        row: Row = {}
        for job, members in speeds.items():
            alone = solo_speed(solos[repeat.session, job], repeat.at_s)
            together = math.fsum(math.log(m.speed) for m in members) / len(members)
            row[job] = (together - alone, alone, _behind(solos[repeat.session, job], repeat.at_s))
        rows.append(row)
    return rows


def _behind(solos: Sequence[tuple[float, float]], at_s: float) -> float:
    """Effective number of runs alone in their weighted mean."""
    weights = [math.exp(-abs(time - at_s) / _MEMORY_S) for time, _ in solos]
    squares = math.fsum(w * w for w in weights)
    return math.fsum(weights) ** 2 / squares if squares > 0.0 else 1.0


def _columns(rows: Sequence[Row]) -> list[list[float]]:
    return [[row[job][0] for row in rows] for job in (rows[0] if rows else ())]


def _robust_spread(ratios: dict[tuple[str, ...], list[Row]]) -> float:
    differences = [
        abs(one - other)
        for rows in ratios.values()
        for column in _columns(rows)
        for one, other in combinations(column, 2)
    ]
    # Two normal values differ by 0.954 standard deviations at the median.
    return max(median(differences) / 0.954, 0.002) if len(differences) >= 12 else _FIRST_SPREAD


def _without_outliers(rows: list[Row], spread: float) -> list[Row]:
    if len(rows) < 3:
        return rows
    middle = {job: median(row[job][0] for row in rows) for job in rows[0]}
    near = [r for r in rows if all(abs(r[job][0] - middle[job]) <= _OUTLIER * spread for job in r)]
    return near if len(near) >= 2 else rows


def _pooled_variance(kept: dict[tuple[str, ...], list[Row]]) -> float:
    squares, freedom = 0.0, 0
    for rows in kept.values():
        for column in _columns(rows):
            mean = math.fsum(column) / len(column)
            squares += math.fsum((value - mean) ** 2 for value in column)
            freedom += len(column) - 1
    first = _FIRST_SPREAD**2
    # What was assumed at first counts as two observations.
    return (squares + 2 * first) / (freedom + 2) if freedom < 20 else squares / freedom


def _sides(
    jobs: Sequence[str], rows: Sequence[Row], pool: float, solo_variance: float
) -> tuple[SideEstimate, ...]:
    if not rows:
        return ()
    by_job: dict[str, SideEstimate] = {}
    for job in dict.fromkeys(jobs):
        values = [row[job][0] for row in rows]
        alone = math.fsum(row[job][1] for row in rows) / len(rows)
        mean = math.fsum(values) / len(values)
        freedom = _PRIOR_WEIGHT + len(values) - 1
        own = math.fsum((value - mean) ** 2 for value in values)
        # Repeats close in time share their runs alone, whose doubt more repeats do not lessen.
        base = solo_variance / max(row[job][2] for row in rows)
        spread = math.sqrt((_PRIOR_WEIGHT * pool + own) / freedom / len(values) + base)
        half = float(student.ppf((1 + _LEVEL) / 2, freedom)) * spread
        by_job[job] = SideEstimate(
            job=job,
            norm=math.exp(mean),
            low=math.exp(mean - half),
            high=math.exp(mean + half),
            speed=math.exp(mean + alone),
            solo=math.exp(alone),
        )
    return tuple(by_job[job] for job in jobs)
