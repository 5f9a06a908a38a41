"""How much of a device a job really uses, as far as its meters can tell.

Busy time says that something ran, not how much: a loop of tiny kernels and a deadlocked
collective both read 100 %. So what counts are SM active and memory bandwidth; where there is
only busy time, the answer is an interval from almost nothing to all of it.
"""

from __future__ import annotations

import msgspec

from cotenant.profiles.samplers.readings import METERS
from cotenant.profiles.samplers.series import Summary

__all__ = ["Pressure", "PressureBound", "Verdict", "good_partner", "may_share", "pressure_of"]

_SPREAD = 0.05
"""Doubt about a meter that measures the thing itself, in shares of the device."""

_RESOURCES = (
    ("compute", "sm_active_pct", ("busy_pct", "engine_active_pct")),
    ("bandwidth", "dram_active_pct", ("memory_busy_pct", "busy_pct")),
)


class PressureBound(msgspec.Struct, frozen=True):
    """Use of one resource of a device, in shares of it.

    Parameters
    ----------
    low, high : float
    meter : str
        The meter that it rests on, as it is printed; empty if none was there.
    direct : bool
        Whether that meter measures the resource itself.
    """

    low: float
    high: float
    meter: str
    direct: bool


class Pressure(msgspec.Struct, frozen=True):
    """Use of compute and of memory bandwidth."""

    compute: PressureBound
    bandwidth: PressureBound


class Verdict(msgspec.Struct, frozen=True):
    """A yes or no with the meters that decided it."""

    yes: bool
    reason: str


def pressure_of(summary: Summary) -> Pressure:
    """Bounds of a job's use, from its readings alone on a device."""
    found = {name: _bound(summary, direct, weak) for name, direct, weak in _RESOURCES}
    return Pressure(**found)


def _bound(summary: Summary, direct: str, weak: tuple[str, ...]) -> PressureBound:
    value = summary.mean(direct)
    if value is not None:
        share = value / 100.0
        return PressureBound(max(share - _SPREAD, 0.0), min(share + _SPREAD, 1.0), METERS[direct], True)
    for meter in weak:
        value = summary.mean(meter)
        if value is not None:
            # Busy time bounds the use from above only.
            return PressureBound(0.0, value / 100.0, METERS[meter], False)
    return PressureBound(0.0, 1.0, "", False)


def good_partner(pressure: Pressure, *, at_most: float = 0.5) -> Verdict:
    """Whether a job leaves at least half of the device, as far as is known for sure."""
    yes = max(pressure.compute.high, pressure.bandwidth.high) <= at_most
    return Verdict(yes, f"{_words(pressure.compute)}; {_words(pressure.bandwidth)}")


def may_share(one: Pressure, other: Pressure, *, at_most: float = 1.0) -> Verdict:
    """Whether two jobs fit beside each other even if both use all that they may be using."""
    compute = one.compute.high + other.compute.high
    bandwidth = one.bandwidth.high + other.bandwidth.high
    reason = f"together at most {compute:.0%} of compute, {bandwidth:.0%} of memory bandwidth"
    unsure = [b for p in (one, other) for b in (p.compute, p.bandwidth) if not b.direct]
    if unsure:
        meters = ", ".join(sorted({b.meter or "no meter" for b in unsure}))
        reason += f"; for some of it there is only {meters}"
    return Verdict(max(compute, bandwidth) <= at_most, reason)


def _words(bound: PressureBound) -> str:
    if not bound.meter:
        return "not measured"
    if bound.direct:
        return f"{bound.meter} {(bound.low + bound.high) / 2:.0%}"
    return f"only {bound.meter}: at most {bound.high:.0%}"
