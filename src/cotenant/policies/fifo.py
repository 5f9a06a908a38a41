"""First come, first served, on whole devices.

Card: ``docs/policies/fifo.md``.
"""

from __future__ import annotations

from cotenant.model.params import Params
from cotenant.model.plan import EMPTY, Hold, Plan, Start, Why
from cotenant.model.records import JobRecord
from cotenant.model.view import View
from cotenant.policies.fit import order, over_limit, place_whole
from cotenant.policies.lines import RoomLines

__all__ = ["Fifo"]

_WHY = Why("head-of-queue")
_PASSES = Why("first-that-fits")


class Fifo(Params):
    """Order of priority, then submission, on whole devices.

    Parameters
    ----------
    head_of_line : bool
        True: strict order, nobody overtakes the head; until it fits, nobody starts
        (head-of-line blocking). False: the first job in order that fits starts, so small
        jobs pass a large one, perhaps for ever.
    """

    def __init__(self, *, head_of_line: bool = True) -> None:
        self.head_of_line = head_of_line

    def decide(self, view: View) -> Plan:
        """Start the first job that may."""
        return self._strict(view) if self.head_of_line else self._first_fit(view)

    @staticmethod
    def _strict(view: View) -> Plan:
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
            if line.tenant and over_limit(view, record):
                continue
            found = place_whole(view, record, _PASSES)
            if found is not None:
                best, start = record, found
            elif record.hold is None:
                blocked.append(Hold(record.id, *view.why_not(record)))
        if start is not None:
            return Plan((start,), again=True)
        lines.looked()
        return Plan(tuple(sorted(blocked, key=_id))) if blocked else EMPTY


def _id(hold: Hold) -> int:
    return hold.id
