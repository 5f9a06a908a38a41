"""Preemptive shortest remaining time first, by predicted lengths.

Card: ``docs/policies/srtf.md``.
"""

from __future__ import annotations

import math
from typing import ClassVar

from cotenant.model.params import Params, check_amounts
from cotenant.model.plan import Plan
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.preemption.preempt import advance
from cotenant.policies.preemption.ranking import Ranking

__all__ = ["Srtf"]

_GRACE_S = 1.0
"""A job is taken to have outlived its prediction this long after it: not at the very end."""


class Srtf(Params):
    """The waiting job with least predicted work goes first; running jobs that end later give way.

    Parameters
    ----------
    margin_s : float
        A job is stopped only if its predicted end is later than the newcomer's would be by
        more than this. It pays for the suspension and bounds thrashing.

    Notes
    -----
    Schrage (Operations Research 16, 1968) shows that the rule minimises mean completion time on one
    server at no price of preemption and known lengths. Jobs of unknown length go last and
    give way to all others.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def __init__(self, *, margin_s: float = 600.0) -> None:
        check_amounts(margin_s=margin_s)
        self.margin_s = margin_s
        self._ranking = _ByRemaining(margin_s)

    def decide(self, view: View) -> Plan:
        """Start or stop one job, and ask again."""
        return advance(view, self._ranking)


class _ByRemaining(Ranking):
    """Badness is the predicted end: it stands still while a job runs, so order needs no refresh."""

    by_speed = True

    def __init__(self, margin_s: float) -> None:
        self._margin_s = margin_s

    def rank(self, view: View, record: JobRecord) -> float:
        # What waits makes no progress: the time it is asked at plays no part.
        return record.remaining_at(record.rated_s)

    def badness(self, view: View, record: JobRecord) -> tuple[float, float]:
        predicted, rate, done = record.predicted_s, record.rate, record.work_s
        if predicted <= 0.0:
            return math.inf, math.inf
        now, since = view.now, record.rated_s
        # A prediction outlived is doubled, as in ``remaining_at``.
        if rate > 0.0:
            late = done + rate * (now - since - _GRACE_S)
            while predicted <= late:
                predicted *= 2.0
            end = since + (predicted - done) / rate
            turn = end + _GRACE_S
            return end, turn if turn > now else math.nextafter(now, math.inf)
        # Loading or saving: as if it went on now.
        while predicted <= done:
            predicted *= 2.0
        speed, layout = 1.0, view.layout
        if record.place is not None and record.place.devices:
            speed = layout.types[layout.device_type[record.place.devices[0]]].speed
        return since + (predicted - done) / speed, math.inf

    def bound(self, view: View, record: JobRecord, speed: float) -> float:
        return view.now + record.remaining_at(record.rated_s) / speed + self._margin_s

    def may_stop(self, view: View, victim: JobRecord, record: JobRecord) -> bool:
        # Also by work, whatever the speeds of both: then the victim can never stop the job in turn.
        return victim.remaining_at(view.now) > record.remaining_at(record.rated_s)
