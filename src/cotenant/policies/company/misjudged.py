"""Sets of jobs whose measured speeds lie outside of what was predicted, and that do not pay: found, and parted."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from cotenant.model.jobs import Job
from cotenant.model.plan import Plan
from cotenant.model.ports import Interval
from cotenant.model.records import JobRecord, Status
from cotenant.model.view import View
from cotenant.policies.company.crowded import parted
from cotenant.policies.space.fit import Speeds

__all__ = ["Misjudged"]

_INF = math.inf
_SAME = 0.05
"""Live, a speed is told once it differs by so much from what was told, so a nearer one may be the predicted one."""


class Misjudged:
    """What is wrong with the companies of this instant; made anew for each.

    A set is misjudged if somebody in it is slower than the low end of what is predicted, and all together,
    as measured, gain less than ``min_gain`` by each member after the first: it would not have been formed. Of
    whom no speed was measured beside others is taken to fall as short as the slowest.

    Parameters
    ----------
    view : View
        With ``settings.undo_after_s``: for so long a set has to be misjudged before it is parted, as who starts
        disturbs its neighbours more than it will.
    min_gain : float
    """

    def __init__(self, view: View, min_gain: float) -> None:
        self._view, self._speeds, self._min_gain = view, Speeds(view), min_gain
        memo = view.memo or {}
        before: dict[str, list[float]] = memo.get("outside", {})
        self._sets: dict[str, tuple[list[JobRecord], JobRecord, dict[str, object]]] = {}
        self._noted: dict[str, float] = {}
        for device in sorted({d for r in view.running.values() if r.place for d in r.place.devices}):
            ids = view.residents(device)
            if len(ids) > 1 and (found := self._judged([view.running[j] for j in sorted(ids)])) is not None:
                key = "-".join(map(str, sorted(ids)))
                self._sets[key] = found
                self._noted[key] = float(before.get(key, view.now))  # type: ignore[arg-type]

    def _judged(self, here: list[JobRecord]) -> tuple[list[JobRecord], JobRecord, dict[str, object]] | None:
        view = self._view
        if any(
            r.status != Status.RUNNING
            or r.id in view.ledger.leaving
            or r.place is None
            or r.place.share.mode != "spatial"
            or view.now < r.rated_s
            or not r.rate > 0.0
            for r in here
        ):
            return None
        told = [self._foretold(r) for r in here]
        speeds = [self._speed(r) for r in here]
        short = [s / i.mean for s, i in zip(speeds, told, strict=True)]
        worst = min(range(len(here)), key=short.__getitem__)
        if speeds[worst] >= told[worst].low:
            return None
        total = sum(
            s if _measured(r, s, i) else i.mean * short[worst]
            for r, s, i in zip(here, speeds, told, strict=True)
        )
        if total >= 1.0 + self._min_gain * (len(here) - 1):
            return None
        it = told[worst]
        facts: dict[str, object] = {
            "slowest": here[worst].job.name,
            "speed": round(speeds[worst], 3),
            "predicted": round(it.mean, 3),
            "predicted_low": round(it.low, 3),
            "predicted_high": round(it.high, 3),
        }
        return here, here[worst], facts

    def _speed(self, record: JobRecord) -> float:
        """Relative to alone on its devices."""
        view, place = self._view, record.place
        assert place is not None  # noqa: S101 - asked before
        return record.rate / self._speeds.of(record.job.model, view.layout.device_type[place.devices[0]])

    def _foretold(self, record: JobRecord) -> Interval:
        """What is predicted of it beside these; on several devices, where least is."""
        view, place = self._view, record.place
        assert place is not None  # noqa: S101 - asked before
        found = []
        for device in place.devices:
            others = [view.running[j].job.model for j in view.residents(device) if j != record.id]
            kind = view.layout.types[view.layout.device_type[device]].name
            found.append(view.forecast.co_speed(record.job.model, tuple(sorted(others)), kind))
        return min(found, key=lambda interval: interval.low)

    def undo(self, label: Callable[[Job], str]) -> Plan | None:
        """Part the first set that was misjudged for long enough; None if there is none, or nobody may be stopped."""
        for key, since in self._noted.items():
            if self._view.now - since >= self._view.settings.undo_after_s:
                plan = parted(self._view, *self._sets[key], "outside-prediction", label)
                if plan is not None:
                    return plan
        return None

    def noted(self, plan: Plan) -> Plan:
        """The plan, with what is to be remembered, and when to look again."""
        memo = plan.memo or self._view.memo or {}
        waits = self._view.settings.undo_after_s
        due_s = [since + waits for since in self._noted.values() if since + waits > self._view.now]
        wake_s = min(due_s, default=_INF)
        if wake_s < (plan.wake_at_s or _INF):
            plan = msgspec.structs.replace(plan, wake_at_s=wake_s)
        if memo.get("outside", {}) == self._noted:
            return plan
        return msgspec.structs.replace(plan, memo={**memo, "outside": self._noted})


def _measured(record: JobRecord, speed: float, foretold: Interval) -> bool:
    """Whether this speed was measured beside others, or is so different from the predicted one that it must be."""
    sample = record.sample
    return abs(speed - foretold.mean) > _SAME * foretold.mean or (
        sample is not None and sample.co_speed > 0.0
    )
