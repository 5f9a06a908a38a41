"""Interference-aware sharing over a forecast: pairs and larger sets.

Card: ``docs/policies/colocate.md``.
"""

from __future__ import annotations

from typing import ClassVar

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Plan
from cotenant.model.view import View
from cotenant.policies.company.candidates import Candidates
from cotenant.policies.company.verdicts import Bounds
from cotenant.policies.queues.circles import circle_of
from cotenant.policies.space.overdue import serve_overdue

__all__ = ["Colocate"]


class Colocate(Params):
    """Put a waiting job alone if devices are free, else beside the neighbours it suits best.

    A set is acceptable if the forecast says that even at the low end of its interval (or
    nearer to the mean, see ``doubt``) no member falls below ``min_speed``, and that at least ``min_gain`` of throughput is gained,
    a gang's loss counted on all its devices. Among acceptable sets, the largest gain wins. Jobs are tried oldest first;
    one that does not fit blocks nobody. A job that waits longer than ``patience_s`` gets a
    node reserved, where nobody else may start.

    Parameters
    ----------
    min_speed : float
        Least predicted speed of any member beside the others, relative to alone.
    min_gain : float
        Least predicted gain of total normalised throughput by one more member.
    guest_s : float
        Jobs predicted to be shorter than this need only ``min_speed``, not ``min_gain``: they
        delay their hosts little. 0 knows no guests.
    patience_s : float
        Wait after which a reservation is made; 0 makes none.
    doubt : float
        How much of the forecast's doubt counts against a set: 1 the low end of the interval,
        0 its mean.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_service: ClassVar[bool] = False

    def __init__(
        self,
        *,
        min_speed: float = 0.2,
        min_gain: float = 0.1,
        guest_s: float = 3600.0,
        patience_s: float = 0.0,
        doubt: float = 1.0,
    ) -> None:
        self.min_speed = min_speed
        self.min_gain = min_gain
        self.guest_s = guest_s
        self.patience_s = patience_s
        self.doubt = doubt
        self._bounds = Bounds(min_speed, min_gain, guest_s, doubt)

    def decide(self, view: View) -> Plan:
        """Start the oldest waiting job that fits somewhere."""
        index = view.index(Candidates, self._bounds)
        if index.stale():
            # Verdicts are out of date: everything is a candidate again.
            view.drop_indexes()
            index = view.index(Candidates, self._bounds)
        wake = None
        if self.patience_s and len(view.queue):
            plan, wake = serve_overdue(view, self.patience_s)
            if plan is not None:
                return plan
        if not index.heap:
            return EMPTY if wake is None else Plan(wake_at_s=wake)
        holds: list[Decision] = []
        while True:
            candidate = index.next()
            if candidate is None:
                return Plan(tuple(holds), wake_at_s=wake) if holds or wake is not None else EMPTY
            record, alone, beside = candidate
            start = index.alone(record) if alone else None
            if start is None and beside:
                start = index.together(record)
            if start is not None:
                holds.append(start)
                return Plan(tuple(holds), wake_at_s=wake, again=True)
            index.exhausted()
            if record.hold is None and (beside or circle_of(record.job) is None):
                holds.append(index.hold(record))
