"""One job at a time: what the artifact of EasyScale calls YARN-CS."""

from __future__ import annotations

from typing import ClassVar

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Hold, Plan, Reason, Start, Why
from cotenant.model.view import View

__all__ = ["OneAtATime"]

_WHY = Why("one-at-a-time")


class OneAtATime(Params):
    """First come, first served, on whole devices, and nobody starts while another runs."""

    idle_without_queue: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = False

    def decide(self, view: View) -> Plan:
        """Start the head of the queue in an empty cluster."""
        head = view.head()
        if head is None:
            return EMPTY
        devices = None if view.running else view.find(head)
        if devices is not None:
            return Plan((Start(head.id, devices, why=_WHY),))
        return Plan((Hold(head.id, Reason.BEHIND_HEAD),)) if head.hold is None else EMPTY
