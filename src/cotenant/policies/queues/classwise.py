"""Queue order over demand classes: the first waiting job that fits somewhere starts.

What is blocked is a demand, never those behind it who ask for something else. There is no
reservation, so a large job may be overtaken as long as smaller ones keep coming.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

from cotenant.errors import PolicyError
from cotenant.model.params import Params
from cotenant.model.placement import WHOLE, Share
from cotenant.model.plan import EMPTY, Hold, Plan, Reason, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.queues.demands import Demands, Family

__all__ = ["Classwise", "Offer"]


class Offer(NamedTuple):
    """Where a job could start now."""

    devices: tuple[int, ...]
    share: Share = WHOLE
    why: Why = Why()
    node: int = -1


class Classwise(Params, abc.ABC):
    """Base of policies that take jobs in queue order and let no demand block another."""

    uses_predictions: ClassVar[bool] = False
    uses_service: ClassVar[bool] = False

    @abc.abstractmethod
    def fitting(self, view: View, family: Family) -> JobRecord | None:
        """The first job of a family that fits somewhere now; None if none does."""

    @abc.abstractmethod
    def offer(self, view: View, family: Family, record: JobRecord) -> Offer | None:
        """Where to start a job of which ``fitting`` said that it fits."""

    @abc.abstractmethod
    def blocked(self, view: View, family: Family, record: JobRecord) -> tuple[Reason, dict[str, Any]]:
        """Why the first job of a family waits, with the numbers."""

    def decide(self, view: View) -> Plan:
        """Start the first job in queue order that fits; say of each blocked demand why."""
        demands = view.index(Demands)
        best: JobRecord | None = None
        chosen: Family | None = None
        if demands.open:
            limited = bool(view.books.limits)
            for family in tuple(demands.open):
                if limited and view.limit_refusal(family.head()) is not None:
                    demands.settle(family)
                    continue
                record = self.fitting(view, family)
                if record is None:
                    demands.settle(family)
                elif best is None or record.key < best.key:
                    best, chosen = record, family
        if best is None or chosen is None:
            return self._tell(view, demands) if demands.untold else EMPTY
        offer = self.offer(view, chosen, best)
        if offer is None:
            raise PolicyError(f"{type(self).__name__}: job {best.id} fits, but no place is offered")
        return Plan((Start(best.id, offer.devices, offer.share, offer.why, offer.node),), again=True)

    def _tell(self, view: View, demands: Demands) -> Plan:
        """Why the first job of each demand that was found blocked waits, once for each job."""
        holds = []
        for family in demands.untold:
            if not family:
                continue
            head = family.head()
            if head.hold is None:
                refusal = view.limit_refusal(head) if view.books.limits else None
                told = (refusal.reason, refusal.facts) if refusal else self.blocked(view, family, head)
                holds.append(Hold(head.id, *told))
        demands.untold.clear()
        if not holds:
            return EMPTY
        return Plan(tuple(sorted(holds, key=lambda h: h.id)))
