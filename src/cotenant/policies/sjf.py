"""Shortest predicted job first, without preemption, on whole devices.

Card: ``docs/policies/sjf.md``.
"""

from __future__ import annotations

from typing import ClassVar

from cotenant.model.params import Params, check_amounts
from cotenant.model.plan import EMPTY, Hold, Plan, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.queues.lines import Line, RoomLines
from cotenant.policies.space.fit import UNKNOWN_S, order, place_whole

__all__ = ["Sjf"]

_WHY = Why("shortest-predicted")
_SCORE = -1
"""The place of the one number by which lines are ordered here, whatever the device type."""


class _Shortest(RoomLines):
    """Lines that know their shortest job; a second of waiting counts for ``aging`` seconds of length."""

    def __init__(self, view: View, aging: float) -> None:
        self._aging = aging
        super().__init__(view)

    def hold_s(self, record: JobRecord, kind: int) -> float:
        """Predicted work left, less what waiting has earned, plus the same for everybody."""
        work_s = record.remaining_at(self._view.now)
        # All waiting jobs age at one speed, so the moment they began to wait orders them for good.
        return min(work_s + self._aging * record.queued_s, UNKNOWN_S)


class Sjf(Params):
    """Shortest predicted job first; a running job is never interrupted.

    Priority is not honoured. Ties go by queue order. Jobs of unknown length come last.

    Parameters
    ----------
    aging : float
        Seconds of predicted length forgiven for each second of waiting; 0 never forgives,
        and a long job may then wait for ever.
    skip_blocked : bool
        True: the shortest job that fits starts. False: while the shortest does not fit,
        nobody starts (head-of-line blocking).
    """

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def __init__(self, *, aging: float = 0.0, skip_blocked: bool = True) -> None:
        check_amounts(aging=aging)
        self.aging = aging
        self.skip_blocked = skip_blocked

    def decide(self, view: View) -> Plan:
        """Start the shortest job that may."""
        lines = view.index(_Shortest, self.aging)
        look_at = lines.to_look_at()
        if not look_at:
            return EMPTY
        if not self.skip_blocked:
            look_at = tuple(lines.active)
        first = [_shortest(line) for line in look_at]
        if len(first) > 1:
            first.sort(key=_rank)
        limits = view.books.limits
        blocked: list[Hold] = []
        for _, _, record in first:
            refusal = view.limit_refusal(record) if limits else None
            start = place_whole(view, record, _WHY) if refusal is None else None
            if start is not None:
                return Plan((*blocked, start), again=True)
            if record.hold is None:
                why = (refusal.reason, refusal.facts) if refusal else view.why_not(record)
                blocked.append(Hold(record.id, *why))
            if refusal is None and not self.skip_blocked:
                break
        lines.looked()
        return Plan(tuple(blocked)) if blocked else EMPTY


_Entry = tuple[float, int, JobRecord]


def _shortest(line: Line) -> _Entry:
    least = line.least(_SCORE)
    record = line.first_within(_SCORE, least) or line.first()
    return least, order(record), record


def _rank(entry: _Entry) -> tuple[float, int]:
    return entry[0], entry[1]
