"""How what was measured stands beside what was published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cotenant.experiments.base import Claim, Measured, Table

__all__ = ["NO_REASON", "Standing", "Verdict", "combine", "spread_of", "stand"]

NO_REASON = "no reason is given"
Verdict = Literal["reproduced", "exceeded", "differs", "measured", "not measured"]


class Standing(msgspec.Struct, kw_only=True):
    """One claim and ours.

    Parameters
    ----------
    values : list of float
        By seed; seeds without one are left out.
    mean, spread : float or None
        Mean and standard deviation over seeds (0 for a single one).
    difference : float or None
        From ours to the nearest bound of the paper's range, in the claim's unit: 0 within.
    verdict : Verdict
        ``reproduced``: the mean lies within the range, widened by the tolerance; ``exceeded``: beyond
        it on the better side; ``differs``: beyond it on the other; ``measured``: there is no number
        to compare with.
    """

    claim: Claim
    values: list[float]
    mean: float | None
    spread: float | None
    difference: float | None
    verdict: Verdict

    @property
    def reason(self) -> str:
        """What to print as the reason: why it could not be measured, or why it differs."""
        if self.verdict == "not measured":
            return self.claim.unmeasured or "gave no value here"
        if self.verdict in ("differs", "exceeded"):
            return self.claim.differs or NO_REASON
        return "" if self.verdict == "reproduced" else self.claim.differs


def stand(claim: Claim, measured: Sequence[Measured]) -> Standing:
    """Put one claim beside what the seeds gave."""
    found = [m.values.get(claim.key) for m in measured]
    values = [float(v) for v in found if v is not None and math.isfinite(v)]
    if claim.unmeasured or not values:
        return Standing(
            claim=claim, values=[], mean=None, spread=None, difference=None, verdict="not measured"
        )
    mean, spread = spread_of(values)
    low = -math.inf if claim.low is None else claim.low
    high = math.inf if claim.high is None else claim.high
    if claim.low is None and claim.high is None:
        return Standing(
            claim=claim, values=values, mean=mean, spread=spread, difference=None, verdict="measured"
        )
    gap = min(mean - low, 0.0) or max(mean - high, 0.0)
    slack = claim.tolerance * abs(claim.low if gap < 0 else claim.high or 0.0) if gap else 0.0  # type: ignore[arg-type]
    verdict: Verdict = "reproduced"
    if abs(gap) > slack:
        verdict = "exceeded" if claim.better == ("high" if gap > 0 else "low") else "differs"
    return Standing(claim=claim, values=values, mean=mean, spread=spread, difference=gap, verdict=verdict)


def spread_of(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; the latter is 0 for one value.

    >>> spread_of([1.0, 3.0]), spread_of([2.0])
    ((2.0, 1.4142135623730951), (2.0, 0.0))
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def combine(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """One table of several seeds': text cells name the row, numbers become ``(mean, spread)``.

    Rows come in the order in which they first appear; a number that some seeds lack is that of
    the others, and None if all do.
    """
    cells: dict[tuple[tuple[str, str], ...], dict[str, list[float]]] = {}
    for table in tables:
        for row in table.rows:
            key = tuple((k, v) for k, v in row.items() if isinstance(v, str))
            own = cells.setdefault(key, {})
            for column, value in row.items():
                if not isinstance(value, str):
                    numbers = own.setdefault(column, [])
                    if value is not None and math.isfinite(value):
                        numbers.append(float(value))
    columns = list(dict.fromkeys(c for table in tables for row in table.rows for c in row))
    out = []
    for key, of_row in cells.items():
        text = dict(key)
        merged: dict[str, Any] = {}
        for column in columns:
            if column in text:
                merged[column] = text[column]
            else:
                found = of_row.get(column, [])
                merged[column] = spread_of(found) if found else None
        out.append(merged)
    return out
