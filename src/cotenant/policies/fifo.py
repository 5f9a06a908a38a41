"""First come, first served, on whole devices.

Card: ``docs/policies/fifo.md``.
"""

from __future__ import annotations

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Hold, Plan, Start, Why
from cotenant.model.view import View

__all__ = ["Fifo"]

_WHY = Why("head-of-queue")


class Fifo(Params):
    """Strict order of priority, then submission; nobody overtakes the head.

    Every job gets whole devices. The head starts as soon as it fits; until then nobody does
    (head-of-line blocking).
    """

    def decide(self, view: View) -> Plan:
        """Start the head if it fits."""
        head = view.head()
        if head is None:
            return EMPTY
        if view.books.limits:
            refusal = view.limit_refusal(head)
            if refusal:
                return Plan((Hold(head.id, refusal.reason, refusal.facts),))
        if head.shape.gpus == 0:
            node = view.find_node(head)
            if node >= 0:
                return Plan((Start(head.id, (), why=_WHY, node=node),), again=True)
        else:
            devices = view.find(head)
            if devices is not None:
                return Plan((Start(head.id, devices, why=_WHY),), again=True)
        if head.hold is not None:
            return EMPTY
        reason, facts = view.why_not(head)
        return Plan((Hold(head.id, reason, facts),))
