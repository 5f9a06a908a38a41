"""First come, first served, on whole devices.

Card: ``docs/policies/fifo.md``.
"""

from __future__ import annotations

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Start, Why
from cotenant.model.view import View
from cotenant.policies.heads import EligibleHead, limit_holds

__all__ = ["Fifo"]

_WHY = Why("head-of-queue")


class Fifo(Params):
    """Strict order of priority, then submission; nobody overtakes the head.

    Every job gets whole devices. The head starts as soon as it fits; until then nobody does
    (head-of-line blocking). A job that its tenant's ceiling holds back is passed over: it blocks
    its own tenant, nobody else.
    """

    def decide(self, view: View) -> Plan:
        """Start the head if it fits."""
        holds: tuple[Decision, ...] = ()
        if view.books.limits:
            heads = view.index(EligibleHead)
            holds, head = limit_holds(view, heads), heads.head()
        else:
            head = view.head()
        if head is None:
            return Plan(holds) if holds else EMPTY
        if head.shape.gpus == 0:
            node = view.find_node(head)
            if node >= 0:
                return Plan((*holds, Start(head.id, (), why=_WHY, node=node)), again=True)
        else:
            devices = view.find(head)
            if devices is not None:
                return Plan((*holds, Start(head.id, devices, why=_WHY)), again=True)
        if head.hold is None:
            holds = (*holds, Hold(head.id, *view.why_not(head)))
        return Plan(holds) if holds else EMPTY
