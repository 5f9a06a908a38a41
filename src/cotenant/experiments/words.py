"""Numbers of experiments as people read them."""

from __future__ import annotations

from typing import Any

from cotenant.experiments.base import Claim
from cotenant.experiments.standing import Standing
from cotenant.report.tables import NOT_AVAILABLE, cell

__all__ = ["amount", "difference", "label", "mean_spread", "ours", "verdict"]

_VERDICTS = {
    "reproduced": "reproduced",
    "exceeded": "exceeded",
    "differs": "differs",
    "measured": "no number to compare",
    "not measured": "not measured here",
}
_ROUNDING = 1e-6
"""A spread below this part of the mean is that of adding up, and not shown."""
_LABELS = {
    "jct": "completion time",
    "corun": "co-run",
    "p50": "median",
    "p95": "95th pct.",
    "p99": "99th pct.",
    "gpus": "GPUs",
}


def amount(value: float, unit: str, *, signed: bool = False) -> str:
    """A number with its unit.

    >>> amount(-23.71, "%"), amount(3.0, "x"), amount(8905.0, "s"), amount(0.2, "", signed=True)
    ('-23.7 %', '3.00 x', '8,905 s', '+0.200')
    """
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 10 or unit == "%" else 2 if size >= 1 or unit else 3
    text = f"{value:{'+' if signed else ''},.{digits}f}"
    if float(text.replace(",", "")) == 0 and size > 0:
        text = f"{value:{'+' if signed else ''}.1g}"
    return f"{text} {unit}".rstrip()


def ours(standing: Standing) -> str:
    """Mean and spread over seeds."""
    if standing.mean is None:
        return NOT_AVAILABLE
    unit = standing.claim.unit
    if (standing.spread or 0.0) <= _ROUNDING * abs(standing.mean):
        return amount(standing.mean, unit)
    return f"{amount(standing.mean, '')} ± {amount(standing.spread or 0.0, '')} {unit}".rstrip()


def difference(standing: Standing) -> str:
    """From ours to the nearest bound of the paper's; and whether that is less than seeds differ among themselves."""
    gap = standing.difference
    if gap is None:
        return ""
    if gap == 0:
        return "within" if _is_range(standing.claim) else "none"
    unit = "points" if standing.claim.unit == "%" else standing.claim.unit
    shown = amount(gap, unit, signed=True)
    if standing.verdict in ("differs", "exceeded") and abs(gap) < (standing.spread or 0.0):
        return f"{shown}, less than the spread"
    return shown


def _is_range(claim: Claim) -> bool:
    return claim.low != claim.high


def verdict(standing: Standing) -> str:
    """The verdict in words."""
    return _VERDICTS[standing.verdict]


def mean_spread(value: Any, name: str) -> str:
    """A cell of a combined table: text, or mean and spread, shown by the unit in the column's name.

    >>> mean_spread((90.0, 30.0), "jct_s_mean"), mean_spread((0.25, 0.0), "busy_share"), mean_spread((1.5, 0.001), "x")
    ('1m 30s ± 30s', '25.0 %', '1.50 ± 0.00')
    """
    if value is None or isinstance(value, str):
        return NOT_AVAILABLE if value is None else value
    mean, spread = value
    shown = cell(int(mean) if mean == int(mean) and abs(mean) < 1e15 else mean, name)
    if spread <= _ROUNDING * abs(mean):
        return shown
    return f"{shown} ± {_spread(spread, name)}"


def _spread(spread: float, name: str) -> str:
    if name.endswith(("_s", "_s_mean", "_s_median", "_s_p95", "_s_p99", "_share")):
        return cell(spread, name)
    return f"{spread:.2f}" if spread < 100 else f"{spread:,.0f}"


def label(column: str) -> str:
    """A column's name for people.

    >>> label("jct_s_mean"), label("busy_share"), label("policy")
    ('Completion time, mean', 'Devices busy', 'Policy')
    """
    from cotenant.report.names import METRIC_BY_KEY

    if column in METRIC_BY_KEY:
        return METRIC_BY_KEY[column].label
    words = [_LABELS.get(w, w) for w in column.removesuffix("_share").split("_") if w != "s"]
    text = " ".join(words)
    return text if text.startswith("GPUs") else text[:1].upper() + text[1:]
