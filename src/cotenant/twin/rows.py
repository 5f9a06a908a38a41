"""What a study says, as rows for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cotenant.twin.compare import Course
from cotenant.twin.study import BASELINE, Played, Study

__all__ = ["CLOSE_PCT", "Gain", "Side", "gains", "likeness_rows", "mean_sd", "sides"]

CLOSE_PCT = 5.0
"""A simulation within so many per cent of the live run is called close."""
_BUSY = 0.1

_WHATS: tuple[tuple[str, str, Callable[[Course], float]], ...] = (
    ("mean completion time", "s", lambda course: course.jct_s),
    ("makespan", "s", lambda course: course.makespan_s),
)


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One number, live and simulated, over the repeats.

    Parameters
    ----------
    difference_pct : tuple of float
        Mean and sample standard deviation over the repeats of the simulated one's difference from the live one.
    """

    policy: str
    what: str
    unit: str
    live: tuple[float, float]
    simulated: tuple[float, float]
    difference_pct: tuple[float, float]
    reason: str


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Change of one number by a policy against the baseline, in per cent: mean and spread over the repeats."""

    policy: str
    what: str
    live_pct: tuple[float, float]
    simulated_pct: tuple[float, float]


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; the latter is 0 for one value.

    >>> mean_sd([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5


def sides(study: Study) -> list[Side]:
    """Live beside simulated, by policy."""
    found = []
    for policy in study.policies:
        runs = _of(study, policy)
        for what, unit, number in _WHATS:
            live = [number(run.live) for run in runs]
            simulated = [number(run.simulated) for run in runs]
            off = mean_sd([100.0 * (b - a) / a for a, b in zip(live, simulated, strict=True)])
            found.append(
                Side(
                    policy=policy,
                    what=what,
                    unit=unit,
                    live=mean_sd(live),
                    simulated=mean_sd(simulated),
                    difference_pct=off,
                    reason=_reason(off[0], runs),
                )
            )
    return found


def gains(study: Study) -> list[Gain]:
    """What sharing changes against one job at a time on each device, repeat by repeat."""
    found = []
    base = _of(study, BASELINE)
    whats = (*_WHATS, ("jobs ended per hour", "", lambda course: course.per_hour))
    for policy in study.policies:
        if policy == BASELINE or not base:
            continue
        for what, _, number in whats:
            pairs = list(zip(_of(study, policy), base, strict=False))
            found.append(
                Gain(
                    policy=policy,
                    what=what,
                    live_pct=mean_sd([_change(number(a.live), number(b.live)) for a, b in pairs]),
                    simulated_pct=mean_sd(
                        [_change(number(a.simulated), number(b.simulated)) for a, b in pairs]
                    ),
                )
            )
    return found


def likeness_rows(study: Study) -> list[dict[str, Any]]:
    """Whether the same was decided, by policy; means over the repeats."""
    rows = []
    for policy in study.policies:
        runs = _of(study, policy)
        count = len(runs)
        rows.append(
            {
                "policy": policy,
                "jobs": len(runs[0].live.fates),
                "first_other": min(run.like.first_other for run in runs),
                "order": sum(run.like.order for run in runs) / count,
                "device": sum(run.like.device for run in runs) / count,
                "beside": sum(run.like.beside for run in runs) / count,
                "jct_pct": sum(run.like.jct_pct for run in runs) / count,
                "shared_live": sum(run.live.shared for run in runs) / count,
                "shared_simulated": sum(run.simulated.shared for run in runs) / count,
                "others": sum(run.others for run in runs) / count,
            }
        )
    return rows


def _of(study: Study, policy: str) -> list[Played]:
    return [run for run in study.played if run.policy == policy]


def _change(ours: float, base: float) -> float:
    return 100.0 * (ours - base) / base


def _reason(off_pct: float, runs: Sequence[Played]) -> str:
    """Why they differ, as far as that was measured; what was not is called possible."""
    if abs(off_pct) <= CLOSE_PCT:
        return f"within {CLOSE_PCT:g} %"
    told = []
    others = sum(run.others for run in runs) / len(runs)
    if others > _BUSY and off_pct < 0:
        told.append(
            f"others had {100 * others:.0f} % of the cores, which the simulated machine does not know"
        )
    like = sum(run.like.beside for run in runs) / len(runs)
    if like < 1.0:
        told.append(f"{100 * (1 - like):.0f} % of the jobs started beside others than in the simulation")
    if off_pct < 0 and not told:
        told.append("possibly the scheduler and the shepherds, which run on the same cores")
    return "; ".join(told) or "not explained by what was measured"
