"""What is left on devices that Tong keeps for a guarded job: used by whoever is gone in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from cotenant.model.plan import Decision, Why
from cotenant.model.records import JobRecord
from cotenant.policies.published.tong_guard import Beside
from cotenant.policies.queues.circles import share_of
from cotenant.policies.queues.points import Point

if TYPE_CHECKING:
    from cotenant.policies.published.tong_step import Step

__all__ = ["fragment"]


class _Hole(NamedTuple):
    """A device, who is on it, and until when others may be."""

    device: int
    stay: list[JobRecord]
    until_s: float


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
    """Of those that are in time the one that needs most memory, of these the first in order."""
    stay = [step.view.records[j] for j in step.view.ledger.residents[device]]
    best, chosen = None, None
    for point in step.points.living:
        size = point.shape.memory_bytes if point.circle is not None else math.inf
        if point.shape.gpus != 1 or (best is not None and -size > best[0]):
            continue
        for record in _in_time(step, guard, point, _Hole(device, stay, until_s)):
            entry = (-size, step.rank(record))
            if best is None or entry < best:
                best, chosen = entry, record
    return chosen


def _in_time(step: Step, guard: JobRecord, point: Point, hole: _Hole) -> list[JobRecord]:
    """The first jobs of a point's lines that may start on a device and are predicted to end in time."""
    device, stay, until_s = hole
    view = step.view
    kind, memory = view.layout.device_type[device], view.layout.device_memory[device]
    if kind not in point.shape.types or step.limited(point):
        return []
    speed = step.joins.speed(kind, step.boards.company_on(device), point.model)
    left_s = (until_s - view.now) * speed
    heads = [r for r in point.heads(left_s) if r is not guard and not r.reserved]
    found = [
        r
        for r in heads
        if view.settings.startup_s(r.job, r.suspended) * speed + r.remaining_at(r.rated_s) <= left_s
    ]
    if not found or (stay and not Beside(view, step.boards, step.joins, found[0], device)(stay)):
        return []
    return found if view.refusal(found[0], (device,), share_of(found[0].job, memory)) is None else []
