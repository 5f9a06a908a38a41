"""What is left on devices that Tong keeps for a guarded job: used by whoever is gone in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cotenant.model.plan import Decision, Why
from cotenant.model.records import JobRecord
from cotenant.policies.circles import share_of
from cotenant.policies.tong_guard import Beside

if TYPE_CHECKING:
    from cotenant.policies.tong_step import Step

__all__ = ["fragment"]


def fragment(step: Step, guard: JobRecord) -> tuple[Decision, ...]:
    """Start on a device kept for the guarded job: who uses most of it and is predicted to end before."""
    view, memo = step.view, step.memo
    if guard.reserved:
        return ()
    # Later than promised at first, nobody gets in between any more.
    until_s = min(step.ahead(guard)[0], memo["by_s"] if memo["by_s"] >= 0 else view.now)
    if not view.now < until_s < math.inf:
        return ()
    for device in memo["devices"]:
        if device not in view.ledger.reserved and len(view.ledger.residents[device]) < step.boards.most:
            record = _largest(step, guard, device, until_s)
            if record is not None:
                why = Why("fragment-before-reservation", {"reserved_from_s": round(until_s, 3)})
                return (step.start(record, (device,), why),)
    return ()


def _largest(step: Step, guard: JobRecord, device: int, until_s: float) -> JobRecord | None:
    stay = [step.view.records[j] for j in step.view.ledger.residents[device]]
    best, chosen = None, None
    for point in step.points.living:
        if point.shape.gpus != 1 or step.limited(point.head()):
            continue
        size = point.shape.memory_bytes if point.circle is not None else math.inf
        for record in point.heads():
            if record is guard or record.reserved or not _ends_by(step, record, device, stay, until_s):
                continue
            entry = (-size, step.rank(record))
            if best is None or entry < best:
                best, chosen = entry, record
    return chosen


def _ends_by(step: Step, record: JobRecord, device: int, stay: list[JobRecord], until_s: float) -> bool:
    """Whether a job has room on a device, may start there, and is predicted to end in time."""
    view, kind = step.view, step.view.layout.device_type[device]
    if kind not in record.shape.types:
        return False
    left = record.remaining_at(record.rated_s)
    speed = step.joins.speed(kind, step.boards.company_on(device), record.job.model)
    if view.now + view.settings.startup_s(record.job, record.suspended) + left / speed > until_s:
        return False
    if stay and not Beside(view, step.boards, step.joins, record, device)(stay):
        return False
    share = share_of(record.job, view.layout.device_memory[device])
    return view.refusal(record, (device,), share) is None
