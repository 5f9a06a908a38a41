"""HiveD: each tenant's quota is always there in one piece, as buddy cells; others use what is idle (OSDI'20).

Card: ``docs/policies/hived.md``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar

from cotenant.model.params import Params
from cotenant.model.plan import Decision, Hold, Plan, Reason, Reserve, Start, Stop, Why
from cotenant.model.records import JobRecord, Status
from cotenant.model.rules import check_stop
from cotenant.model.view import View
from cotenant.policies.published.cells import Parts
from cotenant.policies.published.hived_places import Holding, Spot, find_spot
from cotenant.policies.published.hived_queues import Heads, IdleLines
from cotenant.policies.space.fit import place_whole

__all__ = ["Hived"]

_CELL = Why("own-cell")
_EMPTIED = Why("own-cell-emptied")
_IDLE = Why("idle-cells")
_BROKEN = Why("reservation-broken")


class Hived(Params):
    """Guaranteed jobs run in their tenant's own cells; opportunistic ones on what is idle, until it is needed.

    Parameters
    ----------
    borrow : bool
        Whether a guaranteed job for which its tenant's cells have no room may use idle devices like an
        opportunistic one.

    References
    ----------
    H. Zhao and others, "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020,
    usenix.org/conference/osdi20/presentation/zhao-hanyu.
    """

    idle_without_queue: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = False
    uses_service: ClassVar[bool] = False
    made_for: ClassVar[str] = "tenants"

    def __init__(self, *, borrow: bool = True) -> None:
        self.borrow = borrow

    def decide(self, view: View) -> Plan:
        """Honour what is kept, then serve the head of each part, then fill what is idle."""
        parts = view.index(Parts)
        heads, lines = view.index(Heads), view.index(IdleLines, self.borrow)
        step, wake = self._kept(view)
        if step is not None:
            return step
        holds: list[Decision] = []
        waiting = [found for number in range(len(parts.cells)) if (found := heads.of(number))]
        holding = Holding(view, parts) if waiting else None
        for records in waiting:
            record = next((r for r in records if not _at_ceiling(view, r, holds)), None)
            if record is None or record.reserved or holding is None:
                continue
            spot = find_spot(view, parts, holding, record)
            if spot is not None:
                return self._enter(view, holding, record, spot)
            if record.hold is None and not lines.takes(record):
                holds.append(_cells_full(parts, record))
        start = self._fill(view, lines, holds)
        if start is not None:
            return self._started(view, parts, start)
        return Plan(tuple(sorted(holds, key=attrgetter("id"))), wake_at_s=wake)

    # -- own cells -------------------------------------------------------------------------

    @staticmethod
    def _enter(view: View, holding: Holding, record: JobRecord, spot: Spot) -> Plan:
        """Start a job in its cell; or keep the devices, and stop those who were only there meanwhile."""
        memo = holding.memo(record, spot)
        if not spot.leaving:
            return Plan((Start(record.id, spot.devices, why=_CELL),), memo, again=True)
        stops = _stops(view, record, list(spot.leaving))
        return Plan((Reserve(record.id, spot.devices, _CELL), *stops), memo, again=True)

    @staticmethod
    def _kept(view: View) -> tuple[Plan | None, float | None]:
        """For whom devices are kept: start, stop who is still there, or give up; else when to look again."""
        ledger, wake = view.ledger, None
        for job_id in sorted(set(ledger.reserved.values())):
            record = view.records[job_id]
            devices = record.reserved
            sound = all(ledger.usable[d] and not ledger.draining[view.layout.device_node[d]] for d in devices)
            if not sound or (view.books.limits and view.limit_refusal(record) is not None):
                return Plan((Reserve(job_id, (), _BROKEN),), again=True), None
            there = sorted({j for d in devices for j in ledger.residents[d]})
            if not there:
                if view.refusal(record, devices) is None:
                    return Plan((Start(job_id, devices, why=_EMPTIED),), again=True), None
                if all(r.status == Status.RUNNING for r in view.running.values()):
                    # Host memory or cores are not there, and nobody is about to give any back.
                    return Plan((Reserve(job_id, (), _BROKEN),), again=True), None
                continue
            stops = _stops(view, record, [view.running[j] for j in there])
            if stops:
                return Plan(stops, again=True), None
            for resident in there:
                if view.running[resident].status == Status.RUNNING:
                    at = view.running[resident].started_s + view.settings.min_quantum_s
                    wake = at if wake is None else min(wake, at)
        return None, wake

    # -- idle devices ------------------------------------------------------------------------

    @staticmethod
    def _fill(view: View, lines: IdleLines, holds: list[Decision]) -> Start | None:
        """The first job in queue order that fits on idle devices."""
        best: JobRecord | None = None
        start: Start | None = None
        told = {hold.id for hold in holds}
        for line in lines.to_look_at():
            record = line.first()
            if record.reserved or (best is not None and record.key > best.key):
                continue
            refusal = view.limit_refusal(record) if line.tenant else None
            found = place_whole(view, record, _IDLE) if refusal is None else None
            if found is not None:
                best, start = record, found
            elif record.hold is None and record.id not in told:
                why = (refusal.reason, refusal.facts) if refusal else view.why_not(record)
                holds.append(Hold(record.id, *why))
        if start is None:
            lines.looked()
        return start

    @staticmethod
    def _started(view: View, parts: Parts, start: Start) -> Plan:
        """Who starts on idle devices is in no cell, whatever is remembered of an earlier attempt."""
        memo: dict[str, Any] | None = None
        if view.memo is not None and any(row[0] == start.id for row in view.memo["jobs"]):
            memo = Holding(view, parts).memo(without=start.id)
        return Plan((start,), memo, again=True)


def _stops(view: View, record: JobRecord, there: list[JobRecord]) -> tuple[Decision, ...]:
    """Stops of those that can be stopped now; who cannot save loses the work since its last checkpoint."""
    found: list[Decision] = []
    for other in there:
        saves = other.job.suspendable
        if other.status == Status.RUNNING and check_stop(view.books, other, saves, view.now) is None:
            price = round(view.settings.reload_s(other.job), 1) if saves else None
            found.append(Stop(other.id, saves, record.id, Why("cell-needed", {"price_s": price})))
    return tuple(found)


def _at_ceiling(view: View, record: JobRecord, holds: list[Decision]) -> bool:
    """Whether a job's tenant may not have more, which blocks nobody else; says so once."""
    refusal = view.limit_refusal(record) if view.books.limits else None
    if refusal is not None and record.hold is None:
        holds.append(Hold(record.id, refusal.reason, refusal.facts))
    return refusal is not None


def _cells_full(parts: Parts, record: JobRecord) -> Hold:
    cells = parts.cells[parts.of(record.job.tenant)]
    facts = {"needs_gpus": record.shape.gpus, "cells_gpus": sum(size for _, size in cells)}
    return Hold(record.id, Reason.NO_CAPACITY, facts)
