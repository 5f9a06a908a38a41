"""First come, first served, on whole devices.

Card: ``docs/policies/fifo.md``.
"""

from __future__ import annotations

import operator
from typing import ClassVar

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Decision, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.queues.heads import EligibleHead, limit_holds
from cotenant.policies.queues.lines import RoomLines
from cotenant.policies.space.fit import order, place_whole

__all__ = ["Fifo"]

_WHY = Why("head-of-queue")
_PASSES = Why("first-that-fits")


class Fifo(Params):
    """Order of priority, then submission, on whole devices.

    Parameters
    ----------
    head_of_line : bool
        True: strict order, nobody overtakes the head; until it fits, nobody starts
        (head-of-line blocking); only a job that its tenant's ceiling holds back is passed
        over. False: the first job in order that fits starts, so small
        jobs pass a large one, perhaps for ever.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = False
    uses_service: ClassVar[bool] = False

    def __init__(self, *, head_of_line: bool = True) -> None:
        self.head_of_line = head_of_line

    def decide(self, view: View) -> Plan:
        """Start the first job that may."""
        return self._strict(view) if self.head_of_line else self._first_fit(view)

    @staticmethod
    def _strict(view: View) -> Plan:
        holds: tuple[Decision, ...] = ()
        if view.books.limits:
            heads = view.index(EligibleHead)
            holds, head = limit_holds(view, heads), heads.head()
        else:
            head = view.queue.head()
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

    @staticmethod
    def _first_fit(view: View) -> Plan:
        lines = view.index(RoomLines)
        best: JobRecord | None = None
        start: Start | None = None
        blocked: list[Hold] = []
        for line in lines.to_look_at():
            record = line.first()
            if best is not None and order(record) > order(best):
                continue
            refusal = view.limit_refusal(record) if line.tenant else None
            found = place_whole(view, record, _PASSES) if refusal is None else None
            if found is not None:
                best, start = record, found
            elif record.hold is None:
                why = (refusal.reason, refusal.facts) if refusal else view.why_not(record)
                blocked.append(Hold(record.id, *why))
        if start is not None:
            return Plan((start,), again=True)
        lines.looked()
        return Plan(tuple(sorted(blocked, key=operator.attrgetter("id")))) if blocked else EMPTY
